"""The types of served tables: what the documentation says, and refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.follow.serve.columns import Column, served_columns
from kdi_assets.follow.serve.errors import ColumnNotServed, TableAlteredByHand
from kdi_assets.follow.serve.postgres.target_table import Expected, TargetTable
from kdi_assets.follow.serve.postgres.types import SCALARS, postgres_types

PAGE = Path(__file__).parents[3] / "docs" / "served-tables.md"


def _delta_type(text: str) -> Any:
    """A type of the page in Delta's JSON."""
    if inner := re.fullmatch(r"array<(.*)>", text):
        return {"type": "array", "elementType": _delta_type(inner[1]), "containsNull": True}
    if inner := re.fullmatch(r"struct<(\w+): (.*)>", text):
        return {"type": "struct", "fields": [{"name": inner[1], "type": _delta_type(inner[2])}]}
    if inner := re.fullmatch(r"map<(\w+), (\w+)>", text):
        return {"type": "map", "keyType": inner[1], "valueType": inner[2]}
    return text


def test_the_page_has_the_types_of_the_code() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (?:`(.+?)`)? ?\|", PAGE.read_text().partition("## Types")[2], re.MULTILINE)

    said = {delta: there or "" for delta, there in rows}

    assert SCALARS.keys() < said.keys()
    for delta, there in said.items():
        column = Column("c", _delta_type(delta))
        if there:
            assert postgres_types("t", [column]) == {column.name: there}
        else:
            with pytest.raises(ColumnNotServed):
                postgres_types("t", [column])


@pytest.mark.parametrize("inner", ["variant", {"type": "array", "elementType": "interval"}, "void"])
def test_a_type_without_a_counterpart_is_refused_at_every_depth(inner: Any) -> None:
    deep = {
        "type": "struct",
        "fields": [{"name": "a", "type": {"type": "map", "keyType": "string", "valueType": inner}}],
    }

    with pytest.raises(ColumnNotServed, match="column c cannot be served"):
        postgres_types("t", [Column("c", deep)])


@pytest.mark.parametrize(
    ("name", "keys", "columns"), [("é" * 32, ("id",), ()), ("x", ("absent",), ()), ("x", ("id",), ("id", "absent"))]
)
def test_columns_that_cannot_be_served_are_named(name: str, keys: tuple[str, ...], columns: tuple[str, ...]) -> None:
    schema = {"fields": [{"name": "id", "type": "long"}, {"name": name, "type": "string"}]}
    served = ServedTableSpec(table="t", into=Postgres(table="t"), keys=keys, columns=columns)

    with pytest.raises(ColumnNotServed, match="absent|éé"):
        served_columns(served, schema)


def test_a_column_is_added_only_if_no_run_of_ours_had_it() -> None:
    expected = Expected("t", "s", "t", {"id": "bigint", "new": "text"}, ("id",), {"id": "bigint"})

    added = expected.columns_to_add(TargetTable("table", {"id": "bigint"}, ("id",)))

    assert added == {"new": "text"}


def test_a_view_in_place_of_the_table_has_no_statement_and_one_command() -> None:
    expected = Expected("gold", "public", "t", {"id": "bigint"}, ("id",), {})

    with pytest.raises(TableAlteredByHand) as refused:
        expected.columns_to_add(TargetTable("view", {"id": "bigint"}, ()))

    assert refused.value.message_parts()[2] == "kdi serve gold --rebuild"


def test_statements_that_a_person_runs_quote_the_names_that_others_gave() -> None:
    odd = 'x"; DROP TABLE y; --'
    expected = Expected("gold", 'a"b', 't"', {"id": "bigint", "n": "bigint"}, ("id",), {})

    with pytest.raises(TableAlteredByHand) as refused:
        expected.columns_to_add(TargetTable("table", {"id": "bigint", "n": "text", odd: "text"}, ("n",)))

    assert refused.value.statements == (
        'ALTER TABLE "a""b"."t""" ALTER COLUMN "n" TYPE bigint;',
        'ALTER TABLE "a""b"."t""" DROP COLUMN "x""; DROP TABLE y; --";',
        'ALTER TABLE "a""b"."t""" DROP CONSTRAINT IF EXISTS "t""_pkey", ADD PRIMARY KEY ("id");',
    )
