"""The folder of a Delta table, reached without a JVM: the files of its log, and errors of the storage under it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from stat import S_ISREG
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kdi_assets.delta.errors import CommitUnreadable, StorageFailed, TableUnreadable
from kdi_assets.runtime.s3_access import delta_rs_options

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

Actions = Sequence[Mapping[str, Any]]
"""The lines of a commit's file (Delta protocol, "Actions")."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")


@lru_cache(maxsize=10_000)  # a look at idle tables asks for each of them several times
def local_path(uri: str) -> str | None:
    """The path of a table or lake on this machine, as it is or of ``file:``; otherwise ``None``."""
    parts = urlsplit(uri)
    if not parts.scheme:
        return uri
    return unquote(parts.path) if parts.scheme == "file" else None


def storage_uri(uri: str) -> str:
    """The table's address as delta-rs spells it: Hadoop's ``s3a`` is its ``s3``."""
    return uri.replace("s3a://", "s3://", 1) if uri.startswith("s3a://") else uri


def open_delta_table(uri: str, version: int | None = None) -> DeltaTable:
    """The table as delta-rs has it, at a version, by default the newest.

    Raises:
        TableNotFoundError: There is no table.
        DeltaError: The log is damaged, or lacks the version.
        OSError: The storage fails.
    """
    from deltalake import DeltaTable

    return DeltaTable(storage_uri(uri), version=version, storage_options=delta_rs_options(uri))


def table_file_system(uri: str) -> FileSystem:
    """The table's folder as a file system of pyarrow; paths start in it."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(storage_uri(uri), delta_rs_options(uri)))


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a log: its name in ``_delta_log``, and when it was written."""

    name: str
    written: datetime


class TableFolder:
    """A table's folder, for looks at its log; paths start in the folder.

    On this machine the files are opened directly: pyarrow would load numpy, which costs the process of a small drain
    more than its plan, and delta-rs's file system is a hundred times slower.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._local = local_path(uri)

    def read(self, path: str) -> bytes:
        """A file's content.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: The storage does not answer.
        """
        if self._local is not None:
            with open(f"{self._local}/{path}", "rb") as file:
                return file.read()
        with self._remote.open_input_stream(path) as stream:
            content: bytes = stream.read()
            return content

    def log_files(self) -> list[LogFile]:
        """What is in ``_delta_log``, in no order; empty without a log. Raises ``OSError`` if the storage fails."""
        if self._local is not None:
            return _local_files(f"{self._local}/_delta_log")
        from pyarrow.fs import FileSelector

        found = self._remote.get_file_info(FileSelector("_delta_log", recursive=False))
        return [LogFile(info.base_name, info.mtime) for info in found]

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """The size in bytes of each file; ``None`` where there is none. Raises ``OSError`` if the storage fails."""
        if self._local is not None:
            return [_local_size(f"{self._local}/{path}") for path in paths]
        return [info.size if info.is_file else None for info in self._remote.get_file_info(list(paths))]

    @cached_property
    def _remote(self) -> FileSystem:
        return table_file_system(self.uri)


def _local_files(folder: str) -> list[LogFile]:
    found = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # cleaned up meanwhile
                found.append(LogFile(entry.name, datetime.fromtimestamp(entry.stat().st_mtime, UTC)))
    return found


def _local_size(path: str) -> int | None:
    try:
        file = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return file.st_size if S_ISREG(file.st_mode) else None


def commit_path(version: int) -> str:
    """The path of a commit's file, from the table's folder."""
    return f"_delta_log/{version:020}.json"


def read_actions(folder: TableFolder, version: int) -> Actions:
    """Read the file of one commit.

    Raises:
        CommitUnreadable: The file is not there, or is not whole.
        StorageFailed: The storage does not answer.
    """
    with storage_failures(folder.uri):
        try:
            actions = [json.loads(line) for line in folder.read(commit_path(version)).splitlines() if line.strip()]
        except FileNotFoundError as gone:
            raise CommitUnreadable(folder.uri, version, gone=True) from gone
        except ValueError as torn:
            raise CommitUnreadable(folder.uri, version) from torn
    if not actions:
        raise CommitUnreadable(folder.uri, version, why="is an empty file")
    return actions


def commit_files(folder: TableFolder) -> dict[int, datetime]:
    """The versions of the commits in the log, each with the time at which its file was written.

    Raises:
        StorageFailed: The storage does not list them.
    """
    with storage_failures(folder.uri):
        files = folder.log_files()
    return {int(name[1]): file.written for file in files if (name := _COMMIT.fullmatch(file.name))}


def checkpoint_path(version: int) -> str:
    """The path of a classic checkpoint in one file, from the table's folder."""
    return f"_delta_log/{version:020}.checkpoint.parquet"


def checkpoint_names(folder: TableFolder) -> dict[int, list[str]]:
    """The paths of all Parquet checkpoints, from the table's folder, by version.

    Raises:
        OSError: The storage fails.
    """
    found: dict[int, list[str]] = {}
    for file in folder.log_files():
        if name := _CHECKPOINT.fullmatch(file.name):
            found.setdefault(int(name[1]), []).append(f"_delta_log/{file.name}")
    return found


def last_checkpoint(folder: TableFolder) -> int | None:
    """The version of the newest checkpoint that ``_last_checkpoint`` names; ``None`` if it names none."""
    try:
        return int(json.loads(folder.read("_delta_log/_last_checkpoint"))["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def holds_files(uri: str) -> bool:
    """Whether the folder has files, apart from hidden names: another process may just have made ``_delta_log``."""
    try:
        return any(not name.startswith(("_", ".")) for name in names_in(uri))
    except OSError:
        return False


def names_in(uri: str) -> list[str]:
    """The files and folders in a table's folder, by one request; empty if there is no folder.

    Raises:
        OSError: The storage does not answer.
    """
    if (path := local_path(uri)) is not None:  # pyarrow would cost a code location 0.3 s
        return os.listdir(path) if os.path.isdir(path) else []
    from deltalake.exceptions import TableNotFoundError
    from pyarrow.fs import FileSelector

    try:
        return [info.base_name for info in table_file_system(uri).get_file_info(FileSelector("", recursive=False))]
    except TableNotFoundError:
        return []


@contextmanager
def storage_failures(uri: str) -> Iterator[None]:
    """Turn an ``OSError`` into the error for a storage that fails.

    Raises:
        StorageFailed: The body raised an ``OSError``.
    """
    try:
        yield
    except OSError as failed:
        raise StorageFailed(uri=uri, detail=error_line(failed)) from failed


def table_unreadable(uri: str, error: Exception) -> TableUnreadable:
    """The error for a log that delta-rs cannot read."""
    detail = error_line(error)
    spare: tuple[str, ...] = ()
    if re.search("checkpoint|parquet", detail, re.IGNORECASE):
        with suppress(OSError):
            spare = removable_checkpoint_files(TableFolder(uri))
    return TableUnreadable(uri=uri, detail=detail, spare=spare)


def error_line(error: Exception) -> str:
    """An error of delta-rs on one line: S3's own words, or its lines without the stack trace that may follow."""
    if s3 := re.search(r"<Code>(.+?)</Code>\s*<Message>(.+?)</Message>", str(error), re.DOTALL):
        return f"{s3[1]}: {s3[2]}"[:500]
    lines = [re.sub(r"\x1b\[\d*m|↳", "", line).strip() for line in str(error).strip().splitlines()]
    trace = next((i for i, line in enumerate(lines) if re.match(r"\d+: ", line)), len(lines))
    return ": ".join(line for line in lines[:trace] if line)[:500]


def removable_checkpoint_files(folder: TableFolder) -> tuple[str, ...]:
    """Name patterns of the files to remove where a checkpoint cannot be read: the checkpoint and ``_last_checkpoint``.

    Returns:
        Nothing if only the checkpoint still holds some commits.
    """
    names = [file.name for file in folder.log_files()]
    commits, checkpoints = _versions(_COMMIT, names), _versions(_CHECKPOINT, names)
    named = last_checkpoint(folder)
    damaged = max(checkpoints) if checkpoints and named in (None, max(checkpoints)) else None
    before = max((c for c in checkpoints if c != damaged), default=-1)
    if not commits or not set(range(before + 1, max(commits) + 1)) <= commits:
        return ()
    return ("_last_checkpoint", *([f"{damaged:020}.checkpoint.*"] if damaged is not None else []))


def _versions(pattern: re.Pattern[str], names: Collection[str]) -> set[int]:
    return {int(found[1]) for name in names if (found := pattern.fullmatch(name))}
