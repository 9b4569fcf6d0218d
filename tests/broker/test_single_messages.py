"""Single messages around a position: what a drain keeps of the last one, and finds there the next time."""

from __future__ import annotations

from kdi_assets.sources.kafka import read_topic
from kdi_assets.sources.kafka_messages import around_positions, last_messages
from kdi_assets.stream import KafkaCluster, OffsetRange, TopicPartition
from tests.conftest import TopicFactory
from tests.faults.topics import TransactionalPublisher
from tests.kafka_log import Publisher


def test_the_last_message_of_a_range_is_found_again_before_the_position_behind_it(
    topic: TopicFactory, producer: Publisher, cluster: KafkaCluster
) -> None:
    """Behind the messages of a transaction its marker stands; an aborted one shows none."""
    plain, empty = (TopicPartition(topic(), 0) for _ in range(2))
    markers = TopicPartition(topic(), 0)
    producer.produce_all(plain.topic, ["a", "b", "b"], partition=0)
    transactional = TransactionalPublisher(cluster.bootstrap_servers, markers.topic)
    for commit in (True, True, False):
        with transactional.transaction(commit=commit):
            transactional.produce(markers.topic, "c", partition=0)
    ends = {tp: read_topic(cluster, tp.topic).partitions[tp].end for tp in (plain, empty, markers)}

    last = last_messages(cluster, [OffsetRange(tp, 0, end) for tp, end in ends.items()])
    producer.produce_all(plain.topic, ["d"], partition=0)
    before = {tp: message.offset for tp, message in last.items()}
    found = around_positions(cluster, ends, before=before)

    assert {tp: m.offset for tp, m in last.items()} == {plain: 2, markers: 2}
    assert {tp: at.before for tp, at in found.items()} == {**last, empty: None}
    assert [tp for tp, at in found.items() if at.next_at] == [plain]
    assert last[plain] != last_messages(cluster, [OffsetRange(plain, 0, 1)])[plain]
    assert around_positions(cluster, {plain: 3}, before={plain: 1})[plain].before != last[plain]
