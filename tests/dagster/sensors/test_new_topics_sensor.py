"""The sensor of new topics: what a tick says, takes in, reloads and alerts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import dagster as dg
import pytest

from kdi_assets.documents.loading.loader import load_folder
from kdi_assets.documents.model.connections.connections import Cluster
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.resources.reload import ReloadFailed
from kdi_assets.sensors.new_topics import CANNOT_RELOAD, NewTopicsTick, new_topic_sensor, new_topic_sensors
from tests.documents import CLUSTER, TOPIC_TABLES, stream, written
from tests.receivers.webhook import Webhook

SHOP = f"""{TOPIC_TABLES}
attributes:
  name: shop
  topics: {{pattern: 's-(.*)'}}
  table: shop/{{1}}
  schema: id bigint
  date: current_date()
"""
ADDING = f"{SHOP}  new_topics: add\n"


class Sensor:
    """The sensor of a folder over a cluster whose topics a test changes; a reload makes a new sensor."""

    def __init__(self, folder: Path, *, reloads: bool = True, failing: bool = False) -> None:
        self._folder, self._reloads, self._failing = folder, reloads, failing
        self.topics: Collection[str] | KdiError = ()
        self.loads, self._cursor = 0, ""
        self._load()

    def _load(self) -> None:
        loaded = load_folder(self._folder)
        tick = NewTopicsTick(self._folder, loaded, "main", ask=self._ask, reload=self._reload)
        self._sensor, self.tables = new_topic_sensor(loaded.clusters["main"], tick), set(loaded.streams)

    def _ask(self, cluster: Cluster) -> Collection[str]:
        if isinstance(self.topics, KdiError):
            raise self.topics
        return self.topics

    def _reload(self) -> bool:
        self.loads += 1
        if self._failing:
            raise ReloadFailed("failing.py: no such module")
        if self._reloads:
            self._load()
        return self._reloads

    def tick(self) -> str:
        """What a tick says."""
        with dg.build_sensor_context(cursor=self._cursor) as context:
            result = self._sensor(context)
        assert isinstance(result, dg.SensorResult)
        self._cursor = result.cursor or ""
        return str(result.skip_reason and result.skip_reason.skip_message)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("KDI_ALERT_WEBHOOK", "KDI_KAFKA", "KDI_DEFS"):
        monkeypatch.delenv(name, raising=False)
    yield


def folder_of(tmp_path: Path, document: str) -> Path:
    return written(tmp_path, kafka=CLUSTER, shop=document)


def test_there_is_a_sensor_only_for_a_cluster_with_a_pattern(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, SHOP)
    assert [s.name for s in new_topic_sensors(folder, load_folder(folder))] == ["new_topics_main"]

    folder_of(tmp_path, SHOP.replace("{pattern: 's-(.*)'}", "[s-a]").replace("{1}", "{topic}"))
    assert new_topic_sensors(folder, load_folder(folder)) == []


def test_a_new_topic_is_said_and_stays_out_until_someone_accepts_it(tmp_path: Path) -> None:
    sensor = Sensor(folder_of(tmp_path, SHOP))
    assert sensor.tick() == "no new topic"

    sensor.topics = ["s-a", "other"]

    assert sensor.tick() == "shop: 1 topic matches and has no table: s-a. Run: kdi check --accept"
    assert (sensor.loads, sensor.tables) == (0, set())
    (tmp_path / "shop" / "shop.topics").write_text("s-a\n")  # as `kdi check --accept` does
    assert sensor.tick().splitlines()[-1] == "the code location was loaded again"
    assert (sensor.tick(), sensor.tables) == ("no new topic", {"shop/a"})


def test_with_add_a_new_topic_has_a_table_after_one_tick(tmp_path: Path) -> None:
    sensor = Sensor(folder_of(tmp_path, ADDING))
    sensor.topics = ["s-b", "s-a"]

    assert sensor.tick() == "shop: 2 taken in: s-a, s-b\nthe code location was loaded again"

    assert (sensor.tick(), sensor.loads, sensor.tables) == ("no new topic", 1, {"shop/a", "shop/b"})


def test_a_topic_whose_table_would_be_a_mistake_is_said_and_the_others_are_taken_in(tmp_path: Path) -> None:
    sensor = Sensor(written(folder_of(tmp_path, ADDING), other=stream("shop/a")))
    sensor.topics = ["s-a", "s-b"]

    said = sensor.tick()

    assert "shop/a is already the table of" in said
    assert "shop: 1 topic matches and has no table: s-a. Run: kdi check --accept" in said
    assert sensor.tables == {"shop/a", "shop/b"}


def test_where_the_file_cannot_be_written_the_tick_says_so_and_the_notice_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    sensor = Sensor(folder_of(tmp_path, ADDING))
    monkeypatch.setattr("kdi_assets.documents.loading.take_in.add_pins", refuse)
    sensor.topics = ["s-a"]

    first, second = sensor.tick().splitlines()

    assert first.endswith("shop.topics cannot be written: Read-only file system")
    assert second == "shop: 1 topic matches and has no table: s-a. Run: kdi check --accept"


@pytest.mark.parametrize("failing", [False, True])
def test_without_a_reload_the_topic_is_pinned_and_the_tick_says_what_to_do(tmp_path: Path, failing: bool) -> None:
    sensor = Sensor(folder_of(tmp_path, ADDING), reloads=False, failing=failing)
    sensor.topics = ["s-a"]

    said = sensor.tick().splitlines()[-1]
    again = sensor.tick()

    failed = "the code location could not be loaded again: failing.py: no such module"
    assert said == (failed if failing else CANNOT_RELOAD)
    pinned = "shop: pinned, and not loaded: s-a; reload the code location"
    assert again == (f"{pinned}\n{failed}" if failing else pinned)
    assert sensor.loads == (2 if failing else 1)  # a process that cannot reload does not try with every tick


def test_a_cluster_that_does_not_answer_takes_no_table_away(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, ADDING)
    (folder / "shop" / "shop.topics").write_text("s-a\n")
    sensor = Sensor(folder)
    sensor.topics = BrokerUnreachable(cluster="main", bootstrap_servers="localhost:9092", detail="nobody listens")

    assert sensor.tick().startswith("shop: unknown: ")
    assert (sensor.loads, sensor.tables) == (0, {"shop/a"})


def test_an_alert_is_sent_when_a_topic_appears_and_when_it_has_a_table(
    tmp_path: Path, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_ALERT_WEBHOOK", webhook.url)
    sensor = Sensor(folder_of(tmp_path, SHOP))
    sensor.topics = ["s-a"]

    assert sensor.tick().endswith("alerts: sent 1")
    assert "alerts" not in sensor.tick()
    assert webhook.told == [("shop", "new_topics", "began")]
    (message,) = webhook.received
    assert "s-a. Run: kdi check --accept" in str(message)
