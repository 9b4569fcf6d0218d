"""A watch asks an idle topic of Kafka for its ends only, and sees whatever happens to it soon."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from kdi_assets.documents.model.stream import Cluster, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka import topic as kafka
from kdi_assets.messages.kafka.client import broker_unreachable
from kdi_assets.messages.kafka.watch import WHOLE_SECONDS, KafkaWatch
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState

MAIN = Cluster("main", "127.0.0.1:1")


class Brokers:
    """Two topics, and for which of them everything was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics = {name: TopicState(name, "first", _offsets(name, 0, 5)) for name in ("idle", "busy")}
        self.down, self.now, self.whole, self.looks_at_ends = False, 0.0, list[str](), 0
        self.watch = KafkaWatch(MAIN, clock=lambda: self.now)
        monkeypatch.setattr(kafka, "read_topics", self._read)
        monkeypatch.setattr(kafka, "with_same_ends", self._same)

    def look(self) -> dict[str, TopicState | KdiError]:
        """A look at both topics; what was asked for before is forgotten."""
        self.whole.clear()
        return self.watch.topics(self.topics, leader_seconds=0.0)

    def _read(self, cluster: Cluster, names: Collection[str], *, leader_seconds: float) -> dict[str, TopicState]:
        if self.down:
            raise broker_unreachable(MAIN, "down")
        self.whole += sorted(names)
        return {name: self.topics[name] for name in names}

    def _same(self, cluster: Cluster, states: Collection[TopicState]) -> dict[str, TopicState]:
        self.looks_at_ends += 1
        if self.down:  # each request times out
            return {}
        return {s.topic: s for s in states if s.ends.items() <= self.topics[s.topic].ends.items()}


def _offsets(topic: str, *numbers: int) -> dict[TopicPartition, BrokerOffsets]:
    """One topic partition: first offset, end, and high watermark where it is another."""
    first, end, *high = numbers
    return {TopicPartition(topic, 0): BrokerOffsets(first, end, *(high or [end]))}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers(monkeypatch)
    made.look()
    made.look()
    return made


def test_an_idle_topic_is_asked_for_its_ends_and_told_as_it_was(brokers: Brokers) -> None:
    brokers.topics["busy"] = replace(brokers.topics["busy"], partitions=_offsets("busy", 0, 6))

    seen = brokers.look()

    assert (seen, brokers.whole) == (brokers.topics, ["busy"])


def test_a_topic_that_moves_is_asked_for_everything_until_it_rests(brokers: Brokers) -> None:
    asked = []
    for end in (6, 7, 7, 7, 7):
        brokers.topics["busy"] = replace(brokers.topics["busy"], partitions=_offsets("busy", 0, end))
        assert brokers.look() == brokers.topics
        asked.append("busy" in brokers.whole)

    assert asked == [True, True, True, False, False]


@pytest.mark.parametrize(
    "now",
    [
        TopicState("idle", "second", _offsets("idle", 0, 5)),
        TopicState("idle", "first", _offsets("idle", 3, 5)),
        TopicState("idle", "first", _offsets("idle", 0, 5, 9)),
        TopicState("idle", "first", {**_offsets("idle", 0, 5), TopicPartition("idle", 1): BrokerOffsets(0, 1, 1)}),
    ],
    ids=["made again", "first messages deleted", "transaction open", "topic partition added"],
)
def test_what_moves_no_end_is_seen_half_a_minute_later(brokers: Brokers, now: TopicState) -> None:
    brokers.topics["idle"] = now

    brokers.now += WHOLE_SECONDS - 1
    before = brokers.look()["idle"]
    brokers.now += 1

    assert before != now
    assert brokers.look()["idle"] == now


def test_brokers_that_do_not_answer_are_an_error_of_the_look_and_forgotten_afterwards(brokers: Brokers) -> None:
    """Pass: only the first look waits for both answers, that about the ends and that about everything."""
    brokers.down = True
    for _ in range(3):
        with pytest.raises(KdiError):
            brokers.look()
    assert brokers.looks_at_ends == 1

    brokers.down = False

    assert brokers.look() == brokers.topics


def test_a_topic_with_a_new_message_or_without_an_answer_has_not_the_same_ends() -> None:
    """The client's own mock of a broker: the requests are real ones."""
    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    cluster = Cluster("main", f"{broker.host}:{broker.port}")
    for topic in ("idle", "busy"):
        producer.produce(topic, b"1", partition=0)
    producer.flush(10)
    known = [TopicState(name, "id", _offsets(name, 0, 1)) for name in ("idle", "busy")]
    gone = TopicState("gone", "id", _offsets("gone", 0, 1))

    assert kafka.with_same_ends(cluster, known).keys() == {"idle", "busy"}
    producer.produce("busy", b"2", partition=0)
    producer.flush(10)

    assert kafka.with_same_ends(cluster, known) == {"idle": known[0]}
    assert kafka.with_same_ends(cluster, [gone]) == {}
