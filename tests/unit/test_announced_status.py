"""A look at announced tables asks the brokers little, ends in time, and one table does not take down another."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.announce import bookmark, status
from kdi_assets.announce.bookmark import bookmark_to_json
from kdi_assets.announce.errors import BookmarkUnreadable, NotLookedAtInTime
from kdi_assets.announce.status import AnnouncedStatus, is_outage_of_stream, read_announced_statuses
from kdi_assets.announce.table_changes import LastAnnounced
from kdi_assets.errors import KdiError
from kdi_assets.monitoring.follower_rows import FollowerRow
from kdi_assets.sources.kafka.errors import BrokerUnreachable, TopicMissing, TopicUnanswered
from kdi_assets.sources.kafka.messages import VisibleMessage
from kdi_assets.sources.source import BrokerOffsets, TopicState
from kdi_assets.stream.capabilities import TableKind
from kdi_assets.stream.fields import Announce
from kdi_assets.stream.limits import FreshnessLimits
from kdi_assets.stream.stream import Cluster, OffsetRange, Stream, TopicPartition
from sensors.downstream_alerts import incidents_of

KEPT = TopicPartition("files.announced", 0)
BROKER = {"cluster": "main", "bootstrap_servers": "localhost:1"}


def announced(name: str, cluster: str = "main", servers: str = "localhost:1") -> Stream:
    return Stream("t", name, "id bigint", "current_date()", Cluster(cluster, servers), announce=Announce("files"))


ORDERS, CLICKS = announced("a/orders"), announced("a/clicks")


@dataclass
class Brokers:
    """Takes the place of the brokers: the topics ``files`` and ``files.announced``."""

    lake: Path
    bookmarks: list[tuple[str, bytes]] = field(default_factory=list)
    batches: list[set[str]] = field(default_factory=list)
    reads: list[OffsetRange] = field(default_factory=list)
    refusal: KdiError | None = None
    sleeps: float = 0.0

    def read_topics(self, cluster: Cluster, topics: Collection[str]) -> dict[str, TopicState | KdiError]:
        self.batches.append(set(topics))
        time.sleep(self.sleeps)
        if self.refusal:
            raise self.refusal
        end = len(self.bookmarks)
        missing = TopicMissing(**BROKER, topic=KEPT.topic)
        kept = TopicState(KEPT.topic, "id", {KEPT: BrokerOffsets(0, end, end)})
        return {"files": TopicState("files", "id", {}), KEPT.topic: kept if end else missing}

    def visible_messages(
        self, cluster: Cluster, ranges: Mapping[TopicPartition, list[OffsetRange]]
    ) -> Iterator[VisibleMessage]:
        for one in ranges[KEPT]:
            self.reads.append(one)
            for at in range(one.start, one.end):
                key, value = self.bookmarks[at]
                yield VisibleMessage(KEPT, at, 0, key.encode(), value)

    def commit(self, stream: Stream) -> DeltaTable:
        uri = stream.table_uri(str(self.lake))
        write_deltalake(uri, pa.table({"id": [1]}), mode="append")
        return DeltaTable(uri)

    def announce(self, stream: Stream) -> None:
        table = DeltaTable(stream.table_uri(str(self.lake)))
        at = LastAnnounced(str(table.metadata().id), table.table_uri, table.version(), table.version(), 1)
        self.bookmarks.append((stream.name, bookmark_to_json(at).encode()))

    def look(self, *streams: Stream, known: tuple[str, KdiError] | None = None) -> list[AnnouncedStatus | KdiError]:
        found = read_announced_statuses(streams, str(self.lake), known=[known] if known else ())
        return [found[stream.name] for stream in streams]


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers(tmp_path)
    monkeypatch.setattr(status, "read_topics", brokers.read_topics)
    monkeypatch.setattr(bookmark, "visible_messages", brokers.visible_messages)
    monkeypatch.setattr(bookmark, "_SEEN", {})
    return brokers


def test_a_look_is_one_batch_of_requests_and_reads_only_bookmarks_that_are_new(brokers: Brokers) -> None:
    """Procedure: two tables are announced; look twice; one commits and is announced; look again."""
    for stream in (ORDERS, CLICKS):
        brokers.commit(stream)
        brokers.announce(stream)

    first, again = brokers.look(ORDERS, CLICKS), brokers.look(ORDERS, CLICKS)
    brokers.commit(CLICKS)
    behind = brokers.look(ORDERS, CLICKS)
    brokers.announce(CLICKS)
    last = brokers.look(ORDERS, CLICKS)

    assert first == again == [AnnouncedStatus(0, 0), AnnouncedStatus(0, 0)]
    assert isinstance(behind[1], AnnouncedStatus) and behind[1].behind == 1
    assert last == [AnnouncedStatus(0, 0), AnnouncedStatus(1, 1)]
    assert brokers.batches == [{"files", KEPT.topic}] * 4
    assert brokers.reads == [OffsetRange(KEPT, 0, 2), OffsetRange(KEPT, 2, 3)]


def test_a_table_that_never_was_announced_waits_since_its_first_rows(brokers: Brokers) -> None:
    table = brokers.commit(ORDERS)
    brokers.commit(ORDERS)

    (found,) = brokers.look(ORDERS)

    assert isinstance(found, AnnouncedStatus) and found.waiting_since
    oldest = min(commit["timestamp"] for commit in table.history())
    assert (found.behind, found.waiting_since.timestamp() * 1000) == (2, oldest)


@pytest.mark.parametrize("value", [b"no JSON", b"{}", b"7", json.dumps({"kdi_announced": 1}).encode()])
def test_a_bookmark_that_nobody_of_us_wrote_refuses_its_own_table(brokers: Brokers, value: bytes) -> None:
    brokers.commit(CLICKS)
    brokers.announce(CLICKS)
    brokers.bookmarks.append((ORDERS.name, value))

    orders, clicks = brokers.look(ORDERS, CLICKS)

    assert (type(orders), clicks) == (BookmarkUnreadable, AnnouncedStatus(0, 0))


def test_what_is_not_known_in_time_is_said_and_other_clusters_have_their_rows(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "LOOK_SECONDS", 0.2)
    brokers.sleeps = 1.0
    brokers.commit(ORDERS)

    began, (found,) = time.monotonic(), brokers.look(ORDERS)

    assert isinstance(found, NotLookedAtInTime)
    assert time.monotonic() - began < 0.9


def test_brokers_that_do_not_answer_are_asked_once_for_all_announced_tables(brokers: Brokers) -> None:
    brokers.refusal = BrokerUnreachable(**BROKER, detail="timed out")

    found = brokers.look(ORDERS, CLICKS)

    assert len(brokers.batches) == 1
    assert found == [brokers.refusal, brokers.refusal]


def test_only_a_cluster_that_is_silent_as_a_whole_is_not_asked_again(brokers: Brokers) -> None:
    brokers.commit(ORDERS)
    silent, one_topic = BrokerUnreachable(**BROKER, detail="timed out"), TopicUnanswered(**BROKER, detail="t: late")

    assert brokers.look(ORDERS, known=("main", silent)) == [silent]
    assert brokers.batches == []
    assert isinstance(brokers.look(ORDERS, known=("main", one_topic))[0], AnnouncedStatus)


def test_an_outage_of_the_streams_own_brokers_is_no_second_incident() -> None:
    down, other = BrokerUnreachable(**BROKER, detail="timed out"), Cluster("other", "localhost:2")
    elsewhere = replace(ORDERS, announce=Announce("files", cluster=other))

    assert is_outage_of_stream(ORDERS, down)
    assert not is_outage_of_stream(elsewhere, down)
    assert not is_outage_of_stream(ORDERS, TopicMissing(**BROKER, topic="files"))
    assert not is_outage_of_stream(ORDERS, None)


@pytest.mark.parametrize(
    ("kind", "said"),
    [(TableKind.ANNOUNCED, "versions are not announced for"), (TableKind.REFINED, "new rows upstream wait for")],
)
def test_an_alert_says_what_waits(kind: TableKind, said: str) -> None:
    row = FollowerRow("a/orders", kind, 1, 700.0, limits=FreshnessLimits(60, 600), new="new files")

    late = dict(incidents_of(row))["stands_still:a/orders"]

    assert late and late.detail.startswith(said)


def test_a_table_that_no_look_reaches_is_an_incident_after_ten_minutes() -> None:
    late = NotLookedAtInTime(stream="a/orders", topic="files", seconds=10)

    ((key, incident),) = incidents_of(FollowerRow("a/orders", TableKind.ANNOUNCED, refusal=late))

    assert (key, incident and incident.patience_seconds) == ("unreachable:a/orders", 600.0)
