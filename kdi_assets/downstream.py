"""For users' assets that are built on our tables: when they run, for which dates, and what is new for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from kdi_assets.components.automation import FAILED, LABEL, on_new_upstream_data
from kdi_assets.components.names import dates
from kdi_assets.components.refined_groups import refined_groups
from kdi_assets.documents.loading.errors import DefsFolderNotNamed
from kdi_assets.documents.loading.lakes import own_lakes
from kdi_assets.documents.loading.loader import cached_streams, defs_folder, load_folder, select_table
from kdi_assets.documents.model.refined_table import Upstream
from kdi_assets.documents.model.stream import Stream
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdi_assets.follow.refine.consumer import NewRows

__all__ = ["FAILED", "LABEL", "dates_of", "new_rows", "on_new_upstream_data"]


def dates_of(table: str, *, folder: Path | None = None) -> dg.DailyPartitionsDefinition:
    """The date partitions of a stream's table or a refined table, for an asset that is built on it date by date.

    Args:
        table: The table's path, or its last part, or the topic of a stream, if only one table has it.
        folder: With the documents, as ``definitions_for`` takes it; ``KDI_DEFS`` by default.

    Raises:
        UnknownStream: No table has the name.
        AmbiguousStream: Several tables have it.
        ValueError: The table has no date partitions.
    """
    loaded = load_folder(folder)
    selected = select_table(loaded, table)
    if isinstance(selected, Stream):
        return dates(selected)
    groups = refined_groups(loaded.refined.values(), loaded.streams.values())
    partitions = next(group.partitions for group in groups if selected in group.tables)
    if partitions is None:
        raise ValueError(f"{selected.name} has no date partitions")
    return partitions


def new_rows(
    spark: SparkSession, table: str, *, into: str, consumer: str = "", folder: Path | None = None
) -> NewRows | None:
    """What is new in a table since the last commit of a hand-written asset; ``None`` if nothing is.

    The result has the rows, their dates, and three commits: ``append``, ``replace_dates`` and ``replace_everything``
    write rows into the asset's table and bind them to the bookmark in one version. So what is new is in the asset's
    table exactly once, whenever the run dies and however often it is repeated.

    Args:
        table: The path of the table that is read, below the root that its document names, or else KDI_LAKE.
        into: The path of the table that the asset writes, below KDI_LAKE; the first commit creates it.
        consumer: A name for the bookmark; an asset that reads several tables needs one name for each.
        folder: With the documents, as for ``dates_of``.

    Raises:
        UpstreamMissing: The table does not exist yet.
        UpstreamGone: The table does not exist, and the asset has committed before.
        BookmarksUnreadable: Commits of the asset's table since its last bookmark cannot be read.
    """
    from kdi_assets.follow.refine.consumer import new_rows as read_new_rows

    settings = Settings.from_environment()
    upstream, output = Upstream(table, lake=_lake_of(table, folder, settings.kafka)), Upstream(into)
    uris = {"upstream": upstream.table_uri(settings.lake), "output": output.table_uri(settings.lake)}
    return read_new_rows(spark, **uris, consumer=consumer or into)


def _lake_of(table: str, folder: Path | None, main_servers: str) -> str:
    """The root that documents name for a table; empty without such a document."""
    try:
        loaded = cached_streams(folder or defs_folder(), main_servers)
    except DefsFolderNotNamed:
        return ""
    return own_lakes(loaded.streams, loaded.refined).get(table, "")
