"""Announcements: each version of a table once and in order in the topic, whatever dies, races or is cleaned up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.storage import commit_path
from kdi_assets.documents.model.announcement import Announcement
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.documents.model.stream_fields import Announce
from kdi_assets.messages.kafka.errors import TopicMissing
from kdi_assets.streams.announce.announce import announce
from kdi_assets.streams.announce.errors import (
    AnnouncedByAnotherTable,
    AnotherAnnouncerActive,
    BookmarksNotKept,
    BookmarksScattered,
)
from kdi_assets.streams.announce.status import AnnouncedStatus, read_announced_statuses
from kdi_assets.streams.drain.drain import drain
from tests.conftest import DrivenFactory, TopicFactory
from tests.driven import DrivenStream, Once
from tests.faults.topics import delete_topic
from tests.tables.announced import announcements, assert_each_version_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Crash(BaseException):
    """The process ends here."""


def crash() -> None:
    raise Crash


@pytest.fixture
def announced(driven: DrivenFactory, topic: TopicFactory) -> Callable[[], DrivenStream]:
    """Makes streams that announce their files in a topic of their own."""
    return lambda: driven(announce=Announce(topic(2)))


def seen(web: DrivenStream) -> list[Announcement]:
    assert web.stream.announce
    return announcements(web.stream.kafka, web.stream.announce.topic)


def test_each_version_is_announced_once_with_its_files(announced: Callable[[], DrivenStream]) -> None:
    web = announced()
    web.produce(30, seed=1)
    web.drain()
    web.produce(20, seed=2)

    second = web.drain()
    web.drain()

    first, last = seen(web)
    assert_each_version_once([first, last], web.uri)
    assert (first.kind, last.kind) == ("listing", "changes")
    assert (last.version, last.commit, last.attempt_id) == (
        second.version,
        "drain",
        second.commits[-1].attempt_id,
    )
    assert sum(f.rows or 0 for f in first.added) == 30
    assert sum(f.rows or 0 for f in last.added) == 20
    assert {(r.partition, r.start, r.end) for r in last.ranges} == {(0, 15, 25), (1, 15, 25)}
    assert all(Path(f.path).stat().st_size == f.bytes and f"date={f.date}" in f.path for f in last.added)
    bounds = [f.offsets.offset for f in last.added if f.offsets]
    assert (min(low for low, _ in bounds), max(high for _, high in bounds)) == (15, 24)


def test_versions_that_no_drain_announced_are_announced_in_order_later(announced: Callable[[], DrivenStream]) -> None:
    """Purpose: a crash between the commits of the table and of Kafka loses no announcement.
    Procedure: drain; then drain three times without announcing, as if each process died right after its commit;
    then another drain finds no messages.
    Pass: one announcement for each of the three versions, in order, each with its own files.
    """
    web = announced()
    web.drain_rounds(1, 10)
    silent = web.with_definition(announce=None)
    silent.drain_rounds(3, 10)

    web.drain()

    found = seen(web)
    assert_each_version_once(found, web.uri)
    assert [a.kind for a in found] == ["listing", "changes", "changes", "changes"]
    assert found[-1].version == web.version()


def look(web: DrivenStream) -> AnnouncedStatus:
    found = read_announced_statuses([web.stream], web.lake)[web.stream.name]
    assert isinstance(found, AnnouncedStatus)
    return found


def test_how_far_a_table_is_announced_is_read_without_an_announcement(announced: Callable[[], DrivenStream]) -> None:
    """Procedure: look before the table exists, before its first announcement, after it, and after two silent drains.
    Pass: the versions and the time of the oldest one that is not announced; a look sends nothing.
    """
    web = announced()
    nothing = look(web)
    silent = web.with_definition(announce=None)
    silent.drain_rounds(1, 10)
    never = look(web)
    announce(web.stream, web.lake)
    through = web.version()
    for _ in range(20):  # the brokers end a transaction shortly after they say so
        up_to_date = look(web)
        if not up_to_date.behind:
            break
        sleep(0.1)
    silent.drain_rounds(2, 10)

    behind = look(web)

    assert nothing == AnnouncedStatus()
    assert (never.through, never.behind, never.why) == (None, through + 1, "nothing was announced before")
    assert up_to_date == AnnouncedStatus(through, through)
    assert (behind.through, behind.newest, behind.behind) == (through, web.version(), 2)
    assert behind.waiting_since is not None
    assert [a.version for a in seen(web)] == [through]


@pytest.mark.parametrize("point", ["begun", "read", "sent"])
def test_an_announcer_that_dies_leaves_nothing_announced_twice_or_never(
    announced: Callable[[], DrivenStream], point: str
) -> None:
    web = announced()
    web.drain_rounds(1, 10)
    web.with_definition(announce=None).drain_rounds(2, 10)

    with pytest.raises(Crash):
        announce(web.stream, web.lake, at=Once(point, crash))
    announce(web.stream, web.lake)

    found = seen(web)
    assert_each_version_once(found, web.uri)
    assert found[-1].version == web.version()


def test_of_two_announcers_that_race_one_announces_each_version(announced: Callable[[], DrivenStream]) -> None:
    """Procedure: an announcer stops after it read the bookmark; another one announces everything; the first goes on.
    Pass: the brokers refuse the first one, and each version is announced once.
    """
    web = announced()
    web.drain_rounds(1, 10)
    web.with_definition(announce=None).drain_rounds(2, 10)

    with pytest.raises(AnotherAnnouncerActive):
        announce(web.stream, web.lake, at=Once("read", lambda: announce(web.stream, web.lake)))

    found = seen(web)
    assert_each_version_once(found, web.uri)
    assert found[-1].version == web.version()


def test_an_announcer_that_is_overtaken_before_it_looks_finds_nothing_new(
    announced: Callable[[], DrivenStream],
) -> None:
    web = announced()
    web.drain_rounds(1, 10)
    web.with_definition(announce=None).drain_rounds(2, 10)

    late = announce(web.stream, web.lake, at=Once("begun", lambda: announce(web.stream, web.lake)))

    assert late.versions == ()
    assert_each_version_once(seen(web), web.uri)


def test_optimize_restore_and_delete_are_announced_as_what_they_are(
    announced: Callable[[], DrivenStream], spark: SparkSession
) -> None:
    web = announced()
    web.drain_rounds(3, 10)
    version = web.version()

    spark.sql(f"OPTIMIZE delta.`{web.uri}`")
    spark.sql(f"DELETE FROM delta.`{web.uri}` WHERE meta.kafka.offset < 3")
    announce(web.stream, web.lake)
    spark.sql(f"RESTORE TABLE delta.`{web.uri}` TO VERSION AS OF {version - 1}")
    announce(web.stream, web.lake)

    found = seen(web)
    assert_each_version_once(found, web.uri)
    moved, deleted, restored = found[-3:]
    assert (moved.operation, moved.data_change) == ("OPTIMIZE", False)
    assert sum(f.rows or 0 for f in moved.added) == 30
    assert not moved.only_adds and not deleted.only_adds and not restored.only_adds
    assert (deleted.operation, deleted.data_change) == ("DELETE", True)
    assert deleted.removed and sum(f.rows or 0 for f in deleted.added) == 24
    assert (restored.operation, restored.data_change) == ("RESTORE", True)
    assert restored.removed and restored.commit == ""


def test_a_log_that_was_cleaned_up_is_answered_by_a_listing(announced: Callable[[], DrivenStream]) -> None:
    web = announced()
    web.drain_rounds(1, 10)
    web.with_definition(announce=None).drain_rounds(2, 10)
    DeltaTable(web.uri).create_checkpoint()
    (Path(web.uri) / commit_path(web.version() - 1)).unlink()

    done = announce(web.stream, web.lake)
    again = announce(web.stream, web.lake)

    found = seen(web)
    assert_each_version_once(found, web.uri)
    assert [(a.kind, a.sequence) for a in found] == [("listing", 1), ("listing", 2)]
    assert "no longer has version" in done.listed_because
    assert again.versions == ()


def test_a_drain_commits_although_nothing_can_be_announced(
    announced: Callable[[], DrivenStream], topic: TopicFactory
) -> None:
    web = announced()
    web.stream = replace(web.stream, announce=Announce("topic_that_is_not_there"))
    produced, lines = web.produce(20), list[str]()

    report = drain(web.stream, lake=web.lake, session=web.session, report=lines.append)
    assert web.stream.announce
    topic(name=web.stream.announce.topic)
    web.drain()

    web.assert_each_offset_once(produced)
    assert report.rows_added == 20
    assert any("not announced" in line and "has no topic" in line for line in lines)
    assert_each_version_once(seen(web), web.uri)
    with pytest.raises(TopicMissing):
        announce(replace(web.stream, announce=Announce("another_that_is_not_there")), web.lake)


def test_a_topic_of_bookmarks_that_deletes_them_is_refused(
    announced: Callable[[], DrivenStream], topic: TopicFactory
) -> None:
    web = announced()
    assert web.stream.announce
    topic(name=f"{web.stream.announce.topic}.announced")

    with pytest.raises(BookmarksNotKept):
        announce(web.stream, web.lake)

    assert seen(web) == []


def test_a_topic_of_bookmarks_with_several_partitions_is_refused_until_it_is_made_again(
    announced: Callable[[], DrivenStream], topic: TopicFactory
) -> None:
    """Pass: nothing is announced that the next announcer would not know of; what the error says to run helps."""
    web = announced()
    web.drain_rounds(1, 10)
    assert web.stream.announce
    name = f"{web.stream.announce.topic}.announced"
    delete_topic(web, name)
    topic(name=name, partitions=3, config={"cleanup.policy": "compact"})

    with pytest.raises(BookmarksScattered, match="3 partitions"):
        announce(web.stream, web.lake)
    delete_topic(web, name)
    announce(web.stream, web.lake)
    again = announce(web.stream, web.lake)

    assert again.versions == ()


def test_a_restore_that_only_takes_files_back_is_not_announced_as_one_that_only_adds(
    announced: Callable[[], DrivenStream], spark: SparkSession
) -> None:
    web = announced()
    web.drain_rounds(2, 10)
    version = web.version()
    spark.sql(f"DELETE FROM delta.`{web.uri}`")

    spark.sql(f"RESTORE TABLE delta.`{web.uri}` TO VERSION AS OF {version}")
    announce(web.stream, web.lake)

    deleted, restored = seen(web)[-2:]
    assert (deleted.added, deleted.only_adds, bool(deleted.removed)) == ((), False, True)
    assert (bool(restored.added), restored.removed, restored.only_adds) == (True, (), False)


def test_a_table_of_the_same_path_in_another_lake_is_refused(
    announced: Callable[[], DrivenStream], tmp_path: Path
) -> None:
    web = announced()
    web.drain_rounds(1, 10)
    other = replace(web, lake=str(tmp_path / "other"))

    other.drain()
    with pytest.raises(AnnouncedByAnotherTable):
        announce(other.stream, other.lake)

    assert_each_version_once(seen(web), web.uri)


def test_an_open_transaction_of_another_table_does_not_hide_a_bookmark(
    announced: Callable[[], DrivenStream], driven: DrivenFactory, cluster: Cluster
) -> None:
    """Purpose: bookmarks of many tables share a topic, and its last stable offset waits for the slowest of them.
    Procedure: another producer's transaction is open in the topic of the bookmarks; a table is announced after it; the
    transaction ends while the next announcer looks for the bookmark.
    Pass: the announcer waits, and announces nothing twice.
    """
    from threading import Timer

    from confluent_kafka import Producer

    web = announced()
    web.drain_rounds(1, 10)
    assert web.stream.announce
    slow = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"slow {web.stream.name}"})
    slow.init_transactions(20)
    slow.begin_transaction()
    slow.produce(f"{web.stream.announce.topic}.announced", b"{}", b"another/table")
    slow.flush(20)
    ends = Timer(2.0, lambda: slow.abort_transaction(20))

    web.with_definition(announce=None).drain_rounds(1, 10)
    ends.start()
    first = announce(web.stream, web.lake)
    second = announce(web.stream, web.lake)
    ends.join()

    assert len(first.versions) == 1 and second.versions == ()
    assert_each_version_once(seen(web), web.uri)
