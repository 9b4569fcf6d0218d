"""Transactions of producers: committed, aborted, left open, cut short by a drain, taken over from a zombie."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from confluent_kafka import KafkaException

from kdi_assets.messages.kafka.topic import read_topic
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults.topics import TransactionalPublisher, await_markers
from tests.waiting import wait_until

pytestmark = pytest.mark.scenario("aborted, open and torn transactions")


def transactional(web: DrivenStream, **properties: str | int) -> tuple[DrivenStream, TransactionalPublisher]:
    """The same stream, produced to in transactions."""
    writer = TransactionalPublisher(web.stream.kafka.bootstrap_servers, web.stream.topic, **properties)
    return replace(web, publisher=writer), writer


@pytest.mark.core
def test_only_what_was_committed_arrives_wherever_the_drains_cut(driven: DrivenFactory) -> None:
    """Purpose: aborted messages and markers take offsets; a plan may end in the middle of them.
    Procedure: transactions of random sizes, committed or aborted, with plain messages between, over two topic
    partitions; drain in plans of 16 offsets that cut them anywhere.
    Pass: exactly the committed messages, every other offset a confirmed gap; the audit accounts for all of them.
    """
    web = driven(partitions=2, max_records=16)
    inside, writer = transactional(web)
    random = Random(web.seed)
    for step, ending in enumerate(["commit", "abort", "commit", "abort", "plain", "abort", "commit"]):
        count = random.randint(3, 8)
        if ending == "plain":
            web.produce(count, bad=0.3, seed=step)
        else:
            with writer.transaction(commit=ending == "commit"):
                inside.produce(count, bad=0.3, seed=step)

    report = web.drain()

    produced = [*web.publisher.log, *writer.log]
    web.assert_each_offset_once(produced)
    assert sum(c.gap_offsets for c in report.commits) == report.backlog_before - len(produced) > 6
    assert len(report.commits) > 2
    assert web.audit().complete


def test_ranges_without_any_message_move_the_positions(driven: DrivenFactory) -> None:
    """Purpose: a range may contain no visible message, and must not be waited for nor counted as backlog for ever.
    Procedure: a committed transaction of five, drained in plans of five, so that the second plan is only its marker;
    then only an aborted transaction.
    Pass: both are gaps; nothing is left to drain; the oracle finds the five.
    """
    web = driven(partitions=1, max_records=5)
    inside, writer = transactional(web)
    with writer.transaction():
        inside.produce(5)
    await_markers(web.stream.kafka, web.stream.topic)

    marker = web.drain()
    with writer.transaction(commit=False):
        inside.produce(4)
    await_markers(web.stream.kafka, web.stream.topic)
    aborted = web.drain()

    assert [(c.offset_count, c.gap_offsets) for c in (*marker.commits, *aborted.commits)] == [(5, 0), (1, 1), (5, 5)]
    assert read_backlog(web.stream, web.lake).offsets == 0
    web.assert_each_offset_once(writer.log)
    assert web.audit().complete


@pytest.mark.parametrize(
    ("point", "commit"), [("before reading", True), ("before reading", False), ("accounted for", True)]
)
def test_a_transaction_that_ends_during_a_drain_arrives_whole_with_the_next(
    driven: DrivenFactory, point: str, commit: bool
) -> None:
    """Purpose: a reader that goes past the last stable offset of its plan would take parts of a transaction.
    Procedure: plain messages, then an open transaction over both topic partitions; drain, and end the transaction
    between plan and reading, or just before the commit; drain again.
    Pass: the first drain takes the plain messages and none of the transaction, the second all of it or none.
    """
    web = driven(partitions=2)
    inside, writer = transactional(web)
    plain = list(web.produce(6))
    writer.begin()
    inside.produce(10, bad=0.2, seed=1)
    web.produce(4, seed=2)

    first = web.drain(at=lambda reached: writer.end(commit=commit) if reached == point else None)
    web.assert_each_offset_once(plain)
    second = web.drain()

    assert sum(c.offset_count for c in first.commits) == 6
    assert sum(c.offset_count for c in second.commits) == 16
    web.assert_each_offset_once([*web.publisher.log, *writer.log])
    assert web.audit().complete


@pytest.mark.parametrize("how", ["the broker aborts it", "another producer takes over"])
def test_a_transaction_that_nobody_ends_holds_back_and_loses_nothing(driven: DrivenFactory, how: str) -> None:
    """Purpose: a producer that hangs holds the last stable offset; its messages must never arrive, later ones must.
    Procedure: plain messages, an open transaction whose producer does nothing more, plain messages; drain. Then the
    broker aborts it (transaction.timeout.ms), or another producer with its transactional id fences it and commits; the
    zombie resumes and tries to commit; drain again.
    Pass: the first drain stops at the transaction and the status shows how much is held back; the zombie is refused; in
    the end every committed message is there and nothing else.
    """
    web = driven(partitions=2)
    hung, zombie = transactional(web, **{"transaction.timeout.ms": 4000 if "broker" in how else 60_000})
    web.produce(6)
    zombie.begin()
    hung.produce(4, seed=1)
    web.produce(6, seed=2)

    held = read_backlog(web.stream, web.lake).open_transaction_offsets
    first = web.drain()
    after = transactional(web) if "another" in how else None
    if after:
        with after[1].transaction():
            after[0].produce(4, seed=3)
    wait_until(lambda: read_backlog(web.stream, web.lake).open_transaction_offsets == 0, seconds=20)
    with pytest.raises(KafkaException):
        zombie.end(commit=True)
    second = web.drain()

    zombie.forget()
    assert (sum(c.offset_count for c in first.commits), held) == (6, 10)
    assert sum(c.gap_offsets for c in second.commits) >= 4
    web.assert_each_offset_once([*web.publisher.log, *(after[1].log if after else [])])
    assert web.audit().complete


def test_offsets_behind_an_open_transaction_are_no_end_to_start_from(driven: DrivenFactory) -> None:
    """Purpose: ``start: latest`` during an open transaction must neither skip its messages nor invent any.
    Procedure: plain messages, an open transaction; a stream with ``start: latest`` resolves its start; the transaction
    commits; drain.
    Pass: the start is the last stable offset, and the transaction arrives completely.
    """
    web = driven(partitions=1, start="latest")
    inside, writer = transactional(web)
    web.produce(5)
    writer.begin()
    inside.produce(3, seed=1)

    web.drain()
    assert read_topic(web.stream.kafka, web.stream.topic).partitions[web.tp()].end == 5
    writer.end(commit=True)
    web.drain()

    web.assert_each_offset_once(writer.log)
