"""What databases say of served tables: the consumed version, and how far the Delta table is ahead. No Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.errors import KdiError
from kdi_assets.follow.serve.source import open_source
from kdi_assets.follow.upstream import UpstreamChanges, changes_since

if TYPE_CHECKING:
    from kdi_assets.follow.serve.duckdb_file import ConsumedByFile
    from kdi_assets.follow.serve.postgres.served_versions import ConsumedVersion


@dataclass(frozen=True, slots=True)
class ServedStatus:
    """The state of a served table.

    Attributes:
        consumed: The version of the Delta table whose rows the database has; ``None``: none, or unknown.
        newest: The Delta table's version; ``None``: unknown.
        changes: What is new in the Delta table since; ``None``: unknown.
        why_behind: Why the database lacks something, in words; empty: it does not, or it is unknown.
        committed_at: When the database got these rows.
        same_definition: Whether these rows are those of the document as it is; otherwise all are compared or loaded.
        refusal: Why something is unknown.
        served_until: Of a table that somebody dropped from the database: when it got its last rows. It was dropped
            later; when, the database does not say.
    """

    served: ServedTableSpec
    consumed: int | None = None
    newest: int | None = None
    changes: UpstreamChanges | None = None
    why_behind: str = ""
    committed_at: datetime | None = None
    refusal: KdiError | None = None
    same_definition: bool = True
    served_until: datetime | None = None

    @property
    def is_behind(self) -> bool:
        """Whether a run has something to do."""
        return bool(self.why_behind)

    @property
    def behind(self) -> int | None:
        """How many versions are not consumed; ``None``: unknown."""
        if self.newest is None or self.refusal:
            return None
        return self.newest + 1 if self.consumed is None else max(0, self.newest - self.consumed)


def read_served_status(served: ServedTableSpec, *, lake: str, home: Path) -> ServedStatus:
    """Read the state of a served table; a refusal is part of it."""
    try:
        recorded, is_there = _consumed(served, home)
        source = open_source(served, lake, recorded)
        # A table that somebody dropped has no rows of any version.
        state, since = (recorded, source.since) if is_there else (None, None)
        changes = changes_since(source.log, since, all_dates=True)
    except KdiError as refusal:
        return ServedStatus(served, refusal=refusal)
    same = state is not None and served.has_definition(state.definition, place=state.source)
    why = ""
    if recorded and not is_there:
        why = "its table is no longer in the database"
    elif state is None or since is None:
        why = "its rows are not served yet"
    elif not same:
        why = "the document has changed"
    elif changes.kind != "nothing":
        why = "new rows"
    committed_at = state.committed_at if state and since is not None else None
    served_until = recorded.committed_at if recorded and not is_there else None
    return ServedStatus(
        served,
        since,
        source.log.version,
        changes,
        why,
        committed_at,
        same_definition=same,
        served_until=served_until,
    )


def _consumed(served: ServedTableSpec, home: Path) -> tuple[ConsumedVersion | ConsumedByFile | None, bool]:
    """What the database recorded of the table, and whether the table is there."""
    if isinstance(served.into, Postgres):
        from kdi_assets.follow.serve.postgres.connection import database_of
        from kdi_assets.follow.serve.postgres.served_versions import read_consumed
        from kdi_assets.follow.serve.postgres.target_table import read_target_table

        with database_of(served.into, home=home).connected() as connection:
            # In this order: what is recorded was there.
            recorded = read_consumed(connection, served.into.schema, served.into.table)
            return recorded, read_target_table(connection, served.into.schema, served.into.table) is not None
    from kdi_assets.follow.serve.duckdb_file import read_consumed_of_file

    return read_consumed_of_file(served, served.into, home)
