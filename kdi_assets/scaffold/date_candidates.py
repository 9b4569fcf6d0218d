"""Which expression gives the date of a message's event: candidates among the record's fields, best first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import median

from kdi_assets.scaffold.field_stats import FieldStats
from kdi_assets.scaffold.infer_types import Struct, ddl_name
from kdi_assets.scaffold.json_text import JsonRecord, JsonValue
from kdi_assets.scaffold.timestamps import Unit, moment_of, time_of, unit_of

DAY = 86400.0
USUAL_SHARE = 0.9
"""Of the messages that a candidate must give a date, else it is not worth a mention."""
MISSING = 100
"""How much it counts against a candidate if it gives no date at all; in proportion, if it gives few messages none."""
FIRST = date(2000, 1, 1)
KAFKA = "to_date(kafka.timestamp)"
_GOOD = {
    **dict.fromkeys(("timestamp", "ts", "datetime", "time", "epoch", "event", "occurred", "happened"), 5),
    **dict.fromkeys(("at", "date", "when", "day", "millis", "ms"), 4),
    **dict.fromkeys(("created", "produced", "placed", "published", "emitted", "logged", "sent", "request"), 2),
}
_BAD = {
    **dict.fromkeys(("birth", "birthday", "born", "dob"), 20),
    **dict.fromkeys(("expires", "expiry", "expiration", "until", "due", "deadline", "valid", "eta"), 12),
    **dict.fromkeys(("scheduled", "planned", "next", "delivery", "deleted", "previous", "exp", "nbf"), 8),
    **dict.fromkeys(("updated", "modified", "changed", "received", "ingested", "processed", "loaded", "last"), 3),
    **dict.fromkeys(("registered", "joined", "signup", "first", "ended", "end"), 3),
}
"""Words of names: how much they speak for the time of the event itself, and against it."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An expression for the date.

    Attributes:
        sql: Spark SQL that gives a date.
        what: What the field holds, in words.
        unit: Of numbers, what they count since 1970.
        given: Messages that it gives a date.
        dates: The first and the last of these; ``None`` if none was looked at.
        worth: How much speaks for it; below zero it is no event's time.
    """

    path: tuple[str, ...]
    sql: str
    what: str
    unit: Unit | None = None
    given: int = 0
    dates: tuple[date, date] | None = None
    worth: float = 0

    def moment(self, record: JsonRecord) -> datetime | None:
        """When a message says that it was."""
        return moment_of(_at(record, self.path), self.unit)


def candidates(
    declared: Struct, records: Sequence[JsonRecord], written: Sequence[datetime | None], *, now: datetime
) -> list[Candidate]:
    """The candidates, the best first.

    Args:
        records: Those that were decoded; with none, fields are judged by their names and types alone.
        written: When each was written to Kafka.
        now: Ends what can be a date.
    """
    read = (_reading(*leaf, [_at(record, leaf[0]) for record in records]) for leaf in _leaves(declared))
    judged = (_judged(candidate, records, written, now) for candidate in read if candidate)
    return sorted(filter(None, judged), key=lambda candidate: -candidate.worth)


def is_plausible(day: date, now: datetime) -> bool:
    """Whether an event may have that date."""
    return FIRST <= day <= now.date() + timedelta(days=366)


def _at(record: JsonRecord, path: Sequence[str]) -> JsonValue:
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


def _reading(path: tuple[str, ...], declared: str, stats: FieldStats, values: Sequence[JsonValue]) -> Candidate | None:
    """How a field can be read as a date."""
    sql = ".".join(ddl_name(step) for step in path)
    match declared:
        case "date":
            return Candidate(path, sql, "a date")
        case "timestamp" | "timestamp_ntz" as kind:
            local = kind == "timestamp_ntz" or stats.of("date", "local")
            return Candidate(
                path, f"to_date({sql})", f"a timestamp{', without a zone: taken for UTC' if local else ''}"
            )
        case "string":
            texts = [value for value in values if isinstance(value, str)]
            if texts and sum(time_of(text) is not None for text in texts) >= USUAL_SHARE * len(texts):
                return Candidate(path, f"to_date(try_to_timestamp({sql}))", "text that says a time")
            return None
    numbers = [v for v in values if isinstance(v, int | Decimal) and not isinstance(v, bool) and v != 0]
    units = {unit_of(number) for number in numbers}
    unit = units.pop() if len(units) == 1 else None
    if unit is None:
        return None
    number = sql if unit == "seconds" or declared == "bigint" else f"CAST({sql} AS bigint)"
    return Candidate(path, f"to_date(timestamp_{unit}({number}))", f"{unit} since 1970", unit)


def _judged(
    read: Candidate, records: Sequence[JsonRecord], written: Sequence[datetime | None], now: datetime
) -> Candidate | None:
    """The candidate with what speaks for it; ``None`` if it gives too few a date, or only looks like one."""
    both = zip(map(read.moment, records), written, strict=True)
    given = [(moment, w) for moment, w in both if moment is not None and is_plausible(moment.date(), now)]
    if records and len(given) < USUAL_SHARE * len(records):
        return None
    ahead = [(moment - w).total_seconds() for moment, w in given if w is not None]
    distance = median(ahead) if ahead else None
    named = sum(_GOOD.get(word.lower(), 0) for word in _WORDS.findall(read.path[-1]))
    against = sum(_BAD.get(word.lower(), 0) for step in read.path for word in _WORDS.findall(step))
    if read.unit and not named and (distance is None or abs(distance) > DAY):
        return None
    # An event is written to Kafka soon after it, and never before.
    near = 0 if distance is None or distance < -7 * DAY else 2 if abs(distance) <= DAY else -8 if distance > DAY else 1
    missing = MISSING * (1 - len(given) / len(records)) if records else 0
    worth = min(named, 12) - against - (len(read.path) - 1) + near - missing
    dates = [moment.astimezone(UTC).date() for moment, _ in given]
    return replace(read, given=len(given), dates=(min(dates), max(dates)) if dates else None, worth=worth)
