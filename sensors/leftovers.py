"""Dead letters that a try left which never committed: removed by the tick that sees the position move past them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kdi_assets.errors import KdiError
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.ghosts import remove_ghosts
from kdi_assets.ledger.log import CommitUnreadable
from kdi_assets.stream import Stream


def letters_version(entries: Sequence[LedgerEntry], known: int) -> int:
    """The version of the dead letters that the newest entry counts on; ``known`` if none does."""
    newest = entries[-1].dead_letters_at if entries else None
    return newest.version if newest else known


def suspects_ghosts(entries: Sequence[LedgerEntry], *, known: int) -> bool:
    """Whether the dead-letter table moved further than these entries moved it.

    A drain with dead letters, and a replay, append one version and name it; who appended others did not commit. Looking
    for them reads the whole ledger, so it is not done at every tick.

    Args:
        known: The version that the entry before these counted on; -1 if unknown.
    """
    versions = [known, *(letters_version([e], known) for e in entries)]
    steps = (after - before for before, after in pairwise(versions))
    return any(step > (e.dead_letters > 0 or bool(e.outcomes)) for step, e in zip(steps, entries, strict=True))


def sweep(stream: Stream, lake: str, entries: Sequence[LedgerEntry], *, known: int) -> int:
    """Remove ghosts if there may be any; the version of the dead letters to remember, ``known`` to try once more."""
    from deltalake.exceptions import DeltaError

    if suspects_ghosts(entries, known=known):
        try:
            remove_ghosts(stream, lake)
        except (KdiError, CommitUnreadable, DeltaError, OSError):
            return known  # they count for nothing, so a tick must not fail for them
    return letters_version(entries, known)
