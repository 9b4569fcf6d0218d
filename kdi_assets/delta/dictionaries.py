"""Dictionaries in the files of a table: which columns have one, and how a write leaves them out.

Parquet collects the values of a column in a dictionary, and gives it up after the first page, which has up to 20,000
rows, if it does not make the page smaller. Until then each value is hashed and copied; for identifiers, in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kdi_assets.delta.errors import CommitUnreadable, StorageFailed
from kdi_assets.delta.storage import table_file_system

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

    from kdi_assets.delta.log import TableLog

LEAST_VALUES = 1_000
"""Fewer values, nulls not counted, do not show whether they repeat."""


def without_dictionary(columns: Iterable[str]) -> dict[str, str]:
    """Settings of a session with which Spark writes these columns without a dictionary.

    Delta passes no option of a single write to Parquet; a session's settings go with the tasks to the executors.

    Args:
        columns: Their paths in Parquet's schema, ``a.b``; a path that a file does not have changes nothing.
    """
    return {f"parquet.enable.dictionary#{column}": "false" for column in sorted(columns)}


def columns_without_dictionary(log: TableLog, version: int) -> frozenset[str]:
    """The columns for which a commit of a drain kept no dictionary, by the footer of its largest file.

    Returns:
        Paths in Parquet's schema; empty if commit or file cannot be read: a drain goes on without them.
    """
    try:
        adds = [action["add"] for action in log.actions(version) if "add" in action]
    except (CommitUnreadable, StorageFailed):
        return frozenset()
    if not adds:
        return frozenset()
    largest = max(adds, key=lambda add: int(add["size"]))
    footer = _footer(log.uri, unquote(largest["path"]))
    return frozenset() if footer is None else frozenset(_without(footer))


def _footer(uri: str, path: str) -> FileMetaData | None:
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import read_metadata

    try:
        return read_metadata(path, filesystem=table_file_system(uri))
    except (OSError, ArrowInvalid):  # removed since, or damaged
        return None


def _without(footer: FileMetaData) -> Collection[str]:
    """Of the first row group, which is the only one of most files."""
    if not footer.num_row_groups:
        return ()
    group = footer.row_group(0)
    columns = (group.column(i) for i in range(group.num_columns))
    return [
        c.path_in_schema
        for c in columns
        if not c.has_dictionary_page
        and c.statistics is not None
        and c.statistics.has_null_count
        and c.num_values - c.statistics.null_count >= LEAST_VALUES
    ]
