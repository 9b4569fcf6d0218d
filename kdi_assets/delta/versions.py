"""The newest version of a table, by the names of its commit files only: a thousand tables in milliseconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from kdi_assets.delta.object_storage import RETRIES, ObjectStorage
from kdi_assets.delta.storage import commit_path, local_path, table_file_system
from kdi_assets.errors import KdiError
from kdi_assets.runtime.s3_access import lies_on_s3, s3_client

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


MAX_STEPS = 200
SEEN_SECONDS = 60.0
"""On object storage, where each look is a paid request: how long a commit that was seen counts as still there, and how
long an idle table is not looked at. A RESTORE of an idle table, or another commit to it, is seen after so long."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LatestVersion:
    """The newest commit of a log; size and time of its file differ if the table was created again."""

    version: int
    size: int
    written: float


class LatestVersions:
    """Looks up newest versions; keeps the connection to each table, which costs more than the lookup.

    A table on this machine is looked at each time. On object storage a look is one request, for the next commit; none
    if the table is idle.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._folders: dict[str, FileSystem] = {}
        self._seen: dict[str, tuple[LatestVersion, float]] = {}
        self._idle: set[str] = set()

    def set_idle(self, uri: str, *, idle: bool) -> None:
        """Set whether nobody is expected to commit to the table."""
        if idle and "://" in uri:
            self._idle.add(uri)
        else:
            self._idle.discard(uri)

    def of(self, uri: str, *, since: int, max_steps: int = MAX_STEPS) -> LatestVersion | None:
        """The newest commit from version ``since`` on; ``None`` if ``since`` is not there, or the storage fails.

        Args:
            max_steps: Stop after this many commits, each of which is a request; there may be newer ones.
        """
        newest = self._seen_lately(uri, since)
        if newest and uri in self._idle:
            return newest
        found, limit = newest or self._look(uri, since), since + max_steps
        while found and found.version < limit and (following := self._look(uri, found.version + 1)):
            found = following
        return found

    def _seen_lately(self, uri: str, since: int) -> LatestVersion | None:
        seen, until = self._seen.get(uri, (None, 0.0))
        return seen if seen and seen.version >= since and self._clock() < until else None

    def _look(self, uri: str, version: int) -> LatestVersion | None:
        if (path := local_path(uri)) is not None:
            return _local(path, version)
        from deltalake.exceptions import DeltaError

        try:
            found = self._remote(uri, commit_path(version))
        except (KdiError, OSError, DeltaError):
            return None
        if found is None:
            return None
        latest = LatestVersion(version, *found)
        self._seen[uri] = latest, self._clock() + SEEN_SECONDS
        return latest

    def _remote(self, uri: str, path: str) -> tuple[int, float] | None:
        """Size and time of a file; ``None`` if it is not there."""
        from pyarrow.fs import FileType

        if lies_on_s3(uri):  # by one HEAD; delta-rs's file system also sends a LIST, at twelve times the price
            return ObjectStorage.at(uri, s3_client(uri, retries=RETRIES)).size_and_time(path)
        if uri not in self._folders:
            self._folders[uri] = table_file_system(uri)
        (info,) = self._folders[uri].get_file_info([path])
        return (info.size, info.mtime_ns / 1e9) if info.type is FileType.File else None


def _local(path: str, version: int) -> LatestVersion | None:
    try:
        seen = os.stat(f"{path}/{commit_path(version)}")  # delta-rs's file system is a hundred times slower
    except OSError:
        return None
    return LatestVersion(version, seen.st_size, seen.st_mtime)


class LogCache(Generic[T]):
    """A cache of values read from tables' logs, valid until the log has a newer version. Drains must not use it.

    A value may be missing at any time; the caller then reads the log.
    """

    def __init__(self, versions: LatestVersions | None = None) -> None:
        self._versions = versions or LatestVersions()
        self._values: dict[str, tuple[T, LatestVersion | None]] = {}

    def current(self, uri: str) -> T | None:
        """The value, unless the log has a newer commit or the table was created again."""
        value, read_at = self._values.get(uri, (None, None))
        return value if read_at and read_at == self._versions.of(uri, since=read_at.version, max_steps=1) else None

    def last(self, uri: str) -> T | None:
        """The last value, even if the log has newer commits."""
        return self._values[uri][0] if uri in self._values else None

    def keep(self, uri: str, value: T, *, version: int) -> T:
        """Keep a value that was read at a version of the table."""
        # Looked up after the value was read: if a commit came in between, the value does not become current. An answer
        # from before the read is as good: a later look finds that commit.
        read_at = self._versions.of(uri, since=version, max_steps=1)
        self._values[uri] = (value, read_at if read_at and read_at.version == version else None)
        return value

    def forget(self, uri: str) -> None:
        """Drop the value."""
        self._values.pop(uri, None)
