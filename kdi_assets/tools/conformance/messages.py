"""What is produced, and what must become of it: the suite's own reading of a message, without any writer's code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any, Literal

Fate = Literal["row", "dead letter", "row or dead letter", "no trace needed", "nothing"]
"""What a message must become. Tombstones need no trace and may have one; messages of aborted transactions become
nothing."""

FIELDS: Mapping[str, type | tuple[type, ...]] = {"id": int, "name": str, "amount": (int, float), "at": str}
"""The fields of a message; the first and the last must be there. Everything else that it has must be kept too."""
EARLIEST_DATE = date(2020, 1, 1)


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that the broker acknowledged.

    Attributes:
        topic: Which topic of the name: 0 is the first, 1 the one created after it was deleted.
    """

    topic: int
    partition: int
    offset: int
    value: bytes | None
    fate: Fate


def good_values(
    *, ids: Iterator[int], added: Mapping[str, object], days_ago: tuple[int, ...], now: datetime
) -> Iterator[bytes]:
    """Good messages without end."""
    for number in count():
        at = now - timedelta(days=days_ago[number % len(days_ago)], seconds=number % 3600)
        id_ = next(ids)
        # Quarters are exact in every binary and decimal type.
        said = {"id": id_, "name": f"näme {id_}", "amount": id_ / 4, "at": f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"}
        yield json.dumps({**said, **added}, ensure_ascii=False).encode()


def record_of(value: bytes) -> dict[str, Any] | None:
    """The message's fields; none if no row can be right."""
    try:
        said = json.loads(value.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not {"id", "at"} <= said.keys():
        return None
    fits = (
        isinstance(said[name], kind) and not isinstance(said[name], bool)
        for name, kind in FIELDS.items()
        if said.get(name) is not None or name in ("id", "at")
    )
    return said if all(fits) else None


def fate_of(value: bytes | None, *, today: date) -> Fate:
    """What a visible message must become."""
    if value is None:
        return "no trace needed"
    said = record_of(value)
    if said is None:
        return "dead letter"
    day = date_of(said)
    plain = day is not None and EARLIEST_DATE <= day <= today + timedelta(days=1)
    # Whether a table takes a date of 1850, or of no calendar, is for its owner to say.
    return "row" if plain else "row or dead letter"


def date_of(said: Mapping[str, Any]) -> date | None:
    """The UTC date of a message's fields; none if there is no such date."""
    try:
        return datetime.fromisoformat(str(said["at"])).astimezone(UTC).date()
    except (ValueError, OverflowError):
        return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
