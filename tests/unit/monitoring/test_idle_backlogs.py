"""An idle stream costs a look: it is planned again only when its topic or its table has moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dagster import DagsterInstance

from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.messages.kafka import topic as kafka_topic
from kdi_assets.messages.kafka.source import KafkaSource
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader
from kdi_assets.sensors.memory import Memory
from kdi_assets.sensors.reconcile import reconcile_all
from kdi_assets.sensors.table_log import NewEntries
from kdi_assets.streams.drain.snapshot import take_snapshot
from tests.table_by_hand import TOPIC, TP, TableByHand, orders

DRAINED = 100


class Site:
    """The topic as the broker tells it, its table, and which streams were planned."""

    def __init__(self, table: TableByHand, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table, self.lake, self.planned = table, lake, list[str]()
        self.topic = TopicState(TOPIC, "topic", {TP: BrokerOffsets(0, DRAINED, DRAINED)})
        self._see = BacklogReader()

        def counted(stream: Stream, *of: Any, **options: Any) -> Any:
            self.planned.append(stream.name)
            return take_snapshot(stream, *of, **options)

        monkeypatch.setattr(kafka_topic, "_read", lambda cluster, topics: dict.fromkeys(topics, self.topic))
        monkeypatch.setattr("kdi_assets.operate.monitoring.backlog_reader.take_snapshot", counted)
        monkeypatch.setattr(KafkaSource, "watch", lambda source: None)
        for asked in ("around", "retention"):  # of what waits, which no broker answers here
            monkeypatch.setattr(KafkaSource, asked, lambda *of, **options: {})

    def look(self) -> tuple[int, str]:
        """The backlog in offsets, and the name of the refusal; what was planned before is forgotten."""
        self.planned.clear()
        (backlog,) = self._see([orders()], lake=self.lake)
        return backlog.offsets, type(backlog.refusal).__name__

    def still_idle(self) -> bool:
        return self._see.still_idle([orders()], lake=self.lake)

    def offsets(self, *, earliest: int = 0, end: int = DRAINED) -> None:
        here = BrokerOffsets(earliest, end, end)
        self.topic = replace(self.topic, partitions={TP: here})

    def new_topic_partition(self) -> None:
        more = {TopicPartition(TOPIC, 1): BrokerOffsets(0, 7, 7)}
        self.topic = replace(self.topic, partitions={**self.topic.partitions, **more})

    def other_topic(self) -> None:
        self.topic = replace(self.topic, topic_id="another")

    def other_table(self) -> None:
        for file in [*self.table.log.iterdir()]:
            file.unlink()
        self.table.log.rmdir()
        made = TableByHand(self.lake, table_id="another", now=self.table.now)
        made.ledger_commit("drain", at={TP: 40})


@pytest.fixture
def site(lake: str, monkeypatch: pytest.MonkeyPatch) -> Site:
    table = TableByHand(lake)
    table.drain(DRAINED)
    return Site(table, lake, monkeypatch)


def test_a_stream_that_was_idle_and_did_not_move_is_not_planned_again(site: Site) -> None:
    assert site.look() == (0, "NoneType")
    assert site.planned == ["bronze/orders"]

    assert [site.look() for _ in range(3)] == [(0, "NoneType")] * 3
    assert site.planned == []


MOVES: dict[str, tuple[Callable[[Site], None], tuple[int, str]]] = {
    "a message arrives": (lambda site: site.offsets(end=101), (1, "NoneType")),
    "a topic partition is added": (Site.new_topic_partition, (7, "NoneType")),
    "the topic ends below the position": (lambda site: site.offsets(end=99), (0, "BrokerEndBelowPosition")),
    "retention passes the position": (lambda site: site.offsets(earliest=105, end=105), (5, "RetentionPassedPosition")),
    "the topic is made again": (Site.other_topic, (0, "TopicRecreated")),
    "the table is set back": (lambda site: site.table.ledger_commit("resolve", at={TP: 60}), (40, "NoneType")),
    "the table is made again": (Site.other_table, (60, "NoneType")),
}


@pytest.mark.parametrize("move", MOVES)
def test_what_moves_topic_or_table_is_seen_by_the_next_look(site: Site, move: str) -> None:
    happens, seen = MOVES[move]
    site.look()
    site.look()

    happens(site)

    assert site.look() == seen
    assert site.planned == ["bronze/orders"]


@pytest.mark.parametrize("move", MOVES)
def test_streams_are_still_idle_until_a_topic_or_a_table_moves(site: Site, move: str) -> None:
    assert not site.still_idle(), "not read yet"
    site.look()
    assert [site.still_idle(), site.still_idle()] == [True, True]

    MOVES[move][0](site)

    assert not site.still_idle()
    site.look()
    assert site.still_idle() is (site.look() == (0, "NoneType")), "as long as it waits, or is refused, it is not"


def test_a_stream_with_a_backlog_or_a_refusal_is_planned_at_each_look(site: Site) -> None:
    for end in (101, 99):
        site.offsets(end=end)
        site.look()
        site.look()

        assert site.planned == ["bronze/orders"]


def test_two_lakes_of_one_reader_have_their_own_tables(site: Site, tmp_path: Path) -> None:
    site.look()
    other = TableByHand(tmp_path / "other")
    other.drain(30)

    site.lake = str(tmp_path / "other")

    assert site.look() == (70, "NoneType")


@pytest.mark.parametrize(
    ("memory", "after"),
    [
        (Memory(table_id="t", reconciled=4, letters=2, watched_from=1), {}),
        (Memory(table_id="t", reconciled=4, letters=2), {"watched_from": 4}),
        (Memory(table_id="t", reconciled=3, letters=2, watched_from=1), {"reconciled": 4}),
        (Memory(table_id="before", reconciled=4, watched_from=1), {"table_id": "t", "watched_from": 4}),
    ],
    ids=["unmoved", "first look", "moved", "another table"],
)
def test_a_log_without_new_entries_needs_nothing_of_dagster_and_is_compared_up_to_where_it_is(
    memory: Memory, after: dict[str, Any]
) -> None:
    stream, dagster = orders(), SimpleNamespace(has_run=pytest.fail)

    missing, memories = reconcile_all(
        [stream],
        lake="nowhere",
        instance=cast(DagsterInstance, dagster),
        memories={stream.name: memory},
        read=lambda *of, **options: NewEntries("t", (), through=4, newest=4),
    )

    assert (missing, memories) == ([], {stream.name: replace(memory, **after)})
