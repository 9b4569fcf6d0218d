"""Decisions about positions: where they go back to, which rows are removed, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.errors import OvertakenCommit, PlannedTableGone
from kdi_assets.delta.log import TableLog
from kdi_assets.operate.monitoring.commit_history import commit_history
from kdi_assets.streams.audit.audit import AuditReport
from kdi_assets.streams.drain.plan_errors import RowsWithoutPositions
from kdi_assets.streams.replay.replay_letters import replay_letters
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.resolve import Decision
from tests.broker.tables.audits import adds_up
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import WEB_REQUESTS, DrivenStream, web_requests_document
from tests.faults import others
from tests.faults.topics import delete_records, make_again
from tests.tables.dead_letters import WRONG, states
from tests.typed import Kdi

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def by_the_hour(driven: DrivenFactory) -> DrivenStream:
    """Ten messages in each of two topic partitions, one an hour, drained in two halves."""
    web = driven(partitions=2)
    for half in range(2):
        for hour in range(5 * half, 5 * half + 5):
            for partition in range(2):
                value = '{"meta": {"producer": {"timestamp": "2026-03-01T00:00:00Z"}}, "status": 200}'
                web.send(value, partition=partition, timestamp=BEGIN + timedelta(hours=hour))
        web.drain()
    return web


def test_positions_go_back_to_the_first_message_of_a_moment_and_never_forward(driven: DrivenFactory) -> None:
    """Procedure: a message an hour for ten hours, in two topic partitions; rewind to moments; retention deletes the
    first four hours of one of them.
    """
    web = by_the_hour(driven)
    first, second = web.tp(0), web.tp(1)

    both = web.decide("rewind", to_timestamp=BEGIN + timedelta(hours=6, minutes=30))
    one = web.decide("rewind", to_timestamp=BEGIN + timedelta(hours=3), topic_partition=second)
    with pytest.raises(NothingToResolve, match=r"nothing below the positions is 2026-03-01T09:00:00.001Z or later"):
        web.decide("rewind", to_timestamp=BEGIN + timedelta(hours=9, milliseconds=1))
    with pytest.raises(NothingToResolve, match="has no zone"):
        web.decide("rewind", to_timestamp=datetime(2026, 3, 1))
    with pytest.raises(NothingToResolve, match="exclude each other"):
        web.decide("rewind", to_timestamp=BEGIN, to_version=1)
    delete_records(web, {0: 4})
    with pytest.raises(NothingToResolve, match=rf"{first} the broker has nothing before offset 4 .*T04:00:00.000Z"):
        web.decide("rewind", to_timestamp=BEGIN + timedelta(hours=2))
    from_there = web.decide("rewind", to_timestamp=BEGIN + timedelta(hours=4))

    assert (both.before, both.after) == ({first: 10, second: 10}, {first: 7, second: 7})
    assert one.after == {first: 10, second: 3}
    assert from_there.after == {first: 4, second: 4}
    assert f"[3, 10) of {second}" in one.reason


def test_positions_go_back_to_where_they_stood_at_a_version_as_a_restore_would_have_it(
    driven: DrivenFactory, kdi: Kdi, defs: Path
) -> None:
    """Procedure: drains as versions 1 and 2; a RESTORE to 1, recorded by 4; drain as 5; rewind to 3, which is the
    RESTORE; to versions that do not exist, cannot be read, or that the broker no longer holds; and as a person types
    it.
    """
    web = by_the_hour(driven)
    first, second = web.tp(0), web.tp(1)
    DeltaTable(web.uri).restore(1)
    web.drain()

    restored, begun = web.decide("rewind", to_version=3), web.decide("rewind", to_version=0, topic_partition=first)
    for version, said in ((6, "there is no version 6; the newest is 5"), (5, "nothing below the positions is not in")):
        with pytest.raises(NothingToResolve, match=said):
            web.decide("rewind", to_version=version)
    delete_records(web, {1: 6})
    with pytest.raises(NothingToResolve, match=rf"at version 1 the position of {second} was 5, .* from 6 on"):
        web.decide("rewind", to_version=1)
    with pytest.raises(NothingToResolve, match="nothing below|first ledger commit"):
        web.with_definition(app_id="another").decide("rewind", to_version=1)
    web.carry_out(begun, decided_by="ann", because="a wrong schema")
    (defs / "defs.yaml").write_text(web_requests_document(web.stream.topic))
    words = "resolve", web.stream.table, "rewind", "--topic-partition", "1", "--to", "8"
    shown, done = kdi(*words), kdi(*words, "--because", "two bad ones", "--yes", "--json")
    history = kdi("history", web.stream.table, "--decisions")

    assert shown.code == done.code == history.code == 0, shown.err + done.err
    assert "2 rows of 2 messages at and after the new positions are removed, and drained again" in shown.out
    assert "Nothing was changed" in shown.out
    told = done.objects[0]
    assert (told["rows_beyond"], told["open_dead_letters_beyond"]) == (2, 0)
    assert f'{second}: 10 to 8; 2 rows removed ("two bad ones"' in history.out
    assert restored.after == {first: 5, second: 5}
    assert begun.after == {first: 0, second: 10}
    with pytest.raises(NothingToResolve, match="nothing below"):
        web.decide("rewind", to_version=5, topic_partition=first)  # its position was higher then


def rewound(web: DrivenStream, version: int) -> Decision:
    """Carry out a rewind to a version."""
    decision = web.decide("rewind", to_version=version)
    web.carry_out(decision)
    return decision


def is_closed(web: DrivenStream) -> AuditReport:
    """The audit finds nothing missing and nothing twice."""
    report = web.audit()
    assert (report.complete, report.missing, report.twice) == (True, 0, 0), report.line()
    assert adds_up(report)
    return report


def offsets_of(web: DrivenStream) -> list[int]:
    return sorted(web.rows("meta.kafka.offset"))


@also_on_s3
@pytest.mark.core
def test_rows_are_removed_in_the_commit_that_sets_the_positions_back(driven: DrivenFactory) -> None:
    """Procedure: two drains with dead letters and tombstones; rewind to the first of them; once more with the same
    decision; audit; drain; audit.
    """
    web = driven(partitions=2)
    for seed in range(2):
        produced = web.produce(40, bad=0.2, tombstones=0.1, seed=seed)
        web.drain()
    before = is_closed(web)

    decision = web.decide("rewind", to_version=1)
    assert TableLog.existing(web.uri).version == 2  # shown, not done
    entry = web.carry_out(decision, decided_by="ann", because="a wrong column")
    removed = is_closed(web)
    with pytest.raises(OvertakenCommit):
        web.carry_out(decision)
    left = len(web.found().rows)
    listed = states(web)
    web.drain()
    again = is_closed(web)

    assert decision.past_position.row_count == decision.past_position.messages == before.rows - left > 20
    assert decision.past_position.letters == before.dead_letters - removed.dead_letters > 0
    assert web.feed(entry.version) == {"delete": decision.past_position.row_count}
    assert listed["open"] == before.dead_letters  # they wait
    assert states(web) == {"open": again.dead_letters}
    assert (again.rows, again.dead_letters, again.tombstones) == (before.rows, before.dead_letters, before.tombstones)
    web.assert_each_offset_once(produced)
    told = [event.description for event in commit_history(web.stream, web.lake)][1]
    assert f"{decision.past_position.row_count} rows removed" in told and f"{web.tp()}: 40 to 20" in told
    entry = web.entries()[-2]
    assert (entry.decided_by, entry.because, entry.kind) == ("ann", "a wrong column", "resolve")


def test_letters_of_what_is_given_up_stay_open_and_come_back_from_what_was_kept_of_them(driven: DrivenFactory) -> None:
    """Procedure: a drain, and one whose document makes dead letters of all; rewind to the start; retention deletes the
    first half of the rows and of the letters; accept that; replay the letters with the right document; drain.
    """
    web = driven(partitions=1)
    web.produce(20)
    web.drain()
    wrong = web.with_definition(columns=WRONG)
    wrong.produce(20, seed=1)
    wrong.drain()
    rewound(web, 0)
    delete_records(web, {0: 30})

    web.carry_out(web.decide("accept-loss"))
    given_up, open_then = is_closed(web), states(web)
    replayed = replay_letters(web.stream, lake=web.lake, session=web.session)
    came_back = is_closed(web)
    web.drain()
    drained = is_closed(web)

    assert (open_then, given_up.rows, given_up.declared_losses) == ({"open": 20}, 0, 30)
    assert (replayed.outcomes, replayed.waiting) == ({"row": 10}, 10)
    assert (came_back.rows, came_back.declared_losses) == (10, 20)
    assert offsets_of(web) == list(range(20, 40))
    assert (drained.rows, drained.declared_losses, drained.dead_letters) == (20, 20, 0)
    assert states(web) == {"resolved": 20}


def test_rows_of_a_topic_that_was_there_before_are_not_taken(driven: DrivenFactory) -> None:
    """Procedure: drain; the topic is recreated and drained from its start; rewind to there, and drain; again."""
    web = driven(partitions=1)
    web.produce(20)
    web.drain()
    anew = replace(web, publisher=make_again(web, partitions=1))
    start = web.carry_out(web.decide("new-topic")).version
    anew.produce(10, bad=0.2, seed=1)
    anew.drain()
    both = offsets_of(web)

    removed = rewound(web, start)
    of_old = offsets_of(web)
    web.drain()

    assert removed.past_position.row_count == len(both) - 20 < 10
    assert (of_old, offsets_of(web)) == (list(range(20)), both)
    assert web.audit().complete


def test_a_decision_is_not_carried_out_on_another_table_than_it_was_made_for(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(10)
    web.drain()
    decision = web.decide("rewind", topic_partition=web.tp(), to=4)

    others.replace(web)
    with pytest.raises(PlannedTableGone):
        web.carry_out(decision)

    assert len(web.entries()) == 2


def as_structured_streaming(web: DrivenStream, checkpoint: Path) -> None:
    """Write what waits into the table by a Structured Streaming query, in batches of a few messages."""
    read = web.session().readStream.format("kafka").option("subscribe", web.stream.topic)
    read = read.option("kafka.bootstrap.servers", web.stream.kafka.bootstrap_servers)
    messages = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10).load()
    write = as_rows(messages).writeStream.format("delta").partitionBy("date").trigger(availableNow=True)
    write.option("checkpointLocation", str(checkpoint)).start(web.uri).awaitTermination()


def as_rows(messages: DataFrame) -> DataFrame:
    """The rows of web requests, as the stream makes them."""
    parsed = messages.selectExpr(f"from_json(CAST(value AS STRING), '{WEB_REQUESTS}') AS r", "*")
    return parsed.selectExpr(
        "named_struct('producer', r.meta.producer, 'kafka', struct(topic, partition, offset, timestamp)) AS meta",
        *(f"r.{column}" for column in ("method", "session_id", "status", "url", "uuid")),
        "parse_url(r.url, 'HOST') AS host",
        "to_date(substr(r.meta.producer.timestamp, 1, 10)) AS date",
    )


def test_a_table_of_structured_streaming_goes_on_behind_its_rows(driven: DrivenFactory, tmp_path: Path) -> None:
    """Procedure: a query writes 30 messages; adopt; the query writes more before the decision commits; adopt again;
    drain.
    Pass: every offset is there once.
    """
    web, checkpoint = driven(partitions=2), tmp_path / "checkpoint"
    web.produce(30)
    as_structured_streaming(web, checkpoint)
    with pytest.raises(RowsWithoutPositions, match="adopt"):
        web.drain()

    early = web.decide("adopt")
    web.produce(15, seed=1)
    as_structured_streaming(web, checkpoint)
    with pytest.raises(OvertakenCommit):
        web.carry_out(early)
    late = web.decide("adopt")
    web.carry_out(late)
    produced = web.produce(20, bad=0.2, seed=2)
    web.drain()

    assert (sum(early.after.values()), sum(late.after.values())) == (30, 45)
    web.assert_each_offset_once(produced)
    assert web.audit().complete
    with pytest.raises(NothingToResolve, match="the ledger knows the table"):
        web.decide("adopt")


def test_rows_of_a_topic_that_was_made_again_are_refused(driven: DrivenFactory, tmp_path: Path) -> None:
    """Procedure: a query writes 30 messages; the topic is recreated, and has fewer messages, then more."""
    web = driven(partitions=2)
    web.produce(30)
    as_structured_streaming(web, tmp_path / "checkpoint")
    again = replace(web, publisher=make_again(web, partitions=2))

    for count, said in ((10, "row of offset 14, and .* ends at 5"), (30, "row at offset 14 of .* the message is not")):
        again.produce(count, seed=count)
        with pytest.raises(NothingToResolve, match=rf"{said}.*\n.*\n.* a new path, in the document"):
            web.decide("adopt")
        with pytest.raises(NothingToResolve, match=said):
            web.decide("rewind")
    with pytest.raises(NothingToResolve, match="no ledger that knows the old topic"):
        web.decide("new-topic")
