"""A million messages through bronze, silver and gold into PostgreSQL, beside DuckDB's recomputation of the messages.

``KDI_TEST_ROWS`` gives another number of messages.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.follow.refine.entry import RefineEntry
from kdi_assets.follow.serve.postgres.embedded import EmbeddedPostgres
from kdi_assets.follow.serve.report import ServeReport
from kdi_assets.follow.serve.serve import serve
from kdi_assets.streams.replay.replay_dates import replay_dates
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.refined import Lakeside, refined_table
from tests.tables.recomputed import HOST, KeptMessages, Recomputed, made_up_requests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = int(os.environ.get("KDI_TEST_ROWS", "1000000"))
PARTITIONS = 4
DAY = timedelta(days=1)
COLUMNS = {
    "bronze": 'date, meta.kafka."partition", meta.kafka."offset", uuid, session_id, method, status, host, '
    "epoch_us(CAST(meta.producer.timestamp AS TIMESTAMPTZ))",
    "silver": 'date, uuid, session_id, host, status, epoch_us("at")',
    "gold": "date, host, requests, sessions, errors",
}
GOLD = refined_table(
    table="gold/daily_usage",
    mode={
        "aggregate": {
            "by": ["date", "host"],
            "measures": {
                "requests": "count",
                "sessions": {"count_distinct": "session_id"},
                "errors": {"sum": "int(status >= 500)"},
            },
        }
    },
    **{"from": "silver/requests"},
)


@pytest.fixture
def ready(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with as many shuffle partitions as a million rows need."""
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", "1")


@dataclass
class Levels:
    """All levels from the topic to PostgreSQL.

    Attributes:
        files: By level, the data files before the last ``catch_up``.
    """

    web: DrivenStream
    kept: KeptMessages
    lakeside: Lakeside
    served: ServedTableSpec
    files: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sql = f"""SELECT date, uuid, session_id, host, status, CAST(meta.producer.timestamp AS timestamp) AS at
                  FROM {self.web.stream.topic}"""
        mode = {"deduplicate": {"keys": ["uuid"], "order_by": "at", "window": "2 days"}}
        self.silver = refined_table(table="silver/requests", sql=sql, mode=mode, **{"from": self.web.stream.table})

    @property
    def tables(self) -> dict[str, str]:
        return {"bronze": self.web.stream.table, "silver": self.silver.table, "gold": GOLD.table}

    def remember_files(self) -> None:
        """What ``assert_only_touched`` compares with."""
        self.files = {level: self.files_now(level) for level in self.tables}

    def files_now(self, level: str) -> frozenset[str]:
        return frozenset(DeltaTable(self.lakeside.uri(self.tables[level])).file_uris())

    def catch_up(self) -> tuple[RefineEntry, RefineEntry, ServeReport]:
        """Silver, gold and PostgreSQL, after bronze."""
        refined = [self.lakeside.refine(table) for table in (self.silver, GOLD)]
        lakeside = self.lakeside
        return refined[0], refined[1], serve(self.served, lake=lakeside.lake, session=lambda: lakeside.spark)

    def assert_equal(self, host: str = HOST) -> Recomputed:
        """Each level has the rows that DuckDB makes of the messages."""
        recomputed = self.kept.recompute(host)
        for level, table in self.tables.items():
            self.kept.assert_equal(level, DeltaTable(self.lakeside.uri(table)).file_uris(), COLUMNS[level])
        self.kept.assert_equal("gold", self.in_postgres(), COLUMNS["gold"])
        return recomputed

    def in_postgres(self) -> pa.Table:
        into = self.served.into
        assert isinstance(into, Postgres) and isinstance(into.url, str)
        names = COLUMNS["gold"].split(", ")
        with psycopg.connect(into.url) as connection:
            rows = connection.execute(f"SELECT {COLUMNS['gold']} FROM test.daily_usage").fetchall()
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])

    def assert_only_touched(self, days: Collection[date]) -> None:
        """No file of another date came or went; silver's and gold's dates end one later, by the window."""
        windows = {"bronze": set(days), "silver": {*days, *(day + DAY for day in days)}}
        windows["gold"] = windows["silver"]
        for level, touched in windows.items():
            names = tuple(f"/date={day}/" for day in touched)
            moved = self.files[level] ^ self.files_now(level)
            assert moved, f"{level}: no file changed"
            others = [file for file in moved if not any(name in file for name in names)]
            assert not others, f"{level}: {len(others)} files of other dates than {sorted(days)}, as {min(others)}"


@pytest.fixture
def levels(
    driven: DrivenFactory,
    ready: SparkSession,
    lake: str,
    server: EmbeddedPostgres,
    tmp_path: Path,
) -> Levels:
    web = driven(PARTITIONS)
    kept = KeptMessages(web.stream.kafka, web.stream.topic, partitions=PARTITIONS, file=tmp_path / "kept.duckdb")
    into = Postgres(table="daily_usage", schema="test", url=server.url)
    return Levels(web, kept, Lakeside(ready, lake), ServedTableSpec(table=GOLD.table, into=into, keys=("date", "host")))


@pytest.mark.compiled
def test_a_million_messages_are_in_every_level_as_duckdb_computes_them_and_so_is_what_changes_later(
    levels: Levels, pytestconfig: pytest.Config
) -> None:
    """Purpose: all levels together must follow late rows, changed rows and deletes exactly, and touch nothing else.
    Procedure: a million messages of seven dates, 3 % of them sent again, 1 % bad; then 1,000 late ones of two dates, a
    replay that changes 200 rows of one date, a DELETE of 100 rows of another.
    Pass: after each step bronze, silver, gold and PostgreSQL equal DuckDB's recomputation of the messages; files of
    other dates stay; PostgreSQL gets the rows of gold that changed, and no others.
    """
    random = Random(pytestconfig.getoption("--seed"))
    today, kept = datetime.now(UTC).date(), levels.kept
    days = [today - n * DAY for n in range(2, 9)]
    patched, thinned, old, older = days[1], days[3], days[5], today - 20 * DAY

    kept.publish(made_up_requests(ROWS - 200, days, random, sent_again=0.03, bad=0.01))
    kept.publish(made_up_requests(200, [patched], random, method="PATCH"))
    levels.web.drain()
    silver, gold, served = levels.catch_up()
    found = levels.assert_equal()
    assert (silver.rows_added, gold.rows_added) == (found.rows["silver"], found.rows["gold"])
    assert found.rows["bronze"] - found.rows["silver"] > ROWS // 50, "duplicates"
    assert (served.kind, served.upserted) == ("load", found.rows["gold"])

    levels.remember_files()
    kept.publish(made_up_requests(1_000, [old, older], random))
    levels.web.drain()
    _, gold, served = levels.catch_up()
    found = levels.assert_equal()
    levels.assert_only_touched([old, older])
    assert gold.dates == (older, old)
    assert (served.kind, served.upserted, served.deleted) == ("changes", found.gold_changed, 0)

    levels.remember_files()
    rule = "if(method = 'PATCH', 'patched.example.com', parse_url(url, 'HOST'))"
    levels.web = levels.web.with_definition(columns={"host": rule})
    replayed = replay_dates(
        levels.web.stream, lake=levels.web.lake, session=levels.web.session, first=patched, last=patched
    )
    _, gold, served = levels.catch_up()
    found = levels.assert_equal(f"if(said ->> '$.method' = 'PATCH', 'patched.example.com', {HOST})")
    levels.assert_only_touched([patched])
    assert replayed.commit is not None
    assert levels.web.feed(replayed.commit.version) == {"delete": 200, "insert": 200}
    assert gold.dates == (patched,)
    assert (served.kind, served.upserted, served.deleted) == ("changes", found.gold_changed, 0)

    levels.remember_files()
    twice = "uuid IN (SELECT uuid FROM bronze GROUP BY uuid HAVING count(*) > 1)"
    gone = kept.remove(f"date = '{thinned}' AND {twice}", 50)
    gone = kept.remove(f"date = '{thinned}' AND NOT {twice}", 50)
    listed = ", ".join(f"({partition}, {offset}L)" for partition, offset in gone)
    at = "meta.kafka.partition, meta.kafka.offset"
    levels.lakeside.sql(f"DELETE FROM {{t}} WHERE date = '{thinned}' AND ({at}) IN ({listed})", levels.tables["bronze"])
    levels.catch_up()
    found = levels.assert_equal(f"if(said ->> '$.method' = 'PATCH', 'patched.example.com', {HOST})")
    levels.assert_only_touched([thinned])
    assert len(gone) == 100
