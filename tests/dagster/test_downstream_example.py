"""The example of `docs/downstream.md` as users run it: topic, drain, sensors and silver table, on real parts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.definitions.asset_daemon_cursor import AssetDaemonCursor  # only for an annotation
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.definitions import defs
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Cluster
from tests.conftest import CHECKOUT, TopicFactory
from tests.dagster.fakes import assets_of, materialize, range_tags, tick, yesterday
from tests.kafka_log import Publisher

OLD = date(2021, 3, 4)
SILVER = dg.AssetKey(["silver", "failed_requests"])


@dataclass
class Example:
    """The example's code location over the test's topic."""

    location: dg.Definitions
    instance: DagsterInstance
    topic: str
    producer: Publisher
    lake: str
    cursor: AssetDaemonCursor | None = None

    def publish(self, day: date, *statuses: int) -> None:
        """A request per status, on one date."""
        for status in statuses:
            value = {"meta": {"producer": {"timestamp": f"{day}T12:00:00Z"}}, "status": status, "url": "http://a.b/c"}
            self.producer.produce(self.topic, json.dumps(value))
        self.producer.flush()

    def drain(self) -> None:
        """A tick of the lag sensor, and the run that it requests."""
        (request,) = tick(self.instance, self.location).run_requests or []
        self.materialize(*(request.asset_selection or []), day=request.partition_key)

    def build(self) -> set[str | None]:
        """A tick of the downstream sensor, and its runs; their dates."""
        every = dg.AssetSelection.all()
        evaluated = dg.evaluate_automation_conditions(self.location, self.instance, every, cursor=self.cursor)
        self.cursor = evaluated.cursor
        dates = set(evaluated.get_requested_partitions(SILVER))
        for day in sorted(dates, key=str):
            self.materialize(SILVER, day=day)
        return dates

    def materialize(self, *keys: dg.AssetKey, **options: Any) -> None:
        assert materialize(self.instance, assets_of(self.location), *keys, **options).success

    def build_again(self, start: date, end: date) -> None:
        """One run for a range of dates, both ends inclusive, as the UI starts it for a `single_run` asset."""
        self.materialize(SILVER, tags=range_tags(start, end))

    def silver(self) -> dict[date, list[int]]:
        """The statuses in the silver table, by date."""
        rows: list[dict[str, Any]] = DeltaTable(f"{self.lake}/silver/failed_requests").to_pyarrow_table().to_pylist()
        return {day: sorted(r["status"] for r in rows if r["date"] == day) for day in {r["date"] for r in rows}}


@pytest.fixture
def example(
    instance: DagsterInstance,
    topic: TopicFactory,
    producer: Publisher,
    cluster: Cluster,
    spark: SparkSession,
    settings: Settings,
    lake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Example]:
    """The example's folder with the test's topic, loaded as the code server loads it."""
    folder, name = tmp_path / "defs", topic(1)
    shutil.copytree(CHECKOUT / "examples" / "downstream", folder, ignore=shutil.ignore_patterns("__pycache__"))
    document = folder / "requests" / "defs.yaml"
    given = document.read_text()
    assert "topic: web_requests\n" in given
    document.write_text(
        given.replace("topic: web_requests\n", f"topic: {name}\n  drain_when: {{backlog_messages: 1}}\n")
    )
    environment = {"KDI_HOME": settings.home, "KDI_DRIVER": "own", "KDI_KAFKA": cluster.bootstrap_servers}
    for variable, value in {**environment, "KDI_LAKE": lake, "KDI_DEFS": folder}.items():
        monkeypatch.setenv(variable, str(value))
    monkeypatch.delenv("KDI_SPARK_MASTER", raising=False)  # the session is the test process's
    yield Example(defs(), instance, name, producer, lake)


def test_the_silver_table_follows_the_topic_date_by_date_and_a_run_of_it_can_be_repeated(example: Example) -> None:
    """Purpose: the example does what its page says, including late rows and a range by hand.
    Procedure: messages of two dates, drained and built as the sensors request; a late one; then both dates again.
    Pass: a date is built when a drain touched it, and only then; building it again changes nothing.
    """
    example.build()
    example.publish(OLD, 200, 404, 500)
    example.publish(yesterday(), 200)
    example.drain()
    first, once = example.build(), example.silver()

    example.publish(OLD, 403, 201)
    example.drain()
    second, with_the_late_one = example.build(), example.silver()
    third = example.build()
    example.build_again(OLD, yesterday())

    assert (first, second, third) == ({OLD.isoformat(), yesterday().isoformat()}, {OLD.isoformat()}, set())
    assert once == {OLD: [404, 500]}
    assert with_the_late_one == example.silver() == {OLD: [403, 404, 500]}
