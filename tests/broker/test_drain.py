"""A topic drained into its table: what arrives, and what the next drain does."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kdi_assets.drain import stage
from kdi_assets.drain.drain import drain
from kdi_assets.drain.look import look
from kdi_assets.ledger.history import entries
from kdi_assets.ledger.log import TableLog
from kdi_assets.message_rules import DeadLetterLimit
from kdi_assets.sources import kafka_frame
from kdi_assets.sources.kafka_messages import sampled_bytes
from kdi_assets.stream import DateWindow, TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults.topics import add_topic_partitions
from tests.kafka_log import Publisher
from tests.waiting import wait_until

pytestmark = pytest.mark.compiled


@pytest.mark.core
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


def test_a_second_drain_of_nothing_commits_nothing(driven: DrivenFactory) -> None:
    web = driven()
    web.produce(50)
    first = web.drain()

    second = web.drain()

    assert second.commits == ()
    assert TableLog.existing(web.uri).version == first.version


def test_rows_that_come_later_are_added_behind_those_before(driven: DrivenFactory) -> None:
    web = driven()
    web.produce(50, bad=0.1, seed=1)
    web.drain()
    produced = web.produce(70, bad=0.1, seed=2)

    web.drain()

    web.assert_each_offset_once(produced)
    assert web.audit().complete


@pytest.mark.core
def test_a_long_backlog_is_drained_in_plans_of_max_records(driven: DrivenFactory) -> None:
    web = driven(partitions=2, max_records=100)
    produced = web.produce(350)

    report = web.drain()

    assert [c.offset_count for c in report.commits] == [100, 100, 100, 50]
    web.assert_each_offset_once(produced)


def test_max_bytes_bounds_plans_by_a_sample_and_then_by_what_was_drained(driven: DrivenFactory) -> None:
    """Procedure: messages of one size; drain; messages twenty times as large; drain, while more come."""
    web = driven(partitions=2, max_bytes=100_000, dead_letter_limit=DeadLetterLimit(share=1))
    web.produce(700)
    light = sampled_bytes(web.stream.cluster, {TopicPartition(web.stream.topic, p): 0 for p in (0, 1)})
    web.drain()
    for number in range(330):
        web.publisher.produce(web.stream.topic, "x" * 6000, partition=number % 2)
    produced = list(web.publisher.flush())

    def meanwhile(point: str) -> None:
        if point == "accounted for":
            web.produce(2, seed=1)

    report = web.drain(at=meanwhile)

    plans = [e for e in entries(web.uri, web.stream.app_id) if e.kind == "drain"]
    first, heavy = plans[:3], plans[3:]
    assert light == pytest.approx(sum(e.message_bytes for e in first) / 700, rel=0.1)
    assert all(80_000 < e.message_bytes < 110_000 for e in first[:2])
    # What was drained before was lighter, so the first of these weighs more than it may; the next ones know.
    assert heavy[0].message_bytes > 1_000_000
    assert sum(r.range.offset_count for r in heavy[1].ranges) == 16
    assert sum(e.messages for e in plans) == len(produced) == 1030
    assert report.backlog_after == 2 * len(report.commits), "what came meanwhile is left to the next drain"
    web.assert_each_offset_once(produced)


def test_a_drain_of_many_tasks_writes_files_of_the_size_that_is_asked_for(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: tasks of two hundred offsets, and drains that tell of themselves from five hundred rows on; drain with
    no size, with one that holds a date, and with one that does not; malformed messages in all of them."""
    monkeypatch.setattr(kafka_frame, "OFFSETS_PER_TASK", 200)
    monkeypatch.setattr(stage, "OFFSETS_PER_TASK", 200)
    monkeypatch.setattr(stage, "LARGE", 500)
    web = driven(partitions=4)
    for seed, target in enumerate((None, 1 << 20, 10_000)):
        produced = web.produce(1000, bad=0.1, seed=seed)
        web.with_definition(target_file_size=target).drain()

    first, together, cut = files_added(web)
    drained = max(entries(web.uri, web.stream.app_id)[1:3], key=lambda entry: entry.rows)
    rows = max(1, 10_000 * drained.rows // drained.bytes)
    assert {date: len(rows) for date, rows in first.items()} == dict.fromkeys(first, 4)
    assert {date: len(rows) for date, rows in together.items()} == dict.fromkeys(first, 1)
    assert all(sorted(f)[1:] == [rows] * (len(f) - 1) and len(f) > 1 for f in cut.values()), cut
    web.assert_each_offset_once(produced)


def files_added(web: DrivenStream) -> list[dict[str, list[int]]]:
    """By date, the rows of the files that each commit added, of the commits that added any."""
    commits = []
    for file in sorted((Path(web.uri) / "_delta_log").glob("*.json")):
        adds = [json.loads(line).get("add") for line in file.read_text().splitlines()]
        added: dict[str, list[int]] = defaultdict(list)
        for add in filter(None, adds):
            added[add["partitionValues"]["date"]].append(json.loads(add["stats"])["numRecords"])
        commits += [dict(added)] if added else []
    return commits


def test_a_sample_takes_a_few_messages_of_each_topic_partition_and_none_where_there_are_none(
    driven: DrivenFactory,
) -> None:
    web = driven(partitions=2)
    for number, partition in enumerate([0] * 30 + [1] * 5):
        web.publisher.produce(web.stream.topic, "x" * (10 if partition or number < 20 else 10_000), partition=partition)
    web.publisher.flush()
    first, second = (TopicPartition(web.stream.topic, p) for p in (0, 1))

    assert sampled_bytes(web.stream.cluster, {first: 0, second: 0}) == 10.0
    assert sampled_bytes(web.stream.cluster, {second: 5}) is None


@pytest.mark.scenario("poison message")
@pytest.mark.scenario("tombstone")
@pytest.mark.scenario("empty payload, two documents in one")
def test_bad_messages_alone_still_move_the_positions(driven: DrivenFactory) -> None:
    """Procedure: a topic with text that is no JSON, a tombstone and an empty message, nothing else; drain."""
    web = driven(partitions=1)
    produced = web.publisher.produce_all(web.stream.topic, ["no json", None, ""])

    report = web.drain()

    assert report.rows_added == 0
    assert report.dead_letters == 2
    assert report.positions == {TopicPartition(web.stream.topic, 0): 3}
    web.assert_each_offset_once(produced)


@pytest.mark.scenario("poison message")
def test_a_failing_expression_condemns_the_message_and_not_the_drain(driven: DrivenFactory) -> None:
    """Procedure: an expression of the document raises for one of two messages; drain."""
    web = driven(partitions=1, columns={"host": "parse_url(url, 'HOST')", "twice": "CAST(method AS INT) * 2"})
    good = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"method":"21","url":"https://a.b/"}'
    web.publisher.produce_all(web.stream.topic, [good, good.replace('"21"', '"GET"')])

    web.drain()

    found = web.found()
    assert [row["twice"] for row in found.rows] == [42]
    assert [(x["reason"], x["field"]) for x in found.dead_letters] == [("expression_failed", "columns.twice")]


@pytest.mark.scenario("clock skew, wrong event times")
def test_a_date_outside_the_window_is_a_dead_letter(driven: DrivenFactory) -> None:
    """Procedure: event dates on both sides of both ends of the window; drain."""
    today = datetime.now(UTC).date()
    web = driven(partitions=1, date_window=DateWindow(start=today, ahead_days=1))
    stamps = [today - timedelta(days=1), today, today + timedelta(days=1), today + timedelta(days=2)]
    message = '{{"meta":{{"producer":{{"timestamp":"{}T00:00:00Z"}}}},"url":"https://a.b/"}}'
    web.publisher.produce_all(web.stream.topic, [message.format(day) for day in stamps])

    web.drain()

    found = web.found()
    assert sorted(row["date"] for row in found.rows) == stamps[1:3]
    assert {x["reason"] for x in found.dead_letters} == {"date_outside_window"}


@pytest.mark.core
@pytest.mark.scenario("idle topic, start at its end")
def test_latest_is_resolved_once_and_loses_nothing_that_comes_after(driven: DrivenFactory) -> None:
    """Procedure: a stream that starts at the end is drained while nothing waits; messages come; drain."""
    web = driven(partitions=1, start="latest")
    web.produce(30)
    web.drain()  # nothing to drain: but the position is in the ledger now

    web.produce(20)
    report = web.drain()

    assert report.rows_added == 20


def test_a_start_at_a_moment_begins_with_the_first_message_from_then_on(driven: DrivenFactory) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    web = driven(partitions=1, start=noon)
    message = '{"meta":{"producer":{"timestamp":"2026-01-01T12:00:00Z"}},"url":"https://a.b/"}'
    for minutes in (-2, -1, 0, 1):
        web.publisher.produce(web.stream.topic, message, partition=0, timestamp=noon + timedelta(minutes=minutes))
    web.publisher.flush()

    web.drain()

    assert sorted(row["meta"]["kafka"]["offset"] for row in web.found().rows) == [2, 3]


@pytest.mark.core
def test_every_ledger_commit_names_every_position(driven: DrivenFactory) -> None:
    web = driven(partitions=3)
    web.publisher.produce_all(web.stream.topic, ["{}"], partition=1)

    web.drain()

    start, drained = entries(web.uri, web.stream.app_id)
    assert {tp.partition: at for tp, at in start.positions.items()} == {0: 0, 1: 0, 2: 0}
    assert {tp.partition: at for tp, at in drained.positions.items()} == {0: 0, 1: 1, 2: 0}
    log = TableLog.existing(web.uri)
    ids = [log.transaction(f"{web.stream.app_id}-{p}") for p in range(3)]
    assert ids == [-1, 0, -1]  # inclusive: the last offset covered, and -1 for none yet


@pytest.mark.core
@pytest.mark.scenario("topic partitions added")
def test_a_topic_partition_that_appears_later_starts_at_zero(driven: DrivenFactory) -> None:
    """Procedure: a stream that started at the end gets a topic partition with messages; drain."""
    web = driven(partitions=1, start="latest")
    web.drain()
    add_topic_partitions(web, total=2)
    produced = web.publisher.produce_all(web.stream.topic, ["{}"] * 3, partition=1)

    web.drain()

    web.assert_each_offset_once(produced)


@pytest.mark.core
@pytest.mark.scenario("aborted, open and torn transactions")
def test_gaps_of_aborted_transactions_and_markers_are_confirmed_and_booked(driven: DrivenFactory) -> None:
    """Procedure: transactions that commit, abort and commit; drain."""
    web = driven(partitions=1)
    writer = Publisher(web.stream.cluster.bootstrap_servers, **{"transactional.id": web.stream.topic})
    writer.client.init_transactions(30)
    for ending in ("commit", "abort", "commit"):
        writer.client.begin_transaction()
        for _ in range(10):
            writer.produce(web.stream.topic, "{}", partition=0)
        writer.client.flush(30)
        end = writer.client.commit_transaction if ending == "commit" else writer.client.abort_transaction
        end(30)
    wait_until(lambda: look(web.stream, web.lake).open_transaction_offsets == 0)  # markers come behind the answer

    report = web.drain()

    # Ten rows, a marker, ten aborted and their marker, ten rows, a marker.
    assert report.dead_letters == 20
    assert sum(c.gaps for c in report.commits) == 13
    assert web.audit().complete


@pytest.mark.scenario("aborted, open and torn transactions")
def test_an_open_transaction_holds_the_drain_at_the_last_stable_offset(driven: DrivenFactory) -> None:
    """Procedure: plain messages on both sides of an open transaction; drain; it commits; drain."""
    web = driven(partitions=1)
    web.publisher.produce_all(web.stream.topic, ["{}"] * 5, partition=0)
    writer = Publisher(web.stream.cluster.bootstrap_servers, **{"transactional.id": web.stream.topic})
    writer.client.init_transactions(30)
    writer.client.begin_transaction()
    writer.produce(web.stream.topic, "{}", partition=0)
    writer.client.flush(30)
    web.publisher.produce_all(web.stream.topic, ["{}"] * 3, partition=0)

    first = web.drain()
    held = look(web.stream, web.lake).open_transaction_offsets
    writer.client.commit_transaction(30)
    wait_until(lambda: look(web.stream, web.lake).open_transaction_offsets == 0)
    second = web.drain()

    assert (first.dead_letters, held) == (5, 4)
    assert second.dead_letters == 4


@pytest.mark.scenario("clock skew, wrong event times")
def test_a_message_from_no_time_at_all_stops_nobody(driven: DrivenFactory) -> None:
    """Producers write micro- and nanoseconds where milliseconds belong."""
    web = driven(partitions=1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    message = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"url":"https://a.b/"}'
    web.publisher.client.produce(web.stream.topic, message, partition=0, timestamp=1_700_000_000_000_000)
    assert web.publisher.client.flush(30) == 0

    assert look(web.stream, web.lake).lag_seconds == pytest.approx(0, abs=60), "it waits, and since when nobody knows"
    report = web.drain()

    assert report.rows_added == 1


@pytest.mark.core
def test_positions_of_another_writer_are_taken_over_as_they_stand(driven: DrivenFactory) -> None:
    """kafka-delta-ingest's form: one transaction for each topic partition with rows, the last offset inclusive."""
    web = driven(partitions=2)
    produced = web.produce(40)
    web.drain()
    app_id = "kafka_delta_ingest"
    web.as_another_writer(app_id, last=4)

    other = web.with_definition(app_id=app_id)
    kinds = [look(other.stream, other.lake)]
    other.drain()

    assert kinds[0].topic_partitions[_first(web.stream.topic)].position == 5
    taken = entries(web.uri, app_id)
    assert taken[0].kind == "takeover"
    assert taken[1].positions == {TopicPartition(web.stream.topic, p): 20 for p in (0, 1)}
    assert len(other.found().rows) == len(produced) + 15 + 20


def test_a_drain_without_a_session_starts_none(driven: DrivenFactory) -> None:
    web = driven()
    web.drain()

    def no_session() -> None:
        raise AssertionError("nothing is waiting; no session is needed")

    report = drain(web.stream, lake=web.lake, session=no_session)  # type: ignore[arg-type]

    assert report.commits == ()


def _first(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)
