"""The table that kafka-delta-ingest feeds: where it lies, its columns, and the positions in its log."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.loading.folder import display_path
from kdi_assets.streams.ledger.positions import partition_id
from kdi_assets.tools.predecessor.errors import CommandNotRead
from kdi_assets.tools.predecessor.message_fields import DeltaType

MOST_ABSENT = 100
"""Ids of topic partitions are looked up until so many in a row are absent: one without messages has none."""
_AZURE = re.compile(r"(?:adls2?|azure|az)://([^/]+)/(.*)")


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Where a table lies.

    Attributes:
        lake: The root below which it lies; empty if it lies below none.
        table: Its path below the lake.
    """

    uri: str
    lake: str
    table: str


@dataclass(frozen=True)
class FoundTable:
    """What a table's log says.

    Attributes:
        positions: The next offset of each topic partition that the log has one of; empty if only a file of it was read.
        oldest_date: The least value of its folders ``date=…``, if they are known.
        whole_log: Whether the log itself was read.
    """

    columns: DeltaType
    partition_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)
    oldest_date: str = ""
    whole_log: bool = False


def locate(location: str, *, lake: str, azure_account: str) -> TableLocation:
    """The lake and the path of a table.

    Args:
        location: As kafka-delta-ingest has it.
        lake: ``KDI_LAKE``; empty if it is not set: then the folder around the table is the lake.
        azure_account: The storage account, which an address such as ``az://container/…`` does not name.
    """
    uri = location.rstrip("/")
    if found := _AZURE.fullmatch(uri):
        uri = f"abfss://{found[1]}@{azure_account}.dfs.core.windows.net/{found[2]}"
    elif "://" not in uri:
        uri = str(Path(uri).absolute())
    root = lake.rstrip("/").replace("s3a://", "s3://", 1)
    if root and "://" not in root:
        root = str(Path(root).absolute())
    if root:
        below = uri.startswith(f"{root}/")
        return TableLocation(uri, root, uri[len(root) + 1 :] if below else "")
    parent, _, name = uri.rpartition("/")
    is_bucket = parent.endswith("/") or not parent
    return TableLocation(uri, "" if is_bucket else parent, "" if is_bucket else name)


def read_table(uri: str, app_id: str) -> FoundTable:
    """Read the table's log.

    Raises:
        CommandNotRead: There is no table.
        NotADeltaTable, TableUnreadable, StorageFailed, CredentialsMissing, OtherLock: It cannot be read.
    """
    log = TableLog.open(uri)
    if log is None:
        right = "the same command where the table can be read, or with --table-log FILE, a file of its _delta_log"
        raise CommandNotRead(where="table_location", why=f"there is no table at {uri}", right=right)
    partitions = tuple(log.partition_columns)
    dates = [folder.get("date") for folder in log.delta_table.partitions()] if "date" in partitions else []
    return FoundTable(
        columns=log.schema,
        partition_columns=partitions,
        properties=log.configuration,
        positions=_positions(log, app_id),
        oldest_date=min((str(date) for date in dates if date), default=""),
        whole_log=True,
    )


def read_log_file(path: Path) -> FoundTable:
    """Read the table's columns from one file of its log: its first one, or one that changed the columns.

    Raises:
        CommandNotRead: The file has no columns.
    """
    try:
        actions: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        metadata = next(action["metaData"] for action in actions if "metaData" in action)
        columns = json.loads(metadata["schemaString"])
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as failed:
        right = "the same command with the log's first file, 00000000000000000000.json, or the last one with metaData"
        why = f"no columns are in it: {failed or 'it has no metaData'}"
        raise CommandNotRead(where=display_path(path), why=why, right=right) from failed
    return FoundTable(columns, tuple(metadata.get("partitionColumns", ())), metadata.get("configuration") or {})


def _positions(log: TableLog, app_id: str) -> dict[int, int]:
    positions: dict[int, int] = {}
    partition = absent = 0
    while absent < MOST_ABSENT:
        last = log.transaction_version(partition_id(app_id, partition))
        if last is None:
            absent += 1
        else:
            positions[partition], absent = last + 1, 0
        partition += 1
    return positions
