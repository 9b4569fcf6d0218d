"""What a run did for a served table, for logs, Dagster's events and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ServeKind = Literal["nothing", "changes", "difference", "load"]
"""Nothing was new; the changes were upserted; all rows were compared; or all rows were loaded into a new table."""


@dataclass(frozen=True, slots=True)
class ServeReport:
    """One run of a served table.

    Attributes:
        target: Its name, such as ``postgres/public/daily_usage``.
        kind: What was published.
        why: For ``difference`` and ``load``: why the changes alone were not enough; part of a sentence in a log.
        since: The version of the Delta table that was consumed before; ``None``: none.
        version: The version that is consumed now.
        upserted: Rows inserted or updated.
        deleted: Rows deleted.
        columns_added: Columns that the table in the database got.
        seconds: Wall seconds in all.
        publish_seconds: Wall seconds of the publishing transaction.
        sql: A query that shows the table.
        client: A command that opens the database, without a password.
    """

    target: str
    kind: ServeKind
    version: int
    why: str = ""
    since: int | None = None
    upserted: int = 0
    deleted: int = 0
    columns_added: tuple[str, ...] = ()
    seconds: float = 0.0
    publish_seconds: float = 0.0
    sql: str = ""
    client: str = ""
