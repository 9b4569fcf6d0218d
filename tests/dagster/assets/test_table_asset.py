"""Materializing a stream's asset: which dates get events, when, and what a refusal becomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill  # as the UI queries it
from dagster._core.loader import LoadingContextForTest

from kdi_assets.components import asset_checks, table_run
from kdi_assets.components.names import check_key, dates, forget_starts, letters_key, table_key, table_start, topic_key
from kdi_assets.components.table_asset import Audit, table_asset
from kdi_assets.components.table_run import REQUESTED_TAG
from kdi_assets.documents.model.stream import CheckName, DateWindow, Stream
from kdi_assets.runtime.errors import CredentialsMissing
from kdi_assets.streams.audit.audit import AuditReport
from kdi_assets.streams.drain.report import Commit, DrainReport
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.streams.replay.report import MessagesGone, Missing
from tests.dagster.fakes import (
    ComesBack,
    MustDecide,
    ScriptedDrain,
    ScriptedReplay,
    a_commit,
    a_stream,
    audited,
    events,
    failure,
    latest_check,
    materialize,
    no_audit,
    observed,
    retry,
    run,
    today,
    will_retry,
    yesterday,
)

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("lake_in_environment")]

OLD, STREAM = date(2021, 3, 4), a_stream()
AUDIT: CheckName = "every_offset_accounted_for"


def materialized(instance: DagsterInstance, stream: Stream) -> set[str]:
    return instance.get_materialized_partitions(table_key(stream))


def at_the_end_of_yesterday() -> datetime:
    return datetime.combine(yesterday(), time(23, 59, 59), UTC)


def test_every_touched_date_is_materialized_and_no_other(instance: DagsterInstance) -> None:
    result = run(instance, STREAM, ScriptedDrain([a_commit(1, {OLD: 3, yesterday(): 2})]))

    assert result.success
    assert materialized(instance, STREAM) == {OLD.isoformat(), yesterday().isoformat()}
    keys = [today().isoformat(), yesterday().isoformat(), OLD.isoformat()]
    status = instance.get_status_by_partition(table_key(STREAM), keys, dates(STREAM)) or {}
    assert [s.value if s else None for s in (status[key] for key in keys)] == [None, "MATERIALIZED", "MATERIALIZED"]


@pytest.mark.parametrize("complete", [True, False])
def test_the_check_is_made_after_a_drain_that_found_nothing_and_fails_the_run_if_it_does(
    instance: DagsterInstance, complete: bool
) -> None:
    result = run(instance, a_stream(), ScriptedDrain(), audit=audited(complete=complete))

    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.check_name) == (complete, "every_offset_accounted_for")
    assert (result.success, evaluation.description) == (complete, AuditReport(complete=complete).line())


@pytest.mark.parametrize("day", [None, OLD], ids=["a drain", "a replay"])
def test_what_finds_nothing_materializes_nothing_and_is_still_seen(instance: DagsterInstance, day: date | None) -> None:
    assert run(instance, STREAM, ScriptedDrain(), day=day).success

    assert materialized(instance, STREAM) == set()
    seen = observed(instance, table_key(STREAM))
    if day:
        assert seen["replayed_messages"] == 6
        return
    assert (seen["drained_rows"], seen["backlog_before"], seen["cpu_seconds"]) == (0, 300, 0.5)
    assert (seen["lag_seconds_after"], "lag_seconds_before" in seen) == (0, False), "unknown is not zero"


def test_an_event_says_what_the_commit_did_and_carries_the_table_version(instance: DagsterInstance) -> None:
    unknown = FieldCounts(40, {f"k{n:02}": 40 - n for n in range(12)}, others=3)
    fields = {"tombstones": 1, "filtered": 6, "unknown": unknown, "misfits": FieldCounts(1, {"id": 1})}
    run(instance, STREAM, ScriptedDrain([a_commit(7, {OLD: 3, yesterday(): 2}, dead_letters=4, **fields)]))

    of_old = dg.AssetRecordsFilter(asset_key=table_key(STREAM), asset_partitions=[OLD.isoformat()])
    (record,) = instance.fetch_materializations(of_old, limit=10).records
    event = record.asset_materialization
    assert event is not None
    assert (event.tags or {})["dagster/data_version"] == "7"
    said = {name: value.value for name, value in event.metadata.items()}
    assert said["rows_added"] == 3
    assert said["commit"] == "5 rows on 2 dates, 4 dead letters, 1 tombstone, 6 filtered messages, 1.0 KiB"
    assert said["topic"] == topic_key(STREAM.cluster, STREAM.topic)
    assert said["offset_ranges"] == {"web_requests/0": "[700, 705)"}
    assert said["delta_version"] == 7
    named = {f"k{n:02}": 40 - n for n in range(10)}
    assert said["unknown_fields"] == {"messages": 40, "by_field": named, "others_at_least": 5}
    assert said["misfits"] == {"messages": 1, "by_field": {"id": 1}}
    assert "attempt_id IN ('attempt-7')" in str(said["dead_letters_query"])
    assert said["dead_letters_table"] == letters_key(STREAM)


def test_commits_before_a_failure_stay_told_and_a_transient_one_is_retried(instance: DagsterInstance) -> None:
    result = run(instance, STREAM, ScriptedDrain([a_commit(1, {OLD: 3})], ending=ComesBack(cluster="main")))

    assert not result.success and will_retry(instance, result)
    assert materialized(instance, STREAM) == {OLD.isoformat()}


def test_rows_of_dates_that_dagster_does_not_have_are_said_and_not_stored(instance: DagsterInstance) -> None:
    stream = a_stream(date_window=DateWindow(start=date(2025, 1, 1)))

    result = run(instance, stream, ScriptedDrain([a_commit(1, {OLD: 3, yesterday(): 1})]))

    assert materialized(instance, stream) == {yesterday().isoformat()}
    assert any("3 rows have dates outside the window" in e.user_message for e in instance.all_logs(result.run_id))


def test_partitions_begin_with_the_tables_oldest_date_and_a_week_ago_before_there_is_a_table(
    lake_in_environment: str,
) -> None:
    auto = DateWindow(start="auto")
    stream, empty, ahead = (a_stream(f"bronze/{name}", date_window=auto) for name in ("drained", "empty", "ahead"))
    (Path(ahead.table_uri(lake_in_environment)) / f"date={today() + timedelta(days=2)}").mkdir(parents=True)
    for folder in ("date=2025-03-02", "date=2025-02-28", "date=__HIVE_DEFAULT_PARTITION__", "_delta_log", "date=x"):
        (Path(stream.table_uri(lake_in_environment)) / folder).mkdir(parents=True)

    assert dates(stream).get_first_partition_key() == "2025-02-28"
    assert dates(empty).get_first_partition_key() == str(today() - timedelta(days=7))
    assert dates(ahead).get_first_partition_key() == str(today()), "runs have today's date"


def test_late_rows_before_the_first_partition_are_stored_and_shown_after_the_next_load(
    instance: DagsterInstance, lake_in_environment: str
) -> None:
    """The window of the rows is that of a stream without `start`; only what Dagster shows begins later."""
    stream, outside = a_stream(date_window=DateWindow(start="auto")), date(2019, 12, 31)

    result = run(instance, stream, ScriptedDrain([a_commit(1, {outside: 1, OLD: 3, yesterday(): 1})]))
    shown = dates(stream)
    (Path(stream.table_uri(lake_in_environment)) / f"date={OLD}").mkdir(parents=True)
    forget_starts()  # a new process

    assert set(events(instance, table_key(stream))) == {str(OLD), str(yesterday())}
    texts = [e.user_message for e in instance.all_logs(result.run_id)]
    assert any("1 date before" in text and "once the code location is loaded again" in text for text in texts)
    assert any("1 rows have dates outside the window" in text for text in texts)
    assert not shown.has_partition_key(str(OLD)) and dates(stream).has_partition_key(str(OLD))


def test_a_date_ahead_drains_because_the_dialog_offers_it_as_the_latest(instance: DagsterInstance) -> None:
    drain = ScriptedDrain([a_commit(1, {today(): 1})])

    result = run(instance, STREAM, drain, day=today() + timedelta(days=2))

    assert result.success
    assert materialized(instance, STREAM) == {today().isoformat()}


def test_an_older_date_is_replayed_and_every_date_that_lost_or_got_rows_is_told(instance: DagsterInstance) -> None:
    drain = ScriptedDrain()
    before = OLD - timedelta(days=1)
    commit = a_commit(4, {OLD: 3, yesterday(): 2}, removed_by_date={OLD: 5, before: 1}, letters_by_date={OLD: 1})
    replay = ScriptedReplay(commit)

    result = run(instance, STREAM, drain, day=OLD, replay=replay)

    assert result.success and drain.run_ids == []
    assert replay.asked == [(OLD, OLD)]
    told = events(instance, table_key(STREAM))
    rows = {day: (event["rows_added"], event["rows_removed"]) for day, event in told.items()}
    assert rows == {str(before): (0, 1), str(OLD): (3, 5), str(yesterday()): (2, 0)}
    assert instance.get_materialized_partitions(letters_key(STREAM)) == {OLD.isoformat()}
    seen = observed(instance, table_key(STREAM))
    assert (seen["replayed_messages"], seen["replayed_into"]) == (6, {"row": 5, "dead_letter": 1})
    assert (seen["replayed_changes"], seen["delta_version"]) == ({"rows_moved": 2}, 4)


def test_a_backfill_is_told_of_every_date_that_it_asked_for(instance: DagsterInstance) -> None:
    """Dagster counts a date without an event as failed, and with it the whole backfill."""
    replay = ScriptedReplay(a_commit(2, {OLD + timedelta(days=1): 4}))

    last, tags = OLD + timedelta(days=2), {"dagster/backfill": "some"}
    assert run(instance, STREAM, ScriptedDrain(), day=OLD, until=last, replay=replay, tags=tags).success

    records = instance.fetch_materializations(table_key(STREAM), limit=10).records
    told = [e for r in records if (e := r.asset_materialization)]
    rows = {e.partition: (e.metadata["rows_added"].value, "kdi/attempt" in (e.tags or {})) for e in told}
    days = [(OLD + timedelta(days=n)).isoformat() for n in range(3)]
    assert (rows, len(records)) == ({days[0]: (0, False), days[1]: (4, True), days[2]: (0, False)}, 3)


def test_a_range_that_reaches_into_today_is_one_drain_and_then_one_replay_of_what_was_before(
    instance: DagsterInstance,
) -> None:
    before = yesterday() - timedelta(days=1)
    drain, replay = ScriptedDrain([a_commit(1, {today(): 1})]), ScriptedReplay(a_commit(2, {before: 1}))

    result = run(instance, STREAM, drain, day=before, until=today(), replay=replay)

    assert result.success
    assert (drain.run_ids, replay.asked) == ([result.run_id], [(before, yesterday())])
    records = instance.fetch_materializations(table_key(STREAM), limit=10).records
    assert [r.partition_key for r in reversed(records)] == [today().isoformat(), before.isoformat()]


@pytest.mark.scenario("sensor daemon crashes, ticks are slow")
def test_a_run_requested_yesterday_drains_under_yesterdays_date(instance: DagsterInstance) -> None:
    """Requested at 23:59, and created by Dagster a moment later, tomorrow."""
    drain = ScriptedDrain([a_commit(1, {yesterday(): 1})])
    tags = {REQUESTED_TAG: at_the_end_of_yesterday().isoformat()}

    result = run(instance, STREAM, drain, day=yesterday(), tags=tags)

    assert result.success
    assert materialized(instance, STREAM) == {yesterday().isoformat()}


def test_a_backfill_requested_before_midnight_and_started_after_it_drains_what_was_today(
    instance: DagsterInstance,
) -> None:
    """Dagster turns a backfill into runs later; its dates count as of the time when someone requested it."""
    drain = ScriptedDrain([a_commit(1, {today(): 1})])
    late = at_the_end_of_yesterday().timestamp()
    instance.add_backfill(PartitionBackfill("some", BulkActionStatus.REQUESTED, False, {}, late))

    before = yesterday() - timedelta(days=1)
    result = run(instance, STREAM, drain, day=before, until=yesterday(), tags={"dagster/backfill": "some"})

    assert result.success
    assert drain.run_ids == [result.run_id]


def test_a_retry_drains_under_the_date_of_its_root_run(instance: DagsterInstance) -> None:
    """The root run was created yesterday and failed; it is retried today, with yesterday's date."""
    broken = ScriptedDrain(ending=ComesBack(cluster="main"))
    tags = {REQUESTED_TAG: at_the_end_of_yesterday().isoformat()}
    root = run(instance, STREAM, broken, day=yesterday(), tags=tags)
    drain = ScriptedDrain([a_commit(1, {today(): 2})])

    retried = retry(instance, STREAM, drain, root=root)

    assert not root.success and retried.is_success
    assert drain.run_ids == [retried.run_id]
    assert materialized(instance, STREAM) == {today().isoformat()}


def test_a_terminal_refusal_shows_its_parts_and_fields_and_is_not_retried(instance: DagsterInstance) -> None:
    result = run(instance, a_stream(), ScriptedDrain(ending=MustDecide(stream="bronze/web_requests", position=17)))

    description, said = failure(result)
    assert description == "offsets are gone.\n  Safe: nothing was written.\n  Run:  kdi resolve"
    assert said["what to run"] == "kdi resolve"
    assert (said["error"], said["position"], said["stream"]) == ("MustDecide", 17, table_key(STREAM))
    assert said["runbook"] == "docs/errors.md, MustDecide"
    assert not will_retry(instance, result)


def test_the_fields_of_a_refusal_are_shown_as_a_person_would_write_them(instance: DagsterInstance) -> None:
    gone = MessagesGone(stream=STREAM.name, first=OLD, last=OLD, messages=20, missing=Missing(10, 0, {OLD: 10}))

    _, said = failure(run(instance, STREAM, ScriptedDrain(), day=OLD, replay=ScriptedReplay(ending=gone)))

    assert (said["first"], said["messages"]) == ("2021-03-04", 20)
    assert said["missing"] == {"messages": 10, "letters": 0, "rows_by_date": {"2021-03-04": 10}}


def test_a_refused_stream_does_not_keep_the_others_of_its_run_from_draining(instance: DagsterInstance) -> None:
    """The sensor packs streams into one run; its executor continues with the next step."""
    refused, fine = a_stream("bronze/refused"), a_stream("bronze/fine")
    broken = ScriptedDrain(ending=MustDecide(stream="bronze/refused", position=1))
    drains = [(refused, broken), (fine, ScriptedDrain([a_commit(1, {OLD: 3})]))]

    result = materialize(instance, [table_asset(s, drain=drain, audit=no_audit) for s, drain in drains], day=today())

    assert not result.success
    assert materialized(instance, fine) == {OLD.isoformat()}


def test_a_refusal_is_shown_before_the_checks_and_waits_for_no_read_of_the_whole_table(
    instance: DagsterInstance,
) -> None:
    """The audit's last verdict is repeated; the audit runs only if there is none."""
    audits = [False, True]
    replay = ScriptedReplay(ending=MustDecide(stream="bronze/web_requests", position=17))

    def audit(*_: object, **__: object) -> AuditReport:
        return AuditReport(complete=audits.pop())

    first, again = (run(instance, STREAM, ScriptedDrain(), day=OLD, replay=replay, audit=audit) for _ in range(2))

    assert audits == [False]
    evaluation = latest_check(instance, STREAM, "every_offset_accounted_for")
    assert evaluation is not None and evaluation.passed
    assert evaluation.metadata["checked_by"].value == first.run_id
    (result,) = again.get_asset_check_evaluations()
    assert result.passed and "offsets are gone" in failure(again)[0]
    said = [e.user_message for e in instance.all_logs(again.run_id)]
    refused = next(at for at, message in enumerate(said) if message.startswith("offsets are gone"))
    checked = next(at for at, message in enumerate(said) if "every_offset_accounted_for" in message)
    assert refused < checked


def shown(instance: DagsterInstance, stream: Stream, name: CheckName) -> bool:
    """Whether the UI shows the latest result of the check; otherwise it says that the check was not evaluated."""
    key = check_key(stream, name)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    return asyncio.run(record.targets_latest_materialization(LoadingContextForTest(instance)))


def test_a_check_that_a_drain_does_not_make_keeps_its_verdict_which_says_when_it_was_made(
    instance: DagsterInstance,
) -> None:
    first = run(instance, STREAM, ScriptedDrain([a_commit(1, {OLD: 3})]), audit=audited(complete=True))
    made = latest_check(instance, STREAM, AUDIT)
    for version in (2, 3):
        run(instance, STREAM, ScriptedDrain([a_commit(version, {OLD: 2})]))

    again = latest_check(instance, STREAM, AUDIT)
    assert made is not None and again is not None and again.passed
    assert shown(instance, STREAM, AUDIT)
    assert (again.description, again.metadata["checked_by"].value) == (made.description, first.run_id)
    audit = instance.event_log_storage.get_asset_check_execution_history(check_key(STREAM, AUDIT), limit=9)[2]
    assert audit.event is not None and again.metadata["checked_at"].value == audit.event.timestamp


def test_a_verdict_is_not_repeated_once_the_daily_run_should_have_made_it_again(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(instance, STREAM, ScriptedDrain([a_commit(1, {OLD: 3})]), audit=audited(complete=True))
    monkeypatch.setattr(asset_checks, "REPEATED_FOR", timedelta(0))

    run(instance, STREAM, ScriptedDrain([a_commit(2, {OLD: 2})]))

    assert not shown(instance, STREAM, AUDIT)


def check_alone(instance: DagsterInstance, audit: Audit) -> dg.ExecuteInProcessResult:
    """A run that makes the audit and does not drain, as the daily one."""
    table = table_asset(STREAM, drain=ScriptedDrain(), audit=audit)
    return materialize(instance, [table], check_key(STREAM, AUDIT))


@dataclass
class CheckedBetweenCommits(ScriptedDrain):
    """A drain after whose first commit something happens."""

    happens: Callable[[], object] = lambda: None

    def __call__(self, stream: Stream, *, on_commit: Callable[[Commit], None], **options: Any) -> DrainReport:
        def committed(commit: Commit) -> None:
            on_commit(commit)
            if commit is self.commits[0]:
                self.happens()

        return super().__call__(stream, on_commit=committed, **options)


@pytest.mark.parametrize("complete", [True, False])
def test_a_failure_that_another_run_finds_between_two_commits_of_a_drain_is_shown_after_both(
    instance: DagsterInstance, complete: bool
) -> None:
    """Before, the audit passed, or failed: then the drain has logged that failure itself, below the new one."""
    check_alone(instance, audited(complete=complete))
    commits = [a_commit(2, {OLD: 3}), a_commit(3, {OLD: 2})]

    run(
        instance, STREAM, CheckedBetweenCommits(commits, happens=lambda: check_alone(instance, audited(complete=False)))
    )

    found = latest_check(instance, STREAM, AUDIT)
    assert found is not None and not found.passed and shown(instance, STREAM, AUDIT)


@pytest.mark.parametrize("complete", [True, False])
def test_a_check_that_was_planned_before_a_drain_repeated_its_verdict_has_the_last_word(
    instance: DagsterInstance, complete: bool
) -> None:
    """Procedure: the run of the audit begins, a drain logs the opposite verdict of before, the audit ends."""

    def audit(*_: object, **__: object) -> AuditReport:
        run(instance, STREAM, ScriptedDrain([a_commit(2, {OLD: 2})]))
        return AuditReport(complete=complete)

    check_alone(instance, audited(complete=not complete))
    check_alone(instance, audit)

    found = latest_check(instance, STREAM, AUDIT)
    assert found is not None and found.passed is complete and shown(instance, STREAM, AUDIT)


def test_a_repeated_verdict_does_not_hide_a_failure_that_another_run_found_meanwhile(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: the daily run logs a failure after the drain has read the verdict and before it logs it again."""
    run(instance, STREAM, ScriptedDrain([a_commit(1, {OLD: 3})]), audit=audited(complete=True))
    read = asset_checks.passes_to_repeat

    def read_before_the_failure(*of: Any, **more: Any) -> list[dg.AssetCheckEvaluation]:
        verdicts = read(*of, **more)
        check_alone(instance, audited(complete=False))
        return verdicts

    monkeypatch.setattr(table_run, "passes_to_repeat", read_before_the_failure)
    run(instance, STREAM, ScriptedDrain([a_commit(2, {OLD: 2})]))

    found = latest_check(instance, STREAM, AUDIT)
    assert found is not None and not found.passed and shown(instance, STREAM, AUDIT)


def test_a_check_of_a_run_that_told_of_no_rows_is_one_of_the_table_as_it_is(instance: DagsterInstance) -> None:
    """Dagster treats it as one for the run's own date, which had its event before another one."""
    run(instance, STREAM, ScriptedDrain([a_commit(1, {OLD: 3}), a_commit(2, {yesterday(): 2})]))
    replay = ScriptedReplay(ending=MustDecide(stream="bronze/web_requests", position=17))

    run(instance, STREAM, ScriptedDrain(), day=OLD, replay=replay, audit=audited(complete=False))

    evaluation = latest_check(instance, STREAM, "every_offset_accounted_for")
    assert evaluation is not None
    assert (evaluation.passed, evaluation.blocking, evaluation.target_materialization_data) == (False, True, None)


def test_without_credentials_for_the_lake_a_code_location_loads_with_all_dates(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(uri: str) -> date:
        raise CredentialsMissing(detail="none were found")

    monkeypatch.setattr("kdi_assets.components.names.oldest_date", refuses)

    assert table_start("s3://lake/without/credentials") == date(2020, 1, 1)
