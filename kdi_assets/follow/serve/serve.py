"""Serve one table: what changed in its Delta table since the version that the database says was consumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.follow.listeners.heard import FollowerWrite
from kdi_assets.follow.listeners.listening import listening
from kdi_assets.follow.serve.report import ServeReport
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdi_assets.follow.serve.duckdb_file import DuckDbServing
    from kdi_assets.follow.serve.postgres.serve import PostgresServing


def serve(
    served: ServedTableSpec,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    home: Path | None = None,
    run_id: str = "",
    rebuild: bool = False,
    report: Callable[[str], None] = lambda line: None,
    at: Callable[[str], None] = lambda point: None,
) -> ServeReport:
    """Bring the table in the database to the newest version of its Delta table.

    Rows and consumed version are one transaction of the database, so an attempt that dies at any point either did
    everything or nothing, and the next one starts from what the database says.

    Args:
        lake: Root of the Delta tables.
        session: Gives the Spark session; called only if rows must be read.
        home: Folder of embedded databases; ``KDI_HOME`` by default.
        run_id: Dagster's run, if there is one.
        rebuild: Compare all rows, or load them into a new table if the columns or keys differ.
        report: Takes lines for a log.
        at: Called at each point that is reached; see the engines.

    Raises:
        KdiError: One of ``kdi_assets.follow.serve.errors``, or of the ledger if the Delta table's log cannot be read.
    """
    folder = home or Settings.from_environment().home
    with listening("serve", served, lake, session, run_id=run_id) as heard:
        done = _serving(served, folder, lake, session, report, at).run(rebuild=rebuild)
        if done.kind != "nothing":
            heard(FollowerWrite(done.version, done.upserted))
    return done


def _serving(
    served: ServedTableSpec,
    home: Path,
    lake: str,
    session: Callable[[], SparkSession],
    report: Callable[[str], None],
    at: Callable[[str], None],
) -> PostgresServing | DuckDbServing:
    if isinstance(served.into, Postgres):
        from kdi_assets.follow.serve.postgres.connection import database_of
        from kdi_assets.follow.serve.postgres.serve import PostgresServing

        return PostgresServing(served, served.into, database_of(served.into, home=home), lake, session, report, at)
    from kdi_assets.follow.serve.duckdb_file import DuckDbServing

    return DuckDbServing(served, served.into, home, lake, report, at)
