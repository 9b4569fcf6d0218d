"""The ledger's archive, ``<table>_ledger``: a copy of a table's commits that log clean-up does not remove. No JVM.

Audit and history read it. Positions never come from it: every checkpoint of the log has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import CommitInfo, TableLog, restore_target
from kdi_assets.delta.storage import open_delta_table, storage_failures, storage_uri
from kdi_assets.runtime.s3_access import delta_rs_options
from kdi_assets.streams.ledger.errors import ArchiveBusy

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_APP_ID = "kdi-ledger-archive"


class Archive:
    """The archived commits of the table with an id; read at first use."""

    def __init__(self, uri: str, table_id: str) -> None:
        self.uri, self.table_id = uri, table_id

    def commit(self, version: int) -> CommitInfo | None:
        """A commit from the archive; ``None`` if it is not there."""
        row = self._rows.get(version)
        return _as_commit(row) if row else None

    @cached_property
    def _rows(self) -> Mapping[int, Mapping[str, Any]]:
        table = open_archive(self.uri)
        if table is None:
            return {}
        with storage_failures(self.uri):
            found = table.to_pyarrow_table(filters=[("table_id", "=", self.table_id)])
        # A commit can be there twice, after a copy whose answer was lost; both rows are equal.
        return {row["version"]: row for batch in found.to_batches() for row in batch.to_pylist()}


def copy_to_archive(log: TableLog, uri: str, *, at: Callable[[str], None] = lambda point: None) -> int:
    """Copy every commit of the log that the archive does not have.

    Idempotent by version, also with two processes at once: every write sets the same transaction id, so of two writes
    that started at the same version of the archive, one is refused.

    Args:
        at: Called with ``"compared"`` before the write; tests run other processes there.

    Returns:
        How many commits were copied.

    Raises:
        ArchiveBusy: Another process copied at the same time.
        CommitUnreadable: A commit in the log cannot be read.
    """
    # Open the archive before comparing it with the log: what others add in between then conflicts with our write.
    archive = open_archive(uri)
    left = uncopied(log, archive)
    at("compared")
    if left:
        _append(archive, uri, _as_table(log, left), newest=left[-1].version)
    return len(left)


def uncopied(log: TableLog, archive: DeltaTable | None) -> list[CommitInfo]:
    """The commits of the log that the archive does not have, oldest first."""
    known = _versions(archive, log.table_id) if archive else frozenset()
    return [log.commit(v) for v in sorted(log.commit_files()) if v <= log.version and v not in known]


def open_archive(uri: str) -> DeltaTable | None:
    """The archive's table; ``None`` if nothing was ever copied.

    Raises:
        StorageFailed: The storage does not answer.
    """
    from deltalake.exceptions import TableNotFoundError

    try:
        with storage_failures(uri):
            return open_delta_table(uri)
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
        # "append" would also write to an archive that another process created meanwhile, without comparing it.
        mode: Literal["append", "error"] = "append" if archive else "error"
        with storage_failures(uri):
            write_deltalake(
                archive or storage_uri(uri),
                rows,
                mode=mode,
                commit_properties=ours,
                storage_options=delta_rs_options(uri),
            )
    except DeltaError as refused:
        created_meanwhile = archive is None and open_archive(uri) is not None
        if isinstance(refused, CommitFailedError) or created_meanwhile:
            raise ArchiveBusy(uri=uri) from refused
        raise


def _as_table(log: TableLog, commits: Sequence[CommitInfo]) -> pa.Table:
    import pyarrow as pa

    text, number, moment = pa.string(), pa.int64(), pa.timestamp("us", "UTC")
    columns = {"operation": text, "parameters": text, "metrics": text, "user_metadata": text, "committed_at": moment}
    schema = pa.schema({"table_id": text, "version": number, **columns, "restored_to": number})
    rows = [
        {name: getattr(commit, name) for name in ("version", "operation", "user_metadata", "committed_at")}
        | {"parameters": json.dumps(commit.parameters), "metrics": json.dumps(commit.metrics)}
        | {"table_id": log.table_id, "restored_to": _target(log, commit)}
        for commit in commits
    ]
    return pa.Table.from_pylist(rows, schema)


def _target(log: TableLog, commit: CommitInfo) -> int | None:
    """The version that a RESTORE went to; a time can only be resolved as long as the log has the commits."""
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
