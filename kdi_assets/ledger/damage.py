"""What helps when a table's log is damaged: its checkpoints only repeat what the commits say."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")


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
