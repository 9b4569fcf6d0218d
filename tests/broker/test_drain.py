"""A topic drained into its table: what arrives, and what the next drain does."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.cli.streams.drain import _text
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_rules import DeadLetterLimit
from kdi_assets.documents.model.stream import DateWindow
from kdi_assets.messages.kafka import reader
from kdi_assets.messages.kafka.messages import sampled_bytes
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.streams.drain import stage
from kdi_assets.streams.drain.report import DrainReport
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"url":"https://a.b/"}'


@pytest.mark.core
@pytest.mark.compiled
@pytest.mark.scenario("poison message")
@pytest.mark.scenario("tombstone")
def test_every_message_becomes_a_row_or_a_dead_letter(driven: DrivenFactory) -> None:
    """Procedure: a tenth of the messages cannot become rows, some have no value; drain."""
    web = driven(partitions=3)
    produced = web.produce(600, bad=0.1, tombstones=0.02)

    report = web.drain()

    web.assert_each_offset_once(produced)
    assert report.rows_added + report.dead_letters == sum(m.value is not None for m in produced)
    assert sum(c.tombstones for c in report.commits) == sum(m.value is None for m in produced) > 0
    assert report.backlog_before == 600
    assert report.backlog_after == 0


def test_what_comes_later_is_added_behind_and_a_drain_of_nothing_commits_nothing_and_needs_no_session(
    driven: DrivenFactory,
) -> None:
    web = driven()
    web.produce(50, bad=0.1, seed=1)
    web.drain()
    produced = web.produce(70, bad=0.1, seed=2)
    later = web.drain()

    def no_session() -> SparkSession:
        raise AssertionError("nothing is waiting; no session is needed")

    nothing = replace(web, session=no_session).drain()

    web.assert_each_offset_once(produced)
    assert web.audit().complete
    assert (nothing.commits, TableLog.existing(web.uri).version) == ((), later.version)


@pytest.mark.core
def test_the_loser_of_two_drains_says_that_the_other_one_committed_its_backlog(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(4)
    others: list[DrainReport] = []

    def at(point: str) -> None:
        if point == "files written" and not others:
            others.append(web.drain())

    loser, nobody = web.drain(at=at), web.drain()

    assert [report.taken_by_another for report in (*others, loser, nobody)] == [False, True, False]
    said = _text(web.stream, loser, loser)
    assert said.startswith(f"{web.stream.name}: another drain committed the backlog of 4 offsets (")


def test_a_long_backlog_is_drained_in_plans_of_max_records(driven: DrivenFactory) -> None:
    web = driven(partitions=2, max_records=100)
    produced = web.produce(350)

    report = web.drain()

    assert [c.offset_count for c in report.commits] == [100, 100, 100, 50]
    web.assert_each_offset_once(produced)


@pytest.mark.compiled
def test_max_bytes_bounds_plans_by_a_sample_and_then_by_what_was_drained(driven: DrivenFactory) -> None:
    """Procedure: messages of one size; drain; messages twenty times as large; drain, while more come."""
    web = driven(partitions=2, max_bytes=100_000, dead_letter_limit=DeadLetterLimit(share=1))
    web.produce(700)
    light = sampled_bytes(web.stream.kafka, {web.tp(p): 0 for p in (0, 1)})
    web.drain()
    assert sampled_bytes(web.stream.kafka, {web.tp(): 350}) is None, "none is there"
    produced = [web.send(*["x" * 6000] * 165, partition=p) for p in (0, 1)][-1]

    def meanwhile(point: str) -> None:
        if point == "accounted for":
            web.produce(2, seed=1)

    report = web.drain(at=meanwhile)

    plans = [e for e in web.entries() if e.kind == "drain"]
    first, heavy = plans[:3], plans[3:]
    assert light == pytest.approx(sum(e.message_bytes for e in first) / 700, rel=0.1)
    assert all(80_000 < e.message_bytes < 110_000 for e in first[:2])
    # Earlier messages were smaller, so the first of these plans exceeds the limit; later ones know.
    assert heavy[0].message_bytes > 1_000_000
    assert sum(r.range.offset_count for r in heavy[1].ranges) == 16
    assert sum(e.messages for e in plans) == len(produced) == 1030
    assert report.backlog_after == 2 * len(report.commits), "what came meanwhile is left to the next drain"
    web.assert_each_offset_once(produced)


@pytest.mark.compiled
def test_a_drain_of_many_tasks_writes_files_of_the_size_that_is_asked_for(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: tasks of two hundred offsets, and commits from five hundred rows on count for the estimate; drain
    without a target size, with one that holds a date, and with one that does not; malformed messages in all of them.
    """
    monkeypatch.setattr(reader, "OFFSETS_PER_TASK", 200)
    monkeypatch.setattr(stage, "OFFSETS_PER_TASK", 200)
    monkeypatch.setattr(stage, "LARGE_DRAIN_OFFSETS", 500)
    web = driven(partitions=4)
    for seed, target in enumerate((None, 1 << 20, 10_000)):
        produced = web.produce(1000, bad=0.1, seed=seed)
        web.with_definition(target_file_size=target).drain()

    first, together, cut = files_added(web)
    drained = max(web.entries()[1:3], key=lambda entry: entry.rows)
    rows = max(1, 10_000 * drained.rows // drained.bytes)
    assert {date: len(rows) for date, rows in first.items()} == dict.fromkeys(first, 4)
    assert {date: len(rows) for date, rows in together.items()} == dict.fromkeys(first, 1)
    assert all(sorted(f)[1:] == [rows] * (len(f) - 1) and len(f) > 1 for f in cut.values()), cut
    web.assert_each_offset_once(produced)


def test_files_tell_the_least_of_numbers_and_times_and_of_text_where_the_document_asks(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    asks = {"delta.dataSkippingStatsColumns": "method,meta.kafka.offset"}
    asked = web.with_definition(table=f"{web.stream.table}_asked", app_id="asked", properties=asks)
    web.produce(20)
    for stream in (web, asked):
        stream.drain()

    assert least_values(web) == {"status", "meta.kafka.partition", "meta.kafka.offset", "meta.kafka.timestamp"}
    assert least_values(asked) == {"method", "meta.kafka.offset"}


def least_values(web: DrivenStream) -> set[str]:
    """Columns for which the log has the minimum of a file."""
    least = [json.loads(add["stats"]).get("minValues", {}) for adds in adds_of(web) for add in adds]
    return {".".join(path) for values in least for path in leaves(values)}


def leaves(values: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        yield from ((name, *path) for path in leaves(value)) if isinstance(value, dict) else [(name,)]


def files_added(web: DrivenStream) -> list[dict[str, list[int]]]:
    """Rows by date of the files that each commit added, for commits that added any."""
    commits = []
    for adds in adds_of(web):
        added: dict[str, list[int]] = defaultdict(list)
        for add in adds:
            added[add["partitionValues"]["date"]].append(json.loads(add["stats"])["numRecords"])
        commits += [dict(added)] if added else []
    return commits


def adds_of(web: DrivenStream) -> Iterator[list[dict[str, Any]]]:
    """The files that each commit added."""
    for file in sorted((Path(web.uri) / "_delta_log").glob("*.json")):
        actions = (json.loads(line) for line in file.read_text().splitlines())
        yield [action["add"] for action in actions if "add" in action]


@pytest.mark.scenario("poison message")
@pytest.mark.scenario("tombstone")
@pytest.mark.scenario("empty payload, two documents in one")
@pytest.mark.parametrize(("fields", "values"), [({}, ["no json", None, ""]), ({"filter": "false"}, [GOOD] * 3)])
def test_messages_that_become_no_rows_still_move_the_positions(
    driven: DrivenFactory, fields: dict[str, Any], values: list[str | None]
) -> None:
    """Procedure: a topic with only text that is not JSON, a tombstone and an empty message, or only filtered messages;
    drain.
    """
    web = driven(partitions=1, **fields)
    produced = web.send(*values)

    report = web.drain()

    assert (report.rows_added, report.dead_letters, report.filtered) == ((0, 0, 3) if fields else (0, 2, 0))
    assert (report.positions, web.drain().commits) == ({web.tp(): 3}, ())
    web.assert_each_offset_once([] if fields else produced)
    assert web.audit().complete


@pytest.mark.scenario("clock skew, wrong event times")
def test_a_date_outside_the_window_is_a_dead_letter(driven: DrivenFactory) -> None:
    """Procedure: event dates on both sides of both ends of the window; drain."""
    today = datetime.now(UTC).date()
    web = driven(partitions=1, date_window=DateWindow(start=today, ahead_days=1))
    stamps = [today + timedelta(days=days) for days in (-1, 0, 1, 2)]
    web.send(*(GOOD.replace("2024-05-05", str(day)) for day in stamps))

    web.drain()

    assert web.rows("date") == stamps[1:3]
    assert web.letters("reason") == ["date_outside_window"] * 2


@pytest.mark.scenario("clock skew, wrong event times")
def test_a_message_from_no_time_at_all_stops_nobody(driven: DrivenFactory) -> None:
    """Some producers write micro- and nanoseconds instead of milliseconds."""
    web = driven(partitions=1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    web.publisher.client.produce(web.stream.topic, GOOD, partition=0, timestamp=1_700_000_000_000_000)
    assert web.publisher.client.flush(30) == 0

    assert read_backlog(web.stream, web.lake).lag_seconds == pytest.approx(0, abs=60), (
        "it waits, and since when nobody knows"
    )
    assert web.drain().rows_added == 1


@pytest.mark.core
@pytest.mark.scenario("idle topic, start at its end")
def test_latest_is_resolved_once_and_loses_nothing_that_comes_after(driven: DrivenFactory) -> None:
    """Procedure: a stream that starts at the end is drained while nothing waits; messages come; drain."""
    web = driven(partitions=1, start="latest")
    web.produce(30)
    web.drain()  # nothing to drain, but the position is in the ledger now

    web.produce(20)
    report = web.drain()

    assert report.rows_added == 20


@pytest.mark.core
def test_every_ledger_commit_names_every_position(driven: DrivenFactory) -> None:
    web = driven(partitions=3)
    web.send("{}", partition=1)

    web.drain()

    start, drained = web.entries()
    assert start.positions == {web.tp(p): 0 for p in range(3)}
    assert drained.positions == {web.tp(0): 0, web.tp(1): 1, web.tp(2): 0}
    log = TableLog.existing(web.uri)
    ids = [log.transaction_version(f"{web.stream.app_id}-{p}") for p in range(3)]
    assert ids == [-1, 0, -1]  # inclusive: the last offset covered, and -1 for none yet


@pytest.mark.core
def test_positions_of_another_writer_are_taken_over_as_they_stand(driven: DrivenFactory) -> None:
    """kafka-delta-ingest's form: one transaction for each topic partition with rows, the last offset inclusive."""
    web = driven(partitions=2)
    produced = web.produce(40)
    web.drain()
    web.as_another_writer("kafka_delta_ingest", last=4)
    other = web.with_definition(app_id="kafka_delta_ingest")

    seen = read_backlog(other.stream, other.lake).topic_partitions[web.tp()].position
    other.drain()

    takeover, drained = other.entries()
    assert (seen, takeover.kind) == (5, "takeover")
    assert drained.positions == {web.tp(p): 20 for p in (0, 1)}
    assert len(other.found().rows) == len(produced) + 15 + 20
