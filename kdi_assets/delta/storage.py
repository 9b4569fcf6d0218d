"""The folder of a Delta table, reached without a JVM: the files of its log, and errors of the storage under it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.errors import CommitUnreadable, StorageFailed, TableUnreadable
from kdi_assets.runtime.s3_access import delta_rs_options

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.fs import FileInfo, FileSystem

Actions = Sequence[Mapping[str, Any]]
"""The lines of a commit's file (Delta protocol, "Actions")."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")


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


def table_folder(uri: str) -> FileSystem:
    """The table's folder as a file system; paths start in it."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(storage_uri(uri), delta_rs_options(uri)))


def commit_path(version: int) -> str:
    """The path of a commit's file, from the table's folder."""
    return f"_delta_log/{version:020}.json"


def read_actions(folder: FileSystem, uri: str, version: int) -> Actions:
    """Read the file of one commit.

    Raises:
        CommitUnreadable: The file is not there, or is not whole.
        StorageFailed: The storage does not answer.
    """
    with storage_failures(uri):
        try:
            with folder.open_input_stream(commit_path(version)) as file:
                actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except FileNotFoundError as gone:
            raise CommitUnreadable(uri, version, gone=True) from gone
        except ValueError as torn:
            raise CommitUnreadable(uri, version) from torn
    if not actions:
        raise CommitUnreadable(uri, version, why="is an empty file")
    return actions


def commit_files(folder: FileSystem, uri: str) -> dict[int, datetime]:
    """The versions of the commits in the log, each with the time at which its file was written.

    Raises:
        StorageFailed: The storage does not list them.
    """
    with storage_failures(uri):
        return {int(name[1]): file.mtime for file in _log(folder) if (name := _COMMIT.fullmatch(file.base_name))}


def checkpoint_path(version: int) -> str:
    """The path of a classic checkpoint in one file, from the table's folder."""
    return f"_delta_log/{version:020}.checkpoint.parquet"


def checkpoint_names(folder: FileSystem) -> dict[int, list[str]]:
    """The paths of all Parquet checkpoints, from the table's folder, by version.

    Raises:
        OSError: The storage fails.
    """
    found: dict[int, list[str]] = {}
    for file in _log(folder):
        if name := _CHECKPOINT.fullmatch(file.base_name):
            found.setdefault(int(name[1]), []).append(f"_delta_log/{file.base_name}")
    return found


def last_checkpoint(folder: FileSystem) -> int | None:
    """The version of the newest checkpoint that ``_last_checkpoint`` names; ``None`` if it names none."""
    try:
        with folder.open_input_stream("_delta_log/_last_checkpoint") as file:
            return int(json.loads(file.read())["version"])
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
    if "://" not in uri:  # pyarrow would cost a code location 0.3 s
        return [entry.name for entry in os.scandir(uri)] if os.path.isdir(uri) else []
    from deltalake.exceptions import TableNotFoundError
    from pyarrow.fs import FileSelector

    try:
        return [info.base_name for info in table_folder(uri).get_file_info(FileSelector("", recursive=False))]
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
            spare = removable_checkpoint_files(table_folder(uri))
    return TableUnreadable(uri=uri, detail=detail, spare=spare)


def error_line(error: Exception) -> str:
    """An error of delta-rs on one line: S3's own words, or its lines without the stack trace that may follow."""
    if s3 := re.search(r"<Code>(.+?)</Code>\s*<Message>(.+?)</Message>", str(error), re.DOTALL):
        return f"{s3[1]}: {s3[2]}"[:500]
    lines = [re.sub(r"\x1b\[\d*m|↳", "", line).strip() for line in str(error).strip().splitlines()]
    trace = next((i for i, line in enumerate(lines) if re.match(r"\d+: ", line)), len(lines))
    return ": ".join(line for line in lines[:trace] if line)[:500]


def removable_checkpoint_files(folder: FileSystem) -> tuple[str, ...]:
    """Name patterns of the files to remove where a checkpoint cannot be read: the checkpoint and ``_last_checkpoint``.

    Returns:
        Nothing if only the checkpoint still holds some commits.
    """
    names = [file.base_name for file in _log(folder)]
    commits, checkpoints = _versions(_COMMIT, names), _versions(_CHECKPOINT, names)
    named = last_checkpoint(folder)
    damaged = max(checkpoints) if checkpoints and named in (None, max(checkpoints)) else None
    before = max((c for c in checkpoints if c != damaged), default=-1)
    if not commits or not set(range(before + 1, max(commits) + 1)) <= commits:
        return ()
    return ("_last_checkpoint", *([f"{damaged:020}.checkpoint.*"] if damaged is not None else []))


def _log(folder: FileSystem) -> list[FileInfo]:
    from pyarrow.fs import FileSelector

    found: list[FileInfo] = folder.get_file_info(FileSelector("_delta_log", recursive=False))
    return found


def _versions(pattern: re.Pattern[str], names: Collection[str]) -> set[int]:
    return {int(found[1]) for name in names if (found := pattern.fullmatch(name))}
