"""Files: how large those are to be that a drain writes."""

from __future__ import annotations

from collections.abc import Iterable

from kdi_assets.drain.plan import Plan
from kdi_assets.ledger.delta import AS_IT_COMES, FileSize
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.recent import LARGE, LedgerCommit, recent_commits
from kdi_assets.sources.kafka_frame import OFFSETS_PER_TASK
from kdi_assets.stream import Stream

UNKNOWN_TOGETHER = 2
"""Bytes on the way between tasks for each byte in a file, where no drain tells: the least that was measured. Files come
out too small for it rather than too large: messages that repeat themselves take ten times as much and more."""
SPARE = 2
"""A row takes less between tasks than the message that it came from: so many times the messages of a file are more than
it holds, and its number of rows is what ends it."""


def file_size(stream: Stream, lake: str, plan: Plan) -> FileSize:
    """What the stream asks for, as the writer of this plan can be told.

    A plan that one task carries out writes one file for each date anyhow, or several if it would be too large: nothing
    is handed from task to task for it.
    """
    if stream.target_file_size is None:
        return AS_IT_COMES
    drained = telling(recent_commits(stream.table_uri(lake), stream.app_id))
    together, rows = UNKNOWN_TOGETHER * stream.target_file_size, None
    if drained:
        rows = max(1, stream.target_file_size * drained.rows // drained.bytes)
        together = SPARE * rows * drained.message_bytes // max(drained.messages, drained.rows)
    return FileSize(together if plan.offset_count > OFFSETS_PER_TASK else None, rows)


def telling(commits: Iterable[LedgerCommit]) -> LedgerEntry | None:
    """The largest of some drains, which says what a row takes in a file; ``None`` if none of them does.

    A file of few rows says nothing: it is its own footer for the most part, and the next large drain would be cut into
    files that are much too small.
    """
    told = [c.entry for c in commits if c.entry.rows >= LARGE and c.entry.bytes and c.entry.message_bytes]
    return max(told, key=lambda entry: entry.rows, default=None)
