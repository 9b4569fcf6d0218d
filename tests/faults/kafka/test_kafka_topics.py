"""Topics deleted and recreated, partitions added, group offsets moved: by others, while a stream is drained."""

from __future__ import annotations

from shutil import rmtree

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as RdPartition
from deltalake import DeltaTable

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.follow.refine.row_errors import SequenceOfTwoTopics
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.streams.drain.errors import DeadLettersReplaced
from kdi_assets.streams.drain.plan_errors import TopicRecreated
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.resolve import Action
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, Once
from tests.faults.topics import add_topic_partitions, admin, make_again
from tests.refined import Lakeside, refined_table

ACTIONS: tuple[Action, ...] = ("accept-loss", "rewind", "adopt", "adopt-dead-letters")


@pytest.mark.core
@pytest.mark.scenario("topic deleted and made again")
def test_a_topic_made_again_while_idle_leaves_both_epochs_in_the_table(driven: DrivenFactory) -> None:
    """Purpose: offsets begin at 0 again, so the same offset names two messages and the old positions mean nothing.
    Procedure: drain ten; the topic is deleted and recreated, with more messages than the old one had; drain; decide
    ``new-topic``; drain twice; restore the table to before the decision; drain.
    Pass: refused before the decision; then both topics' messages are there, each once; refused again after the RESTORE,
    which brought the old positions back.
    """
    web = driven(partitions=2)
    old = list(web.drain_rounds(1, 10, bad=0.2))
    drained = web.version()
    web.publisher = make_again(web, partitions=2)
    new = web.produce(14, bad=0.2, seed=2)

    with pytest.raises(TopicRecreated):
        web.drain()
    web.resolve("new-topic")
    web.drain()

    assert web.drain().commits == ()
    web.assert_each_offset_once([*old, *new])
    assert web.audit().complete
    DeltaTable(web.uri).restore(drained)
    with pytest.raises(TopicRecreated):
        web.drain()


@pytest.mark.scenario("topic deleted and made again")
def test_offsets_of_two_topics_are_no_order_of_changes(driven: DrivenFactory) -> None:
    """Purpose: offsets begin at 0 again, so by them the changes of the old topic would be newer than those of the new.
    Procedure: drain, and refine the newest state of each key by offset; the topic is made again; decide ``new-topic``;
    drain; refine; then with a sequence of the messages' own.
    Pass: refused by name, and nothing is committed; then the newest states are there.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 10)
    by_offset = _newest_of_each_host(web, {})
    lake = Lakeside(web.session(), web.lake)
    lake.refine(by_offset)
    before = lake.rows(by_offset.table)
    web.publisher = make_again(web, partitions=1)
    web.produce(5, seed=2)
    web.resolve("new-topic")
    web.drain()

    with pytest.raises(SequenceOfTwoTopics, match="sequence_by"):
        lake.refine(by_offset)
    assert lake.rows(by_offset.table) == before
    by_time = _newest_of_each_host(web, {"sequence_by": "struct(kafka.timestamp, kafka.offset)"})
    lake.refine(by_time)

    lake.assert_as_computed_at_once(by_time)


def _newest_of_each_host(web: DrivenStream, more: dict[str, str]) -> RefinedTableSpec:
    return refined_table(
        **{
            "table": "silver/newest",
            "from": web.stream.table,
            "partition_by": None,
            "sql": f"SELECT status, {web.stream.coordinates} AS kafka FROM {web.stream.table.rpartition('/')[2]}",
            "mode": {"upsert": {"keys": ["status"], "column_list": ["status"], **more}},
        }
    )


@pytest.mark.scenario("topic deleted and made again")
def test_another_topic_is_decided_about_before_dead_letters_that_are_gone(driven: DrivenFactory) -> None:
    """Purpose: positions of the old topic under the new one's id would skip the new one's first messages.
    Procedure: drain ten; the dead letters are dropped and the topic is recreated with more messages; each decision that
    the refusals name; drain.
    Pass: no decision but ``new-topic`` applies before it; then the new topic's messages are there, each once.
    """
    web = driven(partitions=1)
    old = list(web.drain_rounds(1, 10, bad=0.2))
    dropped = set(web.letters("offset"))
    rmtree(web.stream.dead_letters_uri(web.lake))
    web.publisher = make_again(web, partitions=1)
    new = web.produce(14, seed=2)

    with pytest.raises(TopicRecreated):
        web.drain()
    for action in ACTIONS:
        with pytest.raises(NothingToResolve, match="new-topic decides that"):
            web.resolve(action)
    web.resolve("new-topic")
    with pytest.raises(DeadLettersReplaced, match="adopt-dead-letters"):
        web.drain()
    web.resolve("adopt-dead-letters")
    web.drain()

    web.assert_each_offset_once([*(m for m in old if m.offset not in dropped), *new])


@pytest.mark.scenario("topic deleted and made again")
@pytest.mark.parametrize(
    ("point", "count"),
    [("before reading", 0), ("files written", 40), ("accounted for", 40)],
)
def test_a_topic_made_again_under_a_drain_mixes_no_epochs(driven: DrivenFactory, point: str, count: int) -> None:
    """Purpose: the planned offsets exist in the new topic too; its messages would be taken for the old ones.
    Procedure: drain ten; produce ten; drain, and at the point the topic is deleted and recreated, empty or with more
    messages than the plan has offsets; decide ``new-topic``; drain.
    Pass: the drain says that the topic is another one and commits nothing of the new one under the old one's name;
    messages read completely from the old topic may stay; both epochs are there, each message once.
    """
    web = driven(partitions=2)
    drained = list(web.drain_rounds(1, 10, bad=0.2))
    waiting = [m for m in web.produce(10, bad=0.4, seed=2) if m not in drained]

    def make_it_again() -> None:
        web.publisher = make_again(web, partitions=2)
        web.produce(count, bad=0.4, seed=3)

    before = web.version()
    with pytest.raises(TopicRecreated):
        web.drain(at=Once(point, make_it_again))
    committed = web.version() > before
    web.resolve("new-topic")
    web.drain()

    assert committed == (point == "accounted for")  # all of it was read from the old topic, and counted
    web.assert_each_offset_once([*drained, *(waiting if committed else ()), *web.publisher.flush()])
    assert web.audit().complete


@pytest.mark.scenario("topic partitions added")
def test_a_topic_partition_added_under_a_drain_is_drained_from_its_first_message(driven: DrivenFactory) -> None:
    """Purpose: ``start: latest`` means the moment when the stream began, not that of later topic partitions.
    Procedure: five messages; a stream with ``start: latest`` resolves its start; ten more; drain, and between rows and
    commit two topic partitions are added and written to; drain again.
    Pass: everything but the first five is there, the new topic partitions from offset 0 on.
    """
    web = driven(partitions=1, start="latest")
    before = list(web.produce(5))
    web.drain()
    web.produce(10, bad=0.2, seed=1)

    def add() -> None:
        add_topic_partitions(web, total=3)
        web.produce(9, bad=0.2, seed=2)

    web.drain(at=Once("files written", add))
    web.drain()

    produced = [m for m in web.publisher.flush() if m not in before]
    assert {m.topic_partition.partition for m in produced} == {0, 1, 2}
    web.assert_each_offset_once(produced)
    assert web.audit().complete


@pytest.mark.scenario("consumer group reset by someone")
def test_group_offsets_move_no_position(driven: DrivenFactory, cluster: Cluster) -> None:
    """Purpose: anyone may commit, reset or delete the offsets of any group; the table's positions are the only ones.
    Procedure: the cluster's properties name a group; after a drain, its offsets and those of our own clients' group are
    set to 0, then, with messages waiting, to the end; then both groups are deleted; drain each time.
    Pass: nothing is drained twice, nothing is skipped.
    """
    named = Cluster("main", cluster.bootstrap_servers, {"group.id": "shop"})
    web = driven(partitions=1).with_definition(cluster=named)
    groups, client = ["shop", "kdi-reads-no-group-offsets"], admin(cluster)

    def set_to(offset: int) -> None:
        for group in groups:
            asked = ConsumerGroupTopicPartitions(group, [RdPartition(web.stream.topic, 0, offset)])
            client.alter_consumer_group_offsets([asked])[group].result(10)

    web.drain_rounds(1, 10)
    set_to(0)
    assert (read_backlog(web.stream, web.lake).offsets, web.drain().commits) == (0, ())
    web.produce(10, seed=2)
    set_to(20)
    assert read_backlog(web.stream, web.lake).offsets == 10
    web.drain()
    for deleted in client.delete_consumer_groups(groups).values():
        deleted.result(10)
    web.produce(10, seed=3)
    web.drain()

    web.assert_each_offset_once(web.publisher.flush())
