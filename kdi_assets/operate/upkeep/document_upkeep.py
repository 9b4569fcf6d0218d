"""Upkeep of a stream or a refined table: of its table and the tables beside it, and the clean-up of a stream's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.deletes import deletes_are_replaceable
from kdi_assets.operate.upkeep.clean_up import CleanUp, clean_up, plan_clean_up
from kdi_assets.operate.upkeep.expiry import Expiry, expire, plan_expiry
from kdi_assets.operate.upkeep.refined_expiry import expire_refined, plan_refined_expiry
from kdi_assets.operate.upkeep.table_upkeep import KeptTable, TableUpkeep, keep_table, plan_table_upkeep
from kdi_assets.operate.upkeep.unconsumed import Followers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Document = Stream | RefinedTableSpec


@dataclass(frozen=True, slots=True)
class DocumentUpkeep:
    """Upkeep of what a document describes, planned or done.

    Attributes:
        name: Of the stream or the refined table.
        tables: Its table first, then the tables beside it, such as dead letters and the archive, if they exist.
        clean_up: Of a stream's log; ``None`` if it is not due, or was refused. Delta cleans up other logs itself.
        expiry: With `keep`: rows and dead letters that are kept no longer.
        errors: What was not done, and why.
    """

    name: str
    tables: tuple[TableUpkeep, ...]
    clean_up: CleanUp | None = None
    expiry: Expiry | None = None
    errors: tuple[KdiError, ...] = ()

    @property
    def all_errors(self) -> tuple[KdiError, ...]:
        """Those of the tables too."""
        return (*(error for table in self.tables for error in table.errors), *self.errors)


def kept_tables(document: Document, lake: str) -> tuple[KeptTable, ...]:
    """The document's tables, whether they exist or not."""
    own = KeptTable(document.name, document.table_uri(lake), document.compacted_file_bytes, document.upkeep)
    if isinstance(document, Stream):
        own, beside = replace(own, archive_uri=document.archive_uri(lake)), document.beside_uris(lake)
    else:
        beside = (document.deletes_uri(lake),) if deletes_are_replaceable(document, lake) else ()
    # The other tables have no dates: they are compacted as a whole, and ordered by nothing.
    plain = replace(document.upkeep, cluster_by=())
    return (own, *(KeptTable(uri.removeprefix(f"{document.root(lake)}/"), uri, upkeep=plain) for uri in beside))


def plan_upkeep(
    document: Document, lake: str, *, now: datetime, thorough: bool = True, followers: Followers | None = None
) -> DocumentUpkeep:
    """What is due; changes nothing, needs no JVM.

    Args:
        thorough: Also VACUUM and the clean-up of the log, which list all files of a table, and what is kept no longer.
        followers: Of all documents; ``None``: they are unknown, so all rows are kept.
    """
    tables, errors = [], []
    for table in kept_tables(document, lake):
        try:
            planned = plan_table_upkeep(table, now=now, vacuums=thorough)
        except KdiError as refused:
            errors.append(refused)
            continue
        tables += [planned] if planned else []
    cleaned = expiry = None
    if thorough and tables and isinstance(document, Stream):
        try:
            cleaned = plan_clean_up(document, lake, now=now)
        except KdiError as refused:
            errors.append(refused)
    if thorough and tables and followers:
        try:
            expiry = _plan_expiry(document, lake, followers, now=now)
        except KdiError as refused:
            errors.append(refused)
    return DocumentUpkeep(document.name, tuple(tables), cleaned, expiry, tuple(errors))


def keep_document(
    document: Document,
    lake: str,
    planned: DocumentUpkeep,
    *,
    session: Callable[[], SparkSession],
    now: datetime,
    followers: Followers | None = None,
) -> DocumentUpkeep:
    """Do what is due. A failed step does not stop the others.

    Args:
        planned: By ``plan_upkeep``, at ``now``, with the same followers.
        session: Called only if something is due that needs Spark.
    """
    if planned.expiry and planned.expiry.is_due and followers:
        planned = _expired(document, lake, planned, followers, session=session, now=now)
    errors = list(planned.errors)
    tables = tuple(_kept(document, lake, planned, errors, session))
    cleaned = None
    if planned.clean_up and isinstance(document, Stream):
        try:
            cleaned = clean_up(document, lake, session=session, now=now)
        except KdiError as refused:
            errors.append(refused)
    return replace(planned, tables=tables, clean_up=cleaned, errors=tuple(errors))


def _plan_expiry(document: Document, lake: str, followers: Followers, *, now: datetime) -> Expiry | None:
    if isinstance(document, Stream):
        return plan_expiry(document, lake, followers, now=now)
    return plan_refined_expiry(document, lake, followers, now=now)


def _expired(
    document: Document,
    lake: str,
    planned: DocumentUpkeep,
    followers: Followers,
    *,
    session: Callable[[], SparkSession],
    now: datetime,
) -> DocumentUpkeep:
    """Remove what is kept no longer, and plan the rest after it: files of dates that left need no compaction."""
    try:
        if isinstance(document, Stream):
            done = expire(document, lake, followers, session=session, now=now)
        else:
            done = expire_refined(document, lake, followers, session=session, now=now)
    except KdiError as refused:
        return replace(planned, errors=(*planned.errors, refused))
    return replace(plan_upkeep(document, lake, now=now), expiry=done)


def _kept(
    document: Document,
    lake: str,
    planned: DocumentUpkeep,
    errors: list[KdiError],
    session: Callable[[], SparkSession],
) -> Iterator[TableUpkeep]:
    plans = {table.table: table for table in planned.tables}
    for table in kept_tables(document, lake):
        if table.name not in plans:
            continue
        try:
            yield keep_table(table, plans[table.name], session=session)
        except KdiError as refused:
            errors.append(refused)
            yield plans[table.name]
