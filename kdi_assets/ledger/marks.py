"""Whether a table's log has moved on, told by the names of its commits alone: a thousand tables in milliseconds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.ledger.storage import storage

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


MOST = 200


@dataclass(frozen=True, slots=True)
class LogMark:
    """The newest commit of a log, and what tells its file from one of the same number in a table made anew."""

    version: int
    size: int
    written: float


class LogMarks:
    """Looks at the ends of logs; keeps the connection to each, which would cost more than the look."""

    def __init__(self) -> None:
        self._folders: dict[str, FileSystem] = {}

    def of(self, uri: str, *, since: int, most: int = MOST) -> LogMark | None:
        """The newest commit, looked for from ``since`` on; ``None`` if that one is not there, or storage fails.

        Args:
            most: How many commits to go on at most: each is a request. Behind a longer way there is a newer one.
        """
        version, found = since, self._commit(uri, since)
        while found and version < since + most and (following := self._commit(uri, version + 1)):
            version, found = version + 1, following
        return LogMark(version, *found) if found else None

    def _commit(self, uri: str, version: int) -> tuple[int, float] | None:
        from deltalake.exceptions import DeltaError

        path = f"_delta_log/{version:020}.json"
        try:
            if "://" in uri:
                return self._remote(uri, path)
            seen = os.stat(f"{uri}/{path}")  # delta-rs's file system takes a hundred times as long
            return seen.st_size, seen.st_mtime
        except (OSError, DeltaError):
            return None

    def _remote(self, uri: str, path: str) -> tuple[int, float] | None:
        from pyarrow.fs import FileType

        if uri not in self._folders:
            self._folders[uri] = storage(uri)
        folder = self._folders[uri]
        found: Sequence[object] = folder.get_file_info([path])
        (info,) = found
        return (info.size, info.mtime_ns / 1e9) if info.type is FileType.File else None  # type: ignore[attr-defined]
