"""Errors of commits of hand-written assets."""

from __future__ import annotations

from kdi_assets.errors import Terminal


class OtherColumns(Terminal):
    """Rows of a hand-written asset do not have the columns of its table."""

    table: str
    found: str

    what_happened = "{table}: the rows have other columns than its table: {found}."
    what_is_safe = "nothing was committed; rows and bookmark are as before."
    what_to_run = (
        "dagster asset materialize   (with the table's columns; or by replace_everything() with all rows, which "
        "changes the columns)"
    )


class NotPartitionedByDate(Terminal):
    """Dates of a table were to be replaced, and it has no partitions by date."""

    table: str
    uri: str

    what_happened = "{table}: {uri} is not partitioned by date, so the rows of a date cannot be replaced."
    what_is_safe = "nothing was committed; rows and bookmark are as before."
    what_to_run = "dagster asset materialize   (with replace_everything(), or with a table that is partitioned by date)"


class RowsAppendedAgain(Terminal):
    """All rows of an upstream table were to be appended, and the asset has committed before."""

    table: str
    upstream: str

    what_happened = (
        "{table}: what is new in {upstream} is unknown, so these are all of its rows, and the asset has committed "
        "rows before: they would be there twice."
    )
    what_is_safe = "nothing was committed; rows and bookmark are as before."
    what_to_run = (
        "dagster asset materialize   (with replace_everything() if `kind` is everything; an asset that reads several "
        "tables needs a consumer for each)"
    )


class RowsOfOtherConsumer(Terminal):
    """Rows of a table were to be replaced, and another consumer has rows in it."""

    table: str
    other: str

    what_happened = "{table}: the consumer {other} has rows in the same table, and they would be replaced too."
    what_is_safe = "nothing was committed; rows and bookmarks are as before."
    what_to_run = (
        "dagster asset materialize   (with append(); with a table of its own for each upstream table; or, if the "
        "consumer was renamed, with its old name)"
    )


class RowsOfOtherDates(Terminal):
    """Rows that replace those of some dates lie on others."""

    table: str
    rows: int

    what_happened = "{table}: {rows:,} rows have another date than those whose rows they replace, or none."
    what_is_safe = "nothing was committed; rows and bookmark are as before."
    what_to_run = "dagster asset materialize   (with a filter on the dates, or with all dates of its rows)"
