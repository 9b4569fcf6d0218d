"""Errors of decisions."""

from __future__ import annotations

from kdi_assets.errors import Terminal


class NothingToResolve(Terminal):
    """The action does not apply to the present state of the stream.

    Attributes:
        then: The command to run next, if it is known.
    """

    stream: str
    action: str
    detail: str
    then: str = ""

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {self.action} does not apply: {self.detail}.",
            "nothing was changed.",
            self.then or f"kdi plan {self.stream}   (shows what stops the drain, and which action decides it)",
        )
