"""Which expression gives the date of a message's event: candidates among the record's fields, best first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import median

from kdi_assets.proposal.json_text import Json
from kdi_assets.proposal.seen import Seen
from kdi_assets.proposal.times import Unit, moment_of, sql_of_number, told, unit_of
from kdi_assets.proposal.types import Scalar, Struct, ddl_name

DAY, YEAR = 86400.0, 365 * 86400.0
UNIT_WORDS: Mapping[Unit, str] = {
    "seconds": "seconds since 1970",
    "millis": "milliseconds since 1970",
    "micros": "microseconds since 1970",
    "nanos": "nanoseconds since 1970",
}
USUAL_SHARE = 0.9
"""Of the messages that a candidate must give a date, else it is not worth a mention."""
MISSING = 100
"""How much it counts against a candidate if it gives no date at all; in proportion, if it gives few messages none."""
FIRST = date(2000, 1, 1)
KAFKA = "to_date(kafka.timestamp)"
_EPOCH_DIGITS = re.compile(r"[0-9]{9,19}")
_GOOD = {
    **dict.fromkeys(("timestamp", "ts", "datetime", "time", "epoch"), 5),
    **dict.fromkeys(("at", "date", "when", "day", "millis", "ms"), 4),
    **dict.fromkeys(("event", "occurred", "happened"), 5),
    **dict.fromkeys(("created", "produced", "placed", "published", "emitted", "logged", "sent", "request"), 2),
}
_BAD = {
    **dict.fromkeys(("birth", "birthday", "born", "dob"), 20),
    **dict.fromkeys(("expires", "expiry", "expiration", "expire", "until", "due", "deadline", "valid", "eta"), 12),
    **dict.fromkeys(("scheduled", "planned", "next", "delivery", "deleted", "previous", "exp", "nbf"), 8),
    **dict.fromkeys(("updated", "modified", "changed", "received", "ingested", "processed", "loaded", "last"), 3),
    **dict.fromkeys(("registered", "joined", "signup", "first", "ended", "end", "finished"), 3),
}
"""Words of names: how much they speak for the time of the event itself, and against it."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


Reading = Callable[[Json], datetime | None]
"""From a field's value to its moment."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An expression for the date.

    Attributes:
        sql: Spark SQL that gives a date.
        what: What the field holds, in words.
        given: Messages that it gives a date.
        oldest: Their first date.
        newest: Their last.
        worth: How much speaks for it; below zero it is no event's time.
        path: Of its field.
        read: From the field's value to its moment.
    """

    sql: str
    what: str
    given: int
    oldest: date
    newest: date
    worth: float
    path: tuple[str, ...]
    read: Reading

    def moment(self, document: Mapping[str, Json]) -> datetime | None:
        """When a message says that it was."""
        return self.read(at_path(document, self.path))


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to read a field."""

    sql: str
    what: str
    read: Reading
    unit: Unit | None = None


def candidates(
    record: Struct, documents: Sequence[Mapping[str, Json]], written: Sequence[datetime | None], *, now: datetime
) -> list[Candidate]:
    """The candidates, the best first.

    Args:
        documents: The messages that become records, one at least.
        written: When each was written to Kafka.
        now: Ends what can be a date.
    """
    found = []
    for path, declared, seen in _leaves(record):
        way = _way(path, declared, seen, [at_path(document, path) for document in documents])
        if way is None:
            continue
        moments = [way.read(at_path(document, path)) for document in documents]
        both = zip(moments, written, strict=True)
        given = [(moment, w) for moment, w in both if moment is not None and is_plausible(moment.date(), now)]
        if len(given) < USUAL_SHARE * len(documents):
            continue
        dates = [m.astimezone(UTC).date() for m, _ in given]
        score = _score(path, [(m - w).total_seconds() for m, w in given if w is not None], of_number=way.unit)
        if score is not None:
            missing = 1 - len(given) / len(documents)
            worth = score - MISSING * missing
            found.append(Candidate(way.sql, way.what, len(given), min(dates), max(dates), worth, path, way.read))
    return sorted(found, key=lambda candidate: -candidate.worth)


def is_plausible(day: date, now: datetime) -> bool:
    """Whether an event may have that date."""
    return FIRST <= day <= now.date() + timedelta(days=366)


def at_path(document: Mapping[str, Json], path: Sequence[str]) -> Json:
    """What stands there; null where the way is interrupted."""
    value: Json = dict(document)
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _leaves(record: Struct, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Scalar, Seen]]:
    for name, declared in record.fields.items():
        if isinstance(declared, Struct):
            yield from _leaves(declared, (*path, name))
        elif isinstance(declared, Scalar):
            yield (*path, name), declared, record.seen.get(name, Seen())


def _way(path: tuple[str, ...], declared: Scalar, seen: Seen, values: Sequence[Json]) -> _Way | None:
    sql = ".".join(ddl_name(step) for step in path)
    match declared.ddl:
        case "date":
            return _Way(sql, "a date", _of_text)
        case "timestamp":
            return _Way(f"to_date({sql})", _zones(seen), _of_text)
        case "timestamp_ntz":
            return _Way(f"to_date({sql})", "a timestamp, without a zone: taken for UTC", _of_text)
        case "string":
            return _way_of_text(sql, values)
        case "boolean":
            return None
    numbers = [v for v in values if isinstance(v, int | Decimal) and not isinstance(v, bool)]
    if unit := _unit(numbers):
        converted = sql_of_number(sql, unit, whole=declared.ddl == "bigint")
        return _Way(f"to_date({converted})", UNIT_WORDS[unit], lambda value: _of_number(value, unit), unit)
    return None


def _way_of_text(sql: str, values: Sequence[Json]) -> _Way | None:
    texts = [value for value in values if isinstance(value, str)]
    if not texts:
        return None
    if sum(told(text) is not None for text in texts) >= USUAL_SHARE * len(texts):
        return _Way(f"to_date(try_to_timestamp({sql}))", "text that says a time", _of_text)
    numbers = [int(text) for text in texts if _EPOCH_DIGITS.fullmatch(text)]
    unit = _unit(numbers) if len(numbers) >= USUAL_SHARE * len(texts) else None
    if unit is None:
        return None
    converted = sql_of_number(f"try_cast({sql} AS bigint)", unit, whole=True)
    return _Way(f"to_date({converted})", f"{UNIT_WORDS[unit]}, as text", lambda value: _of_digits(value, unit), unit)


def _zones(seen: Seen) -> str:
    """Whether timestamps say their zone."""
    without = seen.of("timestamp", "date")
    if not without:
        return "a timestamp, with its zone"
    return (
        "a timestamp, without a zone: taken for UTC" if not seen.of("zoned") else "a timestamp, not always with a zone"
    )


def _unit(numbers: Sequence[int | Decimal]) -> Unit | None:
    """The unit in which all numbers are times of this century; zeros, often written for none, aside."""
    units = {unit_of(number) for number in numbers if number != 0}
    return units.pop() if len(units) == 1 else None


def _of_text(value: Json) -> datetime | None:
    found = told(value) if isinstance(value, str) else None
    return found.at if found else None


def _of_number(value: Json, unit: Unit) -> datetime | None:
    return moment_of(value, unit) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def _of_digits(value: Json, unit: Unit) -> datetime | None:
    return moment_of(int(value), unit) if isinstance(value, str) and _EPOCH_DIGITS.fullmatch(value) else None


def _score(path: tuple[str, ...], behind_kafka: Sequence[float], *, of_number: Unit | None) -> float | None:
    """How much speaks for the field as the event's time; ``None`` for a number that only looks like one.

    Args:
        behind_kafka: Seconds from Kafka's timestamp to the field's moment, below zero where it is earlier.
    """
    own = [word.lower() for word in _WORDS.findall(path[-1])]
    every = [word.lower() for step in path for word in _WORDS.findall(step)]
    named = sum(_GOOD.get(word, 0) for word in own)
    against = sum(_BAD.get(word, 0) for word in every)
    distance = median(behind_kafka) if behind_kafka else None
    near = distance is not None and abs(distance) <= DAY
    if of_number and not named and not near:
        return None
    return min(named, 12) - against - (len(path) - 1) + _nearness(distance)


def _nearness(distance: float | None) -> float:
    """An event is written to Kafka soon after it, and never before."""
    if distance is None:
        return 0
    if distance > DAY:
        return -8
    age = abs(distance)
    return 3 if age <= DAY / 24 else 2 if age <= DAY else 1 if age <= 7 * DAY else 0 if age <= YEAR else -3
