"""`kdi doctor` of tables that follow others."""

from __future__ import annotations

from pathlib import Path

from kdi_assets.documents.model.capabilities import TableKind
from tests.documents import SERVED, refined, written
from tests.typed import Kdi


def test_the_doctor_examines_tables_that_follow(every_kind: Kdi, tmp_path: Path) -> None:
    """Purpose: a database or a topic that does not answer is found before a run fails.
    Pass: a table that can be read is ok, one without its upstream table is a warning, one whose file is no database is
    wrong; of a stream that is not asked for nothing is examined.
    """
    broken = SERVED.replace("elsewhere_now", "broken").replace("x.duckdb", "y.duckdb")
    written(tmp_path, gone=refined("silver/gone", upstream="made/nowhere"), broken=broken)
    (tmp_path / "y.duckdb").write_text("this is no database")

    answer = every_kind("doctor", "silver/daily", "silver/gone", "elsewhere_now", "duckdb/broken", "--json")

    found = {one["of"]: one for one in answer.objects if one["examination"] in list(TableKind)}
    assert {of: one["verdict"] for of, one in found.items()} == {
        "silver/daily": "ok",
        "silver/gone": "warning",
        "duckdb/elsewhere_now": "ok",
        "duckdb/broken": "wrong",
    }
    assert (found["silver/daily"]["found"], found["silver/gone"]["found"]) == ("1 version behind", "upstream missing")
    assert found["duckdb/broken"]["error"]["happened"]
    assert not [one for one in answer.objects if one["examination"] in ("brokers", "stream", "rights")]


def test_the_doctor_does_not_start_the_embedded_server(every_kind: Kdi, tmp_path: Path) -> None:
    written(tmp_path, copy=SERVED.replace("duckdb: {file: x.duckdb, table", "postgres: {table"))

    answer = every_kind("doctor", "elsewhere_now", "--json")

    (served,) = [one for one in answer.objects if one["examination"] == "served"]
    assert served["verdict"] == "ok" and "does not run" in served["found"]
    assert not (tmp_path / "postgres").exists()
