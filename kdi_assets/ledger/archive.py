"""The ledger's archive, ``<table>_ledger``: what the commits of a table's log said, kept beyond its clean-up. No JVM.

It is for the audit and for whoever asks who committed, never for positions: those are in the log itself, in every
checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.delta_log import TableLog, restore_target
from kdi_assets.ledger.errors import ArchiveBusy, CommitUnreadable
from kdi_assets.ledger.storage import storage_failures, storage_uri

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_APP_ID = "kdi-ledger-archive"


class Archive:
    """The archived commits of one table, by its id; read when first asked for."""

    def __init__(self, uri: str, table_id: str) -> None:
        self.uri, self.table_id = uri, table_id

    def commit(self, version: int) -> CommitInfo | None:
        """A commit as it was archived; ``None`` if it was not."""
        row = self._rows.get(version)
        return _as_commit(row) if row else None

    @cached_property
    def _rows(self) -> Mapping[int, Mapping[str, Any]]:
        table = open_archive(self.uri)
        if table is None:
            return {}
        with storage_failures(self.uri):
            found = table.to_pyarrow_table(filters=[("table_id", "=", self.table_id)])
        # Two copiers, or a copy whose answer was lost: the same commit twice says the same twice.
        return {row["version"]: row for batch in found.to_batches() for row in batch.to_pylist()}


def copy_to_archive(log: TableLog, uri: str, *, at: Callable[[str], None] = lambda point: None) -> int:
    """Copy every commit that the log can still tell of and the archive does not have.

    Idempotent by version, also for two copiers at once: each write names the same transaction id, so of two that began
    at the same version of the archive one is refused.

    Args:
        at: Called at the named point ``"compared"``; tests let others in there.

    Returns:
        How many were copied.

    Raises:
        ArchiveBusy: Another one copied at the same time.
        CommitUnreadable: A commit is in the log and cannot be read.
    """
    # Opened before it is compared with the log: what others add in between then conflicts with our write.
    archive = open_archive(uri)
    left = uncopied(log, archive)
    at("compared")
    if left:
        _append(archive, uri, _as_table(log, left), newest=left[-1].version)
    return len(left)


def uncopied(log: TableLog, archive: DeltaTable | None) -> list[CommitInfo]:
    """The commits of the log that the archive does not have, the oldest first."""
    known = _versions(archive, log.table_id) if archive else frozenset()
    return [log.commit(v) for v in sorted(log.commit_files()) if v <= log.version and v not in known]


def open_archive(uri: str) -> DeltaTable | None:
    """The archive's own table, ``None`` if nothing was ever copied.

    Raises:
        StorageFailed: The storage does not hand it out.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        with storage_failures(uri):
            return DeltaTable(storage_uri(uri))
    except TableNotFoundError:
        return None


def _versions(archive: DeltaTable, table_id: str) -> frozenset[int]:
    with storage_failures(archive.table_uri):
        found = archive.to_pyarrow_table(columns=["version"], filters=[("table_id", "=", table_id)])
    return frozenset(found["version"].to_pylist())


def _append(archive: DeltaTable | None, uri: str, rows: pa.Table, *, newest: int) -> None:
    from deltalake import CommitProperties, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError

    ours = CommitProperties(app_transactions=[Transaction(_APP_ID, newest)], max_commit_retries=0)
    try:
        # In "append" an archive that was made meanwhile would be appended to, at a version that we never compared.
        mode: Literal["append", "error"] = "append" if archive else "error"
        with storage_failures(uri):
            write_deltalake(archive or storage_uri(uri), rows, mode=mode, commit_properties=ours)
    except DeltaError as refused:
        made_just_now = archive is None and open_archive(uri) is not None
        if isinstance(refused, CommitFailedError) or made_just_now:
            raise ArchiveBusy(uri=uri) from refused
        raise


def _as_table(log: TableLog, commits: Sequence[CommitInfo]) -> pa.Table:
    import pyarrow as pa

    text, number, moment = pa.string(), pa.int64(), pa.timestamp("us", "UTC")
    said = {"operation": text, "parameters": text, "metrics": text, "user_metadata": text, "committed_at": moment}
    schema = pa.schema({"table_id": text, "version": number, **said, "restored_to": number})
    rows = [
        {name: getattr(commit, name) for name in ("version", "operation", "user_metadata", "committed_at")}
        | {"parameters": json.dumps(commit.parameters), "metrics": json.dumps(commit.metrics)}
        | {"table_id": log.table_id, "restored_to": _target(log, commit)}
        for commit in commits
    ]
    return pa.Table.from_pylist(rows, schema)


def _target(log: TableLog, commit: CommitInfo) -> int | None:
    """Where a RESTORE went: a time can be resolved only as long as the log tells what was there then."""
    try:
        return restore_target(log, commit) if commit.is_restore else None
    except CommitUnreadable:
        return None


def _as_commit(row: Mapping[str, Any]) -> CommitInfo:
    return CommitInfo(
        version=row["version"],
        operation=row["operation"],
        parameters=json.loads(row["parameters"]),
        user_metadata=row["user_metadata"],
        changes_metadata=False,
        transactions={},
        committed_at=row["committed_at"].astimezone(UTC) if row["committed_at"] else None,
        metrics=json.loads(row["metrics"]),
        restored_to=row["restored_to"],
        archived=True,
    )
