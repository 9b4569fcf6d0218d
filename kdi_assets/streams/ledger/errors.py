"""Errors of the ledger."""

from __future__ import annotations

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.errors import Terminal, Transient
from kdi_assets.wording import sql_command


def another_table(stream: str) -> str:
    """The command for a table that cannot be continued."""
    return f"kdi drain TABLE   (first write TABLE, a new path, in the document in place of {stream}, which stays)"


class ArchiveBusy(Transient):
    """Another process copied commits to the archive at the same time."""

    uri: str

    what_happened = "{uri}: another process copied commits to the archive at the same time."
    what_is_safe = "its copies are in the archive; nothing was removed from the log."
    what_to_run = "the same command again"


class WrittenByNewerRelease(Terminal):
    """This release does not know the format of a ledger entry."""

    app_id: str
    version: int

    what_happened = "ledger {app_id}: commit {version} was written by a newer release."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "pip install --upgrade kdi-assets   (before anything else writes to this table)"


class RowsUnaccounted(Terminal):
    """Rewritten files lack other rows than those to remove."""

    uri: str
    version: int
    expected: int
    missing: int

    what_happened = (
        "{uri}: the rewrite would remove {missing:,} rows; version {version} has {expected:,} rows of the messages."
    )
    what_is_safe = "nothing was committed; rows and positions stay as they are."
    what_to_run = "the same command again   (if it repeats, kdi audit of the table; then report both)"


class RowsWithoutDate(Terminal):
    """Rows that another writer left without a date would be replaced or removed."""

    stream: str
    uri: str
    rows: int

    what_happened = "{stream}: {rows:,} of the rows to replace or remove in {uri} have no date."
    what_is_safe = "nothing was committed; rows and positions stay as they are."
    what_to_run = "kdi sql 'UPDATE delta.`{uri}` SET date = EXPRESSION WHERE date IS NULL'; then the same command again"


class PositionWithoutBookmark(Terminal):
    """A position of Kinesis is only a number: it cannot be set without the record that it follows."""

    stream: str
    topic_partition: TopicPartition
    position: int

    what_happened = (
        "{stream}: the position in {topic_partition} cannot be set to {position}: nobody knows which record that is."
    )
    what_is_safe = "nothing was committed; rows and positions stay as they are."
    what_to_run = "kdi history {stream}   (RESTORE TABLE of a version of it takes rows and positions back together)"


TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"


class LedgerGap(Terminal):
    """A commit that decides about the positions is gone or cannot be read.

    Attributes:
        has_numbers: The offsets are numbers of the table's own reading, as of Kinesis: no decision can set a position.
    """

    stream: str
    uri: str
    version: int
    why: str
    has_numbers: bool = False

    def message_parts(self) -> tuple[str, str, str]:
        rewind = f"kdi resolve {self.stream} rewind   (proposes the highest offset in the rows, plus one)"
        return (
            f"{self.stream}: commit {self.version} of {self.uri} {self.why}; the positions are not known.",
            "the rows of the table; nothing is drained until someone decides.",
            another_table(self.stream) if self.has_numbers else rewind,
        )


class TransactionRetentionSet(Terminal):
    """The table drops old transaction ids, and with them the positions of idle topic partitions."""

    stream: str
    uri: str
    value: str

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {TRANSACTION_RETENTION} is {self.value!r} on {self.uri}: "
            "idle topic partitions lose their positions.",
            "the rows of the table; nothing is drained until the property is removed.",
            sql_command(f"ALTER TABLE delta.`{self.uri}` UNSET TBLPROPERTIES ({TRANSACTION_RETENTION})"),
        )
