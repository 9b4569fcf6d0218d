"""Erasure beyond the stream: refined tables that are made of its table, and the databases that serve them.

They are brought up to date as by `kdi refine` and `kdi serve`; nothing is erased here that these would not remove.
Then each refined table is searched for rows that still meet the condition, because they may come from other tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kdi_assets.delta.files import rows_at
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.loading.refined_documents import upstream_first, upstream_names
from kdi_assets.documents.model.refined_modes import Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.deletes import deletes_are_replaceable, deletes_are_unused
from kdi_assets.follow.refine.plan import plan_refinement
from kdi_assets.follow.refine.refine import refine
from kdi_assets.follow.serve.serve import serve
from kdi_assets.operate.erase.deletion import delete_all_rows, vacuum_now
from kdi_assets.operate.erase.tagged import TaggedValue
from kdi_assets.operate.upkeep.errors import ErasedRowsFrozen, ErasedRowsLeft, spark_failures
from kdi_assets.operate.upkeep.vacuum import Vacuumed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Downstream:
    """What follows the table of a stream.

    Attributes:
        refined: Made of the stream's tables, directly or not; each after those that it is made of.
        served: Copies of these, and of the stream's table, in databases.
    """

    refined: tuple[RefinedTableSpec, ...] = ()
    served: tuple[ServedTableSpec, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*(table.name for table in self.refined), *(copy.name for copy in self.served))


@dataclass(frozen=True, slots=True)
class FollowedErasure:
    """What an erasure did to a table downstream.

    Attributes:
        table: Its name.
        version: Of the Delta table whose rows it has, or is; ``None``: unknown.
        rows_removed: Rows that the refinement replaced or removed, or that were deleted in the database.
        rows_left: Rows that meet the condition of the erasure; ``None``: it lacks columns of the condition, or it is a
            copy of another table.
        error: Why it did not follow, or what is left.
    """

    table: str
    version: int | None = None
    rows_removed: int = 0
    rows_left: int | None = None
    error: KdiError | None = None


def downstream_of(
    stream: Stream, refined: Collection[RefinedTableSpec], served: Collection[ServedTableSpec], *, lake: str
) -> Downstream:
    """The tables that documents make of the stream's table or of its dead letters, archive and removed rows."""
    root = f"{stream.root(lake)}/"
    reached = {stream.table, *(uri.removeprefix(root) for uri in stream.beside_uris(lake))}
    made = []
    for table in upstream_first(refined):
        if upstream_names(table) & reached:
            reached.add(table.name)
            made.append(table)
    return Downstream(tuple(made), tuple(s for s in served if s.table in reached))


def follow_erasure(
    downstream: Downstream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    where: str,
    tagged: TaggedValue | None = None,
    home: Path | None = None,
) -> Iterator[FollowedErasure]:
    """Bring each table up to date, and search it. A failure of one does not stop the others.

    Args:
        where: The condition over rows of the stream's table; empty: nothing is searched.
        tagged: Search for this instead, by each table's own tags.
        home: As for ``serve``.
    """
    for table in downstream.refined:
        found = FollowedErasure(table.name)
        try:
            found = replace(found, rows_removed=_refine(table, lake, session))
            yield _searched(session(), found, table, lake, where, tagged)
        except KdiError as refused:
            yield replace(found, error=refused)
    for copy in downstream.served:
        try:
            done = serve(copy, lake=lake, session=session, home=home)
            yield FollowedErasure(copy.name, version=done.version, rows_removed=done.deleted)
        except KdiError as refused:
            yield FollowedErasure(copy.name, error=refused)


def _refine(table: RefinedTableSpec, lake: str, session: Callable[[], SparkSession]) -> int:
    """Refine what is new, and return how many rows were removed.

    Remembered deletes have keys of the person: those that no row belongs to leave too.
    """
    removed = refine(table, lake=lake, session=session).entry.rows_removed
    if not isinstance(table.mode, Upsert):
        if deletes_are_unused(table, lake):
            delete_all_rows(session(), table.name, table.deletes_uri(lake))
    elif TableLog.open(table.deletes_uri(lake)) is not None and not deletes_are_replaceable(table, lake):
        # An attempt that died recorded deletes: computed again, the newest version of their table counts.
        refine(table, lake=lake, session=session, rebuild=True)
    return removed


def _searched(
    spark: SparkSession,
    found: FollowedErasure,
    table: RefinedTableSpec,
    lake: str,
    where: str,
    tagged: TaggedValue | None,
) -> FollowedErasure:
    """Count the rows that meet the condition.

    Raises:
        UpkeepFailed: Spark failed.
    """
    from pyspark.errors import AnalysisException

    uri = table.table_uri(lake)
    found = replace(found, version=TableLog.existing(uri).version)
    rows = rows_at(spark, uri, found.version or 0)
    where = tagged.where(rows.schema) if tagged else where
    if not where:
        return found
    try:
        matching = rows.where(where)
    except AnalysisException:
        return found  # other columns than the stream's table
    with spark_failures(found.table, "the search", doing="searching for rows that meet the condition"):
        left = matching.count()
        first = plan_refinement(table, lake).kept.frozen_before if left else None
        frozen = matching.where(f"date < DATE'{first}'").count() if first else 0
    error: KdiError | None = None
    if frozen and first:
        error = ErasedRowsFrozen(table=found.table, uri=uri, rows=frozen, first=first)
    elif left:
        error = ErasedRowsLeft(table=found.table, rows=left, version=found.version or 0)
    return replace(found, rows_left=left, error=error)


def vacuum_all(session: Callable[[], SparkSession], stream: Stream, downstream: Downstream, lake: str) -> Vacuumed:
    """Remove every file of all these Delta tables that their newest versions do not need."""
    uris = {table.table_uri(lake): table.name for table in downstream.refined}
    # Otherwise an older version of it counts, whose files must stay.
    uris |= {t.deletes_uri(lake): t.name for t in downstream.refined if deletes_are_replaceable(t, lake)}
    own = (stream.table_uri(lake), stream.dead_letters_uri(lake), stream.removed_uri(lake))
    return vacuum_now(session(), dict.fromkeys(own, stream.name) | uris)
