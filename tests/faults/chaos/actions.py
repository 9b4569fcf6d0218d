"""What producers and operators do: each action with its requirement, its guarantee and its weight."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.operate.upkeep.document_upkeep import keep_document, plan_upkeep
from kdi_assets.operate.upkeep.errors import NoUpkeepNow
from kdi_assets.streams.ledger.letters import remove_orphaned_dead_letters
from tests.faults import others
from tests.faults.chaos.world import Action, World


def has_table(world: World) -> bool:
    return world.log is not None


def _has_letters(world: World) -> bool:
    return TableLog.open(world.stream.dead_letters_uri(world.lake)) is not None


def _has_older(world: World) -> bool:
    return has_table(world) and world.version() > world.oldest_restorable


def restore(world: World) -> str:
    newest = world.version()
    version = world.random.randint(world.oldest_restorable, newest - 1)
    by_spark = world.random.random() < 0.2
    world.goes_back = True
    (others.restore_by_spark if by_spark else others.restore)(world, version)
    return f"version {newest} to {version}, by {'Spark' if by_spark else 'delta-rs'}"


def optimize(world: World) -> str:
    done: dict[str, Any] = DeltaTable(world.uri).optimize.compact()
    return f"{done['numFilesRemoved']} files to {done['numFilesAdded']}"


def checkpoint(world: World) -> str:
    others.checkpoint(world)
    return f"at version {world.version()}"


def vacuum(world: World) -> str:
    table = DeltaTable(world.uri)
    gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    world.oldest_restorable = table.version()
    return f"{len(gone)} files; nothing before version {table.version()} can be restored"


def erase(world: World) -> str:
    """Someone's rows must be erased."""
    where = world.stream.coordinates
    drained = [(tp, position) for tp, position in sorted(world.positions().items()) if position > 0]
    if not drained:
        return "nothing: no row is there"
    tp, position = world.random.choice(drained)
    first = world.random.randrange(position)
    gone = OffsetRange(tp, first, min(position, first + world.random.randint(1, 5)))
    world.given_up.append(gone)
    these = f"{where}.partition = {tp.partition} AND {where}.offset BETWEEN {gone.start} AND {gone.end - 1}"
    world.session().sql(f"DELETE FROM delta.`{world.uri}` WHERE {these}")
    return f"rows of {gone}"


def tidy_letters(world: World) -> str:
    """The dead letters' table is a table too."""
    letters = DeltaTable(world.stream.dead_letters_uri(world.lake))
    letters.optimize.compact()
    letters.create_checkpoint()
    gone = letters.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    return f"checkpoint at version {letters.version()}, {len(gone)} files removed"


def alter(world: World) -> str:
    others.alter(world)
    return "a property of somebody's"


def sweep(world: World) -> str:
    return f"{remove_orphaned_dead_letters(world.stream, world.lake)} letters of tries that never committed"


def keep(world: World) -> str:
    """As `kdi upkeep --yes`; not before the positions are committed that a RESTORE set back.

    The clean-up of the log renews positions, so that it refuses what a drain refuses: this is decided as after a drain.
    """
    now = datetime.now(UTC)
    planned = plan_upkeep(world.stream, world.lake, now=now)
    done = keep_document(world.stream, world.lake, planned, session=world.session, now=now)
    refused = [error for error in done.all_errors if isinstance(error, world.DECIDABLE)]
    errors = [error for error in done.all_errors if not isinstance(error, (NoUpkeepNow, *world.DECIDABLE))]
    assert not errors, errors
    for error in refused:
        world.decide(error)
    decided = f"; decided: {', '.join(type(error).__name__ for error in refused)}" if refused else ""
    return f"{sum(table.done for table in done.tables)} of {len(done.tables)} tables{decided}"


INTERFERENCES: tuple[Action[World], ...] = (
    Action("RESTORE", restore, "rows and positions of that version", 3, _has_older),
    Action("OPTIMIZE", optimize, "the same rows in fewer files", 2, has_table),
    Action("checkpoint", checkpoint, "the same rows", 2, has_table),
    Action("VACUUM", vacuum, "the rows of the newest version", 1, has_table),
    Action("ALTER", alter, "the same rows", 1, has_table),
    Action("DELETE", erase, "all other rows", 1, has_table),
    Action("OPTIMIZE and VACUUM of the dead letters", tidy_letters, "all letters", 1, _has_letters),
)
"""What may happen to a table between two drains, and between plan and commit of one."""

UPKEEP: tuple[Action[World], ...] = (
    Action("remove ghosts", sweep, "letters that count", 2, has_table),
    Action("upkeep", keep, "the same rows", 1, has_table),
)
"""What happens to the tables only between drains."""
