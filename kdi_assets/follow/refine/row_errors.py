"""Errors of the rows that a refinement makes, and of the SQL, mode or contract that does not fit them."""

from __future__ import annotations

from kdi_assets.errors import Terminal, Transient


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


class UndatedRowsChanged(Terminal):
    """Rows without a date are others than before, and only rows of dates are replaced."""

    table: str

    what_happened = (
        "{table}: its rows without a date are others than before, and mode replace_dates replaces rows by their dates."
    )
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = (
        "kdi refine {table}   (first give each row a date in sql, such as coalesce(a.date, b.date), or leave such rows"
        " out; or set partition_by: null, by which each run computes all rows)"
    )


class NullKeys(Terminal):
    """Changes have no keys, or no sequence."""

    table: str
    rows: int

    what_happened = (
        "{table}: {rows:,} new rows have a null key or sequence, so it is unknown what they change. In a Debezium "
        "envelope that is a truncation (op t), or a delete whose `before` has no keys."
    )
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = (
        "kdi refine {table}   (first leave them out by a WHERE in sql, name other keys, or say by coalesce in "
        "`sequence_by` where a null belongs)"
    )


class OrderUnknown(Terminal):
    """Of two changes of one key it is unknown which is newer.

    Attributes:
        example: Keys, place in Kafka and sequence of one of them, as JSON.
    """

    table: str
    example: str

    what_happened = (
        "{table}: of some changes of one key nothing says which is newer: they have the same sequence and lie in "
        "different topic partitions, or in one message whose rows have no number; or, without `sequence_by`, their key "
        "is in several topic partitions. One of them: {example}"
    )
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = (
        "kdi refine {table}   (first set `sequence_by` in the document to what the source counts, such as "
        "source.lsn, or to more of it; rows that sql selects need the column kafka or kinesis, and those that it makes "
        "of one message a field `index` in it, as posexplode gives it)"
    )


class SequenceOfTwoTopics(Terminal):
    """Rows are ordered by their offsets, and the topic was made again: its offsets began again.

    Attributes:
        field: Of the mode, with the order.
    """

    table: str
    upstream: str
    field: str = "sequence_by"

    what_happened = (
        "{table}: the rows of {upstream} come from two topics of one name, and they are ordered by their offsets, as "
        "`{field}` says or by default: those of the new topic began again, so older rows would count as newer ones."
    )
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = (
        "kdi refine {table}   (first set `{field}` in the document to what the source counts, such as "
        "source.lsn or struct(kafka.timestamp, kafka.offset). If it has frozen rows, move it away as well: the new "
        "table has the dates that are not)"
    )


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


class TextNotUtf8(Terminal):
    """A text of a row, made of bytes, is not UTF-8, and most readers of the table would fail."""

    table: str
    column: str

    what_happened = (
        "{table}: a new row has text that is not UTF-8 in the column {column}, made of bytes: pandas, DuckDB and "
        "others could not read the table."
    )
    what_is_safe = "nothing was committed; the next refinement reads the same rows again."
    what_to_run = (
        "kdi refine {table}   (first change how sql casts bytes to text: try_validate_utf8(CAST(key AS STRING)) is "
        "null for such bytes, and base64(key) keeps them. If it has frozen rows, move it away as well: the new table "
        "has the dates that are not)"
    )


class NameOfOurColumn(Terminal):
    """The rows have a column with the name of one that the mode makes."""

    table: str
    column: str

    what_happened = "{table}: the rows have a column {column}, and mode upsert makes a column of this name."
    what_is_safe = "nothing was written."
    what_to_run = "kdi check   (with another name for it in sql, or with `column_list` without it in the document)"


class RowsMiscounted(Transient):
    """Files of a table were written again, and have other rows than the old ones and the changes make."""

    table: str
    uri: str
    expected: int
    found: int

    what_happened = "{table}: rewritten files have {found:,} rows; the old ones with the changes make {expected:,}."
    what_is_safe = "nothing was committed; rows and bookmarks are as before."
    what_to_run = (
        "kdi refine {table}; or kdi sql 'SELECT KEYS, count(*) FROM delta.`{uri}` GROUP BY KEYS HAVING count(*) > 1'   "
        "(if it happens again, with the key columns in place of KEYS: if keys have several rows, kdi refine {table} "
        "--rebuild makes one of them; if none has, report it)"
    )
