"""`kdi plan` of a served table: what the next run would read, or why it is refused."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.follow.serve.status import ServedStatus
from kdi_assets.follow.upstream import ChangeKind, UpstreamChanges
from tests.documents import SERVED, written
from tests.typed import Kdi


def test_a_plan_of_a_served_table_says_what_would_be_read(every_kind: Kdi, lake: str) -> None:
    """Procedure: plan before the first run; serve; plan; rows come; plan again."""
    first = every_kind("plan", "elsewhere_now")
    served = every_kind("serve", "elsewhere_now")
    idle = every_kind("plan", "elsewhere_now")
    rows = {"id": [2], "date": pa.array([date(2026, 1, 2)], pa.date32())}
    write_deltalake(f"{lake}/made/elsewhere", pa.table(rows), mode="append")
    new, in_json = every_kind("plan", "elsewhere_now"), every_kind("plan", "elsewhere_now", "--json")

    assert first.out.endswith("would replace all rows with made/elsewhere v0: its rows are not served yet\n")
    assert served.code == 0, served.err
    assert idle.out == "duckdb/elsewhere_now: nothing to serve; it has made/elsewhere v0\n"
    assert new.out.endswith("would replace all rows with made/elsewhere v1: new rows\n")
    assert in_json.objects[0] | {"error": None} == {
        "served": "duckdb/elsewhere_now",
        "table": "made/elsewhere",
        "new": "appended",
        "why": "new rows",
        "consumed_version": 0,
        "newest_version": 1,
        "dates": [],
        "error": None,
    }


def test_a_plan_says_what_a_run_does_after_a_version_without_new_rows(every_kind: Kdi, lake: str) -> None:
    assert every_kind("serve", "elsewhere_now").code == 0
    rows = {"id": [2], "date": pa.array([date(2026, 1, 1)], pa.date32())}
    write_deltalake(f"{lake}/made/elsewhere", pa.table(rows), mode="append")
    assert every_kind("serve", "elsewhere_now").code == 0
    DeltaTable(f"{lake}/made/elsewhere").optimize.compact()

    answer = every_kind("plan", "elsewhere_now")

    assert answer.out.endswith("would replace all rows with made/elsewhere v2: it has v1, and no row changed since\n")


def test_without_a_name_every_table_is_planned_except_retired_streams(every_kind: Kdi) -> None:
    answer = every_kind("plan", "--json")

    assert [o.get("served") or o["table"] for o in answer.objects] == ["silver/daily", "duckdb/elsewhere_now"]
    assert answer.code == 0, answer.err


def test_a_refusal_of_one_table_is_the_exit_code_and_hides_no_other_plan(every_kind: Kdi, tmp_path: Path) -> None:
    written(tmp_path, none=SERVED.replace("made/elsewhere", "made/nowhere").replace("elsewhere_now", "a"))

    answer = every_kind("plan", "--json")

    refused, planned = (o for o in answer.objects if "served" in o)
    assert answer.code == 75
    assert (refused["served"], planned["served"]) == ("duckdb/a", "duckdb/elsewhere_now")
    assert refused["error"] and not planned["error"]


@pytest.mark.parametrize(
    ("consumed", "changes", "said"),
    [
        (7, "nothing", "nothing to serve; it has t v7"),
        (6, "nothing", "would only record t v7: it has v6, and no row changed since"),
        (6, "appended", "would upsert the rows of 0 added files of t v7"),
    ],
)
def test_a_plan_of_a_table_in_postgres_names_the_version_that_is_meant(
    consumed: int, changes: ChangeKind, said: str, monkeypatch: pytest.MonkeyPatch, every_kind: Kdi
) -> None:
    found = UpstreamChanges("", "t", "", "", consumed, 7, changes)
    of = ServedTableSpec("t", Postgres("t"), ("id",))
    why = "" if changes == "nothing" else "new rows"
    status = ServedStatus(of, consumed, 7, found, why)
    monkeypatch.setattr("kdi_assets.follow.serve.status.read_served_status", lambda *_, **__: status)

    assert every_kind("plan", "elsewhere_now").out.endswith(f": {said}\n")


def test_a_plan_of_a_table_that_is_served_twice_says_both_refusals(every_kind: Kdi, tmp_path: Path) -> None:
    nowhere = SERVED.replace("made/elsewhere", "made/nowhere").replace("elsewhere_now", "twice")
    written(tmp_path, one=nowhere, two=nowhere.replace("x.duckdb, table: twice", "y.duckdb, table: again"))

    answer = every_kind("plan", "made/nowhere")

    assert answer.code == 75
    assert "duckdb/twice" in answer.err and "duckdb/again" in answer.err


def test_a_plan_of_a_served_table_without_its_delta_table_is_a_refusal(every_kind: Kdi, tmp_path: Path) -> None:
    written(tmp_path, copy=SERVED.replace("made/elsewhere", "made/nowhere"))

    answer = every_kind("plan", "elsewhere_now", "--json")

    (refused,) = answer.objects
    assert (answer.code, refused["served"], refused["error"]["type"]) == (75, "duckdb/elsewhere_now", "SourceMissing")
    assert "stream" not in refused
