"""Values of sampled messages: JSON as strictly as the decoder reads it, times in texts and numbers, and statistics."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Literal, NoReturn, TypeAlias

from kdi_assets.tools.scaffold.errors import NoRecord

JsonValue: TypeAlias = "None | bool | int | Decimal | str | list[JsonValue] | dict[str, JsonValue]"
"""A number with a fraction or an exponent is a ``Decimal``, any other an ``int``."""
JsonRecord: TypeAlias = dict[str, JsonValue]
Misfit: TypeAlias = tuple[str, str]
"""Why a message is a dead letter: the decoder's reason, and the field, empty if it is the whole message."""

TimeForm = Literal["date", "local", "zoned", "other"]
"""A date; a timestamp without and with a time zone, as the decoders read it; a form that only Spark converts."""
Unit = Literal["seconds", "millis", "micros"]
PER_SECOND: dict[Unit, int] = {"seconds": 1, "millis": 10**3, "micros": 10**6}
MICROS_DIGITS = 6
_FIRST, _LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2000, 2100))
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?P<time>[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.(?P<fraction>[0-9]+))?(?P<zone>Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?)?"
)

ValueKind = Literal[
    "null", "boolean", "integer", "large", "fraction", "object", "array", "text", "date", "local", "zoned"
]  # fmt: skip
"""``large`` is an integer of more than 64 bits; ``local`` and ``zoned`` are timestamps without and with a time zone."""
NUMBERS: tuple[ValueKind, ...] = ("integer", "large", "fraction")
INT64 = 2**63
_EXACT = Context(prec=1000)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.(?P<fraction>[0-9]{1,12}))?")
"""A number that begins with a zero is a code, such as that of a town."""
LEAST_DIFFERENT = 20
"""Of fewer values it says little that all are different."""


def json_object(payload: bytes) -> JsonRecord:
    """Parse a message that is a JSON object.

    Raises:
        NoRecord: The message is not JSON object.
    """
    try:
        text = payload.decode("utf-8").strip(" \t\r\n")
    except UnicodeDecodeError:
        raise NoRecord("invalid_utf8") from None
    if not text:
        raise NoRecord("blank")
    try:
        document, end = _DECODER.raw_decode(text)
    except (ValueError, ArithmeticError, RecursionError):
        raise NoRecord("malformed_json") from None
    if end < len(text):
        raise NoRecord("trailing_text")
    if not isinstance(document, dict):
        raise NoRecord("not_an_object")
    return document


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)


def parse_time(text: str) -> tuple[TimeForm, datetime] | None:
    """The form and the moment of a text that is a date or a timestamp; without a time zone it is UTC."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None  # such as 30 February
    if found["time"] is None:
        return "date", moment
    zone = found["zone"] or ""
    if len(found["fraction"] or "") > MICROS_DIGITS or (len(zone) > len("+00") and ":" not in zone):
        return "other", moment
    return ("zoned" if zone else "local"), moment


def epoch_unit(number: int | Decimal) -> Unit | None:
    """The unit in which a number since 1970 is a time of this century; ``None`` if there is none."""
    return next((unit for unit, per in PER_SECOND.items() if _FIRST * per <= number < _LAST * per), None)


def moment_of(value: object, unit: Unit | None) -> datetime | None:
    """The moment of a text, or of a number since 1970 in this unit; ``None`` if the value has none."""
    match value:
        case str():
            found = parse_time(value)
            return found[1] if found else None
        case int() | Decimal() if unit and epoch_unit(value) == unit:
            return datetime.fromtimestamp(float(value) / PER_SECOND[unit], UTC)
    return None


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
            found = parse_time(value)
            return found[0] if found and found[0] != "other" else "text"
    return "array" if isinstance(value, list) else "object"


@dataclass(slots=True)
class FieldStats:
    """Statistics of a field over the messages of a sample.

    Attributes:
        kinds: Number of values of each kind.
        in_messages: Number of messages with a value that is not null.
        fields: Statistics of the fields of objects, by name.
        items: Statistics of the elements of arrays.
        scale: Largest number of digits after the decimal point.
        rounded: Number of values that a double does not hold exactly.
        numbers_in_text: Number of texts that are numbers, as JSON writes them.
        text_scale: As ``scale``, of these.
        all_different: Whether all values are texts or integers that are no times, and each is another one.
    """

    kinds: Counter[ValueKind] = field(default_factory=Counter)
    in_messages: int = 0
    fields: dict[str, FieldStats] = field(default_factory=dict)
    items: FieldStats | None = None
    scale: int = 0
    rounded: int = 0
    numbers_in_text: int = 0
    text_scale: int = 0
    _last: int = -1
    _different: set[str | int] = field(default_factory=set)

    @property
    def values(self) -> int:
        """Number of values that are not null."""
        return self.kinds.total() - self.kinds["null"]

    @property
    def all_different(self) -> bool:
        return len(self._different) == self.values >= LEAST_DIFFERENT

    def count(self, *kinds: ValueKind) -> int:
        """Number of values of these kinds."""
        return sum(self.kinds[kind] for kind in kinds)

    def add(self, value: JsonValue, message: int) -> None:
        """Add a value of the message with this number."""
        self.kinds[kind_of(value)] += 1
        if value is not None and message != self._last:
            self.in_messages, self._last = self.in_messages + 1, message
        match value:
            case dict():
                for name, inner in value.items():
                    self.fields.setdefault(name, FieldStats()).add(inner, message)
            case list():
                self.items = self.items or FieldStats()
                for inner in value:
                    self.items.add(inner, message)
            case str():
                self._add_text(value)
            case bool():
                pass
            case int() | Decimal():
                if isinstance(value, int) and epoch_unit(value) is None:
                    self._different.add(value)
                self._add_digits(Decimal(value))

    def _add_text(self, text: str) -> None:
        if parse_time(text) is None:
            self._different.add(text)
        if found := _NUMBER.fullmatch(text):
            self.numbers_in_text += 1
            self.text_scale = max(self.text_scale, len(found["fraction"] or ""))

    def _add_digits(self, number: Decimal) -> None:
        if number.is_finite():
            exponent = number.normalize(_EXACT).as_tuple().exponent
            self.scale = max(self.scale, -int(exponent))
            self.rounded += Decimal(repr(float(number))) != number


def stats_of(records: Iterable[JsonRecord]) -> FieldStats:
    """Statistics of records, one of each message."""
    stats = FieldStats()
    for number, record in enumerate(records):
        stats.add(record, number)
    return stats
