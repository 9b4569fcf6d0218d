"""A record as DDL, a field on each line, behind each what was seen of it. No value of a message is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from kdi_assets.proposal.seen import TEXTS, Seen
from kdi_assets.proposal.types import DOUBLE, STRING, TIMESTAMP, Array, Map, Scalar, Struct, Type, ddl_name
from kdi_assets.wording import counted

WIDEST = 56
"""Comments begin in the same column, unless a line is longer than this."""
MONEY_DIGITS = 4
"""Numbers with so few digits behind the point may be amounts."""


_INSTEAD = {"integers": "bigint", "booleans": "boolean"}
"""What most values of a column of text may be, where that is not text."""


@dataclass(frozen=True, slots=True)
class _Line:
    depth: int
    text: str
    said: str = ""


def ddl_lines(record: Struct, *, messages: int) -> list[str]:
    """The DDL.

    Args:
        messages: How many the fields were counted in.
    """
    lines = list(_fields(record, 0, messages, between=" "))
    width = min(WIDEST, max((2 * line.depth + len(line.text) for line in lines), default=0))
    return [f"{'  ' * n.depth + n.text:<{width}}  -- {n.said}" if n.said else "  " * n.depth + n.text for n in lines]


def one_line(declared: Type) -> str:
    """The DDL of a type on one line."""
    match declared:
        case Scalar(ddl):
            return ddl
        case Array(element):
            return f"array<{one_line(element)}>"
        case Map(value):
            return f"map<string, {one_line(value)}>"
    return f"struct<{', '.join(f'{ddl_name(n)}: {one_line(t)}' for n, t in declared.fields.items())}>"


def left_out(record: Struct, path: str = "") -> Iterator[tuple[str, str]]:
    """Names that are not declared, with their paths, and why."""
    for name, why in record.left_out.items():
        yield shown(f"{path}{name}"), why
    for name, declared in record.fields.items():
        inner, steps = declared, ""
        while isinstance(inner, Array | Map):
            inner, steps = (inner.element if isinstance(inner, Array) else inner.value), f"{steps}[]"
        if isinstance(inner, Struct):
            yield from left_out(inner, f"{path}{name}{steps}.")


def shown(name: str) -> str:
    """A name of other people's, so that it cannot end a comment."""
    return name if name.isprintable() and name else json.dumps(name)


def share(part: int, whole: int) -> str:
    """A part in percent; all and none are told from nearly all and nearly none."""
    if part == whole > 0:
        return "100%"
    if 0 < part * 1000 < whole:
        return "<0.1%"
    return f"{min(99.9, 100 * part / whole):.1f}%" if part else "0%"


def _fields(record: Struct, depth: int, messages: int, *, between: str) -> Iterator[_Line]:
    last = len(record.fields) - 1
    for n, (name, declared) in enumerate(record.fields.items()):
        seen, comma = record.seen.get(name, Seen()), "" if n == last else ","
        said = f"{share(seen.in_messages, messages)}{_remarks(declared, seen)}"
        inner, opened = declared, f"{ddl_name(name)}{between}"
        closed = ""
        while not isinstance(inner, Scalar | Struct):
            opened, closed = opened + ("array<" if isinstance(inner, Array) else "map<string, "), closed + ">"
            inner = inner.element if isinstance(inner, Array) else inner.value
        if isinstance(inner, Scalar):
            yield _Line(depth, f"{opened}{inner.ddl}{closed}{comma}", said)
            continue
        yield _Line(depth, f"{opened}struct<", said)
        yield from _fields(inner, depth + 1, messages, between=": ")
        yield _Line(depth, f">{closed}{comma}")


def _remarks(declared: Type, seen: Seen) -> str:
    """What a person may want to decide otherwise, each behind a semicolon."""
    return "".join(f"; {said}" for said in (*_of_kinds(declared, seen), *_of_type(declared, seen)))


def _of_kinds(declared: Type, seen: Seen) -> Iterator[str]:
    if not seen.values:
        yield "only null was seen, the type is a guess"
        return
    groups = {
        "text": seen.of(*TEXTS),
        "integers": seen.of("integer", "large"),
        "fractions": seen.of("fraction"),
        "booleans": seen.of("boolean"),
        "objects": seen.of("object"),
        "arrays": seen.of("array"),
    }
    several = {kind: count for kind, count in groups.items() if count}
    if len(several) > 1 and not (declared == DOUBLE and several.keys() == {"integers", "fractions"}):
        often = sorted(several.items(), key=lambda item: -item[1])
        yield ", ".join(f"{share(count, seen.values)} {kind}" for kind, count in often)
        kind, count = often[0]
        if declared == STRING and kind in _INSTEAD and count * 2 > seen.values:
            yield f"{_INSTEAD[kind]} makes dead letters of the others"


def _of_type(declared: Type, seen: Seen) -> Iterator[str]:
    match declared:
        case Array():
            if not (seen.items and seen.items.values):
                yield "always empty, the type is a guess"
        case Map():
            yield f"{len(seen.fields):,} different keys" if seen.fields else "always empty, the type is a guess"
        case _ if declared == DOUBLE:
            yield from _of_double(seen)
        case _ if declared == TIMESTAMP:
            if without := seen.of("timestamp", "date"):
                yield f"{share(without, seen.values)} without a zone, taken for UTC"
        case _ if declared == STRING:
            yield from _of_string(seen)


def _of_double(seen: Seen) -> Iterator[str]:
    if seen.rounded:
        yield f"{seen.rounded:,} of the numbers have more digits than a double keeps"
    elif 0 < (behind := seen.fraction_digits) <= MONEY_DIGITS:
        yield f"at most {counted(behind, 'digit')} behind the point: decimal(38,{behind}) adds up exactly"


def _of_string(seen: Seen) -> Iterator[str]:
    if not seen.values:
        return
    times = seen.of("date", "timestamp", "zoned")
    if times and times * 2 > seen.values:
        yield f"{share(times, seen.values)} are times: timestamp makes dead letters of the others"
    elif seen.of("loose") * 2 > seen.values:
        yield "times, in a form that timestamp does not take"
    elif seen.values == seen.of("number_text"):
        yield f"numbers, as text: decimal(38,{seen.fraction_digits}) takes them"
