"""JSON as strictly as the decoder takes it, with numbers exactly as they are written."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import NoReturn, TypeAlias

JsonValue: TypeAlias = "None | bool | int | Decimal | str | list[JsonValue] | dict[str, JsonValue]"
"""A number with a fraction or an exponent is a ``Decimal``, any other an ``int``."""
JsonRecord: TypeAlias = dict[str, JsonValue]
Misfit: TypeAlias = tuple[str, str]
"""Why a message is a dead letter: the decoder's reason, and the field, empty where it is the whole message."""
_BLANK = " \t\r\n"


class NoRecord(Exception):
    """A message gives no record; the arguments are the decoder's reason, and the field where there is one."""


def json_object(payload: bytes) -> JsonRecord:
    """The object that a message is.

    Raises:
        NoRecord: It is none.
    """
    try:
        text = payload.decode("utf-8").strip(_BLANK)
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


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_constant)
