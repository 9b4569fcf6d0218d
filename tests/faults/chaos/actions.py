"""What producers and operators do: each action with its requirement, its guarantee and its weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from deltalake import DeltaTable

from kdi_assets.delta.log import TableLog
from kdi_assets.ledger.letters import remove_orphaned_dead_letters
from kdi_assets.sources.kafka.topic import read_topic
from kdi_assets.stream.stream import OffsetRange
from tests.faults import others
from tests.faults.chaos.world import World
from tests.faults.topics import TransactionalPublisher, add_topic_partitions, delete_records

MOST = 4
"""Topic partitions."""


@dataclass(frozen=True)
class Action:
    """Something that happens to a stream.

    Attributes:
        run: Does it, and returns what it did in a few words.
        requires: Whether it can happen in this world.
        promises: What it preserves, or brings about.
        weight: How often it comes, relative to the others.
    """

    name: str
    run: Callable[[World], str]
    promises: str
    weight: int
    requires: Callable[[World], bool] = lambda world: True


def _has_table(world: World) -> bool:
    return world.log is not None


def _has_letters(world: World) -> bool:
    return TableLog.open(world.stream.dead_letters_uri(world.web.lake)) is not None


def _has_older(world: World) -> bool:
    return _has_table(world) and world.web.version() > world.oldest_restorable


def produce(world: World) -> str:
    count = world.random.randint(1, 120)
    bad, tombstones = world.random.choice((0.0, 0.02, 0.2)), world.random.choice((0.0, 0.05))
    world.web.produce(count, bad=bad, tombstones=tombstones, seed=world.random.randrange(1000))
    return f"{count} messages, {bad:.0%} bad, {tombstones:.0%} tombstones"


def begin_transaction(world: World) -> str:
    transaction = TransactionalPublisher(world.broker.bootstrap_servers, f"chaos {world.stream.topic}")
    transaction.begin()
    count = world.random.randint(1, 30)
    replace(world.web, publisher=transaction).produce(count, seed=count)
    world.transaction = transaction
    return f"{count} messages"


def end_transaction(world: World) -> str:
    transaction, world.transaction = world.transaction, None
    assert transaction is not None
    count, commit = len(transaction.log), world.random.random() < 0.5
    transaction.end(commit=commit)
    world.web.publisher.log += transaction.log
    return f"{'committed' if commit else 'aborted'} {count} messages"


def add_partition(world: World) -> str:
    more = world.web.partitions() + 1
    add_topic_partitions(world.web, total=more)
    return f"{more} topic partitions now"


def retention(world: World) -> str:
    """Retention, accelerated."""
    held = read_topic(world.stream.kafka, world.stream.topic).partitions
    tp, offsets = world.random.choice(sorted(held.items()))
    # Mostly drained messages, as in practice; sometimes others.
    drained = max(offsets.earliest, min(world.positions()[tp], offsets.end))
    until = world.random.randint(offsets.earliest, offsets.end if world.random.random() < 0.3 else drained)
    delete_records(world.web, {tp.partition: until})
    return f"{tp} begins at {until}, drained up to {drained}"


def restore(world: World) -> str:
    newest = world.web.version()
    version = world.random.randint(world.oldest_restorable, newest - 1)
    by_spark = world.random.random() < 0.2
    world.goes_back = True
    (others.restore_by_spark if by_spark else others.restore)(world.web, version)
    return f"version {newest} to {version}, by {'Spark' if by_spark else 'delta-rs'}"


def optimize(world: World) -> str:
    done: dict[str, Any] = DeltaTable(world.web.uri).optimize.compact()
    return f"{done['numFilesRemoved']} files to {done['numFilesAdded']}"


def checkpoint(world: World) -> str:
    others.checkpoint(world.web)
    return f"at version {world.web.version()}"


def vacuum(world: World) -> str:
    table = DeltaTable(world.web.uri)
    gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    world.oldest_restorable = table.version()
    return f"{len(gone)} files; nothing before version {table.version()} can be restored"


def erase(world: World) -> str:
    """Someone's rows must be erased."""
    drained = [(tp, position) for tp, position in sorted(world.positions().items()) if position]
    if not drained:
        return "nothing: no row is there"
    tp, position = world.random.choice(drained)
    first = world.random.randrange(position)
    gone = OffsetRange(tp, first, min(position, first + world.random.randint(1, 5)))
    world.given_up.append(gone)
    where = f"meta.kafka.partition = {tp.partition} AND meta.kafka.offset BETWEEN {gone.start} AND {gone.end - 1}"
    world.session().sql(f"DELETE FROM delta.`{world.web.uri}` WHERE {where}")
    return f"rows of {gone}"


def tidy_letters(world: World) -> str:
    """The dead letters' table is a table too."""
    letters = DeltaTable(world.stream.dead_letters_uri(world.web.lake))
    letters.optimize.compact()
    letters.create_checkpoint()
    gone = letters.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    return f"checkpoint at version {letters.version()}, {len(gone)} files removed"


def alter(world: World) -> str:
    others.alter(world.web)
    return "a property of somebody's"


def sweep(world: World) -> str:
    return f"{remove_orphaned_dead_letters(world.stream, world.web.lake)} letters of tries that never committed"


def restart_broker(world: World) -> str:
    world.broker.kill()
    world.broker.restart()
    return "killed and started again"


INTERFERENCES = (
    Action("RESTORE", restore, "rows and positions of that version", 3, _has_older),
    Action("OPTIMIZE", optimize, "the same rows in fewer files", 2, _has_table),
    Action("checkpoint", checkpoint, "the same rows", 2, _has_table),
    Action("VACUUM", vacuum, "the rows of the newest version", 1, _has_table),
    Action("ALTER", alter, "the same rows", 1, _has_table),
    Action("DELETE", erase, "all other rows", 1, _has_table),
    Action("OPTIMIZE and VACUUM of the dead letters", tidy_letters, "all letters", 1, _has_letters),
    Action("retention", retention, "what is behind it stays", 2),
    Action("add a topic partition", add_partition, "the others stay", 1, lambda w: w.web.partitions() < MOST),
)
"""What may happen between two drains, and between plan and commit of one."""

PRODUCING = (
    Action("produce", produce, "every message is acknowledged and in the log", 14),
    Action("begin transaction", begin_transaction, "nothing is visible", 2, lambda w: w.transaction is None),
    Action("end transaction", end_transaction, "all of it or nothing", 4, lambda w: w.transaction is not None),
    Action("restart the broker", restart_broker, "what was acknowledged stays", 1),
)
"""What happens to the topic."""

UPKEEP = (
    *INTERFERENCES,
    Action("remove ghosts", sweep, "letters that count", 2, _has_table),
)
"""What happens to the tables between drains."""
