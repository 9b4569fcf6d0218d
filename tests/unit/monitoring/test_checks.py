"""The checks without Spark: each passes on a good table, and finds its fault."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from deltalake.exceptions import DeltaError

from kdi_assets.documents.model.message_rules import Expectation
from kdi_assets.documents.model.stream import CheckName, Checks, FreshnessLimits, OffsetRange, Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.operate.monitoring.backlog import Backlog, State
from kdi_assets.operate.monitoring.checks import backlog_checks, table_checks
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.finding import CheckResult
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.streams.drain.plan_errors import RetentionPassedPosition
from kdi_assets.streams.ledger.entry import RangeCounts
from tests.table_by_hand import TOPIC, TP, TableByHand, data_file, orders, position
from tests.unit.monitoring.backlogs import waits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime.now(UTC)
TODAY = NOW.date()
OF_THE_LOG: list[CheckName] = ["positions_never_go_back", "dead_letter_rate", "dates_in_window", "table_health"]
UNREACHABLE = BrokerUnreachable(cluster="main", bootstrap_servers="127.0.0.1:1", detail="refused")
LOST = RetentionPassedPosition(stream="bronze/orders", topic_partition=TP, position=0, earliest=7)


def no_spark() -> SparkSession:
    raise AssertionError("this check started Spark")


def check(name: CheckName, lake: str, *, stream: Stream | None = None) -> CheckResult:
    return run_check(name, CheckSubject(stream or orders(), lake, no_spark, now=NOW))


@pytest.fixture
def table(lake: str) -> TableByHand:
    return TableByHand(lake, now=NOW)


@pytest.mark.parametrize(
    "name",
    ["positions_never_go_back", "dates_in_window", "table_health", "no_duplicate_coordinates"],
)
def test_without_a_table_nothing_was_checked_and_nothing_passed(name: CheckName, lake: str) -> None:
    assert check(name, lake).level == "warn"


@pytest.mark.parametrize("name", OF_THE_LOG)
def test_a_drained_table_passes_without_spark(name: CheckName, table: TableByHand, lake: str) -> None:
    table.drain(100)
    table.commit(data_file(1, TODAY, rows=100), ago=timedelta(0))

    finding = check(name, lake)

    assert finding.passed, finding.description
    assert all(isinstance(number, int | float) for number in finding.numbers.values())


@pytest.mark.parametrize("kind", ["restore", "resolve"])
def test_a_position_that_a_restore_or_a_decision_set_back_is_none(table: TableByHand, lake: str, kind: str) -> None:
    table.drain(100)
    table.position = 40
    table.ledger_commit(kind)  # type: ignore[arg-type]
    table.drain(10)

    assert check("positions_never_go_back", lake).passed


def test_a_decision_answers_the_steps_back_before_it_and_none_after_it(table: TableByHand, lake: str) -> None:
    table.drain(100)
    table.commit(position(TOPIC, 40), ago=timedelta(0))
    table.ledger_commit("resolve")

    answered = check("positions_never_go_back", lake)
    table.commit(position(TOPIC, 50), ago=timedelta(0))
    again = check("positions_never_go_back", lake)

    assert answered.passed, answered.description
    assert again.level == "error" and again.description.startswith("v4 set orders/0 back from 100 to 50")


@pytest.mark.parametrize(("lost", "level"), [(TP, "passed"), (TopicPartition(TOPIC, 1), "error")])
def test_an_accepted_loss_answers_for_its_topic_partition(
    table: TableByHand, lake: str, lost: TopicPartition, level: str
) -> None:
    table.drain(100)
    table.commit(position(TOPIC, 40), ago=timedelta(0))
    table.ledger_commit("resolve", declared_losses=(OffsetRange(lost, 100, 110),))

    assert check("positions_never_go_back", lake).level == level


def test_expectations_that_were_not_met_within_a_day_warn_and_are_named(table: TableByHand, lake: str) -> None:
    stream = orders(expectations={"id_is_there": Expectation("id IS NOT NULL"), "is_ours": Expectation("id > 0")})
    rows, unmet = {NOW.date(): 100}, {"id_is_there": 3, "is_ours": 0, "of_yesterday": 9}
    table.ledger_commit("drain", ago=timedelta(hours=25), rows_by_date=rows, unmet={"is_ours": 50})
    before = check("expectations", lake, stream=stream)
    for _ in range(2):
        covered = RangeCounts(OffsetRange(TP, 0, 103), 100, 3)
        table.ledger_commit("drain", rows_by_date=rows, ranges=(covered,), unmet=unmet)

    finding = check("expectations", lake, stream=stream)

    assert before.passed and before.numbers["is_ours"] == 0
    assert finding.level == "warn"
    of = "of the last 24 hours with 200 messages that became rows"
    assert finding.description == f"6 messages did not meet id_is_there, {of}"
    assert finding.numbers == {"id_is_there": 6, "is_ours": 0, "became_rows": 200, "drains": 2}
    assert finding.lists["not met"] == ("id_is_there: 6, warn: id IS NOT NULL",)


@pytest.mark.parametrize(
    ("dead_letters", "level"), [(10, "passed"), (11, "warn"), (99, "warn"), (100, "error"), (1000, "error")]
)
def test_dead_letters_warn_and_fail_by_the_limit(table: TableByHand, lake: str, dead_letters: int, level: str) -> None:
    table.drain(1000, dead_letters=dead_letters)

    finding = check("dead_letter_rate", lake)

    assert (finding.level, finding.numbers["dead_letters"]) == (level, dead_letters)


def test_a_high_limit_of_dead_letters_calls_from_half_of_all_messages_on(table: TableByHand, lake: str) -> None:
    table.drain(100, dead_letters=49)
    tolerant = orders(checks=Checks(dead_letter_rate=0.3))

    assert check("dead_letter_rate", lake, stream=tolerant).level == "warn"
    table.drain(100, dead_letters=51)
    assert check("dead_letter_rate", lake, stream=tolerant).level == "error"


def test_dead_letters_of_the_day_before_yesterday_count_no_more(table: TableByHand, lake: str) -> None:
    table.drain(100, dead_letters=100, ago=timedelta(hours=25))
    table.drain(100)

    finding = check("dead_letter_rate", lake)

    assert finding.passed and finding.numbers["messages"] == 100


@pytest.mark.parametrize(
    ("day", "level", "outside"),
    [
        (date(2019, 12, 31), "warn", 7),
        (TODAY + timedelta(days=3), "warn", 7),
        (None, "warn", 7),
        (date(2020, 1, 1), "passed", 0),
        (TODAY + timedelta(days=2), "passed", 0),
    ],
)
def test_rows_outside_the_window_warn(
    table: TableByHand, lake: str, day: date | None, level: str, outside: int
) -> None:
    table.commit(data_file(1, day, rows=7), data_file(2, TODAY, rows=9), ago=timedelta(0))

    finding = check("dates_in_window", lake)

    assert (finding.level, finding.numbers["rows_outside"]) == (level, outside)


def test_many_small_files_are_told_and_some_are_not(table: TableByHand, lake: str) -> None:
    table.commit(*(data_file(n, TODAY, rows=1) for n in range(999)), ago=timedelta(0))
    assert check("table_health", lake).passed

    table.commit(data_file(999, TODAY, rows=1), ago=timedelta(0))
    finding = check("table_health", lake)

    assert finding.level == "warn" and finding.description.startswith("1,000 of 1,000 files are below 32 MiB")
    assert (finding.numbers["small_files"], finding.numbers["small_share"]) == (1000, 1.0)


def test_a_long_log_without_checkpoint_warns(table: TableByHand, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(100):
        table.commit(ago=timedelta(0))
    unchecked = check("table_health", lake)
    monkeypatch.setattr(table_checks, "LOG_FILES", 2)

    assert unchecked.level == "warn" and unchecked.numbers["commits_since_checkpoint"] == 101
    assert "since the last checkpoint" in unchecked.description and "the log has" not in unchecked.description
    assert "the log has 101 commits" in check("table_health", lake).description


@pytest.mark.parametrize(
    ("backlog", "held_for", "holds", "status", "level"),
    [
        (waits(), None, True, "active", "passed"),
        (waits(5, lag=299.0), None, True, "active", "passed"),
        (waits(5, lag=300.0), None, True, "active", "warn"),
        (waits(5, lag=1800.0), None, True, "active", "error"),
        (waits(5, lag=None), None, True, "active", "warn"),
        (waits(2, lag=None), None, False, "active", "passed"),  # offsets without a message make nothing stale
        (waits(held=3), 10.0, True, "active", "passed"),
        (waits(held=3), 301.0, True, "active", "warn"),
        (waits(held=3), 1801.0, True, "active", "error"),
        (waits(held=3), None, True, "active", "warn"),
        (waits(5, lag=9000.0), None, True, "paused", "warn"),  # it is no error
    ],
)
def test_freshness_goes_by_the_age_of_what_waits_be_it_held_back_by_an_open_transaction(
    monkeypatch: pytest.MonkeyPatch, backlog: Backlog, held_for: float | None, holds: bool, status: Any, level: str
) -> None:
    since = None if held_for is None else NOW - timedelta(seconds=held_for)
    monkeypatch.setattr(backlog_checks, "held_since", lambda *_: since)
    monkeypatch.setattr(backlog_checks, "holds_message", lambda *_: holds)
    stream = orders(freshness=FreshnessLimits(300, 1800), status=status)

    finding = run_check("fresh", CheckSubject(stream, "/nowhere", no_spark, backlog=backlog, now=NOW))

    assert finding.level == level
    assert ("3 offsets are held back by an open transaction" in finding.description) == (
        backlog.open_transaction_offsets == 3
    )


@pytest.mark.parametrize("name", ["fresh", "backlog_after_drain"])
@pytest.mark.parametrize(("refusal", "level"), [(UNREACHABLE, "warn"), (LOST, "error")])
def test_a_stream_that_cannot_be_drained_is_no_fresh_one(name: CheckName, refusal: KdiError, level: str) -> None:
    stream = orders(freshness=FreshnessLimits(300, 1800))

    finding = run_check(name, CheckSubject(stream, "/nowhere", no_spark, backlog=waits(refusal=refusal)))

    assert (finding.level, finding.description) == (level, refusal.message_parts()[0])


@pytest.mark.parametrize(
    ("backlog", "drained", "level"),
    [
        (waits(999, lag=59.0), True, "passed"),
        (waits(1000, lag=1.0), True, "warn"),
        (waits(5, lag=60.0), True, "warn"),
        (waits(1000, lag=61.0), False, "passed"),
        (waits(5, lag=1.0, word=State.WARN), False, "warn"),
        (waits(5, lag=1.0, word=State.STALL), False, "error"),
        (waits(5, lag=1.0, word=State.STOP), True, "error"),
        (waits(5, lag=4000.0, loss=3600.0), False, "error"),
        (waits(5, lag=10.0, loss=3600.0), False, "passed"),
    ],
)
def test_what_a_drain_leaves_is_judged_just_after_it(backlog: Backlog, drained: bool, level: str) -> None:
    subject = CheckSubject(orders(), "/nowhere", no_spark, backlog=backlog, drained=drained)

    assert run_check("backlog_after_drain", subject).level == level


def test_a_stream_has_the_checks_that_its_document_gives_a_meaning() -> None:
    limits = FreshnessLimits(300, 1800)
    plain, limited, retired = orders(), orders(freshness=limits), orders(freshness=limits, status="retired")

    assert "fresh" not in plain.check_names and "fresh" in limited.check_names
    assert not {"fresh", "backlog_after_drain"} & set(retired.check_names)
    assert "every_offset_accounted_for" in retired.check_names


@pytest.mark.parametrize(("failure", "level"), [(OSError("SlowDown"), "warn"), (DeltaError("no log"), "error")])
def test_a_storage_that_hesitates_is_a_result_of_the_check_and_does_not_fail_the_run(
    failure: Exception, level: str
) -> None:
    def hesitates(subject: CheckSubject) -> CheckResult:
        raise failure

    finding = run_check("table_health", CheckSubject(orders(), "/nowhere", no_spark, now=NOW), hesitates)

    assert finding.level == level
    assert str(failure) in finding.description
