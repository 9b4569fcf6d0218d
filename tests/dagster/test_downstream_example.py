"""The example of `docs/downstream.md` as users run it: topic, drain, sensors and silver table, on real parts."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.definitions.asset_daemon_cursor import AssetDaemonCursor  # only for an annotation
from deltalake import DeltaTable

from kdi_assets.definitions import defs
from kdi_assets.documents.model.stream import Cluster
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
    built: dg.AssetKey = SILVER
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
        dates = set(evaluated.get_requested_partitions(self.built))
        for day in sorted(dates, key=str):
            self.materialize(self.built, day=day)
        return dates

    def materialize(self, *keys: dg.AssetKey, **options: Any) -> None:
        assert materialize(self.instance, assets_of(self.location), *keys, **options).success

    def build_again(self, start: date, end: date) -> None:
        """One run for a range of dates, both ends inclusive, as the UI starts it for a `single_run` asset."""
        self.materialize(self.built, tags=range_tags(start, end))

    def silver(self) -> dict[date, list[int]]:
        """The statuses in the silver table, by date."""
        rows: list[dict[str, Any]] = DeltaTable(f"{self.lake}/silver/failed_requests").to_pyarrow_table().to_pylist()
        return {day: sorted(r["status"] for r in rows if r["date"] == day) for day in {r["date"] for r in rows}}


@pytest.fixture
def environment(cluster: Cluster, lake_in_environment: str, one_jvm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of the examples' processes."""
    monkeypatch.setenv("KDI_KAFKA", cluster.bootstrap_servers)


def copied(example: str, folder: Path, *, document: str, topic: str) -> Path:
    """A copy of an example with the test's topic, drained as soon as it has a message."""
    shutil.copytree(CHECKOUT / "examples" / example, folder, ignore=shutil.ignore_patterns("__pycache__"))
    given = (folder / document).read_text()
    assert "topic: web_requests\n" in given
    changed = f"topic: {topic}\n  drain_when: {{backlog_messages: 1}}\n"
    (folder / document).write_text(given.replace("topic: web_requests\n", changed))
    return folder


@pytest.fixture
def example(
    environment: None,
    instance: DagsterInstance,
    topic: TopicFactory,
    producer: Publisher,
    lake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Example:
    """The example's folder with the test's topic, loaded as the code server loads it."""
    name = topic(1)
    folder = copied("downstream", tmp_path / "defs", document="requests/defs.yaml", topic=name)
    monkeypatch.setenv("KDI_DEFS", str(folder))
    return Example(defs(), instance, name, producer, lake)


@pytest.fixture
def project(
    environment: None,
    instance: DagsterInstance,
    topic: TopicFactory,
    producer: Publisher,
    lake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Example]:
    """The example of a project whose own asset is beside the documents' tables."""
    name = topic(1)
    folder = copied("one_location", tmp_path / "project", document="shop/defs/requests/defs.yaml", topic=name)
    monkeypatch.delenv("KDI_DEFS", raising=False)
    monkeypatch.syspath_prepend(folder)
    location: dg.Definitions = import_module("shop.definitions").defs()
    yield Example(location, instance, name, producer, lake, built=dg.AssetKey(["silver", "requests_per_host"]))
    for module in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[module]


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


def test_the_asset_of_a_project_is_built_for_the_dates_that_a_drain_touched(project: Example) -> None:
    project.build()
    project.publish(OLD, 200, 404)
    project.drain()
    built, again = project.build(), project.build()

    rows = DeltaTable(f"{project.lake}/silver/requests_per_host").to_pyarrow_table().to_pylist()
    assert (built, again) == ({OLD.isoformat()}, set())
    assert rows == [{"date": OLD, "host": "a.b", "count": 2}]
