"""What others do to a stream's table: with delta-rs if the tool does not matter, with Spark if it does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Protocol

import boto3
from deltalake import DeltaTable

from tests.driven import DrivenStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Table(Protocol):
    """The table of a stream, of Kafka or Kinesis."""

    @property
    def uri(self) -> str: ...
    @property
    def session(self) -> Callable[[], SparkSession]: ...


def optimize(web: DrivenStream) -> None:
    DeltaTable(web.uri).optimize.compact()


def optimize_by_spark(web: DrivenStream) -> None:
    web.session().sql(f"OPTIMIZE delta.`{web.uri}`")


def delete(web: DrivenStream) -> None:
    """Remove the row of offset 3, by Spark: with change files and, if the table has them, deletion vectors."""
    web.session().sql(f"DELETE FROM delta.`{web.uri}` WHERE meta.kafka.offset = 3")


def update(web: DrivenStream) -> None:
    """Rewrite rows without changing what is in them."""
    DeltaTable(web.uri).update(updates={"status": "status"}, predicate="status >= 0")


def merge(web: DrivenStream) -> None:
    """The same by MERGE."""
    web.session().sql(
        f"MERGE INTO delta.`{web.uri}` t USING (SELECT 3 AS o) s ON t.meta.kafka.offset = s.o "
        "WHEN MATCHED THEN UPDATE SET method = t.method"
    )


def checkpoint(web: Table) -> None:
    DeltaTable(web.uri).create_checkpoint()


def overwrite(web: DrivenStream) -> None:
    """Keep only offsets below 5."""
    table = web.session().read.format("delta").load(web.uri)
    table.where("meta.kafka.offset < 5").write.format("delta").mode("overwrite").save(web.uri)


def replace_where(web: DrivenStream) -> None:
    """Overwrite by a predicate: of the rows with offsets from 6 on, those from 8 on stay."""
    table = web.session().read.format("delta").load(web.uri)
    kept = table.where("meta.kafka.offset >= 8").write.format("delta").mode("overwrite")
    kept.option("replaceWhere", "meta.kafka.offset >= 6").save(web.uri)


def constrain_letters(web: DrivenStream) -> None:
    """Give the dead letters a constraint: with this feature Spark writes them, however few there are."""
    letters = web.stream.dead_letters_uri(web.lake)
    web.session().sql(f"ALTER TABLE delta.`{letters}` ADD CONSTRAINT placed CHECK (offset >= 0)")


def alter(web: Table) -> None:
    DeltaTable(web.uri).alter.set_table_properties({"mine": "yes"}, raise_if_not_exists=False)


def add_column(web: DrivenStream) -> None:
    web.session().sql(f"ALTER TABLE delta.`{web.uri}` ADD COLUMN (theirs STRING)")


def vacuum(web: DrivenStream) -> None:
    """Remove every file that no version names, however young: zero retention, with its check off."""
    DeltaTable(web.uri).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)


def vacuum_by_spark(web: DrivenStream) -> None:
    check, spark = "spark.databricks.delta.retentionDurationCheck.enabled", web.session()
    spark.conf.set(check, "false")
    try:
        spark.sql(f"VACUUM delta.`{web.uri}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset(check)


def restore(web: Table, version: int = 1) -> None:
    DeltaTable(web.uri).restore(version)


def restore_by_spark(web: Table, version: int = 1) -> None:
    web.session().sql(f"RESTORE TABLE delta.`{web.uri}` TO VERSION AS OF {version}")


def replace(web: DrivenStream) -> None:
    """Another table in the same place, with the same rows."""
    made = f"CREATE OR REPLACE TABLE delta.`{web.uri}` USING delta PARTITIONED BY (date)"
    web.session().sql(f"{made} AS SELECT * FROM delta.`{web.uri}`")


def clone(web: DrivenStream) -> None:
    """Move the table, and put a shallow clone of it in its place."""
    Path(web.uri).rename(f"{web.uri}_moved")
    web.session().sql(f"CREATE TABLE delta.`{web.uri}` SHALLOW CLONE delta.`{web.uri}_moved`")


def drop(web: DrivenStream) -> None:
    remove_folder(web.uri)


def remove_folder(uri: str) -> None:
    """Remove a table's files, on this machine or in a bucket."""
    if "://" not in uri:
        rmtree(uri)
        return
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    boto3.resource("s3").Bucket(bucket).objects.filter(Prefix=f"{prefix}/").delete()
