"""The newest version of a table, by the names of its commits alone: a thousand tables in milliseconds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from kdi_assets.ledger.storage import storage

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


MOST = 200
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LatestVersion:
    """The newest commit of a log, and what tells its file from one of the same number in a table made anew."""

    version: int
    size: int
    written: float


class LatestVersions:
    """Looks at the ends of logs; keeps the connection to each, which would cost more than the look."""

    def __init__(self) -> None:
        self._folders: dict[str, FileSystem] = {}

    def of(self, uri: str, *, since: int, most: int = MOST) -> LatestVersion | None:
        """The newest commit, looked for from ``since`` on; ``None`` if that one is not there, or storage fails.

        Args:
            most: How many commits to go on at most: each is a request. Behind a longer way there is a newer one.
        """
        version, found = since, self._commit(uri, since)
        while found and version < since + most and (following := self._commit(uri, version + 1)):
            version, found = version + 1, following
        return LatestVersion(version, *found) if found else None

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
        (info,) = self._folders[uri].get_file_info([path])
        return (info.size, info.mtime_ns / 1e9) if info.type is FileType.File else None


class LogCache(Generic[T]):
    """What was read from many tables' logs, kept with the version it was read at; for repeated looks, never for drains.

    All of it can be forgotten at any moment: who asks then reads the log again.
    """

    def __init__(self) -> None:
        self._marks = LatestVersions()
        self._kept: dict[str, tuple[T, LatestVersion | None]] = {}

    def current(self, uri: str) -> T | None:
        """The value, unless the log has a newer commit than it was read at, or another table lies there."""
        value, mark = self._kept.get(uri, (None, None))
        return value if mark and mark == self._marks.of(uri, since=mark.version, most=1) else None

    def last(self, uri: str) -> T | None:
        """The value as it was read last, whether or not the log has moved on since."""
        return self._kept[uri][0] if uri in self._kept else None

    def keep(self, uri: str, value: T, *, version: int) -> T:
        """Keep what was read at a version of the table."""
        # Marked after it was read: a commit that came in between has a higher version, and is read at the next look.
        mark = self._marks.of(uri, since=version, most=1)
        self._kept[uri] = (value, mark if mark and mark.version == version else None)
        return value

    def forget(self, uri: str) -> None:
        """Read it again the next time."""
        self._kept.pop(uri, None)
