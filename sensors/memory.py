"""A sensor's cursor: hints for the next tick, never the truth, which is in the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeVar

from pydantic import AliasChoices, Field, TypeAdapter, ValidationError

from kdi_assets.documents.model.field_types import Declared

Hints = TypeVar("Hints")
RunsInVain = Annotated[int, Field(validation_alias=AliasChoices("runs_in_vain", "futile"))]
"""A number of runs; cursors of earlier releases have its second name."""


@dataclass(frozen=True, slots=True)
class Memory(Declared):
    """The hints for one stream. The field names are keys of the cursor.

    Attributes:
        positions: Digest of the positions when a run was last requested; empty before the first request.
        requested_at: When that was, in seconds since the epoch.
        runs_in_vain: Requests in a row, before the last one, whose runs moved no position.
        catching_up: A limit was reached, and the backlog is not below half of it yet.
        table_id: The table whose log was compared with Dagster's events.
        reconciled: Its version up to which the log was compared, inclusive; -1: none yet.
        letters: Version of the dead-letter table in the newest entry that was compared; -1 if unknown.
    """

    positions: str = ""
    requested_at: float = 0.0
    runs_in_vain: RunsInVain = 0
    catching_up: bool = False
    table_id: str = ""
    reconciled: int = -1
    letters: int = -1

    def requested(self, positions: str, now: float) -> Memory:
        """The memory after a run was requested at these positions."""
        runs_in_vain = self.runs_in_vain + 1 if positions == self.positions else 0
        return replace(self, positions=positions, requested_at=round(now, 1), runs_in_vain=runs_in_vain)


@dataclass(frozen=True, slots=True)
class FollowerMemory(Declared):
    """The hints for one refined or served table. The field names are keys of the cursor; times in seconds.

    Attributes:
        progress: Of the table when a run was last requested; unchanged after the run: it committed nothing.
        requested_at: When that was.
        runs_in_vain: Requests in a row, before the last one, whose runs committed nothing.
        looked_at: When the table was last looked at; its next cron time counts from here.
        table_id: The refined table whose log was compared with Dagster's events.
        reconciled: Its version up to which the log was compared, inclusive; -1: none yet.
    """

    progress: str = ""
    requested_at: float = 0.0
    runs_in_vain: RunsInVain = 0
    looked_at: float = 0.0
    table_id: str = ""
    reconciled: int = -1


@dataclass(frozen=True, slots=True)
class TrackedIncident(Declared):
    """The state of an incident. The field names are keys of the cursor; times are seconds since the epoch.

    Attributes:
        since: When a tick first saw it.
        told: Its beginning was announced.
        over: When a tick first saw its end; 0: it goes on.
    """

    since: int = 0
    told: bool = False
    over: int = 0


@dataclass(frozen=True, slots=True)
class Memories(Declared):
    """The content of a cursor: streams by name, incidents by key."""

    streams: Mapping[str, Memory] = field(default_factory=dict)
    incidents: Mapping[str, TrackedIncident] = field(default_factory=dict)

    def of(self, stream: str) -> Memory:
        """The memory of a stream; the default for a new one."""
        return self.streams.get(stream, Memory())


_CURSOR = TypeAdapter(Memories)


def read_cursor(cursor: str | None) -> Memories:
    """What the lag sensor's cursor holds."""
    return read_json(_CURSOR, cursor)


def read_json(adapter: TypeAdapter[Hints], cursor: str | None) -> Hints:
    """What a cursor holds; empty if it cannot be read, which only makes the tick slower."""
    try:
        return adapter.validate_json(cursor or "{}")
    except ValidationError:
        return adapter.validate_json("{}")


def write_cursor(memories: Memories) -> str:
    """The cursor with this content, without defaults: Dagster stores a cursor with every tick."""
    return _CURSOR.dump_json(memories, exclude_defaults=True).decode()
