"""The oracle: what was produced, compared with rows and dead letters, offset by offset and value by value.

Counts alone let one loss and one double cancel out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from kdi_assets.tools.conformance.layout import Found, FoundRows, value_at
from kdi_assets.tools.conformance.messages import FIELDS, Sent, date_of, record_of

MessagePlace = tuple[int, int]


@dataclass(frozen=True)
class WriterAccount:
    """What became of the messages.

    Attributes:
        messages: Visible messages that must leave a trace, unless they were deleted.
        kept: Of these, how many are there as they must be, once.
        lost: Messages that are nowhere.
        changed: Messages whose row or dead letter has other values, or that became the wrong one of both.
        doubled: One for each further row or dead letter of a message.
        invented: Rows and dead letters of no message, or of an aborted transaction.
        unreachable: Messages that are nowhere because Kafka deleted them.
        first: The first differences, in words.
    """

    messages: int
    kept: int
    lost: tuple[Sent, ...] = ()
    changed: tuple[Sent, ...] = ()
    doubled: tuple[MessagePlace, ...] = ()
    invented: tuple[MessagePlace | None, ...] = ()
    unreachable: tuple[Sent, ...] = ()
    first: tuple[str, ...] = ()

    @property
    def faultless(self) -> bool:
        """Whether every message that can be there is there as it must be, once, and nothing else."""
        return not (self.lost or self.changed or self.doubled or self.invented)


@dataclass
class _Sorting:
    """The sorting of what was found, while it goes on."""

    lost: list[Sent] = field(default_factory=list)
    changed: list[Sent] = field(default_factory=list)
    doubled: list[MessagePlace] = field(default_factory=list)
    invented: list[MessagePlace | None] = field(default_factory=list)
    unreachable: list[Sent] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    kept: int = 0

    def note(self, place: MessagePlace | None, what: str) -> None:
        if len(self.first) < 5:
            where = f"partition {place[0]} offset {place[1]}" if place else "a dead letter without coordinates"
            self.first.append(f"{where} {what}")


def account(
    sent: Sequence[Sent], found: Iterable[Found], *, rows: FoundRows, deleted: Collection[Sent] = ()
) -> WriterAccount:
    """Compare.

    Args:
        sent: Everything that the broker acknowledged. A recreated topic gave an offset to several messages.
        found: Every row and dead letter of the writer.
        rows: Where the fields of a row are.
        deleted: Messages that Kafka deleted before the writer had to have them: they may be there or not.
    """
    by_place: dict[MessagePlace, list[Sent]] = defaultdict(list)
    for message in sent:
        by_place[message.partition, message.offset].append(message)
    there = _by_place(sent, found)
    sorting = _Sorting()
    for place in sorted({*by_place, *there}, key=lambda place: place or (-1, -1)):
        wanted = by_place.get(place, []) if place else []
        _sort(place, wanted, there.get(place, []), sorting, rows=rows, deleted=deleted)
    owed = sum(message.fate not in ("nothing", "no trace needed") for message in sent)
    parts = ("lost", "changed", "doubled", "invented", "unreachable", "first")
    return WriterAccount(owed, sorting.kept, **{part: tuple(getattr(sorting, part)) for part in parts})


def _by_place(sent: Sequence[Sent], found: Iterable[Found]) -> dict[MessagePlace | None, list[Found]]:
    """What was found, by coordinates; a letter without any gets those of a message with its value."""
    free: dict[bytes | None, list[Sent]] = defaultdict(list)
    for message in reversed(sent):
        if "dead letter" in message.fate:
            free[message.value].append(message)
    there: dict[MessagePlace | None, list[Found]] = defaultdict(list)
    for each in found:
        place = each.place
        if place is None and free.get(each.value):
            message = free[each.value].pop()
            place = message.partition, message.offset
        there[place].append(each)
    return there


def _sort(
    place: MessagePlace | None,
    wanted: Sequence[Sent],
    found: Sequence[Found],
    sorting: _Sorting,
    *,
    rows: FoundRows,
    deleted: Collection[Sent],
) -> None:
    """Sort what is at one offset: each message takes what fits it; what is left is doubled, changed or invented."""
    left, open_ = list(found), list[Sent]()
    for message in wanted:
        fitting = next((each for each in left if not difference(message, each, rows)), None)
        if fitting is not None:
            left.remove(fitting)
            sorting.kept += message.fate not in ("nothing", "no trace needed")
        elif message.fate not in ("nothing", "no trace needed"):
            open_.append(message)
    for each in left:
        if any(not difference(message, each, rows) for message in wanted):
            sorting.doubled.append(place or (-1, -1))
            sorting.note(place, "is there again")
        elif open_:
            message = open_.pop(0)
            sorting.changed.append(message)
            sorting.note(place, f"is changed: {difference(message, each, rows)}")
        else:
            sorting.invented.append(place)
            aborted = any(message.fate == "nothing" for message in wanted)
            sorting.note(place, "is of an aborted transaction" if aborted else "was never produced")
    for message in open_:
        if message in deleted:
            sorting.unreachable.append(message)
        else:
            sorting.lost.append(message)
            sorting.note(place, "is lost")


def difference(message: Sent, found: Found, rows: FoundRows) -> str:
    """Why a row or a dead letter is not what the message must become; empty if it is."""
    if message.fate == "nothing":
        return "its transaction was aborted"
    if found.row is None:
        if message.fate == "row":
            return "a dead letter, though it is good"
        return "" if found.value == message.value else f"the dead letter has the value {found.value!r}"
    if message.fate == "dead letter":
        return f"a row, of a value that is not a message: {message.value!r}"
    if message.value is None:
        said: Mapping[str, Any] = dict.fromkeys(FIELDS)
    else:
        said = record_of(message.value) or {}
    return _row_difference(said, found.row, rows)


def _row_difference(said: Mapping[str, Any], row: Mapping[str, Any], rows: FoundRows) -> str:
    rest = json.loads((value_at(row, rows.rest) if rows.rest else None) or "{}")
    for name, value in said.items():
        have = value_at(row, rows.columns.get(name, name))
        if not _same(value, rest.get(name) if have is None else have):
            return f"{name} is {have!r} and not {value!r}"
    day = date_of(said)
    if rows.date and day is not None and not _same_day(day, value_at(row, rows.date)):
        return f"its date is {value_at(row, rows.date)!r} and not {day}"
    return ""


def _same(wanted: Any, have: Any) -> bool:
    if isinstance(have, datetime) and isinstance(wanted, str):
        # A column of timestamps holds the moment that the text names.
        aware = have if have.tzinfo else have.replace(tzinfo=UTC)
        return aware == datetime.fromisoformat(wanted)
    if isinstance(wanted, bool) or isinstance(have, bool):
        return wanted is have
    return bool(wanted == have)


def _same_day(day: date, have: Any) -> bool:
    return str(have)[:10] == day.isoformat()
