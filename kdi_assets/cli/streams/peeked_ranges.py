"""Where `kdi peek` searches messages, and who reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import typer

from kdi_assets.cli.output import print_progress
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdi_assets.messages.held import ReadMessages
    from kdi_assets.messages.source import Source
    from kdi_assets.operate.monitoring.backlog_reader import Backlog
    from kdi_assets.streams.drain.snapshot import Snapshot
    from kdi_assets.streams.ledger.positions import LedgerState

WINDOW = 1000
"""Offsets of a topic partition in which messages are searched; transaction markers and compacted offsets hold none."""
Which = Literal["next", "newest", "from offset"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants to see; at most one of ``offset`` and ``last``.

    Attributes:
        only: Of this topic partition; ``None``: of all.
    """

    count: int
    only: TopicPartition | None = None
    offset: int | None = None
    last: bool = False


@dataclass(frozen=True, slots=True)
class Searched:
    """Where the messages are.

    Attributes:
        windows: The ranges in which they are searched, none empty.
        read: Gives the messages of any part of them.
    """

    which: Which
    windows: Sequence[OffsetRange]
    read: ReadMessages


@contextmanager
def searched(stream: Stream, session: Callable[[], SparkSession], asked: Wanted) -> Iterator[Searched]:
    """Where the messages are; they can be read until the body ends.

    Raises:
        typer.BadParameter: The topic does not have the topic partition or the offset.
    """
    from kdi_assets.messages.of_stream import source_at, source_of
    from kdi_assets.runtime.spark_failures import translated

    if not isinstance(stream.cluster, KinesisRegion):
        which, windows = _windows(_backlog(stream), asked)
        yield Searched(which, windows, lambda ranges: source_of(stream).read(session(), ranges))
        return
    # By polling: a consumer of the stream's own would take its shards from a drain.
    source = source_at(stream.cluster, None, stream.name)
    with translated(lambda failure: source.failure(failure.root)), _numbered(stream, source, session, asked) as found:
        yield found


def _backlog(stream: Stream) -> Backlog:
    """The stream's backlog; a refusal is only printed if the messages can be shown in spite of it."""
    from kdi_assets.operate.monitoring.backlog_reader import read_backlog

    backlog = read_backlog(stream, Settings.from_environment().lake)
    if backlog.refusal and not backlog.topic_partitions:
        raise backlog.refusal
    if backlog.refusal:
        print_progress(f"a drain would be refused:\n{backlog.refusal}")
    return backlog


def _windows(backlog: Backlog, asked: Wanted) -> tuple[Which, list[OffsetRange]]:
    held = {tp: backlog.topic_partitions[tp] for tp in _chosen(backlog.topic_partitions, asked)}
    if asked.offset is not None:
        tp, b = next(iter(held.items()))
        if not b.earliest <= asked.offset < b.end:
            raise typer.BadParameter(f"{tp} holds [{b.earliest}, {b.end})", param_hint="--offset")
        return "from offset", [OffsetRange(tp, asked.offset, min(b.end, asked.offset + WINDOW))]
    starts = {tp: max(b.earliest, b.position) for tp, b in held.items() if b.position is not None}
    waiting = [OffsetRange(tp, at, min(held[tp].end, at + WINDOW)) for tp, at in starts.items() if at < held[tp].end]
    if waiting and not asked.last:
        return "next", sorted(waiting)
    newest = [OffsetRange(tp, max(b.earliest, b.end - WINDOW), b.end) for tp, b in held.items() if b.earliest < b.end]
    return "newest", sorted(newest)


def _chosen(there: Mapping[TopicPartition, object], asked: Wanted) -> list[TopicPartition]:
    chosen = sorted(tp for tp in there if asked.only in (None, tp))
    if not chosen:
        has = ", ".join(map(str, sorted(there)))
        raise typer.BadParameter(f"the topic has no {asked.only}; it has {has}", param_hint="--topic-partition")
    if asked.offset is not None and len(chosen) > 1:
        raise typer.BadParameter("it needs --topic-partition: the topic has several", param_hint="--offset")
    return chosen


@contextmanager
def _numbered(stream: Stream, source: Source, session: Callable[[], SparkSession], asked: Wanted) -> Iterator[Searched]:
    """As ``searched``, of a source whose messages have offsets by being read: what follows the positions is held."""
    from kdi_assets.messages.coordinates import ranges_sql
    from kdi_assets.streams.drain.cached_messages import cached
    from kdi_assets.streams.drain.snapshot import take_snapshot

    lake = Settings.from_environment().lake
    snapshot = take_snapshot(stream, lake)
    positions = snapshot.positions()
    chosen = _chosen(positions, asked)
    if asked.offset is None and not asked.last:
        most = asked.count * len(positions)
        with source.hold(session, snapshot.topic, _ledger_ahead(stream, lake, snapshot), most=most) as held:
            ends = {tp: held.topic.partitions[tp].end for tp in chosen if tp in held.topic.partitions}
            ahead = [OffsetRange(tp, positions[tp], end) for tp, end in ends.items() if positions[tp] < end]
            if held.read and ahead:
                yield Searched("next", ahead, held.read)
                return
    found = _drained(stream, lake, source, session, snapshot, {tp: positions[tp] for tp in chosen}, asked)
    if not found.windows:
        yield found
        return
    with cached(found.read(found.windows)) as messages:  # Kinesis gives whole spans each time
        yield replace(found, read=lambda ranges: messages.where(ranges_sql(ranges)))


def _ledger_ahead(stream: Stream, lake: str, snapshot: Snapshot) -> LedgerState:
    """The ledger; of a table that was never drained into, as the first drain would begin it."""
    from kdi_assets.streams.ledger.entry import LedgerEntry
    from kdi_assets.streams.ledger.positions import LedgerState

    if snapshot.ledger and snapshot.ledger.entry:
        return snapshot.ledger
    positions, topic, step = snapshot.positions(), snapshot.topic, snapshot.position_commit
    entry = LedgerEntry(
        version=0,
        kind="start",
        app_id=stream.app_id,
        attempt_id="",
        topic=topic.topic,
        topic_id=topic.topic_id,
        table_id="",
        positions=positions,
        bookmarks=step.bookmarks if step else {},
    )
    return LedgerState(
        uri=stream.table_uri(lake),
        version=0,
        table_id="",
        ledger_version=0,
        positions=positions,
        transactions={},
        restored_to=None,
        table_id_matches=True,
        topic_id_matches=True,
        entry=entry,
    )


def _drained(
    stream: Stream,
    lake: str,
    source: Source,
    session: Callable[[], SparkSession],
    snapshot: Snapshot,
    positions: Mapping[TopicPartition, int],
    asked: Wanted,
) -> Searched:
    """Messages below the positions, to be read again: from the offset, or the newest ones."""
    from kdi_assets.streams.ledger.history import history_of

    if asked.offset is None:
        which: Which = "newest"
        ranges = [OffsetRange(tp, max(0, at - asked.count), at) for tp, at in positions.items() if at]
    else:
        which = "from offset"
        ranges = [OffsetRange(tp, asked.offset, min(at, asked.offset + WINDOW)) for tp, at in positions.items()]
        if ranges[0].start >= ranges[0].end:
            tp, at = next(iter(positions.items()))
            raise typer.BadParameter(f"{tp} is drained up to {at}", param_hint="--offset")
    history = history_of(stream, lake)
    again = source.again(snapshot.topic, ranges, reversed(history.entries if history else ()))
    windows = again.held(ranges)
    if asked.offset is not None and [w.start for w in windows] != [asked.offset]:
        later = f"; {windows[0].start} is the next one that can" if windows else ""
        raise typer.BadParameter(f"{asked.offset} cannot be read again{later}", param_hint="--offset")
    return Searched(which, windows, lambda ranges: again.read(session(), ranges))
