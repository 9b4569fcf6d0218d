"""Fields whose value may differ by environment: ``{{ env.NAME }}``, as Dagster's own components write it.

Only some fields take it: what a table holds is the same everywhere, and Spark SQL reaches the engine as it is written.
For secrets documents have another form, ``{env: NAME}``, which is read when it is used and never shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticCustomError, core_schema

from kdi_assets.documents.model.field_types import wrong

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

TEMPLATE = re.compile(
    r"\{\{\s*env(?:\.(?P<name>\w+)"
    r"|\(\s*(?P<quote>['\"])(?P<of>\w+)(?P=quote)\s*(?:,\s*(?P<quoted>['\"])(?P<default>.*?)(?P=quoted)\s*)?\))\s*\}\}"
)
MARK = "x-variable"
"""In the JSON Schema of a field: it takes ``{{ env.NAME }}``."""
AS_TEXT = {"type": "string", "pattern": r"\{\{"}
_OF_TYPE = ("type", "minimum", "enum", "const")
WRITTEN = "{{ env.NAME }}, or {{ env('NAME', 'default') }}"


def with_variables(value: object) -> object:
    """Text with the values of the variables that it names; anything else as it is."""
    if not isinstance(value, str) or "{{" not in value:
        return value
    text = TEMPLATE.sub(_value, value)
    if "{{" in TEMPLATE.sub("", value):
        raise wrong(f"{value!r} does not name a variable", WRITTEN)
    return text


def _value(template: re.Match[str]) -> str:
    name, default = template["name"] or template["of"], template["default"]
    value = os.environ.get(name, default)
    if value is None:
        raise wrong(
            f"the environment variable {name} is not set", f"set it, or write {{{{ env('{name}', 'default') }}}}"
        )
    return value


def _limit(value: object) -> object:
    """The same of a limit: variables hold text, so what looks like a number is one; empty and null are no limit."""
    found = with_variables(value)
    if found is value or not isinstance(found, str):
        return value
    if found in ("", "null"):
        return None
    if re.fullmatch(r"\d+", found):
        return int(found)
    return float(found) if re.fullmatch(r"\d+\.\d+", found) else found


def is_no_limit(value: object) -> bool:
    """Whether a limit is null, also by its variable. One that is missing is the field's own mistake."""
    try:
        return _limit(value) is None
    except PydanticCustomError:
        return False


@dataclass(frozen=True)
class TakesVariable:
    """The annotation of a field that takes ``{{ env.NAME }}``; the last one, so that it reads the value first."""

    read: Callable[[object], object] = with_variables

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        made = dict(handler(schema))
        kinds = made.pop("anyOf", None) or [{key: made.pop(key) for key in _OF_TYPE if key in made}]
        takes_text = any(kind.get("type") == "string" and "enum" not in kind for kind in kinds)
        if len(kinds) == 1 and takes_text:
            return {**made, **kinds[0], MARK: True}
        return {**made, "anyOf": kinds if takes_text else [*kinds, AS_TEXT], MARK: True}


VARIABLE = TakesVariable()
VARIABLE_LIMIT = TakesVariable(_limit)
