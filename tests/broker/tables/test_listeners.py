"""Real drains and replays, heard by a receiver of OpenLineage events and by Spark's catalog."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.documents.model.message_rules import Mask
from kdi_assets.follow.listeners import lineage
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.shared_read import drain_together
from kdi_assets.streams.replay.replay_dates import replay_dates
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.receivers.lineage_receiver import LineageReceiver, receiving


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[LineageReceiver]:
    with receiving() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        monkeypatch.setattr(lineage, "WAIT_SECONDS", 60)  # the client's first import takes seconds on a busy machine
        yield receiver


def statistics(output: dict[str, Any]) -> dict[str, Any]:
    return {name: n for name, n in output["outputFacets"]["outputStatistics"].items() if not name.startswith("_")}


def origins(output: dict[str, Any]) -> dict[str, set[str]]:
    """The message's fields of each column."""
    fields = output["facets"]["columnLineage"]["fields"]
    return {column: {origin["field"] for origin in of["inputFields"]} for column, of in fields.items()}


def test_a_drain_and_a_replay_are_runs_with_rows_dead_letters_and_the_origin_of_columns(
    driven: DrivenFactory, receiver: LineageReceiver
) -> None:
    columns = {
        "host": "parse_url(url, 'HOST')",
        "class": "CASE WHEN status >= 500 THEN 'bad' ELSE lower(`method`) END",
        "drained_on": "current_date",
    }
    web = driven(columns=columns, mask={"session_id": Mask("null")})
    produced = web.produce(50)
    produced = web.produce(5, bad=1.0, seed=1)

    report = web.drain()
    today = datetime.now(UTC).date()
    hosts = {**columns, "host": "upper(parse_url(url, 'HOST'))"}
    replay_dates(
        replace(web.stream, columns=hosts),
        lake=web.lake,
        session=web.session,
        first=min(report.rows_by_date),
        last=today,
    )

    assert receiver.states() == ["START", "COMPLETE"] * 2
    drained, replayed = receiver.events[1], receiver.events[3]
    rows, letters = drained["outputs"]
    assert statistics(rows) == {"rowCount": report.rows_added, "size": report.bytes}
    assert rows["facets"]["version"]["datasetVersion"] == str(report.version)
    assert (letters["name"], statistics(letters)) == (f"{web.uri}_dead_letters", {"rowCount": report.dead_letters})
    assert drained["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == len(produced) == 55
    assert origins(rows) == {
        "session_id": {"session_id"},
        "status": {"status"},
        "url": {"url"},
        "uuid": {"uuid"},
        "method": {"method"},
        "meta": {"meta"},
        "host": {"url"},
        "class": {"status", "method"},
        "date": {"meta.producer.timestamp"},
    }
    (identity,) = rows["facets"]["columnLineage"]["fields"]["session_id"]["inputFields"][0]["transformations"]
    assert identity["masking"] is True
    assert replayed["job"]["name"] == f"{web.stream.name}.replay"
    assert statistics(replayed["outputs"][0])["rowCount"] == report.rows_added


def test_the_streams_of_one_read_are_runs_of_their_own_and_a_refused_one_fails_alone(
    driven: DrivenFactory, receiver: LineageReceiver
) -> None:
    web = driven()
    web.produce(20)
    broken = replace(web.stream, table="bronze/broken", app_id="broken", date_expression="to_date(no_such_field)")

    drained = drain_together([web.stream, broken], lake=web.lake, session=web.session)

    assert drained["bronze/broken"].failure is not None
    by_job = {event["job"]["name"]: event for event in receiver.events if event["eventType"] != "START"}
    assert by_job[f"{web.stream.name}.drain"]["eventType"] == "COMPLETE"
    failed = by_job["bronze/broken.drain"]
    assert (failed["eventType"], failed["outputs"][0]["facets"]) == ("FAIL", {})
    assert "no_such_field" in failed["run"]["facets"]["errorMessage"]["message"]


@pytest.fixture
def spark_catalog(monkeypatch: pytest.MonkeyPatch, driven: DrivenFactory) -> Iterator[DrivenStream]:
    """A stream whose table is registered in the database ``lake`` of the session's catalog."""
    web = driven()
    monkeypatch.setenv("KDI_CATALOG", "spark:lake")
    web.session().sql("CREATE DATABASE lake")
    yield web
    web.session().sql("DROP DATABASE lake CASCADE")


def test_a_table_is_read_by_its_name_in_sparks_catalog(spark_catalog: DrivenStream) -> None:
    web, spark = spark_catalog, spark_catalog.session()
    name = f"lake.{web.stream.table.replace('/', '_').lower()}"

    web.produce(20)
    web.drain()
    first = spark.table(name).count()
    web.produce(5, seed=1)
    web.drain()

    assert (first, spark.table(name).count()) == (20, 25)
    spark.sql(f"DROP TABLE {name}")
    assert len(web.rows()) == 25, "the catalog does not own the files"


def test_a_name_that_another_table_has_stays_as_it_is_and_is_a_warning(
    spark_catalog: DrivenStream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    web, spark = spark_catalog, spark_catalog.session()
    name = f"lake.{web.stream.table.replace('/', '_').lower()}"
    spark.sql(f"CREATE TABLE {name} (id INT) USING DELTA LOCATION '{tmp_path}/other'")
    produced = web.produce(20)

    with caplog.at_level(logging.WARNING, "kdi_assets"):
        web.drain()

    assert f"is registered with the location file:{tmp_path}/other" in caplog.text
    assert spark.table(name).columns == ["id"]
    web.assert_each_offset_once(produced)


ON_HIVE = """
import sys
from kdi_assets.follow.listeners.catalog import CatalogTable
from kdi_assets.follow.listeners.spark_catalog import register_by_spark
from kdi_assets.runtime.spark import open_session
from kdi_assets.settings import Settings
hive = {
    "spark.sql.catalogImplementation": "hive",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={sys.argv[1]}/metastore;create=true",
    "spark.hadoop.hive.metastore.schema.verification": "false",
    "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
    "spark.sql.warehouse.dir": f"file:{sys.argv[1]}/warehouse",
}
spark = open_session(Settings.from_environment(), config=hive, app_name="hive")
if sys.argv[2] == "register":
    spark.sql("CREATE DATABASE bronze")
    for _ in range(2):
        register_by_spark(spark, CatalogTable("bronze", "orders"), sys.argv[3])
else:
    print("rows:", spark.table("bronze.orders").count(), spark.table("bronze.orders").columns)
"""


def test_a_hive_metastore_keeps_the_table_for_other_sessions(
    driven: DrivenFactory, environment: Settings, tmp_path: Path
) -> None:
    web = driven()
    web.produce(20)
    web.drain()

    answers = []
    for step in ("register", "read"):
        command = [sys.executable, "-c", ON_HIVE, str(tmp_path), step, web.uri]
        answers.append(subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=tmp_path))

    assert [answer.returncode for answer in answers] == [0, 0], answers[0].stderr[-2000:] + answers[1].stderr[-2000:]
    assert "rows: 20 [" in answers[1].stdout and "'host'" in answers[1].stdout
