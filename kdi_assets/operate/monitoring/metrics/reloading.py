"""A collector that follows the documents: it reads them again when a file of their folder changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from kdi_assets.documents.loading.loader import LoadedFolder, load_folder
from kdi_assets.errors import KdiError
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector

FilesSeen = dict[Path, tuple[int, int]]
"""The files of a folder, each with the time of its last change in nanoseconds and its size in bytes."""


def reloading_collector(
    folder: Path, collectors_of: Callable[[LoadedFolder], Sequence[Collector]], *, report: Callable[[str], None]
) -> Collector:
    """Collects by the newest documents of ``folder`` without a mistake; each scrape looks whether a file changed.

    Args:
        report: Takes a line when documents were read, and when new ones have mistakes.

    Raises:
        Mistakes, DefsFolderMissing: The documents that are there now are wrong.
    """
    from prometheus_client.registry import Collector

    class Reloading(Collector):
        def __init__(self) -> None:
            self._lock, self._files = Lock(), _files(folder)
            self._read()

        def collect(self) -> Iterator[Family]:
            with self._lock:
                self._follow()
                collectors = self._collectors
            for collector in collectors:
                yield from collector.collect()

        def _follow(self) -> None:
            if (files := _files(folder)) == self._files:
                return
            self._files = files
            try:
                self._read()
            except KdiError as wrong:
                report(f"the changed documents are not used: {wrong}")
            except Exception as unexpected:  # noqa: BLE001 - said here; scrapes go on, and alerts with them
                report(f"the changed documents are not used: {type(unexpected).__name__}: {unexpected}")

        def _read(self) -> None:
            loaded = load_folder(folder)
            self._collectors = collectors_of(loaded)
            report(f"documents of {counted(len(loaded.streams), 'stream')} were read")

    return Reloading()


def _files(folder: Path) -> FilesSeen:
    found: FilesSeen = {}
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except OSError:
            continue  # removed meanwhile
        found[path] = (status.st_mtime_ns, status.st_size)
    return found
