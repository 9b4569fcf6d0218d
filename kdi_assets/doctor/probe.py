"""What a storage is asked to do with a probe, and how it may refuse."""

from __future__ import annotations

from typing import Protocol

from kdi_assets.errors import Terminal, Transient


class Storage(Protocol):
    """A lake's, for probes under names that nobody else has.

    Each call may raise ``StorageRefusesProbe`` or ``StorageUnanswered``.
    """

    def create(self, name: str, content: bytes) -> bool:
        """Create it if it is absent, in one step; ``False`` if it was there."""

    def read(self, name: str) -> bytes:
        """What it holds."""

    def written_at(self, name: str) -> float:
        """When it was written by the storage's clock: seconds since 1970."""

    def remove(self, name: str) -> None:
        """Remove it, if it is there."""


class StorageRefusesProbe(Terminal):
    """The storage answers, and does not let us do what a drain does."""

    lake: str
    action: str
    detail: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.lake}: the storage refuses to {self.action} a probe: {self.detail}",
            "no table was touched; positions stay as they are.",
            "correct KDI_LAKE, the credentials, or our rights there; then kdi doctor",
        )


class StorageUnanswered(Transient):
    """The storage does not answer, or says that it cannot now."""

    lake: str
    detail: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.lake}: the storage does not answer: {self.detail}",
            "no table was touched; positions stay as they are.",
            "kdi doctor    (once more; if it repeats, look at the storage, its address and the network between)",
        )


class PutIfAbsentMissing(Terminal):
    """Of two that created the same object at once, not exactly one was told that it did."""

    lake: str
    created: int
    detail: str = ""

    def parts(self) -> tuple[str, str, str]:
        detail = f" ({self.detail})" if self.detail else ""
        return (
            f"{self.lake}: of two that created one object at the same time, {self.created} were told that they did"
            f"{detail}.",
            "no table was touched; one writer at a time is safe there, of two one may overwrite the other's commit.",
            "keep to one driver for this lake, or use a storage with conditional put; then kdi doctor",
        )
