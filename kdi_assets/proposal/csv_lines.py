"""Lines of CSV: which character stands between columns, and what stands in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

from kdi_assets.proposal.json_text import Json
from kdi_assets.proposal.seen import Seen
from kdi_assets.proposal.types import DOUBLE, STRING, Scalar, Struct, Type, fits_all, type_of

DELIMITERS = ("\t", ";", "|", ",")
"""The one that a text has least often comes first."""
FEWEST_LINES = 5
"""Fewer lines that agree do so by chance."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,99})")
_FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,99})[.][0-9]{1,99}")


def delimiter_of(lines: Sequence[str]) -> str | None:
    """The character that divides every line into the same number of columns, two at least; ``None`` if none does."""
    if len(lines) < FEWEST_LINES:
        return None
    divided = {d: [columns(line, d) for line in lines] for d in DELIMITERS}
    widths = {d: len(rows[0]) for d, rows in divided.items() if len({len(row) for row in rows}) == 1}
    found = [d for d, width in widths.items() if width > 1 and not _is_prose(divided[d])]
    return max(found, key=lambda d: widths[d], default=None)


def nearly(lines: Sequence[str]) -> tuple[str, int, int] | None:
    """Where most lines agree and some do not: delimiter, columns, and how many lines have so many."""
    for delimiter in DELIMITERS:
        rows = [columns(line, delimiter) for line in lines]
        usual = Counter(map(len, rows)).most_common(1)
        width, agree = usual[0] if usual else (0, 0)
        enough = FEWEST_LINES <= agree < len(lines) <= agree * 10 // 9
        if width > 1 and enough and not _is_prose([row for row in rows if len(row) == width]):
            return delimiter, width, agree
    return None


def _is_prose(rows: Sequence[Sequence[str | None]]) -> bool:
    """Whether a blank follows each delimiter, as in sentences."""
    return all(text is not None and text.startswith(" ") for row in rows for text in row[1:])


def columns(line: str, delimiter: str) -> list[str | None]:
    """What stands in the columns, null where that is nothing; no columns where the line is not well formed."""
    quoted = r'"((?:[^"]|"")*+)"'
    one = re.compile(rf'(?:{quoted}|([^"{re.escape(delimiter)}\r\n]*+))({re.escape(delimiter)}|$)')
    line, at, found = line.rstrip("\r\n"), 0, list[str | None]()
    while True:
        column = one.match(line, at)
        if column is None or (column[3] == "" and column.end() < len(line)):
            return []
        found.append(column[2] or None if column[1] is None else column[1].replace('""', '"'))
        if column[3] == "":
            return found
        at = column.end()


def record_of(rows: Sequence[Sequence[str | None]]) -> Struct:
    """The record of lines that have the same number of columns; nobody says what these are called."""
    width = len(rows[0])
    seen = {f"column_{n + 1}": Seen() for n in range(width)}
    for message, row in enumerate(rows):
        for column, text in zip(seen.values(), row, strict=True):
            column.see(_value(text), message)
    return Struct({name: _type_of(column) for name, column in seen.items()}, seen)


def record(row: Sequence[str | None]) -> dict[str, Json]:
    """A line as a record, its values as they would be in JSON."""
    return {f"column_{n + 1}": _value(text) for n, text in enumerate(row)}


def _type_of(seen: Seen) -> Type:
    """A type that takes every text and changes none; text otherwise."""
    declared = type_of(seen)
    if not (isinstance(declared, Scalar) and fits_all(declared, seen)) or seen.infinite:
        return STRING
    return STRING if seen.rounded and declared == DOUBLE else declared


def _value(text: str | None) -> Json:
    """Only what is written so that it can be written again is a number or a boolean."""
    if text is None:
        return None
    if _INTEGER.fullmatch(text) and text != "-0":
        return int(text)
    if _FRACTION.fullmatch(text):
        return Decimal(text)
    return text == "true" if text in ("true", "false") else text
