"""Texts and numbers that say when something was, told as the decoders and Spark would take them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Literal

TimeText = Literal["date", "timestamp", "zoned", "loose"]
"""A date; a timestamp without and with a zone, each as the decoders take it; one that only a conversion takes."""

_TEXT = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"([T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    # Spark reads no zone behind minutes, though the decoder's pattern takes one.
    r"(:(?P<second>[0-9]{2})(\.(?P<fraction>[0-9]+))?(?P<zone>Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?)?"
)
_MICROSECOND_DIGITS = 6
_MOST_ZONE = timedelta(hours=18)  # Java's


@dataclass(frozen=True, slots=True)
class Told:
    """What a text says: which form it has, and the moment; a date is its midnight, no zone is UTC."""

    form: TimeText
    at: datetime

    @property
    def date(self) -> date:
        """The date in UTC."""
        return self.at.astimezone(UTC).date()


def told(text: str) -> Told | None:
    """What a text says of time; ``None`` if it says nothing that we know to read."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    zone_text = found["zone"] or ""
    try:
        day = date.fromisoformat(found["date"])
        hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
        fraction = (found["fraction"] or "")[:_MICROSECOND_DIGITS].ljust(_MICROSECOND_DIGITS, "0")
        zone = _zone(zone_text)
        at = datetime(day.year, day.month, day.day, hour, minute, second, int(fraction), zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None  # the 30th of February
    if found["hour"] is None:
        return Told("date", at)
    finer = (found["fraction"] or "")[_MICROSECOND_DIGITS:].strip("0")
    if finer or (len(zone_text) > len("+00") and ":" not in zone_text):
        return Told("loose", at)
    return Told("zoned" if zone_text else "timestamp", at)


def _zone(text: str) -> timezone:
    """The zone of an offset; UTC of none.

    Raises:
        ValueError: There is no such offset.
    """
    if text in ("", "Z"):
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    minutes = int(digits[2:])
    offset = timedelta(hours=int(digits[:2]), minutes=minutes)
    if offset > _MOST_ZONE or minutes > 59:
        raise ValueError(text)
    return timezone(-offset if text[0] == "-" else offset)


Unit = Literal["seconds", "millis", "micros", "nanos"]
PER_SECOND: dict[Unit, int] = {"seconds": 1, "millis": 10**3, "micros": 10**6, "nanos": 10**9}
_FIRST, _LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2000, 2100))


def unit_of(number: int | Decimal) -> Unit | None:
    """The unit in which a number would count from 1970 to a day of this century; ``None`` if in none."""
    return next((unit for unit, per in PER_SECOND.items() if _FIRST * per <= number < _LAST * per), None)


def moment_of(number: int | Decimal, unit: Unit) -> datetime | None:
    """The moment that a number is, counted in a unit since 1970; ``None`` if that is no date."""
    try:
        return datetime.fromtimestamp(float(number) / PER_SECOND[unit], UTC)
    except (ValueError, OverflowError, OSError):
        return None


def sql_of_number(sql: str, unit: Unit, *, whole: bool) -> str:
    """Spark SQL: the timestamp that a number is; where it is not ``whole``, it may have a fraction."""
    if unit == "seconds":
        return f"timestamp_seconds({sql})"
    number = sql if whole else f"CAST({sql} AS bigint)"
    return f"timestamp_micros({number} div 1000)" if unit == "nanos" else f"timestamp_{unit}({number})"
