"""Columns whose values hardly repeat: Parquet would build a dictionary of them, and throw it away, in every file."""

from __future__ import annotations

from itertools import islice, takewhile

from kdi_assets.delta.dictionaries import columns_without_dictionary
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.source import OFFSETS_PER_TASK
from kdi_assets.streams.drain.plan import Plan
from kdi_assets.streams.ledger.history import live_commits
from kdi_assets.streams.ledger.recent_commits import COMMITS_READ, LARGE_DRAIN_OFFSETS, drains_among

_DISTINCT_COORDINATES = ("offset", "timestamp", "sequence_number")
"""The time grows with the offset: plain and compressed it is smaller than with a dictionary, also where it repeats."""


def distinct_coordinates(stream: Stream) -> frozenset[str]:
    """The coordinates that differ from row to row, by their names in files without column mapping."""
    if stream.explodes:  # all rows of a message have its coordinates
        return frozenset()
    return frozenset(f"{stream.coordinates}.{name}" for name in _DISTINCT_COORDINATES)


def distinct_columns(stream: Stream, plan: Plan) -> frozenset[str]:
    """The columns for which the newest large drain kept no dictionary, for a plan of several tasks.

    The files do not tell whether Parquet gave a dictionary up or was asked for none. So only drains of the same week
    count: the first large one of a week has dictionaries for all columns, and what repeats by now keeps its own.

    Raises:
        KdiError: The log or the storage cannot be read.
    """
    log = plan.ledger.log
    if log is None or plan.offset_count <= OFFSETS_PER_TASK:  # a footer costs more than it spares
        return frozenset()
    week = plan.now.isocalendar()[:2]
    drains = drains_among(islice(live_commits(log), COMMITS_READ), stream.app_id)
    of_week = takewhile(lambda drain: drain.committed_at.isocalendar()[:2] == week, drains)
    large = next((drain.entry.version for drain in of_week if drain.entry.rows >= LARGE_DRAIN_OFFSETS), None)
    return frozenset() if large is None else columns_without_dictionary(log, large)
