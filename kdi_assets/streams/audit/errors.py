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
                f"kdi upkeep {self.stream} --yes   (from now on, regularly: it copies before it cleans)",
            )
        return (
            f"{self.stream}: there is nothing to audit: no drain has written to {self.uri} yet.",
            "nothing was changed.",
            f"kdi drain {self.stream}",
        )


class FilesNotCompared(Terminal):
    """The rows of the stream come from files that its messages name, and not from the messages."""

    stream: str

    what_happened = "{stream}: the messages in Kafka only name files, so they cannot be compared with rows."
    what_is_safe = "nothing was changed; `kdi audit {stream}` accounts for every message and every row."
    what_to_run = "kdi replay {stream} --from DATE --to DATE   (reads the files again and shows what differs)"
