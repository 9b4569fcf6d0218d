"""Files: how large those are to be that a drain writes."""

from __future__ import annotations

from collections.abc import Iterable

from kdi_assets.drain.plan import Plan
from kdi_assets.ledger.delta import AS_IT_COMES, FileSize
from kdi_assets.ledger.recent import LARGE, LedgerCommit, recent_commits
from kdi_assets.sources.kafka_frame import OFFSETS_PER_TASK
from kdi_assets.stream import Stream


def file_size(stream: Stream, lake: str, plan: Plan) -> FileSize:
    """What the stream asks for, as the writer of this plan can be told.

    A plan that one task carries out writes one file for each date anyhow, or several if it would be too large: nothing
    is handed from task to task for it.
    """
    if stream.target_file_size is None:
        return AS_IT_COMES
    row = row_bytes(recent_commits(stream.table_uri(lake), stream.app_id))
    rows = None if row is None else max(1, int(stream.target_file_size / row))
    return FileSize(stream.target_file_size if plan.offset_count > OFFSETS_PER_TASK else None, rows)


def row_bytes(commits: Iterable[LedgerCommit]) -> float | None:
    """Bytes that a row takes in a file, by the largest of some drains; ``None`` if none of them tells.

    A file of few rows says nothing: it is its own footer for the most part, and the next large drain would be cut into
    files that are much too small.
    """
    largest = max((c.entry for c in commits), key=lambda entry: entry.rows, default=None)
    return largest.bytes / largest.rows if largest and largest.bytes and largest.rows >= LARGE else None
