"""Retention that deletes messages before they are drained: before a drain, and during it."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import Cluster, OffsetRange
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.streams.drain.plan_errors import RetentionPassedPosition
from kdi_assets.streams.resolve.resolve import Decision
from kdi_assets.streams.rules import tally
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, Once
from tests.faults.topics import SMALL_FETCHES, add_topic_partitions, delete_records
from tests.waiting import wait_until

pytestmark = pytest.mark.scenario("retention passes the position")


def accept_loss(web: DrivenStream, refused: RetentionPassedPosition | None = None) -> Decision:
    """Give up what the refusal names; without one, everything that is gone."""
    named: dict[str, Any] = {"topic_partition": refused.topic_partition, "until": refused.earliest} if refused else {}
    return web.resolve("accept-loss", **named)


def recorded_losses(web: DrivenStream) -> list[OffsetRange]:
    """The declared losses of the ledger."""
    return [loss for entry in web.entries() for loss in entry.declared_losses]


@pytest.mark.core
def test_losses_of_several_topic_partitions_are_decided_one_by_one(driven: DrivenFactory) -> None:
    """Purpose: a loss may be in any topic partition; a decision on one must not give up another.
    Procedure: drain; produce; records of topic partitions 1 and 2 are deleted, in 2 all that wait; drain; accept the
    loss that the refusal names; drain; accept the rest; drain.
    Pass: each refusal names the exact range and commits nothing; the ledger holds both losses and no more; the
    remaining messages arrive.
    """
    web = driven(partitions=3)
    web.drain_rounds(1, 30)
    produced = web.produce(30)
    delete_records(web, {1: 15, 2: 20})

    with pytest.raises(RetentionPassedPosition, match=r"deleted \[10, 15\) of .*/1") as first:
        web.drain()
    assert isinstance(read_backlog(web.stream, web.lake).refusal, RetentionPassedPosition)
    accept_loss(web, first.value)
    with pytest.raises(RetentionPassedPosition, match=r"deleted \[10, 20\) of .*/2"):
        web.drain()
    accept_loss(web)
    web.drain()

    lost = [OffsetRange(web.tp(p), 10, end) for p, end in ((1, 15), (2, 20))]
    assert recorded_losses(web) == lost
    web.assert_each_offset_once(produced, given_up=lost)
    report = web.audit()
    assert (report.complete, report.declared_losses) == (True, 15)


@pytest.mark.parametrize(("point", "until"), [("before reading", 20), ("files written", 15)])
def test_retention_under_a_drain_is_named_exactly_and_commits_nothing(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch, point: str, until: int
) -> None:
    """Purpose: planned messages may be gone when they are read, or when too many dead letters are read again.
    Procedure: drain; produce good and malformed messages; drain, and records of topic partition 1 are deleted between
    plan and reading, or between rows and dead letters; accept the loss that the refusal names; drain.
    Pass: the refusal names the exact range; the version stays; the loss is in the ledger, and everything else in the
    tables.
    """
    monkeypatch.setattr(tally, "LETTERS_BYTES", 0)
    web = driven(partitions=2)
    web.drain_rounds(1, 20)
    produced = web.produce(20, bad=0.3)
    before = web.version()

    with pytest.raises(RetentionPassedPosition, match=rf"deleted \[10, {until}\) of .*/1") as refused:
        web.drain(at=Once(point, lambda: delete_records(web, {1: until})))
    assert web.version() == before
    decision = accept_loss(web, refused.value)
    web.drain()

    assert recorded_losses(web) == list(decision.declared_losses)
    web.assert_each_offset_once(produced, given_up=decision.declared_losses)
    assert web.audit().complete


def test_what_was_read_is_committed_though_retention_deletes_it_before_the_dead_letters_are_written(
    driven: DrivenFactory,
) -> None:
    """Purpose: dead letters that are kept in memory no longer need their messages.
    Procedure: drain good and malformed messages; all records are deleted between rows and dead letters.
    Pass: the drain ends well, and every offset is there exactly once.
    """
    web = driven(partitions=1)
    produced = web.produce(20, bad=0.3)

    deletes = Once("files written", lambda: delete_records(web, {0: 20}))
    web.drain(at=deletes)

    assert deletes.happened
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_retention_while_a_task_reads_loses_nothing_in_silence(driven: DrivenFactory, spark: SparkSession) -> None:
    """Purpose: a task may be in the middle of a range when messages before or after its offset are deleted.
    Procedure: 20,000 messages, read in fetches of 16 kB; once a task of the drain runs, three quarters are deleted; if
    the drain refuses, accept the loss that it names; drain.
    Pass: the drain had read what it needed and commits all, or names the loss exactly and commits nothing; every offset
    that was not given up is there once.
    """
    web = driven(partitions=1)
    web = web.with_definition(cluster=Cluster("main", web.stream.kafka.bootstrap_servers, SMALL_FETCHES))
    produced = web.produce(20_000)
    tracker = spark.sparkContext.statusTracker()

    def delete_under_a_reader() -> None:
        wait_until(lambda: bool(tracker.getActiveStageIds()), seconds=120)
        delete_records(web, {0: 15_000})

    deleter = Thread(target=delete_under_a_reader)
    refused: list[RetentionPassedPosition] = []
    try:
        web.drain(at=Once("before reading", deleter.start))
    except RetentionPassedPosition as refusal:
        refused.append(refusal)
    deleter.join()
    version = web.version()
    lost = [loss for refusal in refused for loss in accept_loss(web, refusal).declared_losses]
    web.drain()

    assert version == (0 if refused else 1)
    assert [(loss.start, loss.end) for loss in lost] == [(0, 15_000)] * len(refused)
    web.assert_each_offset_once(produced, given_up=lost)
    assert web.audit().complete


@pytest.mark.scenario("topic partitions added")
def test_a_new_topic_partition_that_lost_its_beginning_is_a_loss_too(driven: DrivenFactory) -> None:
    """Purpose: a start at "earliest" would silently skip messages deleted before the topic partition was noticed.
    Procedure: drain; a topic partition is added, gets ten messages and loses four; drain; accept the loss; drain.
    Pass: the refusal names [0, 4); the other six arrive.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 5)
    add_topic_partitions(web, total=2)
    produced = web.produce(20)
    delete_records(web, {1: 4})

    with pytest.raises(RetentionPassedPosition, match=r"deleted \[0, 4\) of .*/1"):
        web.drain()
    assert isinstance(read_backlog(web.stream, web.lake).refusal, RetentionPassedPosition)
    decision = accept_loss(web)
    report = web.drain()

    assert sum(c.offset_count for c in report.commits) == 16
    web.assert_each_offset_once(produced, given_up=decision.declared_losses)
    assert web.audit().complete
