"""Errors of refining: of upstream tables, bookmarks, races and storage; those of rows and SQL are in ``row_errors``."""

from __future__ import annotations

from datetime import date

from kdi_assets.delta.errors import OvertakenCommit
from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.wording import sql_command

MATERIALIZE_AGAIN = "dagster asset materialize   (the same asset again)"
"""What to run for a hand-written asset, which no command of ours computes."""


class UpstreamMissing(Transient):
    """An upstream table does not exist yet."""

    table: str
    upstream: str
    uri: str

    def message_parts(self) -> tuple[str, str, str]:
        run = f"kdi drain {self.upstream}; then kdi refine {self.table}   (or kdi refine it, if it is refined)"
        if self.upstream == self.uri:  # read by an asset of someone's own
            run = f"{MATERIALIZE_AGAIN[:-1]}; first drain or refine the table, or correct its path)"
        return (
            f"{self.table}: its upstream table {self.upstream} does not exist: {self.uri}.",
            "nothing was written; the first refinement after the table exists takes all of its rows.",
            run,
        )


class UpstreamGone(Terminal):
    """An upstream table does not exist, and rows were made of it before."""

    table: str
    upstream: str
    uri: str

    def message_parts(self) -> tuple[str, str, str]:
        run = f"kdi refine {self.table}   (first put the upstream table back, or correct its path in the document; of a"
        run += " new table at this place all rows are computed again, and take the place of those that are here)"
        if self.upstream == self.uri:  # read by an asset of someone's own
            run = f"{MATERIALIZE_AGAIN[:-1]}; first put the upstream table back, or correct its path; of a new table at"
            run += " this place all rows are new)"
        return (
            f"{self.table}: it has rows of its upstream table {self.upstream}, which does not exist: {self.uri}.",
            "nothing was written; the table keeps its rows, and readers have them as before.",
            run,
        )


class AnotherRefinementActive(Transient):
    """Other commits came first too often in a row."""

    table: str
    detail: str
    run: str

    what_happened = (
        "{table}: other commits came first each time, the last one: {detail}. Perhaps another refinement of this table "
        "is active."
    )
    what_is_safe = "this attempt committed nothing; rows and bookmarks are those of the newest commit."
    what_to_run = "{run}"


def another_active(table: str, race: KdiError, *, run: str = "") -> AnotherRefinementActive:
    """The error for the last race that an attempt lost.

    Args:
        run: What to run then; by default the refinement of a document.
    """
    detail = race.message_parts()[0]
    if isinstance(race, OvertakenCommit):
        detail = f"commit {race.version} of {race.uri} ({race.operation})"
    return AnotherRefinementActive(table=table, detail=detail, run=run or f"kdi refine {table}")


class BookmarksUnreadable(Terminal):
    """Commits that decide about the bookmarks cannot be read, or a RESTORE undid all commits of the consumer.

    Attributes:
        by_hand: Whether the consumer is a hand-written asset, which no command computes again.
        undone: The version of the consumer's newest commit, if a RESTORE undid all of them.
    """

    table: str
    uri: str
    version: int
    why: str
    by_hand: bool = False
    undone: int | None = None

    def message_parts(self) -> tuple[str, str, str]:
        run = f"kdi refine {self.table} --rebuild   (refused if rows are frozen: then first {self._instead})"
        if self.by_hand:
            run = f"{MATERIALIZE_AGAIN[:-1]}, once {self.uri} is moved away, and then all others that write there: they"
            run += " make the table of all rows that are upstream)"
        if self.by_hand and self.undone is not None:
            run = sql_command(f"RESTORE TABLE delta.`{self.uri}` TO VERSION AS OF {self.undone}")
            run += f"   (the newest commit of {self.table}; the bookmarks of all assets there go back with their rows)"
        return (
            f"{self.table}: commit {self.version} of {self.uri} {self.why}, so it is unknown what the rows come from.",
            "nothing was written; the upstream tables have all rows.",
            run,
        )

    @property
    def _instead(self) -> str:
        if self.undone is None:
            return f"move {self.uri} away, and the new table has the dates that are not"
        return f"RESTORE {self.uri} to version {self.undone}, its newest commit"


class RefinedByNewerRelease(Terminal):
    """A newer release wrote bookmarks or entries in a format that this one does not know."""

    table: str
    found: object

    what_happened = "{table}: a newer release refined it, in the format {found}, which this release does not know."
    what_is_safe = "nothing was written."
    what_to_run = "pip install --upgrade kdi-assets   (before anything else writes to this table)"


class ChangedByOthers(Terminal):
    """Another writer changed rows of a refined table."""

    table: str
    uri: str
    version: int
    operation: str

    what_happened = "{table}: commit {version} ({operation}) of another writer changed rows of {uri}."
    what_is_safe = "nothing was written; the upstream tables have all rows."
    what_to_run = "kdi refine {table} --rebuild    (computes all rows again; the other writer's change is lost)"


class TableNotRefined(Terminal):
    """The path of a refined table holds rows of another writer, or of a refined table with another path."""

    table: str
    uri: str

    what_happened = (
        "{table}: {uri} has rows, and its log has no bookmark of this name: another writer made the table, or a "
        "document with another path."
    )
    what_is_safe = "nothing was written."
    what_to_run = "kdi refine {table}   (first write another path in the document, named here; or move {uri} away)"


class NoDates(Terminal):
    """Dates were asked for, and the table is not computed date by date."""

    table: str

    what_happened = "{table}: it cannot be computed date by date: its mode or its document has no dates."
    what_is_safe = "nothing was written."
    what_to_run = "kdi refine {table} --rebuild"


class NotByDate(Terminal):
    """A table does not keep all dates, and a table made of it needs them: it is not computed by date, or joins tables.

    Attributes:
        why: ``RefinedTableSpec.needs_other_dates``, or what Spark's plan shows.
        keeps: The table that keeps no dates before ``first``.
    """

    table: str
    why: str
    keeps: str
    first: date | None

    what_happened = (
        "{table}: {keeps} keeps no dates before {first}, and {table} {why}: it reads rows of all dates again, and "
        "would lose what came of those that left."
    )
    what_is_safe = "nothing was written; the table keeps its rows, and readers have them as before."
    what_to_run = (
        "kdi check   (first make it of one table, in a mode that is computed by date, with partition_by: date, and "
        "each row of rows of one date; or of tables that keep all dates. If it has frozen rows, move it away as well: "
        "the new table has the dates that are not)"
    )


class DatesNotKept(Terminal):
    """Frozen rows, whose dates are kept no longer upstream, would have to be computed again."""

    table: str
    uri: str
    why: str
    first: date

    what_happened = (
        "{table}: its rows of dates before {first} are frozen, because what they were made of is kept no longer; they "
        "would have to be computed again: {why}."
    )
    what_is_safe = "nothing was written; the table keeps its rows, and readers have them as before."
    what_to_run = (
        "kdi refine {table}   (first undo the change that is named here; or move {uri} away: the new table has the "
        "dates from {first} on)"
    )


class RefiningFailed(Transient):
    """Spark failed to read or write."""

    table: str
    doing: str
    detail: str

    what_happened = "{table}: {doing} failed: {detail}"
    what_is_safe = "rows and bookmarks are one commit, whole or not at all; the next run starts at the bookmarks."
    what_to_run = "kdi refine {table}    (a hand-written asset: run it again)"


class RefiningForbidden(Terminal):
    """The storage refuses an operation, and will refuse it again: a right is missing, or room."""

    table: str
    doing: str
    detail: str
    needs: str

    what_happened = "{table}: {doing} failed: {detail}"
    what_is_safe = "rows and bookmarks are one commit, whole or not at all; the next run starts at the bookmarks."
    what_to_run = "kdi refine {table}   (once {needs})"


class NotRecomputable(Terminal):
    """A refined table cannot be compared with a recomputation."""

    table: str
    why: str

    what_happened = "{table} cannot be compared with a recomputation: {why}."
    what_is_safe = "nothing was changed."
    what_to_run = "kdi refine {table}; or kdi refine {table} --rebuild   (computes all rows of what is upstream now)"
