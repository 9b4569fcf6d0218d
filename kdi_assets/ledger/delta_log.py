"""A Delta table's log as it stands in storage, read without a JVM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kdi_assets.ledger.commit_info import Actions, CommitInfo, commit_info
from kdi_assets.ledger.errors import CommitUnreadable, NotADeltaTable, StorageFailed, TableUnreadable
from kdi_assets.ledger.storage import (
    holds_files,
    last_checkpoint,
    said,
    storage,
    storage_failures,
    storage_uri,
    unreadable,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

_COMMIT_FILE = re.compile(r"\d{20}\.json")


class TableLog:
    """A table at one version.

    ``None`` from ``open`` means that there is no table; everything else is read when asked for.
    """

    def __init__(self, uri: str, table: DeltaTable) -> None:
        self.uri = uri
        self._table = table

    @classmethod
    def open(cls, uri: str, version: int | None = None) -> TableLog | None:
        """Open the table at a version, by default the newest.

        Raises:
            NotADeltaTable: Files lie there that are no Delta table.
            TableUnreadable: The log is damaged.
            StorageFailed: The storage is.
            CommitUnreadable: The version asked for is not in the log.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return cls(uri, DeltaTable(storage_uri(uri), version=version))
        except TableNotFoundError:
            if holds_files(uri):
                raise NotADeltaTable(uri=uri) from None
            return None
        except DeltaError as refused:
            if version is None:
                raise unreadable(uri, refused, storage(uri)) from refused
            raise CommitUnreadable(uri, version) from refused
        except OSError as failed:
            raise StorageFailed(uri=uri, detail=said(failed)) from failed

    @classmethod
    def existing(cls, uri: str, version: int | None = None) -> TableLog:
        """Open a table that was there a moment ago.

        Raises:
            NotADeltaTable: It is gone.
            CommitUnreadable: The version asked for is not in the log.
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
        """The same for queries of delta-rs."""
        return self._table

    @property
    def has_no_features(self) -> bool:
        """Whether its protocol is the oldest that Spark makes, which delta-rs writes as Spark does."""
        protocol = self._table.protocol()
        return (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)

    @cached_property
    def table_id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def created(self) -> int:
        """When the table was made, in milliseconds since the epoch by its maker's clock; 0 if nobody noted it."""
        return self._table.metadata().created_time or 0

    @cached_property
    def configuration(self) -> Mapping[str, str]:
        return dict(self._table.metadata().configuration)

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The table's columns as Delta's schema JSON, which is Spark's."""
        return dict(json.loads(self._table.schema().to_json()))

    @property
    def partition_columns(self) -> Sequence[str]:
        """Names of the columns by which the files lie in folders."""
        return list(self._table.metadata().partition_columns)

    @property
    def files(self) -> frozenset[str]:
        """Addresses of the data files at this version."""
        return frozenset(self._table.file_uris())

    @property
    def data_files(self) -> pa.Table:
        """The data files at this version with their statistics, as delta-rs names them: ``size_bytes``, …"""
        import pyarrow as pa

        return pa.table(self._table.get_add_actions(flatten=True))

    def transaction(self, app_id: str) -> int | None:
        """The version of a transaction id, ``None`` if absent; -1 is a value like others (Delta protocol, "Transaction
        identifiers")."""
        return self._table.transaction_version(app_id)

    def version_at(self, moment: datetime) -> int:
        """The newest version that was committed at or before ``moment``.

        Raises:
            CommitUnreadable: The log cannot tell.
            StorageFailed: The storage does not hand it out.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            with storage_failures(self.uri):
                table = DeltaTable(storage_uri(self.uri))
                table.load_as_version(moment)
        except DeltaError as refused:
            raise CommitUnreadable(self.uri, 0) from refused
        return table.version()

    def refuse_torn(self) -> None:
        """Refuse a log in which a commit is an empty file: readers take it for one that did nothing.

        Only behind the newest checkpoint, where readers read commits.

        Raises:
            TableUnreadable: There is one, and what it committed is missing in silence.
        """
        since = last_checkpoint(self._files)
        versions = range((-1 if since is None else since) + 1, self.version + 1)
        with storage_failures(self.uri):
            found = self._files.get_file_info([f"_delta_log/{version:020}.json" for version in versions])
        for version, file in zip(versions, found, strict=True):
            if file.size == 0:
                raise TableUnreadable(uri=self.uri, detail=f"commit {version} is an empty file")

    def commit(self, version: int) -> CommitInfo:
        """Read one commit.

        Raises:
            CommitUnreadable: It is not there, or not whole.
        """
        return commit_info(version, self._actions(version))

    def removed_files(self, version: int) -> frozenset[str]:
        """The files that a commit took away, as the log names them.

        Raises:
            CommitUnreadable: It is not there, or not whole.
        """
        return frozenset(a["remove"]["path"] for a in self._actions(version) if "remove" in a)

    def has_changes_of(self, version: int) -> bool:
        """Whether the files that the change feed reads for a commit are still there; VACUUM removes them.

        Raises:
            StorageFailed: The storage does not say.

        Source: Delta protocol, "Add CDC File": where a commit has any, readers take these, else what it added and
        removed.
        """
        from pyarrow.fs import FileType

        try:
            actions = self._actions(version)
        except CommitUnreadable:
            return False
        recorded = [a["cdc"]["path"] for a in actions if "cdc" in a]
        paths = recorded or [a[kind]["path"] for a in actions for kind in ("add", "remove") if kind in a]
        if any("://" in path for path in paths):
            return True  # a shallow clone's, in another table's folder: the read finds out
        with storage_failures(self.uri):
            there = self._files.get_file_info([unquote(path) for path in paths])
        return all(found.type is FileType.File for found in there)

    @property
    def checkpoint(self) -> int | None:
        """The version of the newest checkpoint that the log names."""
        return last_checkpoint(self._files)

    def commit_files(self) -> dict[int, datetime]:
        """The commits in the log, each with the moment that its file was written: clean-up goes by that.

        Raises:
            StorageFailed: The storage does not list them.
        """
        from pyarrow.fs import FileSelector

        with storage_failures(self.uri):
            found = self._files.get_file_info(FileSelector("_delta_log", recursive=False))
        return {int(f.base_name[:20]): f.mtime for f in found if _COMMIT_FILE.fullmatch(f.base_name)}

    def _actions(self, version: int) -> Actions:
        try:
            with self._files.open_input_stream(f"_delta_log/{version:020}.json") as file:
                actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except FileNotFoundError as gone:
            raise CommitUnreadable(self.uri, version, gone=True) from gone
        except ValueError as torn:
            raise CommitUnreadable(self.uri, version) from torn
        except OSError as failed:
            raise StorageFailed(uri=self.uri, detail=said(failed)) from failed
        if not actions:
            raise CommitUnreadable(self.uri, version, why="is an empty file")
        return actions

    def commits(self, after: int, through: int | None = None) -> Iterator[CommitInfo]:
        """The commits ``(after, through]``, oldest first; ``through`` is the table's version by default."""
        for version in range(after + 1, (self.version if through is None else through) + 1):
            yield self.commit(version)

    @cached_property
    def _files(self) -> FileSystem:
        return storage(self.uri)


def restore_target(log: TableLog, restore: CommitInfo) -> int:
    """The version that a RESTORE went to.

    Spark writes ``version: 2`` or ``timestamp: '…'``; delta-rs ``version: '1'`` or ``datetime: '<milliseconds>'``.

    Raises:
        CommitUnreadable: The version is gone, or the time that it names is ambiguous.
    """
    if restore.restored_to is not None:
        return restore.restored_to
    given = {k: str(v).strip("\"'") for k, v in restore.parameters.items() if v not in (None, "null", "")}
    if "version" in given:
        return int(given["version"])
    if "datetime" in given:
        moment = datetime.fromtimestamp(int(given["datetime"]) / 1000, UTC)
    else:
        moment = datetime.fromisoformat(given["timestamp"])
    target = log.version_at(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    # Believed only if the files say the same: Spark may have written it in the time zone of whoever restored, and of a
    # moment before a log that was cleaned up, the answer is the oldest version that is left.
    if target >= restore.version or (
        TableLog.existing(log.uri, target).files != TableLog.existing(log.uri, restore.version).files
    ):
        doubt = "the log no longer tells" if moment.tzinfo else "depends on a time zone it does not say"
        why = f"is a RESTORE to {moment}, and which version that was {doubt}"
        raise CommitUnreadable(log.uri, restore.version, why=why)
    return target
