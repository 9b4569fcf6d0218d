"""Columns whose values hardly repeat: Parquet would build a dictionary of them, and throw it away, in every file."""

from __future__ import annotations

from datetime import datetime
from itertools import islice, takewhile

from kdi_assets.delta.dictionaries import columns_without_dictionary
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.drain.plan import Plan
from kdi_assets.streams.ledger.history import live_commits
from kdi_assets.streams.ledger.recent_commits import COMMITS_READ, LARGE_DRAIN_OFFSETS, drains_among

WORTH_IT = 50_000
"""Offsets of a plan from which on dictionaries in vain cost clearly more CPU than reading a commit and a footer."""
_DISTINCT = frozenset({"offset", "timestamp", "sequence_number"})
"""Coordinates that differ from row to row. Times mostly grow with the offset: without a dictionary they are smaller,
and larger by half a byte a row if they are out of order by seconds."""


def distinct_columns(stream: Stream, plan: Plan) -> frozenset[str]:
    """The columns that a large plan writes without a dictionary, by their paths in files.

    They are the coordinates, and all for which the newest large drain kept no dictionary. A file does not tell whether
    Parquet gave a dictionary up or was asked for none. So only drains of the same week count: the first large one of a
    week tries dictionaries for all columns, and one that repeats by now keeps its own.

    Raises:
        KdiError: The log or the storage cannot be read.
    """
    if plan.offset_count < WORTH_IT:
        return frozenset()
    # With column mapping, files have other names, and these change nothing.
    coordinates = () if stream.explodes else _DISTINCT.intersection(stream.source_struct.row)
    own = frozenset(f"{stream.coordinates}.{name}" for name in coordinates)
    return own if plan.ledger.log is None else own | _without_in_newest(stream, plan.ledger.log, plan.now)


def _without_in_newest(stream: Stream, log: TableLog, now: datetime) -> frozenset[str]:
    drains = drains_among(islice(live_commits(log), COMMITS_READ), stream.app_id)
    of_week = takewhile(lambda drain: drain.committed_at.isocalendar()[:2] == now.isocalendar()[:2], drains)
    large = next((drain.entry.version for drain in of_week if drain.entry.rows >= LARGE_DRAIN_OFFSETS), None)
    return frozenset() if large is None else columns_without_dictionary(log, large)
