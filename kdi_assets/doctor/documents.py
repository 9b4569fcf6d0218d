"""The documents' part: are they right, as far as that can be told without Spark?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kdi_assets.components.folder import shown
from kdi_assets.components.load import Loaded
from kdi_assets.components.mistakes import in_order
from kdi_assets.doctor.finding import Finding, fine, warning, wrong
from kdi_assets.errors import Terminal
from kdi_assets.wording import counted


class NoStreams(Terminal):
    """No document describes a stream."""

    folder: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.folder} has no document that describes a stream.",
            "nothing was started; no topic and no table was touched.",
            "add a document (docs/streams.md), or name another folder with --defs or KDI_DEFS",
        )


def documents(loaded: Loaded, folder: Path) -> Iterator[Finding]:
    """The mistakes of every document; streams and clusters without one are examined further."""
    of = shown(folder)
    for mistake in in_order(loaded.mistakes):
        yield wrong("documents", of, mistake)
    if not loaded.mistakes and not loaded.streams:
        yield warning("documents", of, NoStreams(folder=of))
    elif not loaded.mistakes:
        found = f"{counted(len(loaded.streams), 'stream')}; expressions are for kdi check"
        yield fine("documents", of, found, streams=sorted(loaded.streams))
