"""A record as DDL, a field on each line, behind each what was seen of it. No value of a message is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kdi_assets.scaffold.field_stats import FieldStats
from kdi_assets.scaffold.infer_types import DOUBLE, STRING, TIMESTAMP, Array, Struct, Type, ddl_name, taken
from kdi_assets.wording import counted

WIDEST = 56
"""Comments begin in the same column, unless a line is longer than this."""
MONEY_DIGITS = 4
"""Numbers with so few digits behind the point may be amounts."""
_INSTEAD = {"integer": "bigint", "boolean": "boolean", "date": "date", "local": "timestamp", "zoned": "timestamp"}
"""What most values of a column of text may be, where that is not text."""


def ddl_lines(record: Struct, *, messages: int) -> list[str]:
    """The DDL.

    Args:
        messages: How many the fields were counted in.
    """
    lines = list(_fields(record, "", messages, between=" "))
    width = min(WIDEST, max((len(line) for line, _ in lines), default=0))
    return [f"{line:<{width}}  -- {said}" if said else line for line, said in lines]


def left_out(record: Struct, path: str = "") -> Iterator[tuple[str, str]]:
    """Names that are not declared, with their paths, and why."""
    for name, why in record.left_out.items():
        # A name of other people's must not end a comment.
        yield f"{path}{name}" if name.isprintable() and name else json.dumps(f"{path}{name}"), why
    for name, declared in record.fields.items():
        inner, steps = declared, ""
        while isinstance(inner, Array):
            inner, steps = inner.element, f"{steps}[]"
        if isinstance(inner, Struct):
            yield from left_out(inner, f"{path}{name}{steps}.")


def share(part: int, whole: int) -> str:
    """A part in percent; all and none are told from nearly all and nearly none."""
    if part == whole > 0:
        return "100%"
    if 0 < part * 1000 < whole:
        return "<0.1%"
    return f"{min(99.9, 100 * part / whole):.1f}%" if part else "0%"


def _fields(record: Struct, indent: str, messages: int, *, between: str) -> Iterator[tuple[str, str]]:
    """Lines, and what is said of them."""
    last = len(record.fields) - 1
    for n, (name, declared) in enumerate(record.fields.items()):
        stats, comma = record.stats[name], "" if n == last else ","
        said = "; ".join([share(stats.in_messages, messages), *_remarks(declared, stats)])
        inner, opened, closed = declared, f"{indent}{ddl_name(name)}{between}", ""
        while isinstance(inner, Array):
            inner, opened, closed = inner.element, f"{opened}array<", f"{closed}>"
        if isinstance(inner, str):
            yield f"{opened}{inner}{closed}{comma}", said
            continue
        yield f"{opened}struct<", said
        yield from _fields(inner, f"{indent}  ", messages, between=": ")
        yield f"{indent}>{closed}{comma}", ""


def _remarks(declared: Type, stats: FieldStats) -> Iterator[str]:
    """What a person may want to decide otherwise."""
    if not stats.values:
        yield "only null was seen, the type is a guess"
        return
    yield from _kinds(declared, stats)
    match declared:
        case Array() if not (stats.items and stats.items.values):
            yield "always empty, the type is a guess"
        case _ if declared == DOUBLE and stats.rounded:
            yield f"{stats.rounded:,} of the numbers have more digits than a double keeps"
        case _ if declared == DOUBLE and 0 < stats.behind <= MONEY_DIGITS:
            behind = counted(stats.behind, "digit")
            yield f"at most {behind} behind the point: decimal(38,{stats.behind}) adds up exactly"
        case _ if declared == TIMESTAMP and (without := stats.of("local", "date")):
            yield f"{share(without, stats.values)} without a zone, taken for UTC"


def _kinds(declared: Type, stats: FieldStats) -> Iterator[str]:
    """The kinds of values where there are several and not all of them keep theirs."""
    kinds = [(kind, count) for kind, count in stats.kinds.most_common() if kind != "null"]
    if len(kinds) > 1 and (declared == STRING or taken(declared, stats) < stats.values):
        yield ", ".join(f"{share(count, stats.values)} {kind}" for kind, count in kinds)
        kind, count = kinds[0]
        if declared == STRING and kind in _INSTEAD and count * 2 > stats.values:
            yield f"{_INSTEAD[kind]} makes dead letters of the others"
