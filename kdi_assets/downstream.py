"""For users' assets that are built on a stream's table: when they run, and for which dates."""

from __future__ import annotations

import dagster as dg

from kdi_assets.components.automation import FAILED, LABEL, on_new_upstream_data
from kdi_assets.components.names import dates
from kdi_assets.config.loader import load_streams, select_streams

__all__ = ["FAILED", "LABEL", "dates_of", "on_new_upstream_data"]


def dates_of(stream: str) -> dg.DailyPartitionsDefinition:
    """The date partitions of a stream's table, for an asset that is built on it date by date.

    Args:
        stream: The table's path, or its last part or the topic if only one stream has it.

    Raises:
        UnknownStream: No stream has the name.
        AmbiguousStream: Several streams have it.
    """
    (selected,) = select_streams(load_streams(), [stream])
    return dates(selected)
