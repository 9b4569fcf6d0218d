"""What one commit of a table's log says of itself, from its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Actions = Sequence[Mapping[str, Any]]
"""The lines of a commit's file (Delta protocol, "Actions")."""


@dataclass(frozen=True)
class CommitInfo:
    """One commit: what its ``commitInfo`` and its actions say.

    Attributes:
        operation: Delta's word, e.g. ``WRITE``, ``OPTIMIZE``, ``RESTORE``.
        parameters: The operation's parameters; the value's form differs from writer to writer.
        user_metadata: Free text of the writer; empty if there is none.
        changes_metadata: Whether schema, properties, id or protocol changed.
        committed_at: The writer's clock, UTC; ``None`` if it did not say.
        metrics: The operation's own figures; names and forms differ from writer to writer.
        restored_to: Where a RESTORE went, if that was recorded while the log could still tell.
        archived: Whether the log no longer has it, and this was read from the ledger's archive.
    """

    version: int
    operation: str
    parameters: Mapping[str, Any]
    user_metadata: str
    changes_metadata: bool
    transactions: Mapping[str, int]
    committed_at: datetime | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    restored_to: int | None = None
    archived: bool = False

    @property
    def is_restore(self) -> bool:
        return self.operation == "RESTORE"

    @property
    def replaces_rows(self) -> bool:
        """Whether the commit put another content in the table's place."""
        return self.is_restore or (
            self.operation == "WRITE" and str(self.parameters.get("mode")).strip('"') == "Overwrite"
        )


def commit_info(version: int, actions: Actions) -> CommitInfo:
    """The commit that these actions make; what a writer left out is empty."""
    info: Mapping[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    return CommitInfo(
        version=version,
        operation=str(info.get("operation", "")),
        parameters=info.get("operationParameters") or {},
        user_metadata=str(info.get("userMetadata") or ""),
        changes_metadata=any("metaData" in a or "protocol" in a for a in actions),
        transactions={a["txn"]["appId"]: int(a["txn"]["version"]) for a in actions if "txn" in a},
        committed_at=datetime.fromtimestamp(info["timestamp"] / 1000, UTC) if "timestamp" in info else None,
        metrics=info.get("operationMetrics") or {},
    )
