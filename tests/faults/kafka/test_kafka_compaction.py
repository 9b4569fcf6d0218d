"""Compaction: offsets lose their messages, before a drain and during it."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import ResourceType

from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.messages.kafka import topic_config
from kdi_assets.streams.drain.errors import AccountingMismatch, UnexplainedGap
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.ledger.entry_json import entry_to_json
from kdi_assets.streams.rules import tally
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, Once
from tests.faults.topics import configure, visible_offsets
from tests.kafka_log import Produced
from tests.waiting import wait_until

pytestmark = pytest.mark.scenario("compacted topic")

GOOD = '{"meta":{"producer":{"timestamp":"2026-01-02T03:04:05+00:00"}},"url":"https://a.b/%s"}'
LATER = str(7 * 24 * 3600 * 1000)
SEGMENT_MS = 100
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": str(SEGMENT_MS),
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "0",
    "min.compaction.lag.ms": LATER,
}
"""A topic that keeps everything until ``compact`` starts the cleaner."""


def produce_rounds(web: DrivenStream, *, rounds: int, keys: int, bad: float = 0.0) -> list[Produced]:
    """Each round has the same keys; the last one is in a segment that the cleaner does not touch."""
    for number in range(rounds):
        web.produce(keys, bad=bad, seed=number)
        time.sleep(2 * SEGMENT_MS / 1000)  # the broker rolls a segment by the timestamps in it
    web.produce(keys, bad=bad, seed=rounds)
    return list(web.publisher.log)


def produce_others(web: DrivenStream) -> list[Produced]:
    """Five messages of other keys in the next segment."""
    web.publisher.flush()
    time.sleep(2 * SEGMENT_MS / 1000)
    for number in range(5):
        web.send("no json", key=f"other{number}")
    return web.publisher.flush()


def compact(web: DrivenStream, *, gone: range) -> set[int]:
    """Run the cleaner until no message is left at these offsets; the offsets that another client still reads."""
    configure(web.stream.kafka, ResourceType.TOPIC, web.stream.topic, min_compaction_lag_ms="0")
    only = web.tp()
    wait_until(lambda: not set(gone) & set(visible_offsets(web.stream.kafka, only)), seconds=60)
    configure(web.stream.kafka, ResourceType.TOPIC, web.stream.topic, min_compaction_lag_ms=LATER)
    return set(visible_offsets(web.stream.kafka, only))


def gaps(report: DrainReport) -> int:
    return sum(c.gap_offsets for c in report.commits)


@pytest.mark.core
def test_what_the_cleaner_removed_is_a_confirmed_gap(driven: DrivenFactory) -> None:
    """Purpose: offsets without a message are normal here, at the end of a range, at its head, and a range long.
    Procedure: a message that stays, four rounds of ten keys, compacted; drain in plans of ten offsets.
    Pass: plans without any message move the positions; the oracle finds exactly what another client still reads.
    """
    web = driven(partitions=1, config=COMPACTED, max_records=10)
    web.send("stays", key="stays")
    produced = produce_rounds(web, rounds=3, keys=10)
    left = compact(web, gone=range(1, 21))

    report = web.drain()

    assert [(c.offset_count, c.gap_offsets) for c in report.commits[:2]] == [(10, 9), (10, 10)]
    assert gaps(report) == 41 - len(left) >= 20
    web.assert_each_offset_once([m for m in produced if m.offset in left])
    assert web.audit().complete


@pytest.mark.compiled  # the setting for 100,000 messages
def test_a_hundred_thousand_gaps_are_confirmed_in_one_plan_and_proved_by_their_digest(driven: DrivenFactory) -> None:
    """Purpose: a changelog may have a gap at every other offset; the cost of a gap decides whether it can be drained.
    Procedure: 200,000 messages, every other one with the same key, compacted; drain in one plan.
    Pass: one commit with a short entry; the remaining messages are there once; the audit counts every gap.
    """
    web = driven(partitions=1, config=COMPACTED)
    for number in range(200_000):
        web.publisher.produce(web.stream.topic, GOOD % number, key=f"k{number}" if number % 2 else "same", partition=0)
    produced = produce_others(web)
    left = compact(web, gone=range(0, 199_998, 2))

    report = web.drain()

    (entry,) = (e for e in web.entries() if e.kind == "drain")
    assert gaps(report) == entry.gap_offsets == len(produced) - len(left) > 99_000
    assert (entry.gaps, len(entry_to_json(entry)) < 2_000) == ((), True)
    web.assert_each_offset_once([m for m in produced if m.offset in left])
    audited = web.audit()
    assert (audited.complete, audited.gaps) == (True, entry.gap_offsets)


def test_a_gap_that_nothing_explains_any_more_costs_itself_alone(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a topic that was compacted once has gaps that look like a loss; the messages around them must arrive.
    Procedure: in a cluster without transactions, five messages that stay, rounds of ten keys, compacted; the topic's
    policy becomes delete; drain, which refuses; give up exactly what it names; drain.
    Pass: the first drain takes the messages before the gap; the refusal names the gap and the command; all others
    arrive.
    """
    monkeypatch.setattr(topic_config, "knows_transactions", lambda cluster: False)
    web = driven(partitions=1, config=COMPACTED)
    produce_others(web)
    produced = produce_rounds(web, rounds=2, keys=10)
    left = compact(web, gone=range(5, 15))
    configure(web.stream.kafka, ResourceType.TOPIC, web.stream.topic, cleanup_policy="delete", retention_ms="-1")
    only, end = web.tp(), min(offset for offset in left if offset >= 5)
    gap = OffsetRange(only, 5, end)

    with pytest.raises(UnexplainedGap, match=f"accept-loss --topic-partition {only} --from 5 --until {end}") as refused:
        web.drain()
    web.assert_each_offset_once([m for m in produced if m.offset < 5])
    with pytest.raises(UnexplainedGap):
        web.drain()
    decision = web.resolve("accept-loss", topic_partition=only, start=5, until=end, because="compacted once")
    web.drain()

    assert (refused.value.offsets, decision.declared_losses) == ((gap,), (gap,))
    web.assert_each_offset_once(produced, given_up=[gap])
    audited = web.audit()
    assert (audited.complete, audited.declared_losses) == (True, gap.offset_count)


def test_a_changelog_arrives_as_its_newest_messages_and_tombstones_or_whole_where_it_was_drained_before(
    driven: DrivenFactory,
) -> None:
    """Purpose: compaction keeps the newest message of a key, and a tombstone removes the messages before it; neither is
    a loss.
    Procedure: three rounds of ten keys, then tombstones of four of them; one stream drains; all but the newest message
    or tombstone of each key are compacted away; another stream drains, and the first one once more.
    Pass: the second has one row of each of six keys, four tombstones and a gap for every removed message; the first
    keeps the messages that Kafka no longer has, and gets none twice; its audit is complete.
    """
    columns = {"host": "parse_url(url, 'HOST')", "who": "CAST(kafka.key AS string)"}
    late = driven(partitions=1, config={**COMPACTED, "delete.retention.ms": LATER}, columns=columns)
    early = late.with_definition(table=f"{late.stream.table}_early", app_id="early")
    produce_rounds(late, rounds=2, keys=10)
    for number in range(4):
        late.send(None, key=f"k{number}")
    produced = list(late.publisher.flush())
    early.drain()
    with_others = produce_others(late)
    left = compact(late, gone=range(24))

    newest = late.drain()
    again = early.drain()

    assert left == {*range(24, 34), *range(34, 39)}
    assert sorted(late.rows("who")) == [f"k{number}" for number in range(4, 10)]
    assert (newest.rows_added, newest.dead_letters, gaps(newest)) == (6, 5, 24)
    assert sum(c.tombstones for c in newest.commits) == 4
    late.assert_each_offset_once([m for m in with_others if m.offset in left])
    assert early.rows("who").count("k0") == 3
    assert (again.rows_added, again.dead_letters, gaps(again)) == (0, 5, 0)
    early.assert_each_offset_once([*produced, *with_others[len(produced) :]])
    assert early.audit().complete


@pytest.mark.parametrize("point", ["before reading", "files written"])
def test_messages_that_go_under_a_drain_are_gaps_and_none_is_counted_that_is_not_kept(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Purpose: the cleaner does not wait for a drain that has planned; and if there are too many dead letters to keep,
    they are read a second time.
    Procedure: three rounds of ten keys, some malformed, no letter is kept; drain, and run the cleaner between plan and
    reading, or between rows and dead letters; in the second case, drain again.
    Pass: if counted bad messages are gone, nothing is committed; the remaining messages arrive, the others are
    confirmed gaps.
    """
    monkeypatch.setattr(tally, "LETTERS_BYTES", 0)
    web = driven(partitions=1, config=COMPACTED)
    produced = produce_rounds(web, rounds=2, keys=10, bad=0.5)
    left: set[int] = set()
    compacting = Once(point, lambda: left.update(compact(web, gone=range(10))))

    if point == "files written":
        with pytest.raises(AccountingMismatch, match="dead letters"):
            web.drain(at=compacting)
        assert web.version() == 0
    report = web.drain(at=compacting)

    assert gaps(report) == 30 - len(left) >= 10
    web.assert_each_offset_once([m for m in produced if m.offset in left])
    assert web.audit().complete
