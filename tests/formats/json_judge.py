"""The rules of docs/json.md in Python's own parser: a second implementation, to compare with the kernel."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
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
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


class Number(NamedTuple):
    """A number as the message writes it."""

    text: str
    whole: bool


class Refused(Exception):
    """The message becomes a dead letter: reason and field."""


def judged(text: str) -> Any:
    """The record as plain Python, or reason and field.

    Raises:
        Refused: It is no record.
    """
    if not text.strip(" \t\r\n"):
        raise Refused("blank", None)
    document, rest = _parsed(text)
    if rest.strip(" \t\r\n"):
        raise Refused("trailing_text", None)
    if not isinstance(document, dict):
        raise Refused("not_an_object", None)
    return _value(document, SCHEMA, "", "")


def _parsed(text: str) -> tuple[Any, str]:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    decoder = json.JSONDecoder(
        parse_int=lambda n: Number(n, True), parse_float=lambda n: Number(n, False), parse_constant=no_constant
    )
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
    def below(name: str) -> str:
        return f"{path}.{name}" if path else name

    if not isinstance(value, dict):
        raise Refused("wrong_type", leaf or below(next(iter(schema))))
    found = {name: _value(value.get(name), inner, below(name), leaf) for name, inner in schema.items()}
    for name, inner in schema.items():
        if isinstance(inner, str) and inner.endswith("!") and found[name] is None:
            raise Refused("missing_field", below(name))
    return found


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
    if any(0xD800 <= ord(character) < 0xE000 for character in value):
        raise Refused("invalid_utf8", path)
    return value


def _double(value: Any, type_: str, path: str, leaf: str) -> float:
    if not isinstance(value, Number):
        raise Refused("wrong_type", leaf)
    number, exact = float(value.text), Fraction(value.text)
    if abs(number) == float("inf") or (number == 0 != exact) or (value.whole and number != exact):
        raise Refused("out_of_range", path)
    return number


def _decimal(value: Any, type_: str, path: str, leaf: str) -> Decimal:
    try:
        number = Decimal(value.text if isinstance(value, Number) else value)
    except (InvalidOperation, TypeError, ValueError):
        raise Refused("wrong_type", leaf) from None
    if isinstance(value, bool):
        raise Refused("wrong_type", leaf)
    if abs(number) >= 10_000:
        raise Refused("out_of_range", leaf)
    if number != round(number, 2):
        raise Refused("too_precise", path)
    return round(number, 2)


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
    """Documents of the schema, of which about half have one value of another kind, or corrupt text."""
    random = Random(seed)
    for _ in range(count):
        broken = random.randrange(4)
        fields = [name for name in SCHEMA if random.random() < 0.6]
        random.shuffle(fields)
        odd = random.choice(fields) if fields and broken == 1 else None
        named = [f"{json.dumps(n)}:{_anything(random) if n == odd else _suiting(random, SCHEMA[n])}" for n in fields]
        if named and random.random() < 0.2:
            named.insert(0, random.choice(named))  # the last one counts
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
            return "{" + ",".join(f"{json.dumps(n)}:{_suiting(random, inner)}" for n, inner in schema.items()) + "}"
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
            *('"12"', '"x"', '"\\ud800"', "true", "[]", "[1]", '["a",5.10]', "{}", '{"age":1}', '{"a":"x"}', '{"a":1}'),
        )
    )
