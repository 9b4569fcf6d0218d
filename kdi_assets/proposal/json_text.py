"""JSON as strictly as the decoder takes it, with numbers exactly as they are written."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

Json: TypeAlias = "None | bool | int | Decimal | str | list[Json] | dict[str, Json]"
"""A number with a fraction or an exponent is a ``Decimal``, any other an ``int``."""
MOST_DIGITS = 1000
"""Spark's parser takes no number that is longer."""
_BLANK = " \t\r\n"


class NoObject(Exception):
    """A message is no JSON object; the argument is the decoder's reason."""


def json_object(payload: bytes) -> dict[str, Json]:
    """The object that a message is.

    Raises:
        NoObject: It is none.
    """
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        raise NoObject("invalid_utf8") from None
    text = text.strip(_BLANK)
    if not text:
        raise NoObject("blank")
    try:
        document, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        raise NoObject("malformed_json") from None
    if end < len(text):
        raise NoObject("trailing_text")
    if not isinstance(document, dict):
        raise NoObject("not_an_object")
    return document


def is_json(payload: bytes) -> bool:
    """Whether it is a document of any kind."""
    try:
        json_object(payload)
    except NoObject as refused:
        return str(refused) == "not_an_object"
    return True


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _fraction(text: str) -> Decimal:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return Decimal("Infinity")


def _constant(text: str) -> Json:
    raise ValueError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(parse_float=_fraction, parse_int=_integer, parse_constant=_constant)
