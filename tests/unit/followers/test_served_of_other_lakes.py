"""A served table's rows come from one lake: with the rows of another environment nothing is replaced by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.follow.serve.errors import ServedFromElsewhere
from kdi_assets.follow.serve.serve import serve
from kdi_assets.follow.serve.status import read_served_status

SERVED = ServedTableSpec("gold/usage", DuckDb(file="usage.duckdb", table="usage"), keys=("id",))


def _no_session() -> NoReturn:
    raise AssertionError("a DuckDB file needs no Spark")


def _serve(home: Path, lake: Path, *, rebuild: bool = False) -> str:
    return serve(SERVED, lake=str(lake), session=_no_session, home=home, rebuild=rebuild).kind


def _rows(home: Path) -> list[tuple[int, str]]:
    with duckdb.connect(str(home / "usage.duckdb"), read_only=True) as connection:
        return connection.execute("FROM usage").fetchall()


@pytest.fixture
def lakes(tmp_path: Path) -> tuple[Path, Path]:
    """Two environments with a table at one path."""
    for name in ("staging", "production"):
        write_deltalake(tmp_path / name / "gold/usage", pa.table({"id": [1], "of": [name]}))
    return tmp_path / "staging", tmp_path / "production"


def test_rows_of_another_environment_are_replaced_by_a_rebuild_only(lakes: tuple[Path, Path], tmp_path: Path) -> None:
    """Procedure: two lakes share KDI_HOME; one serves, then the other, then the other rebuilds, then the first one."""
    staging, production = lakes
    assert _serve(tmp_path, production) == "load"

    with pytest.raises(ServedFromElsewhere) as refused:
        _serve(tmp_path, staging)
    seen = read_served_status(SERVED, lake=str(staging), home=tmp_path)
    kept = _rows(tmp_path)
    rebuilt = _serve(tmp_path, staging, rebuild=True)

    assert f"{production}/gold/usage" in str(refused.value) and f"{staging}/gold/usage" in str(refused.value)
    assert "kdi serve duckdb/usage --rebuild" in str(refused.value)
    assert isinstance(seen.refusal, ServedFromElsewhere), "so status, plan, metrics and the sensor say it"
    assert (kept, rebuilt, _rows(tmp_path)) == ([(1, "production")], "load", [(1, "staging")])
    with pytest.raises(ServedFromElsewhere):
        _serve(tmp_path, production)


def test_a_table_that_moved_or_was_replaced_at_its_place_is_served_as_before(
    lakes: tuple[Path, Path], tmp_path: Path
) -> None:
    _serve(tmp_path, lakes[0])
    moved = lakes[0].rename(tmp_path / "moved")
    assert _serve(tmp_path, moved) == "nothing"
    write_deltalake(moved / "gold/usage", pa.table({"id": [2], "of": ["moved"]}), mode="append")
    assert _serve(tmp_path, moved) == "load"

    (moved / "gold/usage").rename(tmp_path / "gone")
    write_deltalake(moved / "gold/usage", pa.table({"id": [1], "of": ["new"]}))

    assert _serve(tmp_path, moved) == "load"
    assert _rows(tmp_path) == [(1, "new")]


def test_a_document_that_names_another_table_serves_it(lakes: tuple[Path, Path], tmp_path: Path) -> None:
    """Renamed and computed from nothing, or a table in its place."""
    _serve(tmp_path, lakes[0])
    write_deltalake(lakes[0] / "gold/usage_v2", pa.table({"id": [1], "of": ["v2"]}))
    renamed = replace(SERVED, table="gold/usage_v2")

    assert serve(renamed, lake=str(lakes[0]), session=_no_session, home=tmp_path).kind == "load"
    assert _rows(tmp_path) == [(1, "v2")]


def test_a_file_of_an_older_release_goes_on_and_says_its_lake_after_the_next_version(
    lakes: tuple[Path, Path], tmp_path: Path
) -> None:
    """Older releases recorded the table's path without the lake."""
    staging, production = lakes
    _serve(tmp_path, staging)
    with duckdb.connect(str(tmp_path / "usage.duckdb")) as connection:
        connection.execute("UPDATE kdi_served SET source = 'gold/usage'")

    assert _serve(tmp_path, staging) == "nothing"
    write_deltalake(staging / "gold/usage", pa.table({"id": [2], "of": ["staging"]}), mode="append")
    assert _serve(tmp_path, staging) == "load"
    with pytest.raises(ServedFromElsewhere):
        _serve(tmp_path, production)
