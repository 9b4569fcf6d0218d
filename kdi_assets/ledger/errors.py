"""Errors of the ledger and of a table's log."""

from __future__ import annotations

from kdi_assets.errors import Terminal, Transient


class ArchiveBusy(Transient):
    """Another copier came first."""

    uri: str

    what_happened = "{uri}: another copier came first."
    what_is_safe = "what it copied is there; nothing was removed from the log."
    what_to_run = "the same command once more"


HARMLESS_RETRIES = 50
"""Give up after so many foreign commits in a row that do not concern the ledger; stepping behind one takes little."""


class OvertakenCommit(Transient):
    """Another commit came first, and it changes what this drain was planned on."""

    uri: str
    version: int
    operation: str

    what_happened = "{uri}: commit {version} ({operation}) came between plan and commit."
    what_is_safe = "this try committed nothing; its files and dead letters do not count."
    what_to_run = "plan again; a drain does so by itself"


class TableBusy(Transient):
    """Other writers committed to the table faster than a commit can step behind theirs."""

    uri: str
    version: int

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.uri}: other writers committed first {HARMLESS_RETRIES} times in a row, version {self.version}, "
            "and none of their commits concerns the ledger.",
            "this try committed nothing; its files and dead letters do not count.",
            "the same command once more; if it stays, kdi history shows who writes there",
        )


class StagedFilesGone(Transient):
    """Files that this try wrote were removed before its commit could name them."""

    uri: str
    files: tuple[str, ...]

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.uri}: {len(self.files)} files of this drain were removed before its commit, {self.files[0]} first: "
            "a VACUUM keeps young files for less time than a drain takes.",
            "this try committed nothing; positions stay as they are.",
            "VACUUM with a longer retention (Delta's default is a week); then drain again",
        )


class TableChangedUnderDrain(Terminal):
    """The table was dropped, or another one lies in its place."""

    uri: str
    planned_id: str
    found_id: str

    def parts(self) -> tuple[str, str, str]:
        found = f"the table there now is {self.found_id}" if self.found_id else "no table is there now"
        return (
            f"{self.uri}: the drain was planned for table {self.planned_id}, and {found}.",
            "this drain committed nothing.",
            "kdi plan, and if it refuses: kdi resolve … adopt",
        )


class WrittenByNewerRelease(Terminal):
    """A ledger entry has a format that this release does not know."""

    app_id: str
    version: int

    what_happened = "ledger {app_id}: commit {version} was written by a newer release."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "pip install --upgrade kdi-assets   (before this table is touched)"


class NotADeltaTable(Terminal):
    """There are files where the table should lie, and they are no Delta table."""

    uri: str

    what_happened = "{uri} holds files, but no Delta table."
    what_is_safe = "nothing was read and nothing was written there."
    what_to_run = "move the files away, or give the stream another `table:` and run `kdi check`"


class CommitUnreadable(Exception):
    """A commit is no longer in the log (cleaned up), its file cannot be parsed, or what it says is ambiguous."""

    def __init__(self, uri: str, version: int, *, gone: bool = False, why: str = "cannot be read") -> None:
        super().__init__(f"{uri}: commit {version} {why}")
        self.version = version
        self.gone = gone
        self.why = why


class RowsUnaccounted(Terminal):
    """Files were written anew, and other rows are missing in them than those that were to go."""

    uri: str
    version: int
    expected: int
    missing: int

    what_happened = (
        "{uri}: {missing:,} rows would go with the files that are written anew, of {expected:,} "
        "that version {version} has of the messages."
    )
    what_is_safe = "nothing was committed; rows and positions stay as they are."
    what_to_run = "kdi audit   (says what lies there); then once more, and if it repeats, report it"


TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"


class LedgerGap(Terminal):
    """Part of the log that decides about the positions is gone or cannot be read."""

    stream: str
    uri: str
    version: int
    why: str

    what_happened = "{stream}: commit {version} of {uri} {why}; the positions are not known."
    what_is_safe = "the rows of the table; nothing is drained until this is decided."
    what_to_run = "kdi resolve {stream} rewind   (proposes the highest offset in the rows, plus one)"


class TransactionRetentionSet(Terminal):
    """The table forgets transaction ids after a while, and with them positions of idle topic partitions."""

    stream: str
    uri: str
    value: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {TRANSACTION_RETENTION} is {self.value!r} on {self.uri}: "
            "idle topic partitions lose their positions.",
            "the rows of the table; nothing is drained until this is mended.",
            f"ALTER TABLE delta.`{self.uri}` UNSET TBLPROPERTIES ('{TRANSACTION_RETENTION}')",
        )


class TableUnreadable(Terminal):
    """The log of a Delta table is damaged, or needs a feature that the reader does not know."""

    uri: str
    detail: str
    spare: tuple[str, ...] = ()

    def parts(self) -> tuple[str, str, str]:
        run = f"ls {self.uri}/_delta_log   (a commit that is cut off or missing comes back from the storage's versions)"
        if self.spare:
            files = " ".join(f"{self.uri}/_delta_log/{name}" for name in self.spare)
            run = f"rm {files}   (the commits are all there, readers go by them until the next checkpoint)"
        return (
            f"{self.uri}: the table's log cannot be read: {self.detail}",
            "nothing was read and nothing was written there.",
            run,
        )


class StorageFailed(Transient):
    """The storage does not answer, or refuses, where a table's log is read."""

    uri: str
    detail: str

    what_happened = "{uri}: the storage of the table's log failed: {detail}"
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = "the same command once more; if it repeats, look at the storage and at its credentials"
