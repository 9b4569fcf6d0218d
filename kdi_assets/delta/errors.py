"""Errors of Delta tables, their logs and their storage."""

from __future__ import annotations

from kdi_assets.delta.lost_races import COMMIT_ATTEMPTS
from kdi_assets.errors import AGAIN, Terminal, Transient
from kdi_assets.wording import moving_commands, removing_command, storage_command


class TableBusy(Transient):
    """Other writers committed to the table first, too often in a row."""

    uri: str
    version: int

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.uri}: other writers committed first {COMMIT_ATTEMPTS} times in a row, up to version "
            f"{self.version}; their commits do not conflict with this one.",
            "this attempt committed nothing; its files and dead letters do not count.",
            f"{AGAIN}   (if it repeats, kdi history shows who writes to the table)",
        )


class OvertakenCommit(Transient):
    """Another commit came first, and conflicts with the plan."""

    uri: str
    version: int
    operation: str

    what_happened = "{uri}: commit {version} ({operation}) came between plan and commit."
    what_is_safe = "this attempt committed nothing; its files and dead letters do not count."
    what_to_run = "the same command again   (a drain plans again by itself)"


class StagedFilesGone(Transient):
    """Files that this attempt wrote are missing before its commit."""

    uri: str
    files: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.uri}: {len(self.files)} new files are missing before their commit, {self.files[0]} first: "
            "a VACUUM keeps new files for less time than a run takes, or an executor writes to a disk of its own.",
            "this attempt committed nothing; positions and bookmarks stay as they are.",
            f"{AGAIN}   (first let VACUUM keep files for longer, by default a week, or give every machine the lake)",
        )


class TableNotMoved(Terminal):
    """The document has another name or root than before, and its table is still at the former place.

    Attributes:
        beside: How the names of the tables end that are there beside it, such as ``_dead_letters``.
    """

    table: str
    former: str
    uri: str
    beside: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        """With the commands of the storage that move the tables.

        The table itself is the last one: as long as it is at the old place, it is refused.
        """
        moves = [(self.former + end, self.uri + end) for end in (*self.beside, "")]
        return (
            f"{self.table}: the table is still at {self.former} and not at {self.uri}, where it would start over.",
            "the table; nothing was read and nothing was written.",
            "; then ".join(moving_commands(moves)),
        )


class PlannedTableGone(Terminal):
    """The table that a commit was planned for was dropped, or replaced by another one."""

    uri: str
    planned_id: str
    found_id: str

    def message_parts(self) -> tuple[str, str, str]:
        found = f"the table there now is {self.found_id}" if self.found_id else "no table is there now"
        return (
            f"{self.uri}: the commit was planned for table {self.planned_id}, and {found}.",
            "nothing was committed.",
            f"{AGAIN}   (if it is refused again, kdi plan of the table names the decision)",
        )


class NotADeltaTable(Terminal):
    """The table's folder holds files, but no Delta table."""

    uri: str

    what_happened = "{uri} holds files, but no Delta table."
    what_is_safe = "nothing was read and nothing was written there."
    what_to_run = "kdi check   (first move the files away, or give the stream another `table:`)"


class CommitUnreadable(Exception):
    """A commit is no longer in the log, its file cannot be parsed, or its content is ambiguous.

    Attributes:
        gone: Whether the commit's file is not there.
    """

    def __init__(self, uri: str, version: int, *, gone: bool = False, why: str = "cannot be read") -> None:
        super().__init__(f"{uri}: commit {version} {why}")
        self.version = version
        self.gone = gone
        self.why = why


class RestoredToBefore(CommitUnreadable):
    """The table was restored to a version that is older than the first commit of a writer."""

    def __init__(self, uri: str, version: int, first: str) -> None:
        super().__init__(uri, version, why=f"is older than {first}, and the table was restored to it")


class TableUnreadable(Terminal):
    """The log of a Delta table is damaged, or uses a feature that the reader does not support.

    Attributes:
        spare: Name patterns of log files that can be removed to make the log readable.
    """

    uri: str
    detail: str
    spare: tuple[str, ...] = ()

    def message_parts(self) -> tuple[str, str, str]:
        run = storage_command("ls", f"{self.uri}/_delta_log/")
        run += "   (restore a truncated or missing commit from the storage's older versions)"
        if self.spare:
            run = removing_command(f"{self.uri}/_delta_log", self.spare)
            run += "   (all commits are there; readers use them until the next checkpoint)"
        return (
            f"{self.uri}: the table's log cannot be read: {self.detail}",
            "nothing was read and nothing was written there.",
            run,
        )


def unreadable_commit(uri: str, commit: CommitUnreadable) -> TableUnreadable:
    """The error for a commit whose file is there, and is not whole."""
    return TableUnreadable(uri=uri, detail=f"commit {commit.version} {commit.why}")


class StorageFailed(Transient):
    """The storage fails or refuses while a table's log is read."""

    uri: str
    detail: str

    what_happened = "{uri}: the storage of the table's log failed: {detail}"
    what_is_safe = "to read a log changes nothing; what was committed before stays committed."
    what_to_run = "the same command again   (if it repeats, kdi doctor shows what is wrong with it)"


class StorageRefused(Terminal):
    """The storage refuses an operation that a drain needs.

    Attributes:
        way_out: What to do about it, if the storage's answer shows the cause.
    """

    lake: str
    action: str
    detail: str
    way_out: str = ""

    def message_parts(self) -> tuple[str, str, str]:
        way_out = self.way_out or "correct KDI_LAKE, the credentials, or our rights there"
        return (
            f"{self.lake}: the storage refuses to {self.action} an object: {self.detail}",
            "no table was touched; positions stay as they are.",
            f"kdi doctor   (first {way_out})",
        )


class StorageUnanswered(Transient):
    """The storage is not reachable, or too busy."""

    lake: str
    detail: str

    what_happened = "{lake}: the storage does not answer: {detail}"
    what_is_safe = "no table was touched; positions stay as they are."
    what_to_run = "kdi doctor    (if it repeats, look at the storage, its address and the network between)"


class PutIfAbsentMissing(Terminal):
    """Of two writers that created the same object, not exactly one succeeded."""

    lake: str
    created: int
    detail: str = ""

    what_happened = "{lake}: of two writers that created one object, {created} succeeded{detail}."
    what_is_safe = "no table was touched; here, two writers would overwrite each other's commits."
    what_to_run = "kdi doctor   (first use a storage with conditional put; docs/object-storage.md lists some)"


KNOWN_DELTA = ("4.4.0",)
"""Delta versions that the commit adapter was tested with."""


class UnknownDelta(Terminal):
    """The commit adapter was not tested with the session's version of Delta."""

    found: str

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"Delta {self.found} is loaded; the commit adapter knows {', '.join(KNOWN_DELTA)}.",
            "nothing was written.",
            "kdi jars   (fetches the locked versions)",
        )
