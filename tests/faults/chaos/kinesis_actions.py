"""What happens to a stream of Kinesis, and to drains of it alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kdi_assets.streams.resolve.errors import NothingToResolve
from tests.faults.chaos.actions import INTERFERENCES, UPKEEP, has_table
from tests.faults.chaos.drains import DRAINS, befallen
from tests.faults.chaos.kinesis_faults import drain_while, fail_requests
from tests.faults.chaos.kinesis_world import KinesisWorld
from tests.faults.chaos.world import Action
from tests.kinesis.drains import HOUR
from tests.kinesis.kpl import UserRecord
from tests.kinesis_ledger import live_entries

MOST = 4
"""Open shards."""
RETENTION_HOURS = (24, 48)
MOST_HOURS = 168


def put(world: KinesisWorld) -> str:
    count, bad = world.random.randint(1, 40), world.random.choice((0, 0, 1, 5))
    world.orders.put(count, bad=bad)
    return f"{count} records and {bad} bad ones"


def put_aggregates(world: KinesisWorld) -> str:
    shards, users = world.orders.open_shards(), world.random.randint(1, 20)
    for shard in shards:
        first = len(world.orders.ids)
        inside = int(shard["HashKeyRange"]["StartingHashKey"])
        records = [UserRecord(f"key {i}", b'{"id": %d}' % i, inside) for i in range(first, first + users)]
        world.orders.put_aggregate(*records, hash_key=inside)
        world.orders.ids += range(first, first + users)
    return f"one of {users} user records in each of {len(shards)} shards"


def split(world: KinesisWorld) -> str:
    world.orders.split_any()
    world.note_lineage()
    return f"{len(world.orders.open_shards())} open shards now"


def merge(world: KinesisWorld) -> str:
    world.orders.merge_any()
    world.note_lineage()
    return f"{len(world.orders.open_shards())} open shards now"


def scale(world: KinesisWorld) -> str:
    count = len(world.orders.open_shards())
    world.orders.scale(world.random.choice([more for more in (-1, 1) if 1 <= count + more <= MOST]))
    world.note_lineage()
    return f"{count} to {len(world.orders.open_shards())} open shards"


def pass_time(world: KinesisWorld) -> str:
    """The server's clock goes on: mostly for less than retention is long."""
    hours = world.random.choices((0.2, 7, 13, 25), (2, 4, 3, 2))[0]
    world.advanced_hours += hours
    world.orders.server.advance(hours * HOUR)
    return f"{hours} hours"


def change_retention(world: KinesisWorld) -> str:
    """A shorter one hides records at once; a longer one brings nothing back."""
    world.note_gone()
    hours = round(world.retention / timedelta(hours=1))
    wanted = world.random.choice([other for other in RETENTION_HOURS if other != hours])
    longer, client = wanted > hours, world.orders.client
    change = client.increase_stream_retention_period if longer else client.decrease_stream_retention_period
    change(StreamName=world.stream.topic, RetentionPeriodHours=wanted)
    world.retention = timedelta(hours=wanted)
    return f"{hours} to {wanted} hours"


def create_again(world: KinesisWorld) -> str:
    shards = world.random.randint(1, 3)
    world.orders.make_again(shards=shards)
    world.note_epoch()
    return f"with {shards} shards"


def deregister(world: KinesisWorld) -> str:
    """Somebody removes the table's consumer."""
    client = world.orders.client
    arn = client.describe_stream_summary(StreamName=world.stream.topic)["StreamDescriptionSummary"]["StreamARN"]
    consumers = client.list_stream_consumers(StreamARN=arn)["Consumers"]
    for consumer in consumers:
        client.deregister_stream_consumer(ConsumerARN=consumer["ConsumerARN"])
    return f"{len(consumers)} consumers"


def expire_iterators(world: KinesisWorld) -> str:
    world.orders.server.expire_iterators()
    return "all that were given out"


def rewind(world: KinesisWorld) -> str:
    """Positions go back to an edge of what a drain read, if Kinesis still has the records."""
    entries = live_entries(world.stream, world.lake)
    version, positions = world.random.choice(entries).version, entries[-1].positions
    tp = world.random.choice(sorted(positions))
    at = world.random.choice(world.orders.log).put_at if world.orders.log else world.orders.moment()
    targets: tuple[dict[str, Any], ...] = (
        {"to_version": version},
        {"topic_partition": tp, "to": world.random.randint(0, max(0, positions[tp]))},
        {"to_timestamp": at},
        {},
    )
    target = world.random.choice(targets)
    named = ", ".join(f"{name} {to}" for name, to in target.items()) or "to the end of the rows"
    try:
        decision = world.resolve("rewind", **target)
    except (NothingToResolve, *world.DECIDABLE) as refused:
        return f"{named}: {type(refused).__name__}"
    world.goes_back = True
    steps = [position - decision.after[tp] for tp, position in decision.before.items()]
    return f"{named}: {sum(steps)} offsets of {len([step for step in steps if step])} shards"


def _has_entries(world: KinesisWorld) -> bool:
    return has_table(world) and bool(live_entries(world.stream, world.lake))


def _can_split(world: KinesisWorld) -> bool:
    return len(world.orders.open_shards()) < MOST


def _can_merge(world: KinesisWorld) -> bool:
    return len(world.orders.open_shards()) > 1


def _has_time(world: KinesisWorld) -> bool:
    """The dates of the records stay in the window of the document."""
    return world.advanced_hours < MOST_HOURS


RESHARDING: tuple[Action[KinesisWorld], ...] = (
    Action("split", split, "the records of the parent stay", 3, _can_split),
    Action("merge", merge, "the records of the parents stay", 2, _can_merge),
    Action("scale", scale, "the records of all shards stay", 1),
)
OF_THE_STREAM: tuple[Action[KinesisWorld], ...] = (
    Action("time passes", pass_time, "what retention has not passed stays", 6, _has_time),
    Action("change retention", change_retention, "what retention has not passed stays", 1),
    Action("create the stream again", create_again, "the rows of the old one stay", 1),
)
WHILE_IT_READS: tuple[Action[KinesisWorld], ...] = (
    *RESHARDING,
    *OF_THE_STREAM,
    Action("put", put, "each record is in a shard", 2),
    Action("deregister the consumer", deregister, "nothing that was committed changes", 2),
    Action("iterators expire", expire_iterators, "nothing that was committed changes", 2),
)
KINESIS_INTERFERENCES: tuple[Action[KinesisWorld], ...] = (*INTERFERENCES, *RESHARDING, *OF_THE_STREAM)


def change_while_it_reads(world: KinesisWorld) -> str:
    action = world.choose(WHILE_IT_READS)
    assert action
    return drain_while(world, action)


def _reads_more(world: KinesisWorld) -> bool:
    """After the start: what was put before `latest` is not to be read."""
    return has_table(world) and world.waits()


KINESIS_ACTIONS: tuple[Action[KinesisWorld], ...] = (
    Action("put", put, "each record is in a shard", 14),
    Action("put aggregates", put_aggregates, "each user record is in a shard", 4),
    *DRAINS,
    befallen("its requests fail", fail_requests, "a whole drain or none", 4),
    Action("drain, and its stream changes", change_while_it_reads, "all that was there when it began", 5, _reads_more),
    Action("rewind", rewind, "each record is read again", 2, _has_entries),
    *KINESIS_INTERFERENCES,
    *UPKEEP,
)
