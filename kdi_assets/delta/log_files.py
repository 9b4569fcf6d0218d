"""The data files of a Delta table at one version, replayed from its log without a Spark job.

Delta's own list of files is a Spark job over the log for each version: half of what a small refinement took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.storage import (
    TableFolder,
    checkpoint_names,
    checkpoint_path,
    read_actions,
    storage_failures,
    table_file_system,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

MOST_ROWS = 20_000
"""Of a checkpoint; a larger one is left to Spark, which reads it in parallel."""
_READS_AT_ONCE = 8
_KEPT = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "stats",
    "tags",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
    "clusteringProvider",
)
Add = Mapping[str, Any]


def files_at(uri: str, version: int, wanted: Callable[[Add], bool] = lambda add: True) -> list[Add] | None:
    """The ``add`` actions of the table's files at a version, as the log has them.

    Args:
        wanted: Which of them to return.

    Returns:
        ``None`` if this reader cannot tell: the checkpoint is large, in parts or of another form, or a commit is gone.

    Raises:
        StorageFailed: The storage does not answer.

    Source: Delta protocol, "Action Reconciliation": a file is its path and its deletion vector; the newest action wins.
    """
    folder = TableFolder(uri)
    with storage_failures(uri):
        checkpoints = checkpoint_names(folder)
    checkpoint = max((v for v in checkpoints if v <= version), default=-1)
    files: dict[tuple[str, str], Add] = {}
    if checkpoint >= 0:
        if checkpoints[checkpoint] != [checkpoint_path(checkpoint)]:
            return None
        adds = _adds_of_checkpoint(table_file_system(uri), checkpoint_path(checkpoint))
        if adds is None:
            return None
        files = {_file(add): add for add in adds}
    try:
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            commits = list(pool.map(partial(read_actions, folder), range(checkpoint + 1, version + 1)))
    except CommitUnreadable:
        return None
    for actions in commits:
        files = _after(files, actions)
    return [{**add, "dataChange": False} for add in files.values() if wanted(add)]


def _after(files: Mapping[tuple[str, str], Add], actions: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Add]:
    """The files after a commit; the order of its actions means nothing."""
    changes = list(actions)
    removed = {_file(action["remove"]) for action in changes if "remove" in action}
    added = {_file(action["add"]): action["add"] for action in changes if "add" in action}
    return {file: add for file, add in files.items() if file not in removed} | added


def _file(action: Add) -> tuple[str, str]:
    vector = action.get("deletionVector") or {}
    offset = vector.get("offset")
    place = "" if offset is None else f"@{offset}"
    return action["path"], f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}{place}"


def _adds_of_checkpoint(folder: FileSystem, path: str) -> list[Add] | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(folder.open_input_file(path)) as file:
            kept = _columns(file.schema_arrow)
            if kept is None or file.metadata.num_rows > MOST_ROWS:
                return None
            adds = file.read(columns=kept)["add"]
    except (pa.ArrowException, OSError):  # damaged, or cleaned up meanwhile: Delta finds another way, or says so
        return None
    return [_action(add) for add in adds.drop_null().to_pylist()]


def _columns(schema: pa.Schema) -> list[str] | None:
    """The columns of a classic checkpoint; ``None`` of one that names its files elsewhere, or has no stats as text."""
    if "add" not in schema.names or "checkpointMetadata" in schema.names:
        return None
    there = {field.name for field in schema.field("add").type}
    return [f"add.{name}" for name in _KEPT if name in there] if "stats" in there else None


def _action(add: Mapping[str, Any]) -> Add:
    """An ``add`` as JSON has it: maps as objects, nothing for null."""
    maps = {name: dict(add[name]) for name in ("partitionValues", "tags") if add.get(name) is not None}
    return {name: value for name, value in {**add, **maps}.items() if value is not None}
