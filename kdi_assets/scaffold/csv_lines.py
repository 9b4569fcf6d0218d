"""Lines of CSV: which character stands between columns, what the columns are called, and what stands in them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

from kdi_assets.scaffold.field_stats import stats_of
from kdi_assets.scaffold.infer_types import STRING, Struct, type_of_all
from kdi_assets.scaffold.json_text import JsonRecord, JsonValue, NoRecord

DELIMITERS = ("\t", ";", "|", ",")
"""The one that a text has least often comes first."""
FEWEST_LINES, USUAL_SHARE = 5, 0.9
"""Of lines that have the same number of columns: fewer do so by chance; the others are dead letters."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,99})")
_FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,99})[.][0-9]{1,99}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Lines:
    """How lines are divided.

    Attributes:
        delimiter: Between columns.
        header: The first line, if it says what the columns are called; else they are called by their numbers.
        record: The columns.
        agree: How many lines have so many columns.
    """

    def __init__(self, lines: Sequence[str], delimiter: str, width: int) -> None:
        rows = [row for line in lines if len(row := split(line, delimiter)) == width]
        self.delimiter, self.agree, self.header = delimiter, len(rows), ""
        names, first = [f"column_{n + 1}" for n in range(width)], split(lines[0], delimiter)
        self.record = _record(names, rows)
        if len({name.lower() for name in first if _NAME.fullmatch(name)}) == width:
            below = _record(first, rows[1:])
            # Names above numbers or times. Of text alone nobody can tell it from a message, whose values are not shown.
            if any(declared != STRING for declared in below.fields.values()):
                self.header, self.record = lines[0], below

    def read(self, line: str) -> JsonRecord:
        """A line as a record, its values as they would be in JSON.

        Raises:
            NoRecord: It is none.
        """
        if not line.strip():
            raise NoRecord("blank")
        row, declared = split(line, self.delimiter), self.record.fields
        if not row:
            raise NoRecord("malformed_csv")
        if len(row) != len(declared):
            raise NoRecord("too_few_columns" if len(row) < len(declared) else "too_many_columns")
        if line == self.header:
            raise NoRecord("wrong_type", next(name for name, type_ in declared.items() if type_ != STRING))
        return dict(zip(declared, map(_value, row), strict=True))


def lines_of(texts: Sequence[str]) -> Lines | None:
    """How most texts are divided into the same number of columns, two at least; ``None`` if they are not."""
    best: tuple[int, str] = (1, "")
    for delimiter in DELIMITERS:
        rows = [split(text, delimiter) for text in texts]
        width, agree = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
        prose = all(column.startswith(" ") for row in rows for column in row[1:])
        if agree >= max(FEWEST_LINES, USUAL_SHARE * len(rows)) and width > best[0] and not prose:
            best = width, delimiter
    return Lines(texts, best[1], best[0]) if best[1] else None


def split(line: str, delimiter: str) -> list[str]:
    """What stands in the columns; no columns where the line is not well formed."""
    try:
        rows = list(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, strict=True))
    except csv.Error:
        return []
    return rows[0] if len(rows) == 1 else []


def _record(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Struct:
    stats = stats_of(dict(zip(names, map(_value, row), strict=True)) for row in rows).fields
    return Struct({name: type_of_all(stats[name]) for name in names}, stats)


def _value(text: str) -> JsonValue:
    """Only what is written so that it can be written again is a number or a boolean."""
    if _INTEGER.fullmatch(text) and text != "-0":
        return int(text)
    if _FRACTION.fullmatch(text):
        return Decimal(text)
    return text == "true" if text in ("true", "false") else text or None
