"""Texts and numbers that say when something was, as the decoders and Spark take them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal

Form = Literal["date", "local", "zoned", "other"]
"""A date; a timestamp without and with a zone, as the decoders take them; one that only a conversion takes."""
Unit = Literal["seconds", "millis", "micros"]
PER_SECOND: dict[Unit, int] = {"seconds": 1, "millis": 10**3, "micros": 10**6}
MICROS_DIGITS = 6
_FIRST, _LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2000, 2100))
_TEXT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?P<time>[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.(?P<fraction>[0-9]+))?(?P<zone>Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?)?"
)


def time_of(text: str) -> tuple[Form, datetime] | None:
    """The form of a text that says a time, and the moment; a date is its midnight, no zone is UTC."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None  # the 30th of February
    if found["time"] is None:
        return "date", at
    zone = found["zone"] or ""
    if len(found["fraction"] or "") > MICROS_DIGITS or (len(zone) > len("+00") and ":" not in zone):
        return "other", at
    return ("zoned" if zone else "local"), at


def unit_of(number: int | Decimal) -> Unit | None:
    """The unit in which a number counts from 1970 to a day of this century; ``None`` if in none."""
    return next((unit for unit, per in PER_SECOND.items() if _FIRST * per <= number < _LAST * per), None)


def moment_of(value: object, unit: Unit | None) -> datetime | None:
    """The moment that a value is, numbers counted in a unit since 1970; ``None`` if it is none."""
    match value:
        case str():
            found = time_of(value)
            return found[1] if found else None
        case int() | Decimal() if unit and unit_of(value) == unit:
            return datetime.fromtimestamp(float(value) / PER_SECOND[unit], UTC)
    return None
