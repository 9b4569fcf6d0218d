"""Looks at topics again and again: by the watch of their source if it has one, and else by its ``topics``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.messages.source import Source, Watch
from kdi_assets.messages.topic_state import BrokerOffsets, TopicReading, TopicState, Waiting
from kdi_assets.streams.drain.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Watched:
    """The snapshot of a stream whose source knows no offsets.

    Attributes:
        snapshot: With one offset after each position that a message follows.
        first: What follows the positions.
    """

    snapshot: Snapshot
    first: Waiting


@dataclass(slots=True)
class Watches:
    """The watches of all connections, kept between looks.

    Attributes:
        leader_seconds: As in ``Watch.topics``.
    """

    leader_seconds: float
    _watches: dict[str, Watch | None] = field(default_factory=dict)

    def topics(self, connection: str, source: Source, names: Collection[str]) -> Mapping[str, TopicState | KdiError]:
        """As ``Source.topics``; absent: not asked yet."""
        if connection not in self._watches:
            self._watches[connection] = source.watch()
        watch = self._watches[connection]
        try:
            return (watch or source).topics(names, leader_seconds=self.leader_seconds)
        except KdiError as unreachable:
            return dict.fromkeys(names, unreachable)

    def anew(self, connection: str, topic: str) -> TopicState | None:
        """The topic now; ``None`` if it does not answer."""
        with suppress(KdiError):
            if watch := self._watches[connection]:
                return watch.anew(topic)
        return None

    def waiting(
        self, connection: str, snapshots: Mapping[str, tuple[Stream, Snapshot]]
    ) -> Mapping[str, Watched | KdiError]:
        """What waits of the streams of a connection, by their names; absent: a drain commits positions first."""
        watch = self._watches[connection]
        readings = {n: found for n, (stream, snapshot) in snapshots.items() if (found := _reading(stream, snapshot))}
        if watch is None or not readings:
            return {}
        answers = watch.waiting(readings, leader_seconds=self.leader_seconds)
        return {
            name: answer if isinstance(answer, KdiError) else _watched(snapshots[name][1], answer)
            for name, answer in answers.items()
        }


def _reading(stream: Stream, snapshot: Snapshot) -> TopicReading | None:
    """``None`` if nothing can wait before positions are committed."""
    commit = snapshot.position_commit
    if commit is None:
        return TopicReading(snapshot.topic, snapshot.ledger) if snapshot.ledger else None
    begins_before_now = commit.kind == "start" and stream.start != "latest"
    return TopicReading(snapshot.topic, None, commit.bookmarks) if begins_before_now else None


def _watched(snapshot: Snapshot, first: Waiting) -> Watched:
    positions = snapshot.positions()
    ends = {tp: at + (tp in first.first_at) for tp, at in positions.items()}
    known = {tp: BrokerOffsets(at, ends[tp], ends[tp]) for tp, at in positions.items()}
    return Watched(replace(snapshot, topic=replace(snapshot.topic, partitions=known)), first)
