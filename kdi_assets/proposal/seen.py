"""What was seen of a field over all messages of a sample: how often, and values of which kinds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from kdi_assets.proposal.json_text import Json
from kdi_assets.proposal.times import TimeText, told

Kind = Literal["null", "boolean", "integer", "large", "fraction", "object", "array", "text", "number_text"] | TimeText
"""``large`` is an integer beyond 64 bits; ``number_text`` and those of times are texts."""
TEXTS: tuple[Kind, ...] = ("text", "number_text", "date", "timestamp", "zoned", "loose")
INT64 = 2**63
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,37})([.][0-9]{1,37})?")


@dataclass(slots=True)
class Seen:
    """The values of a field.

    Attributes:
        kinds: How many values are of each kind.
        in_messages: How many messages have one that is not null.
        fields: What was seen in objects, by name.
        items: What was seen in arrays.
        integer_digits: Most digits of a number in front of the point.
        fraction_digits: Most digits behind it.
        rounded: Numbers that a double does not hold exactly.
        infinite: Numbers beyond a double's range.
        most_items: Most elements of an array.
    """

    kinds: Counter[Kind] = field(default_factory=Counter)
    in_messages: int = 0
    fields: dict[str, Seen] = field(default_factory=dict)
    items: Seen | None = None
    integer_digits: int = 0
    fraction_digits: int = 0
    rounded: int = 0
    infinite: int = 0
    _last: int = -1

    @property
    def values(self) -> int:
        """All that are not null."""
        return self.kinds.total() - self.kinds["null"]

    def of(self, *kinds: Kind) -> int:
        """How many values are of one of these kinds."""
        return sum(self.kinds[kind] for kind in kinds)

    def see(self, value: Json, message: int) -> None:
        """Add a value.

        Args:
            message: Number of the message that it stands in.
        """
        kind = self._kind(value)
        self.kinds[kind] += 1
        if kind != "null" and message != self._last:
            self.in_messages, self._last = self.in_messages + 1, message
        if isinstance(value, dict):
            for name, inner in value.items():
                self.fields.setdefault(name, Seen()).see(inner, message)
        elif isinstance(value, list):
            self.items = self.items or Seen()
            for inner in value:
                self.items.see(inner, message)

    def _kind(self, value: Json) -> Kind:
        match value:
            case None:
                return "null"
            case bool():
                return "boolean"
            case int() | Decimal():
                return self._number(value)
            case str():
                return self._text(value)
            case list():
                return "array"
        return "object"

    def _number(self, value: int | Decimal) -> Kind:
        self._measure(Decimal(value))
        if isinstance(value, int):
            return "integer" if -INT64 <= value < INT64 else "large"
        return "fraction"

    def _text(self, value: str) -> Kind:
        if found := told(value):
            return found.form
        if is_number_text(value):
            self._measure(Decimal(value), also_double=False)
            return "number_text"
        return "text"

    def _measure(self, number: Decimal, *, also_double: bool = True) -> None:
        before, behind = digits(number)
        self.integer_digits = max(self.integer_digits, before)
        self.fraction_digits = max(self.fraction_digits, behind)
        if also_double:
            as_double = float(number)
            infinite = as_double in (float("inf"), float("-inf"))
            self.infinite += infinite
            self.rounded += not infinite and Decimal(repr(as_double)) != number


def is_number_text(text: str) -> bool:
    """Whether a text is a number that a decimal takes, written as JSON writes it."""
    return _NUMBER.fullmatch(text) is not None


def digits(number: Decimal) -> tuple[int, int]:
    """How many digits a number has in front of the point and behind it, without zeros that say nothing."""
    _, written, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return 0, 0  # infinite
    significant = list(written)
    while significant and significant[-1] == 0:
        significant.pop()
        exponent += 1
    while significant and significant[0] == 0:
        significant.pop(0)
    if not significant:
        return 0, 0
    return max(0, len(significant) + exponent), max(0, -exponent)


def seen_in(documents: Iterable[dict[str, Json]]) -> Seen:
    """What was seen in the objects, each a message."""
    whole = Seen()
    for number, document in enumerate(documents):
        whole.see(document, number)
    return whole
