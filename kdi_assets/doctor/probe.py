"""Probes in a local or mounted folder, and the errors of any probe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kdi_assets.doctor.disk import nearest_existing
from kdi_assets.doctor.finding import Trouble


def probe_refused(lake: str, action: str, failure: Exception) -> Trouble:
    """The storage refuses an operation that a drain needs."""
    return Trouble(
        kind="storage refuses probe",
        happened=f"{lake}: the storage refuses to {action} a probe: {failure}",
        safe="no table was touched; positions stay as they are.",
        run="correct KDI_LAKE, the credentials, or our rights there; then kdi doctor",
    )


def put_if_absent_missing(lake: str, *, created: int, detail: str = "") -> Trouble:
    """Of two writers that created the same object at once, not exactly one succeeded."""
    return Trouble(
        kind="put if absent missing",
        happened=f"{lake}: of two writers that created one object at the same time, {created} succeeded{detail}.",
        safe="no table was touched; one writer at a time is safe, but two writers may overwrite each other's commits.",
        run="keep to one driver for this lake, or use a storage with conditional put; then kdi doctor",
    )


@dataclass(frozen=True)
class LocalStorage:
    """The folder of a lake, or its nearest existing parent; each call may raise ``Trouble``."""

    lake: Path

    def create(self, name: str, content: bytes) -> bool:
        """Create it if it is absent, in one step, by a hard link to a complete file, as commits are written.

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
            raise probe_refused(str(self.lake), action, refused) from refused
