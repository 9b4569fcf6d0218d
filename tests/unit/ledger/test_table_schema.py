"""What is said of a table that lacks what the document needs: statements that Spark can parse, each that it needs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from pyspark.sql import types as t

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_rules import Contract
from kdi_assets.streams.rules.errors import SchemaDisagrees
from kdi_assets.streams.rules.table.table_schema import refuse_other_schema
from tests.table_by_hand import TableByHand, orders

ID, DATE = t.StructField("id", t.LongType()), t.StructField("date", t.DateType())


def _refused(lake: Path, wanted: t.StructType, contract: Contract | None = None) -> SchemaDisagrees:
    log = TableLog.existing(str(TableByHand(lake).log.parent))
    with pytest.raises(SchemaDisagrees) as refused:
        refuse_other_schema(orders(contract=contract or Contract()), log, wanted)
    return refused.value


def test_missing_columns_are_named_as_spark_reads_names_with_any_characters(tmp_path: Path) -> None:
    inner = t.StructType([t.StructField("x-y", t.LongType()), t.StructField("@n", t.ArrayType(t.StringType()))])
    named = t.MapType(t.StringType(), t.StructType([t.StructField("$v", t.DecimalType(9, 2))]))
    new = [t.StructField("user-id", t.StringType()), t.StructField("a", inner), t.StructField("b", named)]

    refused = _refused(tmp_path, t.StructType([ID, *new, DATE]))

    assert refused.missing == (
        "`user-id` string",
        "`a` struct<`x-y`: bigint, `@n`: array<string>>",
        "`b` map<string, struct<`$v`: decimal(9,2)>>",
    )
    assert "column user-id is not in the table" in refused.differences


def test_a_table_without_the_property_of_wider_types_is_told_how_to_get_it(tmp_path: Path) -> None:
    """Pass: nothing else is advised: the document is right, and no new table is needed."""
    refused = _refused(tmp_path, t.StructType([ID, DATE]), Contract(types="evolve"))

    alter, remark = refused.message_parts()[2].split("   ")
    assert shlex.split(alter) == [
        "kdi",
        "sql",
        f"ALTER TABLE delta.`{refused.uri}` SET TBLPROPERTIES (delta.enableTypeWidening = true)",
    ]
    assert "new table" not in remark


def test_what_is_missing_is_advised_beside_what_only_a_new_table_gives(tmp_path: Path) -> None:
    other = [t.StructField("id", t.StringType()), t.StructField("more", t.LongType()), DATE]

    refused = _refused(tmp_path, t.StructType(other), Contract(types="evolve"))

    run = refused.message_parts()[2]
    assert [part in run for part in ("SET TBLPROPERTIES", "ADD COLUMNS (`more` bigint)", "a new table")] == [True] * 3
