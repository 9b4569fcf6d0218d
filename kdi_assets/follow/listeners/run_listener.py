"""A run's listener: registers the table in the catalog, and sends OpenLineage events of the run.

Nothing here fails or undoes a run: its commits stand, and what goes wrong afterwards is a warning in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.follow.listeners.catalog import CatalogSetting, catalog_table
from kdi_assets.follow.listeners.heard import HeardCommit, HeardTable
from kdi_assets.settings import Settings
from kdi_assets.wording import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdi_assets.follow.listeners.lineage import LineageSender

log = logging.getLogger(__name__)


class RunListener:
    """Hears of one run of a stream, a refined or a served table.

    Args:
        kind: ``drain``, ``replay``, ``discard``, ``refine`` or ``serve``.
        session: Gives the Spark session; called only after a commit.
        run_id: Dagster's run, if there is one.
    """

    def __init__(
        self,
        settings: Settings,
        kind: str,
        table: HeardTable,
        lake: str,
        session: Callable[[], SparkSession],
        *,
        run_id: str = "",
    ) -> None:
        self._table, self._lake, self._session = table, lake, session
        # A served table has the catalog of its database.
        in_catalog = settings.catalog and not isinstance(table, ServedTableSpec)
        self._catalog = CatalogSetting.parse(settings.catalog) if in_catalog else None
        self._commits: list[HeardCommit] = []
        self._sender: LineageSender | None = None
        if settings.lineage:
            from kdi_assets.follow.listeners.lineage import LineageSender

            self._sender = LineageSender(kind, table, lake, run_id=run_id)
            self._sender.started(datetime.now(UTC))

    def committed(self, entry: HeardCommit) -> None:
        """Note a commit of the run."""
        self._commits.append(entry)

    def ended(self, failure: BaseException | None) -> None:
        """Register the table and send the last event."""
        at = datetime.now(UTC)
        if self._catalog and self._commits and failure is None:
            self._register(self._catalog)
        if self._sender:
            session = self._session if self._commits and failure is None else None
            self._sender.ended(at, self._commits, failure, session=session)

    def _register(self, setting: CatalogSetting) -> None:
        table, uri = catalog_table(self._table, setting.database), self._table.table_uri(self._lake)
        try:
            if setting.kind == "glue":
                from kdi_assets.follow.listeners.glue import glue_client, register_in_glue

                schema = TableLog.existing(uri).schema
                register_in_glue(glue_client(), table, uri, schema, description=self._table.description)
            else:
                from kdi_assets.follow.listeners.spark_catalog import register_by_spark

                register_by_spark(self._session(), table, uri)
        except Exception as failure:  # noqa: BLE001 - the commits stand, whatever the catalog does
            log.warning(
                "%s: not registered as %s in the catalog: %s. Its commits stand; the next run with a commit tries "
                "again.",
                self._table.name,
                table,
                first_line(failure).rstrip("."),
            )
