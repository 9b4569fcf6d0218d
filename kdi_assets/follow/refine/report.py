"""What a refinement did, for logs, Dagster's events and the command line."""

from __future__ import annotations

from dataclasses import dataclass

from kdi_assets.follow.refine.entry import RefineEntry


@dataclass(frozen=True, slots=True)
class RefineReport:
    """One refinement of a table.

    Attributes:
        entry: What the commit's log says of it. If nothing was new, there is no commit, and its version is -1.
        seconds: Wall seconds.
    """

    entry: RefineEntry
    seconds: float = 0.0

    @property
    def committed(self) -> RefineEntry | None:
        """The entry; ``None``: nothing was committed."""
        return self.entry if self.entry.version >= 0 else None
