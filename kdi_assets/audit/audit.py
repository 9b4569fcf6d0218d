"""Audit: what is in the table and its dead letters against what the ledger entries say was drained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING

from kdi_assets.audit.coverage import Coverage, coverage, offsets_in
from kdi_assets.audit.errors import NothingToAudit
from kdi_assets.audit.missing_offsets import MissingOffsets, find_missing
from kdi_assets.audit.offset_counts import count_without_spark
from kdi_assets.audit.offsets_in_spark import Found, count, messages_in, ours
from kdi_assets.audit.offsets_in_spark import highest_offsets as highest_offsets
from kdi_assets.audit.report import AuditReport as AuditReport
from kdi_assets.ledger.coordinates import Bounds, inside, rows_at
from kdi_assets.ledger.history import LiveHistory, live_history
from kdi_assets.ledger.letters import letters_now
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def audit(
    stream: Stream, *, lake: str, session: Callable[[], SparkSession], bounds: Bounds | None = None
) -> AuditReport:
    """Account for every offset from the first position to the current one.

    Counts by topic partition, and one digest over all offsets, are compared with what the entries recorded when they
    read the topic. That needs no Spark; only where these differ, single offsets are looked at.

    Args:
        session: Gives the Spark session; not called where counts and digest prove that everything is there.
        bounds: Only these offsets; by default all.

    Raises:
        NothingToAudit: There is no ledger entry.
    """
    history = audited_history(stream, lake)
    covered = coverage(history.entries)
    if bounds is not None:
        covered = covered.within(bounds)
    counted, result = count_without_spark(stream, lake, covered, history), _nothing_wrong(covered)
    if counted is None or not _agrees(counted, covered):
        counted, result = _in_spark(session(), stream, lake, covered, history, bounds)
    return AuditReport(
        complete=not (covered.torn or result.at_odds or result.missing or result.twice),
        stream=stream.name,
        version=max(e.version for e in history.entries),
        offsets=covered.offsets,
        became_rows=sum(c.became_rows for c in counted.values()) - result.not_ours,
        rows=sum(c.rows for c in counted.values()) - result.not_ours,
        dead_letters=sum(c.letters for c in counted.values()),
        tombstones=result.untraced.tombstones,
        filtered=result.untraced.filtered,
        gaps=covered.gaps + result.untraced.gaps - result.gaps_again,
        declared_losses=offsets_in(covered.declared_losses) - result.lost_again,
        deleted=sum(d.offsets for d in result.deletions),
        missing=result.missing,
        twice=result.twice,
        ghosts=sum(c.ghosts for c in counted.values()),
        holes=result.holes,
        doubles=result.doubles,
        deletions=result.deletions,
        notes=(*_only(bounds), *covered.torn, *covered.set_back, *result.at_odds, *result.notes, *_notes(history)),
    )


def audited_history(stream: Stream, lake: str) -> LiveHistory:
    """The history that an audit rests on: of the log, and of the archive where the log was cleaned up.

    Raises:
        NothingToAudit: There is no ledger entry.
    """
    uri, archive_uri = stream.table_uri(lake), stream.archive_uri(lake)
    history = live_history(uri, stream.app_id, archive_uri=archive_uri)
    if history is None or not history.entries:
        knows = history is not None and history.knows_ledger
        raise NothingToAudit(stream=stream.name, uri=uri, archive_uri=archive_uri, knows_ledger=knows)
    return history


def _in_spark(
    spark: SparkSession, stream: Stream, lake: str, covered: Coverage, history: LiveHistory, bounds: Bounds | None
) -> tuple[Mapping[int, Found], MissingOffsets]:
    """The same counts by another reader and, where they differ from the entries', what became of single offsets."""
    found = _found(spark, stream, lake, history, bounds)
    counted = count(found.where(ours(covered.begin)))
    if _agrees(counted, covered):
        return counted, _nothing_wrong(covered)
    if not all(c.has_one_each for c in counted.values()):
        found = messages_in(found)
        counted = count(found.where(ours(covered.begin)))
    result = find_missing(spark, stream, lake, found.where("counts"), covered, history)
    return count(found) if result.not_ours else counted, result


def _nothing_wrong(covered: Coverage) -> MissingOffsets:
    return MissingOffsets(untraced=covered.recorded_untraced)


def _found(spark: SparkSession, stream: Stream, lake: str, history: LiveHistory, bounds: Bounds | None) -> DataFrame:
    """Every row and letter, as ``count`` takes them; a letter counts if an entry names its attempt."""
    within = "true" if bounds is None else inside(bounds)
    rows = rows_at(spark, stream, stream.table_uri(lake), version=history.version).where(within)
    letters = letters_now(spark, stream.dead_letters_uri(lake), history.entries).where(within)
    alone = ("0 AS index", "1 AS count", "CAST(NULL AS timestamp) AS timestamp", "false AS is_row", "1L AS rows")
    both = letters.selectExpr("partition", "offset", *alone, "counts")
    return rows.selectExpr("*", "true AS is_row", "1L AS rows", "true AS counts").unionByName(both)


def _agrees(counted: Mapping[int, Found], covered: Coverage) -> bool:
    """Whether counts and digest prove that everything is there, once."""
    return (
        {p: c.became_rows for p, c in counted.items() if c.became_rows} == covered.became_rows
        and all(c.is_whole for c in counted.values())
        and {p: c.letters for p, c in counted.items() if c.letters} == covered.dead_letters
        and reduce(xor, (c.digest for c in counted.values()), 0) == covered.digest
    )


def _only(bounds: Bounds | None) -> Sequence[str]:
    return () if bounds is None else (f"only {', '.join(str(r) for _, r in sorted(bounds.items()))}",)


def _notes(history: LiveHistory) -> Sequence[str]:
    first = history.entries[0]
    aside = [
        f"v{e.version} moved {e.kept_aside:,} rows to the table `…_removed`: the broker no longer had their messages"
        for e in history.entries
        if e.kept_aside
    ]
    if first.kind == "takeover":
        return (f"audited from the takeover at v{first.version} on", *aside)
    if first.kind != "start":
        return (f"audited from v{first.version} on: the log is readable from v{history.since} on", *aside)
    return aside
