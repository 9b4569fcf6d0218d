"""Probes in a folder: of this machine's disk, or of whatever is mounted there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kdi_assets.doctor.places import nearest_existing
from kdi_assets.doctor.probe import StorageRefusesProbe


@dataclass(frozen=True)
class LocalStorage:
    """The folder of a lake; as long as it does not exist, the one in which it would be made."""

    lake: Path

    def create(self, name: str, content: bytes) -> bool:
        """By a hard link to a file that is whole: so commits are put there.

        Source: Rust's ``object_store``, ``LocalFileSystem::put_opts`` with ``PutMode::Create``.
        """
        target = self._path(name)
        whole = target.with_name(f"{name}-{content.hex() or 'empty'}.part")
        with self._refusals("write"):
            try:
                whole.write_bytes(content)
                target.hardlink_to(whole)
            except FileExistsError:
                return False
            finally:
                whole.unlink(missing_ok=True)
        return True

    def read(self, name: str) -> bytes:
        with self._refusals("read"):
            return self._path(name).read_bytes()

    def written_at(self, name: str) -> float:
        with self._refusals("read"):
            return self._path(name).stat().st_mtime

    def remove(self, name: str) -> None:
        with self._refusals("remove"):
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return nearest_existing(self.lake) / name

    @contextmanager
    def _refusals(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as refused:
            raise StorageRefusesProbe(lake=str(self.lake), action=action, detail=str(refused)) from refused
