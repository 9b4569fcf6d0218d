"""Where a table lies: its folder as delta-rs reaches it, and what is said where that, or its log, is damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kdi_assets.ledger.errors import StorageFailed, TableUnreadable

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")


def storage_uri(uri: str) -> str:
    """The table's address as delta-rs spells it: Hadoop's ``s3a`` is its ``s3``."""
    return uri.replace("s3a://", "s3://", 1) if uri.startswith("s3a://") else uri


def storage(uri: str) -> FileSystem:
    """The table's folder."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(storage_uri(uri)))


def holds_files(uri: str) -> bool:
    """Whether anything lies there; hidden names aside: another creator may have made ``_delta_log`` just now."""
    from deltalake.exceptions import TableNotFoundError
    from pyarrow.fs import FileSelector

    try:
        found = storage(uri).get_file_info(FileSelector("", recursive=False))
    except (OSError, TableNotFoundError):
        return False
    return any(not info.base_name.startswith(("_", ".")) for info in found)


@contextmanager
def storage_failures(uri: str) -> Iterator[None]:
    """Name the failure of the storage under a table.

    Raises:
        StorageFailed: The body met one.
    """
    try:
        yield
    except OSError as failed:
        raise StorageFailed(uri=uri, detail=said(failed)) from failed


def unreadable(uri: str, refused: Exception, files: FileSystem) -> TableUnreadable:
    """The refusal of a log that delta-rs could not read.

    Args:
        files: The table's folder.
    """
    detail = said(refused)
    spare: tuple[str, ...] = ()
    if re.search("checkpoint|parquet", detail, re.IGNORECASE):
        with suppress(OSError):
            spare = spare_files(files)
    return TableUnreadable(uri=uri, detail=detail, spare=spare)


def said(failed: Exception) -> str:
    """What delta-rs says, on one line: the storage's cause stands in the last of several, a stack behind them."""
    lines = [re.sub(r"\x1b\[\d*m|↳", "", line).strip() for line in str(failed).strip().splitlines()]
    told = next((i for i, line in enumerate(lines) if re.match(r"\d+: ", line)), len(lines))
    return ": ".join(line for line in lines[:told] if line)[:500]


def spare_files(files: FileSystem) -> tuple[str, ...]:
    """What can be removed from a log whose checkpoint cannot be read: a checkpoint, and the file that names it.

    Args:
        files: The table's folder.

    Returns:
        Patterns of names; none if commits are missing that only the checkpoint still tells of.
    """
    from pyarrow.fs import FileSelector

    names = [f.base_name for f in files.get_file_info(FileSelector("_delta_log", recursive=False))]
    commits, checkpoints = _versions(_COMMIT, names), _versions(_CHECKPOINT, names)
    named = last_checkpoint(files)
    damaged = max(checkpoints) if checkpoints and named in (None, max(checkpoints)) else None
    before = max((c for c in checkpoints if c != damaged), default=-1)
    if not commits or not set(range(before + 1, max(commits) + 1)) <= commits:
        return ()
    return ("_last_checkpoint", *([f"{damaged:020}.checkpoint.*"] if damaged is not None else []))


def last_checkpoint(files: FileSystem) -> int | None:
    """The version that the log names as its newest checkpoint, if it names any."""
    try:
        with files.open_input_stream("_delta_log/_last_checkpoint") as file:
            return int(json.loads(file.read())["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _versions(pattern: re.Pattern[str], names: Collection[str]) -> set[int]:
    return {int(found[1]) for name in names if (found := pattern.fullmatch(name))}
