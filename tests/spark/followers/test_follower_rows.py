"""How far refined and served tables are behind, as `kdi status`, metrics and alerts have it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from kdi_assets.documents.model.served_table import DuckDb, Postgres, ServedTableSpec
from kdi_assets.follow.serve.postgres.embedded import FOLDER, start_postgres
from kdi_assets.follow.serve.serve import serve
from kdi_assets.operate.monitoring.follower_rows import read_follower_rows, watched_tables
from kdi_assets.operate.monitoring.status_row import freshness_level
from tests.refined import Lakeside, refined_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = date(2026, 1, 1)
COPY = refined_table(
    **{"table": "silver/copy", "from": "bronze/events", "freshness": {"warn": "1 hour", "fail": "6 hours"}}
)


def test_a_table_waits_for_rows_and_not_for_compactions(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    """Procedure: refine and serve; compact both Delta tables; an hour later new rows come, and are refined.
    Pass: nothing waits after the compactions; then one version waits for its age, first in the lake, then for the
    database.
    """
    lakeside, served = Lakeside(spark, lake), ServedTableSpec(COPY.table, DuckDb("x.duckdb", "copy"), ("id",))
    later = datetime.now(UTC) + timedelta(hours=1)

    def behind() -> list[tuple[int | None, float | None]]:
        states = read_follower_rows([COPY, served], lake=lake, home=tmp_path, now=later)
        return [(s.behind, s.waiting_seconds and round(s.waiting_seconds / 600)) for s in states]

    for n in range(2):
        lakeside.append([(n, "a", n, "i", DAY)])
        lakeside.refine(COPY)
    unserved = behind()
    serve(served, lake=lake, session=lambda: spark, home=tmp_path)
    lakeside.sql("OPTIMIZE {t}")
    lakeside.sql("OPTIMIZE {t}", COPY.table)
    compacted = behind()
    lakeside.append([(5, "a", 5, "i", DAY)])
    waiting = behind()
    lakeside.refine(COPY)
    refined = behind()

    assert unserved == [(0, 0), (3, None)]
    assert compacted == [(0, 0), (0, 0)]
    assert waiting == [(2, 6), (0, 0)]
    assert refined == [(0, 0), (2, 6)]
    (state,) = read_follower_rows([COPY], lake=lake, home=tmp_path, now=later)
    assert (state.limits, state.refusal, freshness_level(state)) == (COPY.freshness, None, "passed")
    assert state.committed_at is not None and state.committed_at < later


def test_a_look_asks_the_embedded_server_while_it_runs(tmp_path: Path) -> None:
    embedded = ServedTableSpec("gold/daily", Postgres("daily"), ("id",))

    def state() -> str:
        (row,) = read_follower_rows([embedded], lake=str(tmp_path), home=tmp_path, now=datetime.now(UTC))
        return row.state

    before = state()
    server = start_postgres(tmp_path / FOLDER)
    meanwhile = state()
    server.stop()

    assert [before, meanwhile, state()] == ["not running", "not begun", "not running"]


def test_a_table_that_cannot_be_read_says_why_and_the_embedded_server_is_not_watched(tmp_path: Path) -> None:
    embedded = ServedTableSpec("gold/daily", Postgres("daily"), ("id",))

    (state,) = read_follower_rows([COPY], lake=str(tmp_path), home=tmp_path, now=datetime.now(UTC))

    assert (state.behind, type(state.refusal).__name__) == (None, "UpstreamMissing")
    assert watched_tables([COPY], [embedded], []) == (COPY,)
