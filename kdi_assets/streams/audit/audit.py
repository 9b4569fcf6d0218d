"""Audit: compare the table and its dead letters with what the ledger entries recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.coordinates import Bounds, bounds_sql, coordinates_at
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.streams.audit.coverage import Coverage, coverage, offsets_in
from kdi_assets.streams.audit.errors import NothingToAudit
from kdi_assets.streams.audit.missing_offsets import MissingOffsets, find_missing
from kdi_assets.streams.audit.offset_counts import count_without_spark
from kdi_assets.streams.audit.offsets_in_spark import OffsetCounts, count_offsets, covered_sql, merge_rows_of_messages
from kdi_assets.streams.audit.offsets_in_spark import highest_offsets as highest_offsets
from kdi_assets.streams.audit.report import AuditReport as AuditReport
from kdi_assets.streams.ledger.history import LiveHistory, history_of
from kdi_assets.streams.ledger.letters import letters_without_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def audit(
    stream: Stream, *, lake: str, session: Callable[[], SparkSession], bounds: Bounds | None = None
) -> AuditReport:
    """Account for every offset from the first position to the current one.

    Counts by topic partition, and one digest of all offsets, are compared with what the entries recorded when they read
    the topic. That needs no Spark. Only if they differ, single offsets are compared.

    Args:
        session: Returns the Spark session; not called if counts and digest prove that every offset is there once.
        bounds: Audit only these offsets; by default all.

    Raises:
        NothingToAudit: There is no ledger entry.
    """
    history = audited_history(stream, lake)
    covered = coverage(history.entries)
    if bounds is not None:
        covered = covered.within(bounds)
    counted, result = count_without_spark(stream, lake, covered, history), _nothing_missing(covered)
    if counted is None or not _agrees(counted, covered):
        counted, result = _audit_in_spark(session(), stream, lake, covered, history, bounds)
    return _report(stream, history, covered, counted, result, bounds)


def _report(
    stream: Stream,
    history: LiveHistory,
    covered: Coverage,
    counted: Mapping[int, OffsetCounts],
    result: MissingOffsets,
    bounds: Bounds | None,
) -> AuditReport:
    only = () if bounds is None else (f"only {', '.join(str(r) for _, r in sorted(bounds.items()))}",)
    return AuditReport(
        complete=not (covered.discontinuities or result.contradictions or result.missing or result.twice),
        stream=stream.name,
        version=max(e.version for e in history.entries),
        offsets=covered.offsets,
        became_rows=sum(c.became_rows for c in counted.values()) - result.uncovered,
        rows=sum(c.rows for c in counted.values()) - result.uncovered,
        dead_letters=sum(c.letters for c in counted.values()),
        tombstones=result.rowless.tombstones,
        filtered=result.rowless.filtered,
        gaps=covered.gaps + result.rowless.gaps - result.gaps_with_rows,
        declared_losses=offsets_in(covered.declared_losses) - result.losses_with_rows,
        deleted=sum(d.offsets for d in result.deletions),
        erased=result.erased,
        kept_no_longer=result.kept_no_longer,
        missing=result.missing,
        twice=result.twice,
        orphaned_dead_letters=sum(c.orphaned for c in counted.values()),
        holes=result.holes,
        doubles=result.doubles,
        deletions=result.deletions,
        notes=(
            *(*only, *covered.discontinuities, *covered.set_back),
            *(*result.contradictions, *result.notes, *_notes(history)),
        ),
    )


def audited_history(stream: Stream, lake: str) -> LiveHistory:
    """The live history of the stream's table, from the log, and from the archive where the log was cleaned up.

    Raises:
        NothingToAudit: There is no ledger entry.
    """
    uri, archive_uri = stream.table_uri(lake), stream.archive_uri(lake)
    history = history_of(stream, lake)
    if history is None or not history.entries:
        knows = history is not None and history.knows_ledger
        raise NothingToAudit(stream=stream.name, uri=uri, archive_uri=archive_uri, knows_ledger=knows)
    return history


def _audit_in_spark(
    spark: SparkSession, stream: Stream, lake: str, covered: Coverage, history: LiveHistory, bounds: Bounds | None
) -> tuple[Mapping[int, OffsetCounts], MissingOffsets]:
    """Count with Spark as a second reader; if the counts differ from the entries, find the single offsets."""
    with announced(WorkStep(name=stream.name, doing="counting rows and dead letters")):
        found = _found(spark, stream, lake, history, bounds)
        counted = count_offsets(found.where(covered_sql(covered.begin)))
        if _agrees(counted, covered):
            return counted, _nothing_missing(covered)
        if not all(c.has_one_each for c in counted.values()):
            found = merge_rows_of_messages(found)
            counted = count_offsets(found.where(covered_sql(covered.begin)))
    with announced(WorkStep(name=stream.name, doing="looking for single offsets")):
        result = find_missing(spark, stream, lake, found.where("counts"), covered, history)
        return count_offsets(found) if result.uncovered else counted, result


def _nothing_missing(covered: Coverage) -> MissingOffsets:
    return MissingOffsets(
        rowless=covered.recorded_rowless, erased=covered.erased, kept_no_longer=covered.kept_no_longer
    )


def _found(spark: SparkSession, stream: Stream, lake: str, history: LiveHistory, bounds: Bounds | None) -> DataFrame:
    """Every row and dead letter, as ``count_offsets`` takes them."""
    within = "true" if bounds is None else bounds_sql(bounds)
    rows = coordinates_at(spark, stream, stream.table_uri(lake), version=history.version).where(within)
    letters = letters_without_rows(spark, stream.dead_letters_uri(lake), history.entries).where(within)
    of_letter = ("0 AS index", "1 AS count", "CAST(NULL AS timestamp) AS timestamp", "false AS is_row", "1L AS rows")
    letters = letters.selectExpr("partition", "offset", *of_letter, "counts")
    return rows.selectExpr("*", "true AS is_row", "1L AS rows", "true AS counts").unionByName(letters)


def _agrees(counted: Mapping[int, OffsetCounts], covered: Coverage) -> bool:
    """Whether counts and digest prove that every offset is there, once."""
    return (
        {p: c.became_rows for p, c in counted.items() if c.became_rows} == covered.became_rows
        and all(c.is_whole for c in counted.values())
        and {p: c.letters for p, c in counted.items() if c.letters} == covered.dead_letters
        and reduce(xor, (c.digest for c in counted.values()), 0) == covered.digest
    )


def _notes(history: LiveHistory) -> Sequence[str]:
    first = history.entries[0]
    back = [
        f"v{e.version} erased {e.erasure.count:,} messages, and a RESTORE undid it: `kdi erase --again` repeats it"
        for e in history.undone_erasures
        if e.erasure
    ]
    moved = [
        f"v{e.version} moved {e.kept_aside:,} rows to the table `…_removed`: the broker no longer had their messages"
        for e in history.entries
        if e.kept_aside
    ] + back
    if first.kind == "takeover":
        return (f"audited from the takeover at v{first.version} on", *moved)
    if first.kind != "start":
        return (f"audited from v{first.version} on: the log is readable from v{history.since} on", *moved)
    return moved
