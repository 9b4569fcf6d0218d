"""Registration in the catalog that Spark is configured with: a Hive metastore, Unity Catalog, Polaris."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.follow.listeners.catalog import CatalogTable, RegisteredElsewhere, same_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_by_spark(spark: SparkSession, table: CatalogTable, uri: str) -> None:
    """Create the table over its folder if the catalog does not have it; Spark reads the columns from the Delta log.

    The database must exist.

    Raises:
        RegisteredElsewhere: The name belongs to a table at another place.
        AnalysisException: The catalog refuses, e.g. because there is no such database.

    Source: Delta Lake, "Table batch reads and writes", "Control data location".
    """
    name = ".".join(f"`{part}`" for part in (*table.database.split("."), table.name))
    escaped = uri.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION '{escaped}'")
    found = str(spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"])
    if not same_place(found, uri):
        raise RegisteredElsewhere(table, found=found, uri=uri)
