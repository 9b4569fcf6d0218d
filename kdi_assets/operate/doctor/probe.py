"""Probes in a local or mounted folder."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kdi_assets.delta.errors import StorageRefused
from kdi_assets.operate.doctor.disk import nearest_existing

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, 524)
"""What a file system without hard links answers; the same as in ``kdi.storage.LinkLogStore``."""


class NoHardLinks(Exception):
    """The file system of the folder has none; a file can be written there."""


@dataclass(frozen=True)
class LocalStorage:
    """The folder of a lake, or its nearest existing parent; each call may raise ``StorageRefused``."""

    lake: Path

    def create(self, name: str, content: bytes) -> bool:
        """Create it if it is absent, in one step, by a hard link to a complete file, as commits are written.

        Raises:
            NoHardLinks: The folder has none.

        Source: Rust's ``object_store``, ``LocalFileSystem::put_opts`` with ``PutMode::Create``.
        """
        target = self._path(name)
        whole = target.with_name(f"{name}-{content.hex() or 'empty'}.part")
        with self._refusals("write"):
            try:
                whole.write_bytes(content)
                _link(target, whole)
            except FileExistsError:
                return False
            finally:
                whole.unlink(missing_ok=True)
        return True

    def read(self, name: str) -> bytes:
        """Its content."""
        with self._refusals("read"):
            return self._path(name).read_bytes()

    def written_at(self, name: str) -> float:
        """When it was written, by the storage's clock: seconds since 1970."""
        with self._refusals("read"):
            return self._path(name).stat().st_mtime

    def remove(self, name: str) -> None:
        """Remove it, if it exists."""
        with self._refusals("remove"):
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return nearest_existing(self.lake) / name

    @contextmanager
    def _refusals(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as refused:
            raise StorageRefused(lake=str(self.lake), action=action, detail=str(refused)) from refused


def _link(target: Path, whole: Path) -> None:
    try:
        target.hardlink_to(whole)
    except OSError as refused:
        if refused.errno in _NO_LINKS:
            raise NoHardLinks from refused
        raise
