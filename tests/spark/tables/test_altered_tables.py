"""The statements that a refusal shows give the table what the document needs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.sql.types import StructType

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_rules import Contract
from kdi_assets.streams.rules.errors import SchemaDisagrees
from kdi_assets.streams.rules.table.table_schema import refuse_other_schema
from tests.table_by_hand import orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATED = "id int, inner struct<one: int>, items array<struct<one: int>>, date date"
WANTED = """
  id bigint, `user-id` string, inner struct<one: int, `a:b`: struct<`x-y`: bigint>>,
  items array<struct<one: int, `$n`: map<string, struct<`@m`: decimal(9,2)>>>>, date date
"""


def test_after_the_statements_that_are_shown_the_table_suits_the_document(spark: SparkSession, tmp_path: Path) -> None:
    """Procedure: a document with a wider type, and with columns whose names need quotes, at the top, in a struct and in
    an array; run what is shown.
    """
    stream, wanted = orders(contract=Contract(types="evolve")), cast(StructType, StructType.fromDDL(WANTED))
    uri = stream.table_uri(str(tmp_path))
    spark.sql(f"CREATE TABLE delta.`{uri}` ({CREATED}) USING delta PARTITIONED BY (date)")

    with pytest.raises(SchemaDisagrees) as refused:
        refuse_other_schema(stream, TableLog.existing(uri), wanted)
    steps = re.split(r"; (?:then|or) ", refused.value.message_parts()[2])
    statements = [shlex.split(step.split("   ")[0])[2] for step in steps if step.startswith("kdi sql")]
    for statement in statements:
        spark.sql(statement)

    assert len(statements) == 2
    refuse_other_schema(stream, TableLog.existing(uri), wanted)
