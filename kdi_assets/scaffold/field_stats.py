"""Statistics of a field over the messages of a sample: how often it is there, with values of which kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Literal

from kdi_assets.scaffold.json_text import JsonRecord, JsonValue
from kdi_assets.scaffold.timestamps import time_of

ValueKind = Literal[
    "null", "boolean", "integer", "large", "fraction", "object", "array", "text", "date", "local", "zoned"
]  # fmt: skip
"""``large`` is an integer beyond 64 bits; ``local`` and ``zoned`` are timestamps without and with a zone."""
NUMBERS: tuple[ValueKind, ...] = ("integer", "large", "fraction")
INT64 = 2**63
_EXACT = Context(prec=1000)


def kind_of(value: JsonValue) -> ValueKind:
    """The kind of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer" if -INT64 <= value < INT64 else "large"
        case Decimal():
            return "fraction"
        case str():
            found = time_of(value)
            return found[0] if found and found[0] != "other" else "text"
    return "array" if isinstance(value, list) else "object"


@dataclass(slots=True)
class FieldStats:
    """The values of a field.

    Attributes:
        kinds: How many values are of each kind.
        in_messages: How many messages have one that is not null.
        fields: Statistics of what is in objects, by name.
        items: Statistics of what is in arrays.
        behind: Most digits of a number behind the point.
        rounded: Numbers that a double does not hold exactly.
    """

    kinds: Counter[ValueKind] = field(default_factory=Counter)
    in_messages: int = 0
    fields: dict[str, FieldStats] = field(default_factory=dict)
    items: FieldStats | None = None
    behind: int = 0
    rounded: int = 0
    _last: int = -1

    @property
    def values(self) -> int:
        """All that are not null."""
        return self.kinds.total() - self.kinds["null"]

    def of(self, *kinds: ValueKind) -> int:
        """How many values are of one of these kinds."""
        return sum(self.kinds[kind] for kind in kinds)

    def see(self, value: JsonValue, message: int) -> None:
        """Add a value of the message with this number."""
        self.kinds[kind_of(value)] += 1
        if value is not None and message != self._last:
            self.in_messages, self._last = self.in_messages + 1, message
        match value:
            case dict():
                for name, inner in value.items():
                    self.fields.setdefault(name, FieldStats()).see(inner, message)
            case list():
                self.items = self.items or FieldStats()
                for inner in value:
                    self.items.see(inner, message)
            case int() | Decimal():
                self._measure(Decimal(value))

    def _measure(self, number: Decimal) -> None:
        if number.is_finite():
            exponent = number.normalize(_EXACT).as_tuple().exponent
            self.behind = max(self.behind, -int(exponent))
            self.rounded += Decimal(repr(float(number))) != number


def stats_of(records: Iterable[JsonRecord]) -> FieldStats:
    """Statistics of records, each of one message."""
    whole = FieldStats()
    for number, record in enumerate(records):
        whole.see(record, number)
    return whole
