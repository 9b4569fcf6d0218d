"""Registration in AWS Glue, in the form that Athena reads (engine version 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdi_assets.delta.column_types import type_text
from kdi_assets.delta.storage import storage_uri
from kdi_assets.follow.listeners.catalog import CatalogTable, RegisteredElsewhere, same_place
from kdi_assets.messages.formats.comments import column_tags
from kdi_assets.runtime.s3_access import s3_region

PROVIDER = "spark.sql.sources.provider"
"""The parameter by which Athena and Spark know a Delta table."""
CONNECT_SECONDS, ANSWER_SECONDS = 5, 10
MOST_DESCRIPTION_BYTES, MOST_COMMENT_BYTES = 2048, 255
"""Source: AWS Glue, "Table API": TableInput and Column."""


def glue_client() -> Any:
    """boto3's client of Glue, with the usual credentials, region and endpoint of AWS."""
    import boto3
    from botocore.config import Config

    limits = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=ANSWER_SECONDS,
        retries={"max_attempts": 2, "mode": "standard"},
    )
    return boto3.client("glue", region_name=s3_region(), config=limits)


def register_in_glue(
    client: Any, table: CatalogTable, uri: str, schema: Mapping[str, Any], *, description: str = ""
) -> None:
    """Create the table in Glue, or update it if columns or form differ; its database must exist.

    Athena reads data, partitions and columns from the Delta log; views, Lake Formation and filters take the columns
    from Glue, so they are those of the log. ``date`` is among them: the log knows that it is the partition column.

    Args:
        uri: Location of the table; ``s3a`` becomes ``s3``, which is all that Athena knows.
        schema: Delta's schema JSON.

    Raises:
        RegisteredElsewhere: The name belongs to a table at another place.
        ClientError: Glue refuses, e.g. because there is no such database.

    Source: Amazon Athena, "Synchronize Delta Lake metadata" (creating a table with the AWS CLI), and "Query Linux
    Foundation Delta Lake tables".
    """
    uri, existing = storage_uri(uri), _glue_table(client, table)
    if existing is None:
        created = table_input(table, uri, schema, description=description)
        client.create_table(DatabaseName=table.database, TableInput=created)
        return
    found = location(existing)
    if not same_place(found, uri):
        raise RegisteredElsewhere(table, found=found, uri=uri)
    wanted = table_input(
        table,
        uri,
        schema,
        description=description or existing.get("Description", ""),
        parameters=existing.get("Parameters", {}),
    )
    if _form(existing) != _form(wanted):
        client.update_table(DatabaseName=table.database, TableInput=wanted)


def registered_places(client: Any, database: str) -> dict[str, str]:
    """The locations of the tables of a database, by name; none without the database."""
    pages = client.get_paginator("get_tables").paginate(DatabaseName=database)
    try:
        return {table["Name"]: location(table) for page in pages for table in page["TableList"]}
    except client.exceptions.EntityNotFoundException:
        return {}


def location(table: Mapping[str, Any]) -> str:
    """The location of a table of Glue; tables that Spark made have it only as the path of their SerDe."""
    storage = table.get("StorageDescriptor", {})
    path = storage.get("SerdeInfo", {}).get("Parameters", {}).get("path")
    return str(path or storage.get("Location", ""))


def table_input(
    table: CatalogTable,
    uri: str,
    schema: Mapping[str, Any],
    *,
    description: str = "",
    parameters: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The table as Glue stores it.

    Args:
        parameters: Further parameters, which stay.
    """
    return {
        "Name": table.name,
        "Description": _shortened(description, MOST_DESCRIPTION_BYTES),
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {**(parameters or {}), "EXTERNAL": "TRUE", PROVIDER: "delta"},
        "PartitionKeys": [],
        "StorageDescriptor": {
            "Columns": [_column(field) for field in schema["fields"]],
            "Location": uri,
            "SerdeInfo": {"Parameters": {"serialization.format": "1", "path": uri}},
        },
    }


def glue_type(schema: Any) -> str:
    """A type of the Delta log as Glue writes it: ``struct<a:bigint,b:array<string>>``, without blanks."""
    types = {"timestamp_ntz": "timestamp", "variant": "string"}
    return type_text(schema, comma=",", colon=":", names=types)


def _column(field: Mapping[str, Any]) -> dict[str, Any]:
    comment = _shortened(str(field.get("metadata", {}).get("comment", "")), MOST_COMMENT_BYTES)
    tags = column_tags(field)
    said: dict[str, Any] = {**({"Comment": comment} if comment else {}), **({"Parameters": tags} if tags else {})}
    return {"Name": field["name"], "Type": glue_type(field["type"]), **said}


def _form(table: Mapping[str, Any]) -> tuple[Any, ...]:
    """What an update may have to change."""
    columns = [(c["Name"].lower(), c.get("Type"), c.get("Comment", "")) for c in table["StorageDescriptor"]["Columns"]]
    provider = table.get("Parameters", {}).get(PROVIDER, "").lower()
    return columns, provider, table.get("TableType"), location(table).rstrip("/"), table.get("Description", "")


def _glue_table(client: Any, table: CatalogTable) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = client.get_table(DatabaseName=table.database, Name=table.name)["Table"]
    except client.exceptions.EntityNotFoundException:
        return None
    return found


def _shortened(text: str, most_bytes: int) -> str:
    return text.encode()[:most_bytes].decode(errors="ignore")
