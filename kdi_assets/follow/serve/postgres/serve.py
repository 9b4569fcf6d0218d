"""Serve a Delta table from PostgreSQL: plan by the consumed version, stage what changed, publish it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.lost_races import until_won
from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.follow.serve.columns import Column, key_columns, served_columns
from kdi_assets.follow.serve.errors import AnotherServeRunActive, PublishedMeanwhile
from kdi_assets.follow.serve.net_changes import NET, PRESENT, appended_as_changes, net_changes
from kdi_assets.follow.serve.postgres.connection import Database
from kdi_assets.follow.serve.postgres.publish import PublishedRows, Publisher
from kdi_assets.follow.serve.postgres.served_versions import ConsumedVersion, prepare_schema, read_consumed
from kdi_assets.follow.serve.postgres.staging import Staging, drop_dead_attempts, new_attempt
from kdi_assets.follow.serve.postgres.target_table import (
    Expected,
    TargetTable,
    read_target_table,
    refuse_row_security,
    refuse_table_of_others,
)
from kdi_assets.follow.serve.postgres.types import postgres_types
from kdi_assets.follow.serve.report import ServeReport
from kdi_assets.follow.serve.source import open_source
from kdi_assets.follow.upstream import OpenedUpstream, UpstreamChanges, changes_since
from kdi_assets.runtime.progress import WorkStep, announced

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

Way = Literal["version", "changes", "difference", "load"]


@dataclass(frozen=True, slots=True)
class ServePlan:
    """How the database is brought to the newest version.

    Attributes:
        changes: What is new in the Delta table.
        way: ``version``: no row changed; ``changes``: upsert them; ``difference``: compare all rows and change those
            that differ; ``load``: all rows into a new table.
        why: For the last two: why.
    """

    changes: UpstreamChanges
    consumed: ConsumedVersion | None
    way: Way
    why: str = ""


@dataclass(frozen=True, slots=True)
class PostgresServing:
    """One run of a table that is served from PostgreSQL.

    Attributes:
        lake: Root of the Delta tables.
        session: Gives the Spark session; called only if rows must be read.
        report: Takes lines for a log.
        at: Called with the name of each point that is reached: ``consumed version read``, ``planned``, ``staged``,
            ``publishing`` (inside the transaction, before its commit), ``published``.
    """

    served: ServedTableSpec
    target: Postgres
    database: Database
    lake: str
    session: Callable[[], SparkSession]
    report: Callable[[str], None]
    at: Callable[[str], None]

    def run(self, *, rebuild: bool) -> ServeReport:
        """Serve what changed.

        Raises:
            KdiError: One of ``kdi_assets.follow.serve.errors``.
        """
        began = time.monotonic()

        def attempt() -> ServeReport:
            try:
                with self.database.connected() as connection:
                    return self._attempt(connection, rebuild=rebuild, began=began)
            except PublishedMeanwhile:
                self.report(f"{self.served.name}: another run published first; planning again")
                raise

        another = AnotherServeRunActive(target=self.served.name)
        return until_won(attempt, lost=PublishedMeanwhile, gives_up=lambda race: another)

    def _attempt(self, connection: psycopg.Connection, *, rebuild: bool, began: float) -> ServeReport:
        prepare_schema(connection, self.target.schema, self.target.table)
        drop_dead_attempts(connection, self.target.schema)
        consumed = read_consumed(connection, self.target.schema, self.target.table)
        self.at("consumed version read")
        source = open_source(self.served, self.lake, consumed, rebuild=rebuild)
        log = source.log
        plan = self._plan(connection, source, consumed, rebuild=rebuild)
        if plan.why:
            self.report(f"{self.served.name}: {plan.way}, because {plan.why}")
        self.at("planned")
        columns = served_columns(self.served, log.schema)
        attempt = new_attempt()
        publisher = self._publisher(connection, plan, self._types(log), attempt)
        started, published = self._publish(publisher, plan, columns, attempt)
        self.at("published")
        return self._report(plan, published, began=began, started=started)

    def _plan(
        self,
        connection: psycopg.Connection,
        source: OpenedUpstream,
        consumed: ConsumedVersion | None,
        *,
        rebuild: bool,
    ) -> ServePlan:
        log, same = source.log, source.since is not None
        found = self._found(connection, consumed)
        changes = changes_since(log, source.since, table=self.served.table, all_dates=True)
        if consumed is None:
            refuse_table_of_others(self.served.name, self.target.schema, self.target.table, found)
            return ServePlan(changes, consumed, "load", "it is the first time")
        if found is None:
            return ServePlan(changes, consumed, "load", "the table is no longer in the database")
        fits = found.fits(self._types(log), self.served.keys)
        if why := self._reason_for_all_rows(consumed, same=same, rebuild=rebuild):
            return ServePlan(changes, consumed, "difference" if fits else "load", why)
        if not fits and _went_back(log, consumed.version):
            return ServePlan(
                changes, consumed, "load", "a RESTORE or an overwrite changed the columns of the Delta table"
            )
        if changes.kind == "nothing":
            return ServePlan(changes, consumed, "version")
        if changes.kind == "lost":
            return ServePlan(changes, consumed, "difference", changes.why)
        if changes.kind == "changed" and not changes.has_feed:
            return ServePlan(changes, consumed, "difference", "the Delta table has no change feed of these changes")
        return ServePlan(changes, consumed, "changes")

    def _found(self, connection: psycopg.Connection, consumed: ConsumedVersion | None) -> TargetTable | None:
        """The table in the database, as the run left it that recorded the consumed version.

        Raises:
            PublishedMeanwhile: Another run has published since that version was read.
        """
        found = read_target_table(connection, self.target.schema, self.target.table)
        if read_consumed(connection, self.target.schema, self.target.table) != consumed:
            raise PublishedMeanwhile
        return found

    def _reason_for_all_rows(self, consumed: ConsumedVersion, *, same: bool, rebuild: bool) -> str:
        if rebuild:
            return "a rebuild was requested"
        if not self.served.has_definition(consumed.definition, place=consumed.source):
            return "the document has other keys or columns"
        return "" if same else "the Delta table was replaced by another one"

    def _types(self, log: TableLog) -> dict[str, str]:
        """The columns in the database, name to type."""
        return postgres_types(self.served.name, served_columns(self.served, log.schema))

    def _publisher(
        self, connection: psycopg.Connection, plan: ServePlan, types: dict[str, str], attempt: str
    ) -> Publisher:
        recorded = plan.consumed.columns if plan.consumed else {}
        expected = Expected(self.served.name, self.target.schema, self.target.table, types, self.served.keys, recorded)
        return Publisher(
            connection,
            expected,
            plan.consumed,
            source=plan.changes.uri,
            table_id=plan.changes.table_id,
            version=plan.changes.version,
            definition=self.served.definition,
            attempt=attempt,
            at=self.at,
        )

    def _publish(
        self, publisher: Publisher, plan: ServePlan, columns: Sequence[Column], attempt: str
    ) -> tuple[float, PublishedRows]:
        """Stage the rows and publish them; the time at which publishing started, and what was published."""
        if plan.way == "version":
            if plan.consumed and plan.consumed.version == plan.changes.version:
                return time.monotonic(), PublishedRows()
            with self._publishing():
                return time.monotonic(), publisher.version_only()
        # Before rows are read; the transaction checks again.
        if plan.way == "load":
            refuse_row_security(publisher.connection, publisher.expected)
        elif found := self._found(publisher.connection, plan.consumed):
            publisher.expected.columns_to_add(found)
        changes = plan.way == "changes"
        staging = Staging(self.database, self.target.schema, attempt, publisher.expected.columns, changes)
        staging.create(publisher.connection, logged=plan.way == "load")
        became_table = False
        try:
            copied = [*columns, PRESENT, NET] if changes else list(columns)
            staging.copy(publisher.connection, self._rows(plan, columns), copied)
            self.at("staged")
            started = time.monotonic()
            publish = {"load": publisher.load, "difference": publisher.difference}.get(plan.way, publisher.changes)
            with self._publishing():
                published = publish(staging)
            became_table = plan.way == "load"
        finally:
            if not publisher.connection.closed:
                staging.drop(publisher.connection, rows=not became_table)
        return started, published

    def _publishing(self) -> AbstractContextManager[None]:
        return announced(WorkStep(name=self.served.name, doing="publishing", commits=True))

    def _rows(self, plan: ServePlan, columns: Sequence[Column]) -> DataFrame:
        from pyspark.sql import functions as F

        from kdi_assets.delta.files import rows_at
        from kdi_assets.follow.refine.read import appended_rows, change_rows

        spark, changes = self.session(), plan.changes
        if plan.way != "changes":
            rows = rows_at(spark, changes.uri, changes.version)
            return rows.select(*(F.col(column.sql) for column in columns))
        if changes.kind == "appended":
            return appended_as_changes(appended_rows(spark, changes), columns)
        return net_changes(change_rows(spark, changes), columns, key_columns(self.served, columns))

    def _report(self, plan: ServePlan, published: PublishedRows, *, began: float, started: float) -> ServeReport:
        now = time.monotonic()
        return ServeReport(
            target=self.served.name,
            kind="nothing" if plan.way == "version" else plan.way,
            version=plan.changes.version,
            why=plan.why,
            since=plan.consumed.version if plan.consumed else None,
            upserted=published.upserted,
            deleted=published.deleted,
            columns_added=published.columns_added,
            seconds=now - began,
            publish_seconds=now - started,
            sql=f"TABLE {self.target.schema}.{self.target.table} LIMIT 10;",
            client=self.database.client,
        )


def _went_back(log: TableLog, since: int) -> bool:
    """Whether the Delta table was restored or overwritten since a version, and may have older columns than then."""
    try:
        return any(commit.replaces_rows for commit in log.commits(after=since))
    except CommitUnreadable:
        return True
