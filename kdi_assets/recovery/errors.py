"""Errors of decisions."""

from __future__ import annotations

from kdi_assets.errors import Terminal


class NothingToResolve(Terminal):
    """The decision does not fit what is there.

    Attributes:
        then: What to run next, where that is known.
    """

    stream: str
    action: str
    detail: str
    then: str = ""

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {self.action} does not apply: {self.detail}.",
            "nothing was changed.",
            self.then or f"kdi plan {self.stream}   (says what stands in the way, and what decides it)",
        )
