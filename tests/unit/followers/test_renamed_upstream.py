"""Tables made of a table whose document was renamed, with its folders: what was consumed stays consumed."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from kdi_assets.documents.model.refined_modes import ReplaceDates
from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.follow.refine.plan import plan_refinement
from kdi_assets.follow.refine.upstream_bookmarks import bookmark_transactions
from kdi_assets.follow.serve.serve import serve
from kdi_assets.follow.serve.status import read_served_status
from tests.refined import COPY

ROW = pa.table({"id": [1], "date": [date(2026, 1, 1)]})
RENAMED = replace(COPY, upstreams=(Upstream("bronze/renamed", "events"),))
JOINED = replace(
    COPY, upstreams=(Upstream("bronze/events", "one"), Upstream("bronze/other", "two")), mode=ReplaceDates()
)
SWAPPED = replace(JOINED, upstreams=(Upstream("bronze/events", "two"), Upstream("bronze/other", "one")))
SERVED = ServedTableSpec("bronze/events", DuckDb("x.duckdb", "events"), ("id",))


def no_spark() -> Any:
    raise AssertionError("Spark was asked for")


def refined(table: RefinedTableSpec, lake: Path, *, older_release: bool = False) -> None:
    """Upstream tables, and the table as a refinement leaves it; an older release recorded the paths alone."""
    for upstream in table.upstreams:
        write_deltalake(lake / upstream.table, ROW)
    plan = plan_refinement(table, str(lake))
    digests = plan.definitions[:1] if older_release else plan.definitions
    made = bookmark_transactions(table.name, plan.consumed, 0, definitions=digests)
    properties = CommitProperties(app_transactions=[Transaction(*each) for each in made.items()])
    write_deltalake(lake / table.table, ROW, partition_by=["date"], commit_properties=properties)


def test_a_refined_table_goes_on_after_its_upstream_table_was_renamed(tmp_path: Path) -> None:
    refined(COPY, tmp_path)
    (tmp_path / "bronze/events").rename(tmp_path / "bronze/renamed")
    write_deltalake(tmp_path / "bronze/renamed", ROW, mode="append")

    plan = plan_refinement(RENAMED, str(tmp_path))

    assert (plan.kind, [u.since for u in plan.upstreams]) == ("changes", [0])


def test_rows_of_another_upstream_table_are_computed_again(tmp_path: Path) -> None:
    """Also if it has the name of the former one; a renamed one of which only the path was recorded is another one."""
    refined(COPY, tmp_path)
    write_deltalake(tmp_path / "bronze/renamed", ROW)
    other = plan_refinement(RENAMED, str(tmp_path))
    (tmp_path / "bronze/events").rename(tmp_path / "bronze/former")
    (tmp_path / "bronze/renamed").rename(tmp_path / "bronze/events")
    replaced = plan_refinement(COPY, str(tmp_path))

    assert (other.kind, other.why) == ("rebuild", "the document computes other rows than before")
    assert (replaced.kind, replaced.why[:14]) == ("rebuild", "bronze/events:")


def test_two_upstream_tables_that_change_their_names_in_sql_make_other_rows(tmp_path: Path) -> None:
    refined(JOINED, tmp_path)

    assert plan_refinement(JOINED, str(tmp_path)).kind == "nothing"
    assert plan_refinement(SWAPPED, str(tmp_path)).why == "the document computes other rows than before"


def test_tables_of_an_older_release_are_not_computed_again(tmp_path: Path) -> None:
    refined(COPY, tmp_path, older_release=True)

    assert plan_refinement(COPY, str(tmp_path)).kind == "nothing"


@pytest.mark.parametrize(("keys", "kind"), [(("id",), "nothing"), (("id", "date"), "load")])
def test_a_served_table_goes_on_after_its_delta_table_was_renamed(
    tmp_path: Path, keys: tuple[str, ...], kind: str
) -> None:
    """With other keys it is loaded again."""
    given: dict[str, Any] = {"lake": str(tmp_path), "home": tmp_path}
    write_deltalake(tmp_path / "bronze/events", ROW)
    serve(SERVED, session=no_spark, **given)
    (tmp_path / "bronze/events").rename(tmp_path / "bronze/renamed")
    renamed = replace(SERVED, table="bronze/renamed", keys=keys)

    status = read_served_status(renamed, **given)
    report = serve(renamed, session=no_spark, **given)

    assert (status.same_definition, report.kind) == (kind == "nothing", kind)
    assert not read_served_status(renamed, **given).is_behind
