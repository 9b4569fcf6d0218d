"""What a sensor remembers between ticks, in its cursor: hints, and never the truth, which is in the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256

from kdi_assets.stream import TopicPartition


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of one stream.

    Attributes:
        positions: Digest of the positions when a run was last requested; empty: none was.
        requested_at: When, in seconds since the epoch.
        futile: Requests in a row before the last one that moved no position.
        table_id: The table whose log was compared with Dagster's events.
        letters: Version of the dead letters that the newest entry seen counted on; -1 if unknown.
        reconciled: Its version up to which that was done, inclusive; -1: nothing was, or there is no table yet.
    """

    positions: str = ""
    requested_at: float = 0.0
    futile: int = 0
    table_id: str = ""
    reconciled: int = -1
    letters: int = -1

    def requested(self, positions: str, now: float) -> Memory:
        """The memory after a run was requested at these positions."""
        futile = self.futile + 1 if positions == self.positions else 0
        return replace(self, positions=positions, requested_at=now, futile=futile)


def digest(positions: Mapping[TopicPartition, int | None]) -> str:
    """A short text that is another one as soon as any position moved."""
    text = ",".join(f"{tp}={position}" for tp, position in sorted(positions.items()))
    return sha256(text.encode()).hexdigest()[:16]


def read_cursor(cursor: str | None) -> dict[str, Memory]:
    """The memories of a cursor, by stream; one that cannot be read holds none: a tick without hints is only slower."""
    try:
        return {stream: Memory(**kept) for stream, kept in json.loads(cursor or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def write_cursor(memories: Mapping[str, Memory]) -> str:
    """The cursor that holds the memories."""
    return json.dumps({stream: asdict(memory) for stream, memory in sorted(memories.items())})
