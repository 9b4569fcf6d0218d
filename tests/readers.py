"""Other people's readers over the tables that tests make: delta-rs, pandas and DuckDB."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

MOST_BYTES = 20 * 2**20
"""Tables with more data are read by tests of their own."""


def by_duckdb(uri: str, columns: str = "*") -> pa.Table:
    """A table's rows as DuckDB reads them, in the order of their values."""
    import duckdb

    spec = importlib.util.find_spec("duckdb_extension_delta")
    assert spec is not None and spec.submodule_search_locations
    (extension,) = Path(spec.submodule_search_locations[0]).rglob("delta.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        read = connection.execute(f"SELECT {columns} FROM delta_scan('{uri}') ORDER BY ALL")
        found: pa.Table = read.arrow().read_all()
    return found


def assert_others_read_tables_of(lake: Path) -> None:
    """Each table of a lake is read by delta-rs, into pandas, and by DuckDB, with as many rows.

    This is about values. A table that a reader does not open, or whose files are gone, is one that its test has
    damaged, or that has a feature of Delta which the reader does not know.
    """
    import duckdb
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    for folder in tables_of(lake):
        try:
            table = DeltaTable(str(folder))
            rows = table.to_pyarrow_table()
            if rows.nbytes > MOST_BYTES or "variantType" in (table.protocol().reader_features or ()):
                continue
            in_duckdb = by_duckdb(str(folder))
        except (DeltaError, OSError, duckdb.IOException, duckdb.NotImplementedException):
            continue
        except pa.ArrowInvalid as invalid:
            if "Could not open Parquet" not in str(invalid):
                raise
            continue
        # Flat, because Python has no time of the year 58,851, which a message of Kafka may have; pandas has.
        while any(map(pa.types.is_struct, rows.schema.types)):
            rows = rows.flatten()
        assert len(rows.to_pandas()) == len(in_duckdb) == len(rows), folder


def tables_of(lake: Path) -> Iterator[Path]:
    """The folders of the tables of a lake."""
    return (log.parent for log in sorted(lake.rglob("_delta_log")) if log.is_dir())
