"""What a sensor remembers between ticks, in its cursor: hints, and never the truth, which is in the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from kdi_assets.stream.field_types import Declared


@dataclass(frozen=True, slots=True)
class Memory(Declared):
    """What is remembered of one stream.

    Attributes:
        positions: Digest of the positions when a run was last requested; empty: none was.
        requested_at: When, in seconds since the epoch.
        futile: Requests in a row before the last one that moved no position.
        catching_up: Whether a limit was reached, and half of it still is.
        table_id: The table whose log was compared with Dagster's events.
        letters: Version of the dead letters that the newest entry seen counted on; -1 if unknown.
        reconciled: Its version up to which that was done, inclusive; -1: nothing was, or there is no table yet.
    """

    positions: str = ""
    requested_at: float = 0.0
    futile: int = 0
    catching_up: bool = False
    table_id: str = ""
    reconciled: int = -1
    letters: int = -1

    def requested(self, positions: str, now: float) -> Memory:
        """The memory after a run was requested at these positions."""
        futile = self.futile + 1 if positions == self.positions else 0
        return replace(self, positions=positions, requested_at=round(now, 1), futile=futile)


@dataclass(frozen=True, slots=True)
class Followed(Declared):
    """What is remembered of an incident; moments are seconds since the epoch.

    Attributes:
        since: When it was first seen.
        told: Whether somebody was told.
        over: When it was first seen to be over; 0: it is not.
    """

    since: int = 0
    told: bool = False
    over: int = 0


@dataclass(frozen=True, slots=True)
class Memories(Declared):
    """A cursor: what is remembered of streams, by name, and of incidents."""

    streams: Mapping[str, Memory] = field(default_factory=dict)
    incidents: Mapping[str, Followed] = field(default_factory=dict)

    def of(self, stream: str) -> Memory:
        """What is remembered of a stream; nothing, if it is new."""
        return self.streams.get(stream, Memory())


_CURSOR = TypeAdapter(Memories)


def read_cursor(cursor: str | None) -> Memories:
    """The memories of a cursor; one that cannot be read holds none: a tick without hints is only slower."""
    try:
        return _CURSOR.validate_json(cursor or "{}")
    except ValidationError:
        return Memories()


def write_cursor(memories: Memories) -> str:
    """The cursor that holds the memories; what is as in a new one is left out: Dagster keeps a cursor for each tick."""
    return _CURSOR.dump_json(memories, exclude_defaults=True).decode()
