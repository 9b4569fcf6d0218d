"""The reference of documents has every field of every component, as the code has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.documents.model.message_format import Json
from kdi_assets.documents.model.refined_modes import Append, Deduplicate
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream_fields import StreamFields
from tests.pages.fields_page import COMPONENTS, DOCS, MORE, schema_of, updated_pages


@pytest.mark.parametrize("page", [DOCS / name for name in COMPONENTS], ids=lambda page: page.name)
def test_the_page_has_what_the_code_says(page: Path) -> None:
    assert page.read_text() == updated_pages()[page], "run: make fields"


@pytest.mark.parametrize("component", [c for of in COMPONENTS.values() for c in of], ids=lambda c: c.__name__)
def test_every_field_of_a_component_and_of_its_objects_has_a_line_and_every_line_is_a_field(
    component: type[Any],
) -> None:
    page = next((DOCS / name).read_text() for name, of in COMPONENTS.items() if component in of)
    _, section = page.split(f"\n## `kdi_assets.components.{component.__name__}`\n")
    section = re.split(r"\n## |\n<!-- by hand", section)[0]
    own, *objects = section.split("\n### ")
    schema = schema_of(component)

    same, absent = _named(own, "These fields are"), _named(own, "These do not exist")
    assert {*_lines(own), *same} == set(schema["properties"])
    assert not absent & set(schema["properties"])
    known = [set(definition.get("properties", ())) for definition in schema.get("$defs", {}).values()]
    assert [o.partition("\n")[0] for o in objects if set(_lines(o)) not in known] == []


def test_every_object_that_a_field_takes_has_a_table() -> None:
    pages = "".join((DOCS / name).read_text() for name in COMPONENTS)
    tables = [set(_lines(part)) for part in re.split(r"\n##+ ", pages)]

    definitions = {
        f"{component.__name__}: {name}": set(definition["properties"])
        for of in COMPONENTS.values()
        for component in of
        for name, definition in schema_of(component).get("$defs", {}).items()
        if definition.get("properties") and not name.startswith("From")
    }
    assert len(definitions) > 30
    assert [name for name, fields in definitions.items() if fields not in tables] == []


def test_every_link_of_a_field_is_of_a_field_that_is_there() -> None:
    fields = {
        f"{component.__name__}.{field}"
        for of in COMPONENTS.values()
        for component in of
        for field in schema_of(component)["properties"]
    }

    assert set(MORE) <= fields


def test_the_defaults_that_a_schema_cannot_show_are_those_of_the_engine() -> None:
    """``DEFAULTS`` of the page says json, append and 1 day."""
    default = {name: field.default for name, field in StreamFields.__dataclass_fields__.items()}

    assert default["format"] == Json()
    assert RefinedTableSpec.__dataclass_fields__["mode"].default == Append()
    assert Deduplicate.__dataclass_fields__["window"].default == 1


def _lines(section: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def _named(section: str, beginning: str) -> set[str]:
    found = re.search(rf"^{beginning}[^:]*: ([^.]+)\.", section, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", found[1])) if found else set()
