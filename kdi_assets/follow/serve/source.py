"""The Delta table that is served."""

from __future__ import annotations

from typing import Protocol

from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.follow.serve.errors import ServedFromElsewhere, SourceGone, SourceMissing
from kdi_assets.follow.upstream import OpenedUpstream, open_upstream


class DatabaseState(Protocol):
    """What a database says of a table's rows: from which Delta table they come, and from which version of it."""

    @property
    def source(self) -> str:
        """Where the Delta table was; of older releases its path without the lake."""
        ...

    @property
    def table_id(self) -> str: ...

    @property
    def version(self) -> int: ...


def open_source(
    served: ServedTableSpec, lake: str, state: DatabaseState | None, *, rebuild: bool = False
) -> OpenedUpstream:
    """The log of the Delta table at its newest version, and up to which version the database has its rows.

    Args:
        state: Read from the database before this call; ``None``: it has no rows of ours.
        rebuild: Whether rows of a table at another place may be replaced.

    Raises:
        SourceMissing: The Delta table does not exist yet.
        SourceGone: The Delta table does not exist, and the database has rows of one.
        ServedFromElsewhere: The database has rows of another table, at the same path below another root.
    """
    uri = served.table_uri(lake)
    found = open_upstream(uri, lambda table_id: state.version if state and state.table_id == table_id else None)
    if found is None:
        if state:
            raise SourceGone(target=served.name, uri=uri, version=state.version)
        raise SourceMissing(target=served.name, uri=uri)
    # A table that moved keeps its id, one that was replaced keeps its place, and a document that names another table
    # has another path. Else it is the table of another environment, and both would replace each other's rows for ever.
    if state and not rebuild and state.table_id != found.log.table_id:
        if state.source != uri and state.source.endswith(f"/{served.table}"):
            raise ServedFromElsewhere(target=served.name, uri=uri, other=state.source)
    return found
