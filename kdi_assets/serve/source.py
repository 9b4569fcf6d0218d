"""The Delta table that is served."""

from __future__ import annotations

from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.serve.errors import SourceMissing
from kdi_assets.stream.served_table import ServedTableSpec


def source_log(served: ServedTableSpec, lake: str) -> TableLog:
    """The log of the Delta table, at its newest version.

    Raises:
        SourceMissing: It does not exist yet.
    """
    uri = served.table_uri(lake)
    log = TableLog.open(uri)
    if log is None:
        raise SourceMissing(target=served.name, uri=uri)
    return log
