"""Where a table lies: its folder as delta-rs reaches it, on this machine or in an object storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


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
