"""Upkeep of a stream: of its table and of the tables beside it, and the clean-up of its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.errors import KdiError
from kdi_assets.stream.stream import Stream
from kdi_assets.stream.upkeep import Upkeep
from kdi_assets.upkeep.clean_up import CleanUp, clean_up, plan_clean_up
from kdi_assets.upkeep.table_upkeep import KeptTable, TableUpkeep, keep_table, plan_table_upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class StreamUpkeep:
    """Upkeep of a stream, planned or done.

    Attributes:
        tables: The stream's table first, then its dead letters, its archive and its removed rows, if they exist.
        clean_up: Of the log; ``None`` if it is not due, or was refused.
        errors: What was not done, and why.
    """

    stream: str
    tables: tuple[TableUpkeep, ...]
    clean_up: CleanUp | None = None
    errors: tuple[KdiError, ...] = ()

    @property
    def all_errors(self) -> tuple[KdiError, ...]:
        """Those of the tables too."""
        return (*(error for table in self.tables for error in table.errors), *self.errors)

    @property
    def needs_spark(self) -> bool:
        """Whether something is due that needs a session."""
        return any(t.due or t.vacuum for t in self.tables) or bool(self.clean_up and self.clean_up.renews)


def kept_tables(stream: Stream, lake: str) -> tuple[KeptTable, ...]:
    """The stream's tables, whether they exist or not."""
    # The other tables have no dates: they are compacted as a whole, and ordered by nothing.
    plain = Upkeep(closed_after_seconds=stream.upkeep.closed_after_seconds, small_files=stream.upkeep.small_files)
    own = KeptTable(
        stream.name,
        stream.table_uri(lake),
        stream.compacted_file_bytes,
        stream.upkeep,
        archive_uri=stream.archive_uri(lake),
    )
    uris = stream.beside_uris(lake)
    return (own, *(KeptTable(uri.removeprefix(f"{lake.rstrip('/')}/"), uri, upkeep=plain) for uri in uris))


def plan_upkeep(stream: Stream, lake: str, *, now: datetime, thorough: bool = True) -> StreamUpkeep:
    """What is due; changes nothing, needs no JVM.

    Args:
        thorough: Also VACUUM and the clean-up of the log; they list all files of a table.
    """
    tables, errors = [], []
    for table in kept_tables(stream, lake):
        try:
            planned = plan_table_upkeep(table, now=now, vacuums=thorough)
        except KdiError as refused:
            errors.append(refused)
            continue
        tables += [planned] if planned else []
    cleaned = None
    if thorough and tables:
        try:
            cleaned = plan_clean_up(stream, lake, now=now)
        except KdiError as refused:
            errors.append(refused)
    return StreamUpkeep(stream.name, tuple(tables), cleaned, tuple(errors))


def keep_stream(
    stream: Stream, lake: str, planned: StreamUpkeep, *, session: Callable[[], SparkSession], now: datetime
) -> StreamUpkeep:
    """Do what is due. A step that fails does not keep the others from being done.

    Args:
        planned: By ``plan_upkeep``, at ``now``.
        session: Called only if something is due that needs Spark.
    """
    errors = list(planned.errors)
    tables = tuple(_kept(stream, lake, planned, errors, session, now))
    cleaned = None
    if planned.clean_up:
        try:
            cleaned = clean_up(stream, lake, session=session, now=now)
        except KdiError as refused:
            errors.append(refused)
    return replace(planned, tables=tables, clean_up=cleaned, errors=tuple(errors))


def _kept(
    stream: Stream,
    lake: str,
    planned: StreamUpkeep,
    errors: list[KdiError],
    session: Callable[[], SparkSession],
    now: datetime,
) -> Iterator[TableUpkeep]:
    plans = {table.table: table for table in planned.tables}
    for table in kept_tables(stream, lake):
        if table.name not in plans:
            continue
        try:
            yield keep_table(table, plans[table.name], session=session, now=now)
        except KdiError as refused:
            errors.append(refused)
            yield plans[table.name]
