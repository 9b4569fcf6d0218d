"""What a rewind of a table of Kinesis asks of the way back, and what it refuses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.held import SetBack
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.streams.ledger.positions import read_ledger
from kdi_assets.streams.resolve.context import ResolveContext
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.rewind import Target
from kdi_assets.streams.resolve.rewind_to_spans import rewind_to_spans
from tests.table_by_hand import TOPIC, TableByHand, orders

EXPIRED, OPEN = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
NOW = datetime(2026, 5, 6, 12, tzinfo=UTC)
MARK = Bookmark("49")


@dataclass
class Edges:
    """A way back whose edges are the tens."""

    found: Mapping[TopicPartition, int]
    gone: Mapping[TopicPartition, int]

    def offsets_at(self, moment: datetime, of: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: at for tp, at in self.found.items() if tp in of}

    def to(self, offsets: Mapping[TopicPartition, int]) -> SetBack:
        edges = {tp: at // 10 * 10 for tp, at in offsets.items()}
        return SetBack(edges, dict.fromkeys(edges, MARK), ("a note",), self.gone)


def proposed(context: ResolveContext, target: Target, **of_edges: Any) -> Any:
    return rewind_to_spans(context, Edges(**{"found": {OPEN: 17}, "gone": {}, **of_edges}), target)


@pytest.fixture
def context(lake: str) -> ResolveContext:
    """A shard that has expired since version 2, after a record of 11 o'clock, and another one that is open."""
    table = TableByHand(lake)
    arrived = int((NOW - timedelta(hours=1)).timestamp() * 1000)
    for of_expired, of_open in ((10, 5), (13, 20), (13, 30)):
        marks = {EXPIRED: Bookmark("9", arrived=arrived, ended=True), OPEN: Bookmark("8")}
        table.ledger_commit("drain", at={EXPIRED: of_expired, OPEN: of_open}, bookmarks=marks)
    topic = TopicState(TOPIC, "topic", {OPEN: BrokerOffsets(0, 0, 0)}, as_of=NOW)
    ledger = read_ledger(orders(), lake, topic_id="topic", topic_partitions=2)
    assert ledger
    log = TableLog.existing(ledger.uri)
    given: dict[str, Any] = {"action": "rewind", "session": lambda: pytest.fail("no rows are read")}
    return ResolveContext(stream=orders(), lake=lake, topic=topic, log=log, ledger=ledger, **given)


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (Target(only=OPEN, offset=25), 20),
        (Target(only=OPEN, version=2), 20),
        (Target(version=2), 20),
        (Target(moment=NOW - timedelta(minutes=59)), 10),
        (Target(only=OPEN, moment=NOW - timedelta(hours=9)), 10),
    ],
)
def test_the_edge_its_bookmark_and_the_notes_are_proposed(context: ResolveContext, target: Target, after: int) -> None:
    found = proposed(context, target)

    assert (found.after, found.fields) == ({OPEN: after}, {"bookmarks": {OPEN: MARK}})
    assert f"is drained again: [{after}, 30) of {OPEN}; a note" in found.reason


@pytest.mark.parametrize(
    ("target", "refused"),
    [
        (Target(version=1), f"{EXPIRED} has expired, and its records since version 1 are gone"),
        (
            Target(moment=NOW - timedelta(hours=2)),
            f"{EXPIRED} has expired, and its records of 2026-05-06T10:00",
        ),
        (Target(only=EXPIRED, offset=3), f"{EXPIRED} has expired"),
        (Target(only=OPEN, offset=30), "nothing below the positions"),
        (Target(only=OPEN, offset=31), "nothing below the positions"),
        (Target(moment=NOW + timedelta(hours=1)), "nothing below the positions"),
        (Target(moment=NOW.replace(tzinfo=None)), "has no zone"),
        (Target(offset=4), "--to needs --topic-partition"),
        (Target(only=OPEN), "--topic-partition needs"),
        (Target(only=OPEN, offset=1, version=1), "exclude each other"),
    ],
)
def test_what_is_not_below_the_positions_or_not_held_is_refused(
    context: ResolveContext, target: Target, refused: str
) -> None:
    with pytest.raises(NothingToResolve, match=refused):
        proposed(context, target)


@pytest.mark.parametrize(
    ("held_from", "said", "then"),
    [
        (20, "all records only from offset 20 on", f"kdi resolve .* rewind --topic-partition {OPEN} --to 20"),
        (30, "no record below the position", "kdi history"),
    ],
)
def test_records_that_are_gone_are_refused_with_what_is_left(
    context: ResolveContext, held_from: int, said: str, then: str
) -> None:
    with pytest.raises(NothingToResolve, match=f"again from offset 0 on, and Kinesis holds {said}") as refused:
        proposed(context, Target(only=OPEN, offset=7), gone={OPEN: held_from})
    assert refused.match(then)


def test_all_shards_whose_records_are_gone_are_named_at_once(context: ResolveContext) -> None:
    """Several days back many shards have aged out: a command for each of them, and not one after each refusal."""
    other, third = TopicPartition(TOPIC, 2), TopicPartition(TOPIC, 3)
    positions = {OPEN: 30, other: 40, third: 50}
    topic = replace(context.topic, partitions=dict.fromkeys(positions, BrokerOffsets(0, 0, 0)))
    several = replace(context, topic=topic, ledger=replace(context.ledger, positions=positions))
    moment = Target(moment=NOW - timedelta(hours=2))

    with pytest.raises(NothingToResolve) as refused:
        proposed(several, moment, found=dict.fromkeys(positions, 5), gone={OPEN: 20, other: 30})

    assert (
        f"{OPEN} would be read again from offset 0 on, and Kinesis holds all records only from" in refused.value.detail
    )
    assert f"{other} would be read again from offset 0 on, and Kinesis holds all records only" in refused.value.detail
    commands = [
        f"kdi resolve bronze/orders rewind --topic-partition {tp} --to {at}" for tp, at in ((OPEN, 20), (other, 30))
    ]
    assert refused.value.then == f"{'; '.join(commands)}   (the other shards one by one, with --topic-partition)"


def test_all_shards_that_have_expired_are_named_at_once(context: ResolveContext) -> None:
    also = TopicPartition(TOPIC, 3)
    entry = context.ledger.entry
    assert entry
    marks = {**entry.bookmarks, also: entry.bookmarks[EXPIRED]}
    ledger = replace(context.ledger, positions={**context.positions, also: 5}, entry=replace(entry, bookmarks=marks))

    with pytest.raises(
        NothingToResolve, match=f"{EXPIRED}, {also} have expired, and their records of 2026-05-06T10:00"
    ):
        proposed(replace(context, ledger=ledger), Target(moment=NOW - timedelta(hours=2)))


def test_unknown_positions_are_refused(context: ResolveContext) -> None:
    with pytest.raises(NothingToResolve, match="the log no longer shows which records were read"):
        proposed(replace(context, gap=True), Target())
