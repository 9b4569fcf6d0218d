"""The Delta table that is served."""

from __future__ import annotations

from typing import Protocol

from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.follow.serve.errors import SourceGone, SourceMissing
from kdi_assets.follow.upstream import OpenedUpstream, open_upstream


class DatabaseState(Protocol):
    """What a database says of a table's rows: from which Delta table they come, and from which version of it."""

    @property
    def table_id(self) -> str: ...

    @property
    def version(self) -> int: ...


def open_source(served: ServedTableSpec, lake: str, state: DatabaseState | None) -> OpenedUpstream:
    """The log of the Delta table at its newest version, and up to which version the database has its rows.

    Args:
        state: Read from the database before this call; ``None``: it has no rows of ours.

    Raises:
        SourceMissing: The Delta table does not exist yet.
        SourceGone: The Delta table does not exist, and the database has rows of one.
    """
    uri = served.table_uri(lake)
    found = open_upstream(uri, lambda table_id: state.version if state and state.table_id == table_id else None)
    if found is None:
        if state:
            raise SourceGone(target=served.name, uri=uri, version=state.version)
        raise SourceMissing(target=served.name, uri=uri)
    return found
