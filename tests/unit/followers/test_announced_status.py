"""A look at announced tables asks the brokers little, ends in time, and one table does not take down another."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from dagster import DagsterInstance, build_sensor_context
from deltalake import DeltaTable, write_deltalake

from kdi_assets.documents.loading.loader import LoadedFolder
from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.documents.model.stream import Cluster, OffsetRange, Stream, TopicPartition
from kdi_assets.documents.model.stream_fields import Announce
from kdi_assets.errors import KdiError
from kdi_assets.follow.upstream import open_upstream
from kdi_assets.messages.kafka.errors import BrokerUnreachable, TopicMissing, TopicUnanswered
from kdi_assets.messages.kafka.messages import VisibleMessage
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.operate.doctor import doctor, followers, kafka
from kdi_assets.operate.doctor.finding import fine, wrong
from kdi_assets.operate.monitoring.follower_rows import FollowerRow, watched_tables
from kdi_assets.sensors import downstream_alerts
from kdi_assets.sensors.downstream_alerts import incidents_of
from kdi_assets.settings import Settings
from kdi_assets.streams.announce import announced_bookmark, status
from kdi_assets.streams.announce.announced_bookmark import bookmark_to_json
from kdi_assets.streams.announce.errors import (
    AnnouncedTableMissing,
    BookmarkOfNewerRelease,
    BookmarksNotKept,
    BookmarksScattered,
    BookmarkUnreadable,
    NotLookedAtInTime,
)
from kdi_assets.streams.announce.status import AnnouncedStatus, is_outage_of_stream, read_announced_statuses
from kdi_assets.streams.announce.table_changes import LastAnnounced
from tests.waiting import wait_until

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
    configs: list[set[str]] = field(default_factory=list)
    refusal: KdiError | None = None
    silent: str = ""
    released: Event = field(default_factory=Event)
    partitions: int = 1
    policy: str = "compact"

    def read_topics(self, cluster: Cluster, topics: Collection[str]) -> dict[str, TopicState | KdiError]:
        self.batches.append(set(topics))
        if cluster.name == self.silent:
            assert self.released.wait(timeout=60)
        if self.refusal:
            raise self.refusal
        end = len(self.bookmarks)
        missing = TopicMissing(**BROKER, topic=KEPT.topic)
        offsets = {TopicPartition(KEPT.topic, number): BrokerOffsets(0, end, end) for number in range(self.partitions)}
        kept = TopicState(KEPT.topic, "id", offsets)
        return {"files": TopicState("files", "id", {}), KEPT.topic: kept if end else missing}

    def topic_configs(self, cluster: Cluster, topics: Collection[str]) -> dict[str, Mapping[str, str]]:
        self.configs.append(set(topics))
        return {topic: {"cleanup.policy": self.policy} for topic in topics}

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
        uri = stream.table_uri(str(self.lake))
        table = DeltaTable(uri)
        at = LastAnnounced(str(table.metadata().id), uri, table.version(), table.version(), 1)
        self.bookmarks.append((stream.name, bookmark_to_json(at).encode()))

    def look(
        self, *streams: Stream, known: tuple[str, KdiError] | None = None, seconds: float = status.LOOK_SECONDS
    ) -> list[AnnouncedStatus | KdiError]:
        found = read_announced_statuses(streams, str(self.lake), known=[known] if known else (), seconds=seconds)
        return [found[stream.name] for stream in streams]


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers(tmp_path)
    monkeypatch.setattr(status, "read_topics", brokers.read_topics)
    monkeypatch.setattr(status, "topic_configs", brokers.topic_configs)
    monkeypatch.setattr(announced_bookmark, "visible_messages", brokers.visible_messages)
    monkeypatch.setattr(announced_bookmark, "_SEEN", {})
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
    assert brokers.configs == [{KEPT.topic}] * 4
    assert brokers.reads == [OffsetRange(KEPT, 0, 2), OffsetRange(KEPT, 2, 3)]


def test_a_table_that_never_was_announced_waits_since_its_first_rows(brokers: Brokers) -> None:
    table = brokers.commit(ORDERS)
    brokers.commit(ORDERS)

    (found,) = brokers.look(ORDERS)

    assert isinstance(found, AnnouncedStatus) and found.waiting_since
    oldest = min(commit["timestamp"] for commit in table.history())
    assert (found.behind, found.waiting_since.timestamp() * 1000) == (2, oldest)


NEWER = json.dumps({"kdi_announced": announced_bookmark.FORMAT + 1, "more": {}}).encode()


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        *((value, BookmarkUnreadable) for value in (b"no JSON", b"{}", b"7", b'{"kdi_announced": 1}')),
        (NEWER, BookmarkOfNewerRelease),
    ],
)
def test_a_bookmark_that_this_release_did_not_write_refuses_its_own_table(
    brokers: Brokers, value: bytes, refusal: type[KdiError]
) -> None:
    brokers.commit(CLICKS)
    brokers.announce(CLICKS)
    brokers.bookmarks.append((ORDERS.name, value))

    orders, clicks = brokers.look(ORDERS, CLICKS)

    assert (type(orders), clicks) == (refusal, AnnouncedStatus(0, 0))


def test_what_is_not_known_in_time_is_said_and_other_clusters_have_their_rows(brokers: Brokers) -> None:
    elsewhere = announced("a/elsewhere", "other", "localhost:2")
    brokers.silent = "main"
    brokers.commit(elsewhere)
    brokers.announce(elsewhere)

    found = brokers.look(ORDERS, elsewhere, seconds=2.0)
    brokers.released.set()

    assert isinstance(found[0], NotLookedAtInTime)
    assert found[1] == AnnouncedStatus(0, 0)


def test_a_look_refuses_a_topic_that_does_not_keep_the_bookmarks(brokers: Brokers) -> None:
    """Announcers refuse it, so a table that is called announced would stand still."""
    brokers.commit(ORDERS)
    brokers.announce(ORDERS)

    brokers.policy = "delete"
    deleted = brokers.look(ORDERS)
    brokers.policy, brokers.partitions = "compact", 2
    scattered = brokers.look(ORDERS)

    assert [type(found) for found in (*deleted, *scattered)] == [BookmarksNotKept, BookmarksScattered]


@pytest.mark.parametrize(("again_seconds", "looks", "asked"), [(status.AGAIN_SECONDS, 3, 1), (0.0, 5, 3)])
def test_looks_that_hang_do_not_pile_up(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, again_seconds: float, looks: int, asked: int
) -> None:
    """Procedure: a look hangs as in a mount without its server; look again, at once or when the time for the next one
    has come; the mount answers; look again.
    Pass: a hanging look keeps the next one away for a while, and three of them for ever.
    """
    monkeypatch.setattr(status, "AGAIN_SECONDS", again_seconds)
    brokers.commit(ORDERS)
    answers = Event()
    monkeypatch.setattr(status, "open_upstream", lambda *_: None if answers.wait(60) else None)

    found = [brokers.look(ORDERS, seconds=0.1)[0] for _ in range(looks)]
    batches = len(brokers.batches)
    answers.set()
    wait_until(lambda: isinstance(brokers.look(ORDERS)[0], AnnouncedStatus))

    assert [type(late) for late in found] == [NotLookedAtInTime] * looks
    assert batches == asked


def test_a_cluster_whose_look_fails_does_not_make_another_forget_that_its_look_hangs(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = announced("a/elsewhere", "other", "localhost:2")
    brokers.silent = "main"
    brokers.commit(elsewhere)

    def fail(*_: object) -> None:
        raise RuntimeError("not one of ours")

    monkeypatch.setattr(status, "open_upstream", fail)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not one of ours"):
            brokers.look(ORDERS, elsewhere, seconds=0.5)
    brokers.released.set()

    assert len(brokers.batches) == 3, "the silent cluster was asked once, the other one twice"


def test_an_announced_table_that_is_gone_is_missing_and_one_that_never_was_has_not_begun(brokers: Brokers) -> None:
    brokers.commit(ORDERS)
    brokers.announce(ORDERS)
    rmtree(ORDERS.table_uri(str(brokers.lake)))

    gone, never = brokers.look(ORDERS, CLICKS)

    assert isinstance(gone, AnnouncedTableMissing) and never == AnnouncedStatus()
    assert "a/orders: the table was announced up to version 0, and there is no table at" in str(gone)


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


def test_the_sensor_leaves_an_outage_of_the_streams_own_brokers_to_the_lag_sensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    down = BrokerUnreachable(**BROKER, detail="timed out")
    elsewhere = replace(CLICKS, announce=Announce("files", cluster=Cluster("other", "localhost:2")))
    rows = [FollowerRow(stream.name, TableKind.ANNOUNCED, refusal=down) for stream in (ORDERS, elsewhere)]
    sent: list[str] = []

    def send(
        webhook: str, tracked: object, current: Mapping[str, object], **_: object
    ) -> tuple[dict[str, Any], list[str]]:
        sent.extend(key for key, incident in current.items() if incident)
        return {}, []

    monkeypatch.setenv("KDI_ALERT_WEBHOOK", "http://localhost:1")
    monkeypatch.setattr(downstream_alerts, "read_follower_rows", lambda tables, **_: rows)
    monkeypatch.setattr(downstream_alerts, "send_new", send)

    with DagsterInstance.ephemeral() as instance, build_sensor_context(instance) as context:
        downstream_alerts.alert_sensor([ORDERS, elsewhere]).evaluate_tick(context)

    assert sent == ["unreachable:a/clicks"]


def test_nobody_looks_at_the_announcements_of_a_retired_stream() -> None:
    """Its topics may be deleted."""
    retired, silent = replace(CLICKS, status="retired"), replace(CLICKS, announce=None)

    assert watched_tables([], [], [ORDERS, retired, silent]) == (ORDERS,)


def test_the_doctor_asks_a_cluster_once_for_all_of_its_announced_tables(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Pass: each table has its finding; a cluster that only has announcements is asked, a silent one is not."""
    down = BrokerUnreachable(**BROKER, detail="timed out")
    answers = {"main": fine("brokers", "main", ""), "other": fine("brokers", "other", "")}
    monkeypatch.setattr(kafka, "brokers", lambda of: [answers.get(of.name) or wrong("brokers", of.name, down)])
    for name in ("rights", "streams"):
        monkeypatch.setattr(kafka, name, lambda *_, **__: [])
    elsewhere, unheard = announced("a/elsewhere", "other", "localhost:2"), announced("a/unheard", "down", "localhost:3")
    streams = [ORDERS, CLICKS, elsewhere, unheard]
    for stream in streams:
        brokers.commit(stream)
    brokers.announce(ORDERS)

    settings = replace(Settings.from_environment(), home=tmp_path, lake=str(brokers.lake))
    found = doctor.examine(settings, LoadedFolder(), tmp_path, streams=streams)

    looks = {finding.of: finding.found.partition(",")[0] for finding in found if finding.examination == "announced"}
    assert looks == {"a/orders": "up to date"} | dict.fromkeys(("a/clicks", "a/elsewhere"), "1 version behind")
    assert len(brokers.batches) == 2


def test_the_doctor_has_a_finding_of_each_announced_table_also_if_one_hangs(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Procedure: the storage of the second table hangs; examine both."""
    released = Event()

    def open_one(uri: str, since: Any) -> Any:
        return None if uri == CLICKS.table_uri(str(brokers.lake)) and released.wait(60) else open_upstream(uri, since)

    monkeypatch.setattr(status, "open_upstream", open_one)
    monkeypatch.setattr(random, "sample", lambda streams, _: list(streams))
    usual = followers.ANNOUNCED_SECONDS
    monkeypatch.setattr(followers, "ANNOUNCED_SECONDS", 2.0)
    for stream in (ORDERS, CLICKS):
        brokers.commit(stream)
        brokers.announce(stream)

    settings = replace(Settings.from_environment(), home=tmp_path, lake=str(brokers.lake))
    found = list(followers.followers([ORDERS, CLICKS], settings))
    released.set()

    assert [(one.of, one.found) for one in found] == [("a/orders", "up to date"), ("a/clicks", "not looked at in time")]
    assert usual < doctor.BROKERS_SECONDS
