"""What happens to a topic of Kafka, and to drains of it alone."""

from __future__ import annotations

from dataclasses import replace

from kdi_assets.errors import KdiError, Transient
from kdi_assets.messages.kafka.topic import read_topic
from kdi_assets.streams.drain.report import DrainReport
from tests.driven import Once
from tests.faults.chaos.actions import INTERFERENCES, UPKEEP
from tests.faults.chaos.drains import DRAINS, befallen, told
from tests.faults.chaos.kafka_world import KafkaWorld
from tests.faults.chaos.world import Action
from tests.faults.topics import TransactionalPublisher, add_topic_partitions, delete_records

MOST = 4
"""Topic partitions."""


def produce(world: KafkaWorld) -> str:
    count = world.random.randint(1, 120)
    bad, tombstones = world.random.choice((0.0, 0.02, 0.2)), world.random.choice((0.0, 0.05))
    world.web.produce(count, bad=bad, tombstones=tombstones, seed=world.random.randrange(1000))
    return f"{count} messages, {bad:.0%} bad, {tombstones:.0%} tombstones"


def begin_transaction(world: KafkaWorld) -> str:
    transaction = TransactionalPublisher(world.broker.bootstrap_servers, f"chaos {world.stream.topic}")
    transaction.begin()
    count = world.random.randint(1, 30)
    replace(world.web, publisher=transaction).produce(count, seed=count)
    world.transaction = transaction
    return f"{count} messages"


def end_transaction(world: KafkaWorld) -> str:
    transaction, world.transaction = world.transaction, None
    assert transaction is not None
    count, commit = len(transaction.log), world.random.random() < 0.5
    transaction.end(commit=commit)
    world.web.publisher.log += transaction.log
    return f"{'committed' if commit else 'aborted'} {count} messages"


def add_partition(world: KafkaWorld) -> str:
    more = world.web.partitions() + 1
    add_topic_partitions(world.web, total=more)
    return f"{more} topic partitions now"


def retention(world: KafkaWorld) -> str:
    """Retention, accelerated."""
    held = read_topic(world.stream.kafka, world.stream.topic).partitions
    tp, offsets = world.random.choice(sorted(held.items()))
    # Mostly drained messages, as in practice; sometimes others.
    drained = max(offsets.earliest, min(world.positions()[tp], offsets.end))
    until = world.random.randint(offsets.earliest, offsets.end if world.random.random() < 0.3 else drained)
    delete_records(world.web, {tp.partition: until})
    return f"{tp} begins at {until}, drained up to {drained}"


def restart_broker(world: KafkaWorld) -> str:
    world.broker.kill()
    world.broker.restart()
    return "killed and started again"


def lose_broker(world: KafkaWorld) -> str:
    """The broker is killed and started again between plan and read."""
    restarted = Once("before reading", lambda: restart_broker(world))
    outcome: DrainReport | KdiError | None
    try:
        outcome = world.drain(at=restarted)
    except Transient as failed:
        outcome = failed
    return f"{told(outcome)}; broker {'killed and started again' if restarted.happened else 'stays'}"


KAFKA_INTERFERENCES: tuple[Action[KafkaWorld], ...] = (
    *INTERFERENCES,
    Action("retention", retention, "what is behind it stays", 2),
    Action("add a topic partition", add_partition, "the others stay", 1, lambda w: w.web.partitions() < MOST),
)

KAFKA_ACTIONS: tuple[Action[KafkaWorld], ...] = (
    Action("produce", produce, "every message is acknowledged and in the log", 14),
    Action("begin transaction", begin_transaction, "nothing is visible", 2, lambda w: w.transaction is None),
    Action("end transaction", end_transaction, "all of it or nothing", 4, lambda w: w.transaction is not None),
    Action("restart the broker", restart_broker, "what was acknowledged stays", 1),
    *DRAINS,
    befallen("the broker goes", lose_broker, "a whole drain or none", 1),
    *KAFKA_INTERFERENCES,
    *UPKEEP,
)
