"""What the comments of a proposed document say of fields and of the messages' keys; they show no value of a message."""

from __future__ import annotations

from collections.abc import Iterator

from kdi_assets.tools.scaffold.field_stats import FieldStats
from kdi_assets.tools.scaffold.infer_types import DOUBLE, STRING, TIMESTAMP, Array, Type, ddl_name, fitting
from kdi_assets.tools.scaffold.propose import Proposal
from kdi_assets.wording import counted

RARE = 100
"""The type of a field that fewer than one in so many messages have is named as uncertain."""
MONEY_DIGITS = 4
"""Numbers with so few digits after the decimal point may be amounts of money."""
_OTHER_TYPES = {"integer": "bigint", "boolean": "boolean", "date": "date", "local": "timestamp", "zoned": "timestamp"}
"""The type for most values of a ``string`` field, by their kind."""


def percent(part: int, whole: int) -> str:
    """A part in percent; nearly all is never shown as all, nor nearly none as none."""
    if part == whole > 0:
        return "100%"
    if 0 < part * 1000 < whole:
        return "<0.1%"
    return f"{min(99.9, 100 * part / whole):.1f}%" if part else "0%"


def remarks(declared: Type, stats: FieldStats, messages: int) -> Iterator[str]:
    """Why a person may want another type, and what the field may be for.

    Args:
        messages: How many there are in the sample.
    """
    if not stats.values:
        yield "only null was seen, the type is a guess"
        return
    if stats.in_messages * RARE < messages:
        yield f"its type rests on {counted(stats.values, 'value')}"
    if stats.all_different and stats.in_messages == messages:
        yield "different in every message"
    if declared == STRING and stats.numbers_in_text == stats.values:
        type_ = f"decimal(38,{stats.text_scale})" if stats.text_scale else "bigint"
        yield f"all are numbers, written as text: in `columns`, try_cast(FIELD AS {type_}) makes numbers of them"
    yield from _kinds(declared, stats)
    match declared:
        case Array() if not (stats.items and stats.items.values):
            yield "always empty, the type is a guess"
        case _ if declared == DOUBLE and stats.rounded:
            yield f"{stats.rounded:,} of the numbers have more digits than a double keeps"
        case _ if declared == DOUBLE and 0 < stats.scale <= MONEY_DIGITS:
            digits = counted(stats.scale, "digit")
            yield f"at most {digits} after the decimal point: decimal(38,{stats.scale}) gives exact sums"
        case _ if declared == TIMESTAMP and (without := stats.count("local", "date")):
            yield f"{percent(without, stats.values)} without a time zone, read as UTC"


def _kinds(declared: Type, stats: FieldStats) -> Iterator[str]:
    """The kinds of values, if there are several and the type does not fit all of them."""
    kinds = [(kind, count) for kind, count in stats.kinds.most_common() if kind != "null"]
    if len(kinds) > 1 and (declared == STRING or fitting(declared, stats) < stats.values):
        yield ", ".join(f"{percent(count, stats.values)} {kind}" for kind, count in kinds)
        kind, count = kinds[0]
        if declared == STRING and kind in _OTHER_TYPES and count * 2 > stats.values:
            yield f"{_OTHER_TYPES[kind]} makes dead letters of the others"


def keys_in_words(proposal: Proposal) -> str:
    """How many messages have a key, how many keys there are, and the field that says the same."""
    messages = proposal.sample.messages
    keys = [message.key for message in messages if message.key is not None]
    if not keys:
        return "no message has one"
    share = "every message has one" if len(keys) == len(messages) else f"{percent(len(keys), len(messages))} have one"
    same = f"; it is the field {field}" if (field := _field_of_keys(proposal)) else ""
    return f"{share}, {len(set(keys)):,} different{same}"


def _field_of_keys(proposal: Proposal) -> str:
    """The field at the top of the record whose value is the key in every message that has both; empty if none is."""
    with_value = (message for message in proposal.sample.messages if message.value is not None)
    both = [
        (message.key, decoded)
        for message, decoded in zip(with_value, proposal.recognised.records, strict=True)
        if message.key is not None and isinstance(decoded, dict)
    ]
    record = proposal.recognised.record
    names = record.fields if record and both else ()
    same = (name for name in names if all(key == str(decoded.get(name)).encode() for key, decoded in both))
    return next(map(ddl_name, same), "")
