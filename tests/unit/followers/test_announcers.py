"""The follow sensor announces what no run announced: new versions, not beside a run, and it rests after failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.components.names import table_key
from kdi_assets.delta.versions import LatestVersions
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.documents.model.stream_fields import Announce
from kdi_assets.sensors.announcements import Announcers
from kdi_assets.streams.announce.announce import Announced

SILENT = Stream("orders", "bronze/orders", "id bigint", "current_date()", Cluster("main", "localhost:1"))
ORDERS = Stream(
    "orders", "bronze/orders", "id bigint", "current_date()", Cluster("main", "localhost:1"), announce=Announce("files")
)


@dataclass
class Topic:
    """Takes the place of the brokers."""

    lake: Path
    fails: bool = False
    calls: list[int] = field(default_factory=list)

    def announce(self, stream: Stream, lake: str, report: Callable[[str], None], *, until: float) -> Announced | None:
        version = DeltaTable(stream.table_uri(lake)).version()
        self.calls.append(version)
        report("failed" if self.fails else f"announced {version}")
        return None if self.fails else Announced(version, (version,))

    def commit(self) -> None:
        write_deltalake(str(self.lake / ORDERS.table), pa.table({"id": [1]}), mode="append")


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    topic = Topic(tmp_path)
    topic.commit()
    return topic


def catch_up(announcers: Announcers, topic: Topic, *streams: Stream, busy: bool = False) -> list[str]:
    runs = {table_key(ORDERS): cast("dg.RunRecord", object())} if busy else {}
    return announcers.catch_up(streams or (ORDERS,), lake=str(topic.lake), in_flight=runs)


def test_each_new_version_is_announced_once_also_after_a_restart(topic: Topic) -> None:
    announcers = Announcers(LatestVersions(), topic.announce)

    lines = [catch_up(announcers, topic) for _ in range(2)]
    topic.commit()
    lines += [catch_up(announcers, topic) for _ in range(2)]
    catch_up(Announcers(LatestVersions(), topic.announce), topic)

    assert lines == [["announced 0"], [], ["announced 1"], []]
    assert topic.calls == [0, 1, 1]  # a new process asks the bookmark


def test_a_table_with_a_run_in_flight_or_without_a_topic_is_left_alone(topic: Topic) -> None:
    announcers = Announcers(LatestVersions(), topic.announce)

    assert catch_up(announcers, topic, busy=True) == []
    assert catch_up(announcers, topic, SILENT) == []
    assert topic.calls == []


def test_after_a_failure_the_table_rests(topic: Topic) -> None:
    announcers, topic.fails = Announcers(LatestVersions(), topic.announce), True

    lines = [catch_up(announcers, topic) for _ in range(3)]

    assert lines == [["failed"], [], []]


def test_a_stream_without_a_table_is_not_announced_at_every_tick(tmp_path: Path) -> None:
    calls = list[str]()

    def announce(stream: Stream, *_: object, **__: object) -> Announced:
        calls.append(stream.name)
        return Announced()

    announcers = Announcers(LatestVersions(), announce)
    for _ in range(3):
        announcers.catch_up([ORDERS], lake=str(tmp_path), in_flight={})

    assert calls == [ORDERS.name]
