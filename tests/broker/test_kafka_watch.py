"""A watch of a real broker: what an idle topic is asked, and what of a real topic it sees when."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewPartitions

from kdi_assets.messages.kafka import topic as kafka
from kdi_assets.messages.kafka.watch import WHOLE_SECONDS, KafkaWatch
from kdi_assets.messages.topic_state import TopicState
from tests.conftest import DrivenFactory
from tests.faults.topics import TransactionalPublisher, await_markers, delete_records


def test_a_watch_of_real_topics_sees_messages_at_once_and_all_else_within_half_a_minute(driven: DrivenFactory) -> None:
    """Purpose: the answers to the short question must be those of the long one.
    Procedure: two topics; look until both are idle; then, one after the other, a message arrives, messages are
    deleted, a topic partition is added; look after each, and once more half a minute later by the watch's clock.
    Pass: the message is seen by the next look, all else by the look half a minute later; the other topic never changes.
    """
    web, other, now = driven(partitions=1), driven(partitions=2), [0.0]
    web.produce(10)
    other.produce(10)
    cluster = web.stream.kafka
    names = [web.stream.topic, other.stream.topic]
    watch = KafkaWatch(cluster, clock=lambda: now[0])

    def look() -> dict[str, object]:
        return dict(watch.topics(names, leader_seconds=10.0))

    assert look() == look() == kafka.read_topics(cluster, names)
    web.produce(1)
    assert look() == look() == look() == kafka.read_topics(cluster, names)

    quiet = look()
    delete_records(web, {0: 5})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_partitions([NewPartitions(names[0], 2)])[names[0]].result(30)
    assert look() == quiet
    now[0] += WHOLE_SECONDS
    later = look()

    assert later == kafka.read_topics(cluster, names)
    assert later[names[1]] == quiet[names[1]]
    web_now = later[names[0]]
    assert isinstance(web_now, TopicState)
    assert (web_now.partitions[web.tp(0)].earliest, len(web_now.partitions)) == (5, 2)


def test_a_topic_with_an_open_transaction_ends_where_it_did_until_it_is_over(driven: DrivenFactory) -> None:
    """Pass: a message of the open transaction moves nothing, because no drain would read it; the commit does."""
    web = driven(partitions=1)
    web.produce(3)
    cluster, topic = web.stream.kafka, web.stream.topic
    publisher = TransactionalPublisher(cluster.bootstrap_servers, f"open-{topic}")
    publisher.begin()
    publisher.produce(topic, b"1")
    publisher.flush()
    known = kafka.read_topic(cluster, topic)

    publisher.produce(topic, b"2")
    publisher.flush()
    held = kafka.with_same_ends(cluster, [known])
    publisher.end(commit=True)
    await_markers(cluster, topic)

    assert held == {topic: known}
    assert kafka.with_same_ends(cluster, [known]) == {}
