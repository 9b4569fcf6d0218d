"""Deletion of erased messages beside the table: dead letters, removed rows; and of the files that still hold them.

By MERGE with the offsets as its source: the log of a DELETE would keep the condition, and with it the person's values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.messages.coordinates import coordinate_sql
from kdi_assets.operate.erase.selection import ErasedMessages, EraseSelection
from kdi_assets.operate.upkeep.errors import spark_failures
from kdi_assets.operate.upkeep.vacuum import Vacuumed, vacuum
from kdi_assets.streams.ledger.rewrite import MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def delete_letters(selection: EraseSelection, found: ErasedMessages) -> None:
    """Delete all records of the messages."""
    from delta.tables import DeltaTable

    table = DeltaTable.forPath(selection.spark, selection.stream.dead_letters_uri(selection.lake))
    of_message = selection.letter_of_message()
    table.alias("letter").merge(found.frame.alias("erased"), of_message).whenMatchedDelete().execute()


def delete_removed_rows(selection: EraseSelection, found: ErasedMessages) -> None:
    """Delete the rows that decisions moved out of the table."""
    from delta.tables import DeltaTable

    spark, stream = selection.spark, selection.stream
    table = DeltaTable.forPath(spark, stream.removed_uri(selection.lake))
    at = coordinate_sql(table.toDF(), stream)
    same = " AND ".join(f"{at[column]} <=> _kdi_erased._kdi_{column}" for column in MESSAGE)
    messages = found.removed.selectExpr(*(f"{column} AS _kdi_{column}" for column in MESSAGE)).distinct()
    table.merge(messages.alias("_kdi_erased"), same).whenMatchedDelete().execute()


def delete_all_rows(spark: SparkSession, name: str, uri: str) -> None:
    """Leave a table without rows; commits nothing if it has none.

    Args:
        name: For errors.

    Raises:
        UpkeepFailed: Spark failed.
    """
    from delta.tables import DeltaTable

    if not TableLog.existing(uri).data_files.num_rows:
        return
    with spark_failures(name, f"the deletion of all rows of {uri}", doing="removing all rows", commits=True):
        DeltaTable.forPath(spark, uri).delete()


def vacuum_now(spark: SparkSession, tables: Mapping[str, str]) -> Vacuumed:
    """Remove every file of the tables, as far as they exist, that their newest version does not need.

    A drain that runs meanwhile plans again; readers of older versions and of the change feed find their files gone.

    Args:
        tables: URI to a name for errors.
    """
    files = size = 0
    for uri, name in tables.items():
        if TableLog.open(uri) is not None:
            removed = vacuum(spark, name, uri, now=True)
            files, size = files + removed.files, size + removed.bytes
    return Vacuumed(files, size)
