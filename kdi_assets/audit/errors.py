"""Errors of the audit."""

from __future__ import annotations

from kdi_assets.errors import Terminal


class NothingToAudit(Terminal):
    """The stream's table does not exist, or none of its ledger entries can be read."""

    stream: str
    uri: str
    archive_uri: str = ""
    knows_ledger: bool = False

    def message_parts(self) -> tuple[str, str, str]:
        if self.knows_ledger:
            return (
                f"{self.stream}: the ledger entries of {self.uri} are no longer in its log, nor in {self.archive_uri}: "
                "the log was cleaned up without copying them.",
                "the rows and the positions, which every checkpoint keeps; drains go on.",
                f"kdi drain {self.stream}, and `kdi upkeep {self.stream}` from now on: it copies before it cleans",
            )
        return (
            f"{self.stream}: {self.uri} has no ledger entry; nothing was drained into it.",
            "nothing was changed.",
            f"kdi drain {self.stream}",
        )
