"""Errors of refining."""

from __future__ import annotations

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
        run = f"kdi refine {self.table} --rebuild"
        if self.by_hand:
            run = f"{MATERIALIZE_AGAIN[:-1]}, once {self.uri} is moved away: it makes the table of all rows)"
        if self.by_hand and self.undone is not None:
            run = sql_command(f"RESTORE TABLE delta.`{self.uri}` TO VERSION AS OF {self.undone}")
            run += f"   (the newest commit of {self.table}; the bookmarks of all assets there go back with their rows)"
        return (
            f"{self.table}: commit {self.version} of {self.uri} {self.why}, so it is unknown what the rows come from.",
            "nothing was written; the upstream tables have all rows.",
            run,
        )


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
    """The path of a refined table holds rows of another writer."""

    table: str
    uri: str

    what_happened = "{table}: {uri} has rows, and its log has no bookmark: another writer made the table."
    what_is_safe = "nothing was written."
    what_to_run = "kdi refine {table}   (first write another path in the document, named here; or move {uri} away)"


class RowsNotOneByOne(Terminal):
    """The rows of the result do not each come from one row of the upstream table."""

    table: str
    mode: str
    found: str

    what_happened = (
        "{table}: mode {mode} takes new rows one by one, and sql has {found}, whose result depends on other rows."
    )
    what_is_safe = "nothing was written."
    what_to_run = "kdi check   (with mode: replace_dates or aggregate in the document, or with sql without it)"


class DateNotKept(Terminal):
    """The date of a row is not that of its upstream row."""

    table: str
    mode: str

    what_happened = (
        "{table}: mode {mode} needs the column date of the upstream table as it is, so that a change of one date "
        "upstream changes the same date only; sql computes another one, or has none."
    )
    what_is_safe = "nothing was written."
    what_to_run = "kdi check   (with the upstream date selected in sql, or with partition_by: null in the document)"


class QueryMistake(Terminal):
    """The document's SQL or function does not work."""

    table: str
    field: str
    detail: str

    what_happened = "{table}: {field} does not work: {detail}"
    what_is_safe = "nothing was written."
    what_to_run = "kdi check"


class RowsUnmet(Terminal):
    """New rows do not meet an expectation that stops the run."""

    table: str
    expectation: str
    rows: int

    what_happened = "{table}: {rows:,} new rows do not meet the expectation {expectation}."
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = "kdi refine {table}   (first correct sql or the expectation in the document)"


class ColumnsFrozen(Terminal):
    """The rows have other columns than the table, and its contract does not allow that.

    Attributes:
        rule: The field of ``contract``.
        found: The columns, and how they differ.
    """

    table: str
    rule: str
    found: str

    what_happened = "{table}: its rows would have other columns: {found}. `contract.{rule}` is freeze."
    what_is_safe = (
        "nothing was committed; the next refinement reads the same rows again, and readers have the columns as before."
    )
    what_to_run = "kdi refine {table}   (first correct sql, or set `contract.{rule}` to evolve in the document)"


class DatesMoved(Terminal):
    """Rows of the dates that changed upstream become rows of other dates, which are not computed again."""

    table: str
    rows: int
    example: str

    what_happened = (
        "{table}: mode replace_dates computes the dates again that changed upstream, and {rows:,} rows made of these "
        "have another date, such as {example}: there the rows would be wrong."
    )
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = (
        "kdi refine {table}   (first take `date` in sql from the upstream table as it is, and a local day "
        "(from_utc_timestamp) into a column of its own); or kdi refine {table} --rebuild   (once, as it is)"
    )


class NoDates(Terminal):
    """Dates were asked for, and the table is not computed date by date."""

    table: str

    what_happened = "{table}: it cannot be computed date by date: its mode or its document has no dates."
    what_is_safe = "nothing was written."
    what_to_run = "kdi refine {table} --rebuild"


class NullKeys(Terminal):
    """Changes have no keys."""

    table: str
    rows: int

    what_happened = (
        "{table}: {rows:,} new rows have a null key or sequence, so it is unknown what they change. In a Debezium "
        "envelope that is a truncation (op t), or a delete whose `before` has no keys."
    )
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = "kdi refine {table}   (first leave them out by a WHERE in sql, or name other keys)"


class OrderUnknown(Terminal):
    """Of two changes of one key it is unknown which is newer.

    Attributes:
        example: Keys, place in Kafka and sequence of one of them, as JSON.
    """

    table: str
    example: str

    what_happened = (
        "{table}: of some changes of one key nothing says which is newer: they have the same sequence and lie in "
        "different topic partitions, or, without `sequence_by`, their key is in several topic partitions. "
        "One of them: {example}"
    )
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = (
        "kdi refine {table}   (first set `sequence_by` in the document to what the source counts, such as "
        "source.lsn, or to more of it; rows that sql selects need the column kafka or kinesis)"
    )


class SequenceOfTwoTopics(Terminal):
    """Changes are ordered by their offsets, and the topic was made again: its offsets began again."""

    table: str
    upstream: str

    what_happened = (
        "{table}: the rows of {upstream} come from two topics of one name, and without `sequence_by` their offsets say "
        "which change is newer: those of the new topic began again, so older changes would win."
    )
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = (
        "kdi refine {table}   (first set `sequence_by` in the document to what the source counts, such as "
        "source.lsn or struct(kafka.timestamp, kafka.offset))"
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


class RowsNotComputable(Terminal):
    """Spark cannot compute the rows: an expression does not fit the columns, or a value."""

    table: str
    doing: str
    detail: str

    what_happened = "{table}: {doing} failed, and will fail again: {detail}"
    what_is_safe = "nothing was committed; the rows upstream stay to be refined."
    what_to_run = (
        "kdi refine {table}   (first mend the SQL, e.g. try_cast, a WHERE, a name by AS; a hand-written asset: run"
        " it again)"
    )


class ConstraintViolated(Terminal):
    """A constraint of the refined table does not hold for a row."""

    table: str
    detail: str

    what_happened = "{table}: the table refuses a row: {detail}"
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = "kdi refine {table}   (first leave such rows out by a WHERE in sql, or drop the constraint)"


class TimeOutOfRange(Terminal):
    """A date or timestamp of a row is outside of the years 1 to 9999, and most readers of the table would fail."""

    table: str
    column: str

    what_happened = (
        "{table}: a new row has a date or timestamp outside of the years 1 to 9999 in the column {column}: pandas, "
        "DuckDB and others could not read the table."
    )
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = (
        "kdi refine {table}   (first leave such values out in sql: IF({column} BETWEEN '0001-01-01' AND '9999-12-31', "
        "{column}, NULL))"
    )


class NameOfOurColumn(Terminal):
    """The rows have a column with the name of one that the mode makes."""

    table: str
    column: str

    what_happened = "{table}: the rows have a column {column}, and mode upsert makes a column of this name."
    what_is_safe = "nothing was written."
    what_to_run = "kdi check   (with another name for it in sql, or with `column_list` without it in the document)"


class NotRecomputable(Terminal):
    """A refined table cannot be compared with a recomputation."""

    table: str
    why: str

    what_happened = "{table} cannot be compared with a recomputation: {why}."
    what_is_safe = "nothing was changed."
    what_to_run = "kdi refine {table}; or kdi refine {table} --rebuild   (computes all rows of what is upstream now)"
