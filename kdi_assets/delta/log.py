"""A Delta table's log, read without a JVM: the table at one version, and what each commit says."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kdi_assets.delta.errors import CommitUnreadable, NotADeltaTable, TableNotMoved, TableUnreadable
from kdi_assets.delta.storage import (
    Actions,
    TableFolder,
    commit_files,
    commit_path,
    holds_files,
    last_checkpoint,
    open_delta_table,
    read_actions,
    storage_failures,
    table_unreadable,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


@dataclass(frozen=True)
class CommitInfo:
    """One commit, from its ``commitInfo`` and its other actions.

    Attributes:
        operation: Delta's name for it, e.g. ``WRITE``, ``OPTIMIZE``, ``RESTORE``.
        parameters: The operation's parameters; the form of a value depends on the writer.
        user_metadata: Free text of the writer; empty if there is none.
        changes_metadata: Whether the commit changed schema, properties, table id or protocol.
        transactions: The versions that the commit set, by transaction id.
        committed_at: By the writer's clock, UTC; ``None`` if the writer recorded no time.
        metrics: The operation's own numbers; names and forms depend on the writer.
        restored_to: The version that a RESTORE went to, if the archive recorded it.
        archived: Whether this was read from the ledger's archive, because the log no longer has the commit.
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

    @classmethod
    def from_actions(cls, version: int, actions: Actions) -> CommitInfo:
        info: Mapping[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        return cls(
            version=version,
            operation=str(info.get("operation", "")),
            parameters=info.get("operationParameters") or {},
            user_metadata=str(info.get("userMetadata") or ""),
            changes_metadata=any("metaData" in a or "protocol" in a for a in actions),
            transactions={a["txn"]["appId"]: int(a["txn"]["version"]) for a in actions if "txn" in a},
            committed_at=datetime.fromtimestamp(info["timestamp"] / 1000, UTC) if "timestamp" in info else None,
            metrics=info.get("operationMetrics") or {},
        )

    @property
    def is_restore(self) -> bool:
        return self.operation == "RESTORE"

    @property
    def replaces_rows(self) -> bool:
        """Whether the commit replaced all rows of the table."""
        return self.is_restore or (
            self.operation == "WRITE" and str(self.parameters.get("mode")).strip('"') == "Overwrite"
        )


class TableLog:
    """A Delta table at one version; each property and method reads when it is called, or called first."""

    def __init__(self, uri: str, table: DeltaTable) -> None:
        self.uri = uri
        self._table = table
        self._transactions: dict[tuple[int, str], int | None] = {}

    @classmethod
    def open(cls, uri: str, version: int | None = None) -> TableLog | None:
        """Open the table at a version, by default the newest.

        Returns:
            ``None`` if there is no table.

        Raises:
            NotADeltaTable: The folder has files, but no Delta table.
            TableUnreadable: The log is damaged.
            StorageFailed: The storage does not answer.
            CommitUnreadable: The log does not have the version.
        """
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            with storage_failures(uri):
                return cls(uri, open_delta_table(uri, version))
        except TableNotFoundError as missing:
            # A table without rows has no files either, and may have a newer version.
            if not holds_files(uri) and (version is None or cls.open(uri) is None):
                return None
            if version is not None:  # delta-rs says the same of a version whose log is cleaned up
                raise CommitUnreadable(uri, version) from missing
            raise NotADeltaTable(uri=uri) from None
        except DeltaError as error:
            if version is None:
                raise table_unreadable(uri, error) from error
            raise CommitUnreadable(uri, version) from error

    @classmethod
    def existing(cls, uri: str, version: int | None = None) -> TableLog:
        """Open a table that must be there.

        Raises:
            NotADeltaTable: There is no table.
            CommitUnreadable: The log does not have the version.
        """
        log = cls.open(uri, version)
        if log is None:
            raise NotADeltaTable(uri=uri)
        return log

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def delta_table(self) -> DeltaTable:
        """The table as delta-rs has it, for queries."""
        return self._table

    @property
    def has_no_features(self) -> bool:
        """Whether the protocol is the oldest that Spark makes; delta-rs writes such a table as Spark does."""
        protocol = self._table.protocol()
        return (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)

    @cached_property
    def table_id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def created_time(self) -> int:
        """When the table was created, by its creator's clock, in milliseconds since the Unix epoch; 0 if unknown."""
        return self._table.metadata().created_time or 0

    @cached_property
    def configuration(self) -> Mapping[str, str]:
        """The table properties."""
        return dict(self._table.metadata().configuration)

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The table's columns as Delta's schema JSON, which is Spark's."""
        return dict(json.loads(self._table.schema().to_json()))

    @property
    def partition_columns(self) -> Sequence[str]:
        """Names of the columns that the table is partitioned by."""
        return list(self._table.metadata().partition_columns)

    @property
    def is_partitioned_by_date(self) -> bool:
        """Whether the table has date partitions: a partition column ``date`` of type date, and not of text."""
        types = {field["name"]: field["type"] for field in self.schema["fields"]}
        return "date" in self.partition_columns and types["date"] == "date"

    @property
    def file_uris(self) -> frozenset[str]:
        """Absolute URIs of the data files at this version."""
        return frozenset(self._table.file_uris())

    @property
    def data_files(self) -> pa.Table:
        """One row per data file at this version with its statistics, as delta-rs names them: ``size_bytes``, …"""
        import pyarrow as pa

        return pa.table(self._table.get_add_actions(flatten=True))

    def transaction_version(self, app_id: str) -> int | None:
        """The version of a transaction id; ``None`` if it is absent, which -1 does not mean."""
        asked = self.version, app_id  # delta-rs moves its table to the version that it writes
        if asked not in self._transactions:  # it opens each commit since the checkpoint to answer
            self._transactions[asked] = self._table.transaction_version(app_id)
        return self._transactions[asked]

    def version_at(self, moment: datetime) -> int:
        """The newest version that was committed at or before ``moment``.

        Raises:
            CommitUnreadable: The log no longer has that version.
            StorageFailed: The storage does not answer.
        """
        from deltalake.exceptions import DeltaError

        try:
            with storage_failures(self.uri):
                table = open_delta_table(self.uri)
                table.load_as_version(moment)
        except DeltaError as error:
            raise CommitUnreadable(self.uri, 0) from error
        return table.version()

    def refuse_empty_commits(self) -> None:
        """Refuse a log with an empty commit file, which readers take for a commit that did nothing.

        Only commits after the newest checkpoint count; readers do not read the others.

        Raises:
            TableUnreadable: There is one; its rows would silently be missing.
        """
        checkpoint = self.checkpoint
        versions = range((-1 if checkpoint is None else checkpoint) + 1, self.version + 1)
        with storage_failures(self.uri):
            found = self._folder.sizes([commit_path(version) for version in versions])
        for version, size in zip(versions, found, strict=True):
            if size == 0:
                raise TableUnreadable(uri=self.uri, detail=f"commit {version} is an empty file")

    def commit(self, version: int) -> CommitInfo:
        """Read one commit, or raise ``CommitUnreadable``."""
        return CommitInfo.from_actions(version, self.actions(version))

    @property
    def features(self) -> frozenset[str]:
        """The reader and writer features of the protocol, and those that older protocols imply by a property."""
        protocol = self._table.protocol()
        mapped = self.configuration.get("delta.columnMapping.mode", "none") != "none"
        named = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        return frozenset(named | ({"columnMapping"} if mapped else set()))

    def commits(self, after: int, through: int | None = None) -> Iterator[CommitInfo]:
        """The commits ``(after, through]``, oldest first; ``through`` is the table's version by default."""
        for version in range(after + 1, (self.version if through is None else through) + 1):
            yield self.commit(version)

    def actions(self, version: int) -> Actions:
        """The actions of one commit, or raise ``CommitUnreadable`` (Delta protocol, "Actions")."""
        return read_actions(self._folder, version)

    def missing_files(self, paths: Collection[str]) -> frozenset[str]:
        """Those of some files, as the log names them, that the storage does not have.

        Raises:
            StorageFailed: The storage does not answer.
        """
        inside = [path for path in paths if "://" not in path]  # others lie in another table's folder
        with storage_failures(self.uri):
            found = self._folder.sizes([unquote(path) for path in inside])
        return frozenset(path for path, size in zip(inside, found, strict=True) if size is None)

    def removed_files(self, version: int) -> frozenset[str]:
        """The files that a commit removed, as the log names them, or raise ``CommitUnreadable``."""
        return frozenset(a["remove"]["path"] for a in read_actions(self._folder, version) if "remove" in a)

    def has_change_files(self, version: int) -> bool:
        """Whether the files that the change feed reads for a commit still exist; VACUUM removes them.

        Raises:
            StorageFailed: The storage does not answer.

        Source: Delta protocol, "Add CDC File": readers take a commit's change files, or, if it has none, the files
        that it added and removed.
        """
        try:
            actions = read_actions(self._folder, version)
        except CommitUnreadable:
            return False
        recorded = [a["cdc"]["path"] for a in actions if "cdc" in a]
        paths = recorded or [a[kind]["path"] for a in actions for kind in ("add", "remove") if kind in a]
        # Files of a shallow clone lie in another table's folder; the read will show whether they are there.
        return not self.missing_files(paths)

    @property
    def checkpoint(self) -> int | None:
        """The version of the newest checkpoint that the log names."""
        return last_checkpoint(self._folder)

    def commit_files(self) -> dict[int, datetime]:
        """The commits in the log, each with the time at which its file was written; clean-up goes by that time."""
        return commit_files(self._folder)

    @cached_property
    def _folder(self) -> TableFolder:
        return TableFolder(self.uri)


def restore_target(log: TableLog, restore: CommitInfo) -> int:
    """The version that a RESTORE went to.

    Spark writes ``version: 2`` or ``timestamp: '…'``; delta-rs ``version: '1'`` or ``datetime: '<milliseconds>'``.

    Raises:
        CommitUnreadable: The version is gone, or the recorded time is ambiguous.
    """
    if restore.restored_to is not None:
        return restore.restored_to
    parameters = {k: str(v).strip("\"'") for k, v in restore.parameters.items() if v not in (None, "null", "")}
    if "version" in parameters:
        return int(parameters["version"])
    if "datetime" in parameters:
        moment = datetime.fromtimestamp(int(parameters["datetime"]) / 1000, UTC)
    else:
        moment = datetime.fromisoformat(parameters["timestamp"])
    target = log.version_at(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    # Check the answer by the files: Spark may have written the time in an unknown time zone, and if the log was cleaned
    # up since that time, the answer is only the oldest version that is left.
    if target >= restore.version or (
        TableLog.existing(log.uri, target).file_uris != TableLog.existing(log.uri, restore.version).file_uris
    ):
        doubt = "is no longer in the log" if moment.tzinfo else "depends on a time zone that it does not name"
        why = f"is a RESTORE to {moment}; the version at that time {doubt}"
        raise CommitUnreadable(log.uri, restore.version, why=why)
    return target


def metadata_with(marker: str, user_metadata: str) -> Mapping[str, Any] | None:
    """A commit's user metadata as JSON, if it is an object with this key at its top; ``None`` if it is not.

    The names of unknown fields of messages are in it as well, deeper inside, and other writers write any text.
    """
    if f'"{marker}"' not in user_metadata:
        return None
    try:
        written = json.loads(user_metadata)
    except ValueError:
        return None
    return written if isinstance(written, dict) and marker in written else None


def row_actions(actions: Actions) -> list[Mapping[str, Any]]:
    """The actions that add or remove rows; OPTIMIZE only moves rows to other files."""
    kinds = ("add", "remove")
    return [a for a in actions if any(k in a and a[k].get("dataChange", True) for k in kinds)]


def physical_name_in(column: str, schema: Mapping[str, Any]) -> str:
    """The name of a column in files and partition values, which differs under column mapping.

    Args:
        schema: Of the table, as JSON.
    """
    metadata: Mapping[str, Any] = next((f["metadata"] for f in schema["fields"] if f["name"] == column), {})
    return str(metadata.get("delta.columnMapping.physicalName", column))


def refuse_unmoved(
    table: str, uri: str, former: Collection[str], *, beside: Collection[str], is_ours: Callable[[TableLog], bool]
) -> None:
    """Refuse to make a table that lies at a former place of it still: at the new place, it would start over.

    Args:
        table: The name that its document has.
        uri: Where it would be made.
        former: Paths or URIs where it may have been.
        beside: How the names of the tables beside it end.
        is_ours: Whether the document made a table that lies at one of them.

    Raises:
        TableNotMoved: It lies at one of them.
        StorageFailed, TableUnreadable: This cannot be known.
    """
    for place in former:
        if (log := _opened(place)) and is_ours(log):
            there = tuple(end for end in beside if _opened(place + end))
            raise TableNotMoved(table=table, former=place, uri=uri, beside=there)


def _opened(uri: str) -> TableLog | None:
    try:
        return TableLog.open(uri)
    except NotADeltaTable:
        return None
