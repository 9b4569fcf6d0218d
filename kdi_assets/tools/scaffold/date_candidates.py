"""Candidates for the date of an event among the fields of a record, the best first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import median

from kdi_assets.tools.scaffold.field_stats import (
    FieldStats,
    JsonRecord,
    JsonValue,
    Unit,
    epoch_unit,
    moment_of,
    parse_time,
)
from kdi_assets.tools.scaffold.infer_types import Struct, ddl_name

DAY = 86400.0
LEAST_SHARE = 0.9
"""A candidate must give a date to this share of the messages."""
MISSING_PENALTY = 100
"""Subtracted from the score of a candidate, times the share of messages to which it gives no date."""
FIRST = date(2000, 1, 1)
KAFKA = "to_date(kafka.timestamp)"
_FOR = {
    **dict.fromkeys(("timestamp", "ts", "datetime", "time", "epoch", "event", "occurred", "happened"), 5),
    **dict.fromkeys(("at", "date", "when", "day", "millis", "ms"), 4),
    **dict.fromkeys(("created", "produced", "placed", "published", "emitted", "logged", "sent", "request"), 2),
}
_AGAINST = {
    **dict.fromkeys(("birth", "birthday", "born", "dob"), 20),
    **dict.fromkeys(("expires", "expiry", "expiration", "until", "due", "deadline", "valid", "eta"), 12),
    **dict.fromkeys(("scheduled", "planned", "next", "delivery", "deleted", "previous", "exp", "nbf"), 8),
    **dict.fromkeys(("updated", "modified", "changed", "received", "ingested", "processed", "loaded", "last"), 3),
    **dict.fromkeys(("registered", "joined", "signup", "first", "ended", "end"), 3),
}
"""Scores of words in field names, for and against the time of the event."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An expression for the date.

    Attributes:
        sql: Spark SQL that gives a date.
        what: What the field holds, in words.
        unit: The unit of numbers since 1970.
        dated: Number of messages with a date.
        dates: The first and the last date; ``None`` without messages.
        score: The higher the better; below zero, the field is not the time of the event.
    """

    path: tuple[str, ...]
    sql: str
    what: str
    unit: Unit | None = None
    dated: int = 0
    dates: tuple[date, date] | None = None
    score: float = 0

    def moment(self, record: JsonRecord) -> datetime | None:
        """The time of a message's event."""
        return moment_of(_value_at(record, self.path), self.unit)


def candidates(
    declared: Struct, records: Sequence[JsonRecord], written: Sequence[datetime | None], *, now: datetime
) -> list[Candidate]:
    """The candidates, the best first.

    Args:
        records: The decoded messages; without any, only the names and types of fields count.
        written: When each was written to Kafka.
        now: Later dates are implausible, except for the next year.
    """
    found = (_candidate(*leaf, [_value_at(record, leaf[0]) for record in records]) for leaf in _leaves(declared))
    scored = (_scored(candidate, records, written, now) for candidate in found if candidate)
    return sorted(filter(None, scored), key=lambda candidate: -candidate.score)


def is_plausible(day: date, now: datetime) -> bool:
    """Whether an event may have that date."""
    return FIRST <= day <= now.date() + timedelta(days=366)


def _value_at(record: JsonRecord, path: Sequence[str]) -> JsonValue:
    value: JsonValue = record
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _leaves(record: Struct, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, FieldStats]]:
    for name, declared in record.fields.items():
        if isinstance(declared, Struct):
            yield from _leaves(declared, (*path, name))
        elif isinstance(declared, str):
            yield (*path, name), declared, record.stats.get(name, FieldStats())


def _candidate(
    path: tuple[str, ...], declared: str, stats: FieldStats, values: Sequence[JsonValue]
) -> Candidate | None:
    """The expression that turns a field into a date; ``None`` if there is none."""
    sql = ".".join(ddl_name(step) for step in path)
    match declared:
        case "date":
            return Candidate(path, sql, "a date")
        case "timestamp" | "timestamp_ntz" as kind:
            local = kind == "timestamp_ntz" or stats.count("date", "local")
            what = f"a timestamp{', without a time zone: read as UTC' if local else ''}"
            return Candidate(path, f"to_date({sql})", what)
        case "string":
            texts = [value for value in values if isinstance(value, str)]
            if texts and sum(parse_time(text) is not None for text in texts) >= LEAST_SHARE * len(texts):
                return Candidate(path, f"to_date(try_to_timestamp({sql}))", "text with a time")
            return None
    numbers = [v for v in values if isinstance(v, int | Decimal) and not isinstance(v, bool) and v != 0]
    units = {epoch_unit(number) for number in numbers}
    unit = units.pop() if len(units) == 1 else None
    if unit is None:
        return None
    number = sql if unit == "seconds" or declared == "bigint" else f"CAST({sql} AS bigint)"
    return Candidate(path, f"to_date(timestamp_{unit}({number}))", f"{unit} since 1970", unit)


def _scored(
    candidate: Candidate, records: Sequence[JsonRecord], written: Sequence[datetime | None], now: datetime
) -> Candidate | None:
    """The candidate with its score; ``None`` if too few messages have a date, or numbers are hardly times."""
    both = zip(map(candidate.moment, records), written, strict=True)
    plausible = [(moment, w) for moment, w in both if moment is not None and is_plausible(moment.date(), now)]
    if records and len(plausible) < LEAST_SHARE * len(records):
        return None
    ahead = [(moment - w).total_seconds() for moment, w in plausible if w is not None]
    distance = median(ahead) if ahead else None
    named = sum(_FOR.get(word.lower(), 0) for word in _WORDS.findall(candidate.path[-1]))
    against = sum(_AGAINST.get(word.lower(), 0) for step in candidate.path for word in _WORDS.findall(step))
    if candidate.unit and not named and (distance is None or abs(distance) > DAY):
        return None
    # An event is written to Kafka soon after it happens, never before.
    near = 0 if distance is None or distance < -7 * DAY else 2 if abs(distance) <= DAY else -8 if distance > DAY else 1
    missing = MISSING_PENALTY * (1 - len(plausible) / len(records)) if records else 0
    score = min(named, 12) - against - (len(candidate.path) - 1) + near - missing
    dates = [moment.astimezone(UTC).date() for moment, _ in plausible]
    span = (min(dates), max(dates)) if dates else None
    return replace(candidate, dated=len(plausible), dates=span, score=score)
