"""The newest version of a table, by the names of its commit files only: a thousand tables in milliseconds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from kdi_assets.errors import KdiError
from kdi_assets.ledger.storage import table_folder
from kdi_assets.runtime.s3_access import delta_rs_options

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


MAX_STEPS = 200
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LatestVersion:
    """The newest commit of a log; size and time of its file differ if the table was created again."""

    version: int
    size: int
    written: float


class LatestVersions:
    """Looks up newest versions; keeps the connection to each table, which costs more than the lookup."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[object, FileSystem]] = {}

    def of(self, uri: str, *, since: int, max_steps: int = MAX_STEPS) -> LatestVersion | None:
        """The newest commit from version ``since`` on; ``None`` if ``since`` is not there, or the storage fails.

        Args:
            max_steps: Stop after this many commits, each of which is a request; there may be newer ones.
        """
        version, found = since, self._commit(uri, since)
        while found and version < since + max_steps and (following := self._commit(uri, version + 1)):
            version, found = version + 1, following
        return LatestVersion(version, *found) if found else None

    def _commit(self, uri: str, version: int) -> tuple[int, float] | None:
        from deltalake.exceptions import DeltaError

        path = f"_delta_log/{version:020}.json"
        try:
            if "://" in uri:
                return self._remote(uri, path)
            seen = os.stat(f"{uri}/{path}")  # delta-rs's file system is a hundred times slower
            return seen.st_size, seen.st_mtime
        except (KdiError, OSError, DeltaError):
            return None

    def _remote(self, uri: str, path: str) -> tuple[int, float] | None:
        from pyarrow.fs import FileType

        options = delta_rs_options(uri)
        if uri not in self._folders or self._folders[uri][0] != options:  # credentials expire
            self._folders[uri] = options, table_folder(uri)
        (info,) = self._folders[uri][1].get_file_info([path])
        return (info.size, info.mtime_ns / 1e9) if info.type is FileType.File else None


class LogCache(Generic[T]):
    """A cache of values read from tables' logs, valid until the log has a newer version. Drains must not use it.

    A value may be missing at any time; the caller then reads the log.
    """

    def __init__(self) -> None:
        self._versions = LatestVersions()
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
        # Looked up after the value was read: if a commit came in between, the value does not become current.
        read_at = self._versions.of(uri, since=version, max_steps=1)
        self._values[uri] = (value, read_at if read_at and read_at.version == version else None)
        return value

    def forget(self, uri: str) -> None:
        """Drop the value."""
        self._values.pop(uri, None)
