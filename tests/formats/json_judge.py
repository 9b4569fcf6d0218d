"""The rules of docs/json.md in Python's own parser: a second implementation, to compare with the kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from random import Random
from typing import Any, NamedTuple

DDL = (
    "n bigint, i int, b tinyint, s string, d double, m decimal(6,2), ok boolean, xs array<int>, names array<string>, "
    "who struct<name: string, age: smallint NOT NULL>, by map<string, int>, at map<string, struct<s: string>>"
)
Schema = Any
"""The name of a type, ``[schema]`` of an array, ``{"*": schema}`` of a map, ``{name: schema}`` of a struct."""
SCHEMA: dict[str, Schema] = {
    "n": "bigint",
    "i": "int",
    "b": "tinyint",
    "s": "string",
    "d": "double",
    "m": "decimal",
    "ok": "boolean",
    "xs": ["int"],
    "names": ["string"],
    "who": {"name": "string", "age": "smallint!"},
    "by": {"*": "int"},
    "at": {"*": {"s": "string"}},
}
MOST_LEVELS, MOST_DIGITS = 500, 1000
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


class Number(NamedTuple):
    """A number as the message writes it."""

    text: str
    whole: bool


def _whole_number(text: str) -> Number:
    return Number(text, True)


def _fraction(text: str) -> Number:
    return Number(text, False)


class Found(NamedTuple):
    """A record, and what is beside it: by place in the message, the path and the value."""

    record: Any
    unknown: dict[str, tuple[str, Any]]
    misfits: dict[str, tuple[str, Any]]


class Refused(Exception):
    """The message becomes a dead letter: reason and field."""


def judged(text: str) -> Any:
    """The record as plain Python, or reason and field.

    Raises:
        Refused: It is no record.
    """
    return _value(_document(text), SCHEMA, "", "")


def found_in(text: str, *, salvages: bool) -> Found:
    """The record, and what is beside it.

    Args:
        salvages: Whether values that do not fit are left out.

    Raises:
        Refused: It is no record.
    """
    document = _document(text)
    misfits: dict[str, tuple[str, Any]] = {}
    try:
        record = _value(document, SCHEMA, "", "")
    except Refused as refused:
        if not salvages or refused.args[1] is None:
            raise
        try:
            record = _salvaged(document, SCHEMA, "", misfits)
        except Refused:
            raise refused from None
    return Found(record, dict(_unknown(document, SCHEMA, "", "")), misfits)


def is_kept(found: Any, value: Any) -> bool:
    """Whether a rescued value is that of the message: the same, or its text where a variant would change it."""
    if isinstance(found, str) and not (isinstance(value, str) and _is_held(value)):
        # A repeated name's first value counts here, too.
        said = json.loads(found, parse_int=_whole_number, parse_float=_fraction, object_pairs_hook=list)
        return _parsed(found) == (value, "") and not all(_is_held(each) for each in _leaves(said))
    pairs = [(found, value)]  # no recursion: values have as many levels as a document may have
    while pairs:
        one, other = pairs.pop()
        if isinstance(other, dict) and isinstance(one, dict) and one.keys() == other.keys():
            pairs += [(one[key], other[key]) for key in other]
        elif isinstance(other, list) and isinstance(one, list) and len(one) == len(other):
            pairs += zip(one, other, strict=True)
        elif isinstance(other, dict | list) or not _is_same(one, other):
            return False
    return True


def _is_same(found: Any, value: Any) -> bool:
    if not isinstance(value, Number):
        return type(found) is type(value) and bool(found == value)
    if not isinstance(found, int | Decimal):
        return False
    return Decimal(found) == Decimal(value.text) or (not value.whole and float(found) == float(value.text))


def _is_held(value: Any) -> bool:
    """Whether a variant holds a leaf as it is, but for the rounding of a fraction."""
    if isinstance(value, str):
        return not _has_half_characters(value)
    if not isinstance(value, Number):
        return True
    digits = sum(character.isdigit() for character in value.text)
    plain = value.text.strip("-0123456789.") == "" and digits <= 38
    return plain or (len(value.text) <= MOST_DIGITS and _is_double(value))


def _leaves(value: Any) -> Iterator[Any]:
    rest = [value]
    while rest:
        match rest.pop():
            case dict() as fields:
                rest += fields.values()
            case list() | tuple() as items if not isinstance(items, Number):
                rest += items
            case leaf:
                yield leaf


def _document(text: str) -> dict[str, Any]:
    if not text.strip(" \t\r\n"):
        raise Refused("blank", None)
    if _levels(text) > MOST_LEVELS:
        raise Refused("malformed_json", None)
    document, rest = _parsed(text)
    if rest.strip(" \t\r\n"):
        raise Refused("trailing_text", None)
    if not isinstance(document, dict):
        raise Refused("not_an_object", None)
    return document


def _levels(text: str) -> int:
    """Brackets that are open at once."""
    level = most = 0
    for character in _TEXT.sub("", text):
        level += (character in "[{") - (character in "]}")
        most = max(most, level)
    return most


def _parsed(text: str) -> tuple[Any, str]:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    decoder = json.JSONDecoder(parse_int=_whole_number, parse_float=_fraction, parse_constant=no_constant)
    begins = len(text) - len(text.lstrip(" \t\r\n"))
    try:
        document, end = decoder.raw_decode(text, begins)
    except ValueError:
        raise Refused("malformed_json", None) from None
    if isinstance(document, Number) and text[end : end + 1].strip(" \t\r\n"):
        raise Refused("malformed_json", None)  # 1x is no number
    return document, text[end:]


def _value(value: Any, schema: Schema, path: str, leaf: str) -> Any:
    """``leaf`` is the outermost enclosing field that is no object, or empty."""
    if value is None:
        return None
    match schema:
        case {"*": inner}:
            if not isinstance(value, dict):
                raise Refused("wrong_type", leaf or path)
            return {key: _value(each, inner, f"{path}[]", leaf or path) for key, each in value.items()}
        case dict():
            return _struct(value, schema, path, leaf)
        case [inner]:
            if not isinstance(value, list):
                raise Refused("wrong_type", leaf or path)
            return [_value(each, inner, f"{path}[]", leaf or path) for each in value]
    return _LEAVES[schema.rstrip("!")](value, schema.rstrip("!"), path, leaf or path)


def _struct(value: Any, schema: dict[str, Schema], path: str, leaf: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused("wrong_type", leaf or _below(path, next(iter(schema))))
    found = {name: _value(value.get(name), inner, _below(path, name), leaf) for name, inner in schema.items()}
    for name, inner in schema.items():
        if isinstance(inner, str) and inner.endswith("!") and found[name] is None:
            raise Refused("missing_field", _below(path, name))
    return found


def _salvaged(
    value: dict[str, Any], schema: dict[str, Schema], path: str, misfits: dict[str, tuple[str, Any]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, inner in schema.items():
        here, each = _below(path, name), value.get(name)
        found[name] = None
        if isinstance(inner, dict) and "*" not in inner and isinstance(each, dict):
            found[name] = _salvaged(each, inner, here, misfits)
            continue
        try:
            found[name] = _value(each, inner, here, "")
        except Refused:
            misfits[here] = (here, each)
    for name, inner in schema.items():
        if isinstance(inner, str) and inner.endswith("!") and found[name] is None:
            raise Refused("missing_field", _below(path, name))
    return found


def _unknown(value: Any, schema: Schema, path: str, place: str) -> Iterator[tuple[str, tuple[str, Any]]]:
    match schema, value:
        case {"*": inner}, dict():
            for key, each in value.items():
                yield from _unknown(each, inner, f"{path}[]", f"{place}[{json.dumps(key, ensure_ascii=False)}]")
        case dict(), dict():
            for name, each in value.items():
                plain = name and not {".", "["} & set(name)
                there = _below(place, name) if plain else f"{place}[{json.dumps(name, ensure_ascii=False)}]"
                if name in schema:
                    yield from _unknown(each, schema[name], _below(path, name), there)
                elif each is not None:
                    yield there, (_below(path, name), each)
        case [inner], list():
            for index, each in enumerate(value):
                yield from _unknown(each, inner, f"{path}[]", f"{place}[{index}]")


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _whole(value: Any, type_: str, path: str, leaf: str) -> int:
    if not isinstance(value, Number) or not value.whole:
        raise Refused("wrong_type", leaf)
    number, most = int(value.text), 1 << (_BITS[type_] - 1)
    if not -most <= number < most:
        raise Refused("out_of_range", leaf)
    return number


def _text(value: Any, type_: str, path: str, leaf: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Number) and value.whole:
        return value.text
    if not isinstance(value, str):
        raise Refused("wrong_type", path)
    if _has_half_characters(value):
        raise Refused("invalid_utf8", path)
    return value


def _has_half_characters(text: str) -> bool:
    return any(0xD800 <= ord(character) < 0xE000 for character in text)


def _double(value: Any, type_: str, path: str, leaf: str) -> float:
    if not isinstance(value, Number):
        raise Refused("wrong_type", leaf)
    if not _is_double(value):
        raise Refused("out_of_range", path)
    return float(value.text)


def _is_double(value: Number) -> bool:
    """Whether a double is the number, but for the rounding of a fraction."""
    number, exact = float(value.text), Decimal(value.text)
    return abs(number) != float("inf") and not number == 0 != exact and (not value.whole or number == exact)


def _decimal(value: Any, type_: str, path: str, leaf: str) -> Decimal:
    try:
        number = Decimal(value.text if isinstance(value, Number) else value)
    except (InvalidOperation, TypeError, ValueError):
        raise Refused("wrong_type", leaf) from None
    if isinstance(value, bool):
        raise Refused("wrong_type", leaf)
    if number.copy_abs() >= 10_000:
        raise Refused("out_of_range", leaf)
    if number and (number.adjusted() < -2 or number != round(number, 2)):
        raise Refused("too_precise", path)
    return round(number, 2) if number else Decimal("0.00")


def _boolean(value: Any, type_: str, path: str, leaf: str) -> bool:
    if not isinstance(value, bool):
        raise Refused("wrong_type", leaf)
    return value


_LEAVES: dict[str, Callable[[Any, str, str, str], Any]] = {
    **dict.fromkeys(_BITS, _whole),
    "string": _text,
    "double": _double,
    "decimal": _decimal,
    "boolean": _boolean,
}


def messages(seed: int, count: int) -> Iterator[str]:
    """Documents of the schema, of which about half have one value of another kind, or corrupt text.

    Some have fields that the schema lacks, at every place, and names that are repeated with another value.
    """
    random = Random(seed)
    for _ in range(count):
        broken = random.randrange(4)
        fields = [name for name in SCHEMA if random.random() < 0.6]
        random.shuffle(fields)
        odd = random.choice(fields) if fields and broken == 1 else None
        named = [f"{json.dumps(n)}:{_anything(random) if n == odd else _suiting(random, SCHEMA[n])}" for n in fields]
        for _ in range(random.choice((0, 0, 1, 2))):
            named.insert(random.randrange(len(named) + 1), _undeclared(random))
        if fields and random.random() < 0.3:  # the last one counts
            name = random.choice(fields)
            value = random.choice((_anything, lambda random, n=name: _suiting(random, SCHEMA[n])))(random)
            named.insert(0, f"{json.dumps(name)}:{value}")
        text = random.choice(("", " ", "\n")) + "{" + ",".join(named) + "}" + random.choice(("", " ", "\r\n"))
        if broken == 2:
            at = random.randrange(len(text) + 1)
            text = text[:at] + random.choice(("", "{", "}", "]", ",", '"', ":", "x", "1", " ", "\\")) + text[at + 1 :]
        yield text


def _suiting(random: Random, schema: Schema) -> str:
    if random.random() < 0.1 and not str(schema).endswith("!"):
        return "null"
    match schema:
        case {"*": inner}:
            keys = random.sample(("a", "b", "é", "", "a.b"), random.randrange(3))
            return "{" + ",".join(f"{json.dumps(key)}:{_suiting(random, inner)}" for key in keys) + "}"
        case dict():
            named = [f"{json.dumps(n)}:{_suiting(random, inner)}" for n, inner in schema.items()]
            named += [_undeclared(random)] if random.random() < 0.2 else []
            return "{" + ",".join(named) + "}"
        case [inner]:
            return "[" + ",".join(_suiting(random, inner) for _ in range(random.randrange(4))) + "]"
    if schema.rstrip("!") in _BITS:
        most = 1 << (_BITS[schema.rstrip("!")] - 1)
        return str(random.choice((0, 1, -1, 7, most - 1, -most)))
    match schema:
        case "string":
            return random.choice(
                ('"x"', '""', '"5.10"', '"{}"', '"\\u00e9\\ud83d\\ude00"', '"a\\nb\\"c"', "12", "true")
            )
        case "double":
            return random.choice(("0", "1.5", "-2e3", "0e-400", "4.9e-324", "9007199254740992", "0.1"))
        case "decimal":
            return random.choice(("1", "1.5", "-9999.99", '"2.50"', "1.500", "1e2"))
    return random.choice(("true", "false"))


def _undeclared(random: Random) -> str:
    """A field that no object of the schema has."""
    name = random.choice(("u", "v", "who.mail", "", "x[0]", "N", "é"))
    kind = random.randrange(20)
    if kind == 0:
        depth = random.choice((400, MOST_LEVELS - 1, MOST_LEVELS, 950, 998, 5_000))
        open_, close = random.choice((("[", "]"), ('{"d":', "}")))
        return f"{json.dumps(name)}:{open_ * depth}1{close * depth}"
    if kind == 1:
        return f"{json.dumps(name)}:{random.choice(('', '0.', '-'))}{'7' * random.choice((38, 39, 400, 5_000))}"
    inner = [_anything(random) for _ in range(random.randrange(1, 4))]
    if kind < 5:
        return f"{json.dumps(name)}:[{','.join(inner)}]"
    if kind < 8:
        return f"{json.dumps(name)}:{{{','.join(f'{json.dumps(str(n % 2))}:{v}' for n, v in enumerate(inner))}}}"
    return f"{json.dumps(name)}:{inner[0] if kind < 17 else 'null'}"


def _anything(random: Random) -> str:
    return random.choice(
        (
            *(
                "1.0",
                "1e3",
                "128",
                "40000",
                "2147483648",
                "9223372036854775808",
                "1e400",
                "1.239",
                "123456.5",
                "-0",
                "1e-400",
            ),
            *("9007199254740993", "-12345678901234567890", "1267650600228229401496703205376", "-0.0e-999"),
            *("100e2147483647", '"-100e2147483647"', "1e2147483648", "1e-2147483647", "0e2147483647", "1" * 45),
            *('{"u":1,"name":2}', '[{"u":1}]', '{"k":{"u":1}}', '[{"s":1,"u":2}]', '{"k":{"s":1.5,"u":2}}'),
            *('"12"', '"x"', '"\\ud800"', "true", "[]", "[1]", '["a",5.10]', "{}", '{"age":1}', '{"a":"x"}', '{"a":1}'),
        )
    )
