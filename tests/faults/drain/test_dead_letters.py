"""Dead letters have their own table, without a common transaction: they count only through the ledger."""

from __future__ import annotations

from typing import Any

import deltalake
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.delta.log import TableLog
from kdi_assets.streams.drain.errors import DeadLettersReplaced
from kdi_assets.streams.ledger.letters import remove_orphaned_dead_letters
from kdi_assets.streams.spark_errors import StorageForbids
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import DrivenStream
from tests.faults import others
from tests.kafka_log import Produced

scenario = pytest.mark.scenario


def die_before_the_commit(point: str) -> None:
    if point == "dead letters written":
        raise KeyboardInterrupt


def died(driven: DrivenFactory) -> tuple[DrivenStream, list[Produced]]:
    """A stream whose only drain left letters and no commit."""
    web = driven(partitions=1)
    produced = web.produce(30, bad=0.5)
    with pytest.raises(KeyboardInterrupt):
        web.drain(at=die_before_the_commit)
    return web, produced


@also_on_s3
@pytest.mark.core
@scenario("killed between dead letters and commit")
def test_dead_letters_of_an_attempt_that_never_committed_do_not_count(driven: DrivenFactory) -> None:
    """Purpose: the two tables share no transaction, so an attempt may leave letters and no commit.
    Procedure: a drain ends between dead letters and commit; drain again.
    Pass: the letters are there twice, and count once.
    """
    web, produced = died(driven)

    web.drain()

    found = web.found()
    assert len(found.ghosts) == len(found.dead_letters) > 0
    web.assert_each_offset_once(produced)
    report = web.audit()
    assert report.complete
    assert report.orphaned_dead_letters == len(found.ghosts)


@also_on_s3
@scenario("killed between dead letters and commit", "RESTORE and time travel")
def test_orphaned_dead_letters_are_removed_only_below_the_position(driven: DrivenFactory) -> None:
    """Purpose: the letters of a dead attempt must be removed one day, but for a while they may be those of a live
    attempt.
    Procedure: an attempt ends before its commit; remove orphaned letters before and after the next drain; then restore
    the table to before that drain, so that its letters do not count either, drain, and remove again.
    Pass: nothing is removed above the position; the dead attempt's letters go; the undone commit's letters stay,
    because another RESTORE could bring them back.
    """
    web, produced = died(driven)

    above = remove_orphaned_dead_letters(web.stream, web.lake)
    web.drain()
    below = remove_orphaned_dead_letters(web.stream, web.lake)
    DeltaTable(web.uri).restore(0)
    web.drain()
    undone = remove_orphaned_dead_letters(web.stream, web.lake)

    found = web.found()
    assert (above, below, undone) == (0, len(found.dead_letters), 0)
    assert len(found.ghosts) == len(found.dead_letters)
    web.assert_each_offset_once(produced)


@also_on_s3
@scenario("RESTORE and time travel", "killed between dead letters and commit")
@pytest.mark.parametrize("happened", ["restored", "dropped", "replaced"])
def test_a_drain_whose_dead_letters_are_removed_before_its_commit_does_not_commit(
    driven: DrivenFactory, happened: str
) -> None:
    """Purpose: a commit that counts on missing letters would move the position past their messages for good.
    Procedure: a drain with malformed messages; during the next, between letters and commit, the letters' table is
    restored to before them, dropped or replaced; adopt what is there; drain.
    Pass: refused, and nothing committed; in the end each offset exactly once, except the letters that someone dropped.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 20, bad=0.3)
    before = set(web.letters("offset"))
    produced = web.produce(20, bad=0.3, seed=2)
    version, uri = web.version(), web.stream.dead_letters_uri(web.lake)

    def at(point: str) -> None:
        if point != "dead letters written" or TableLog.existing(uri).version > 1:
            return
        if happened == "restored":
            DeltaTable(uri).restore(0)
        elif happened == "dropped":
            others.remove_folder(uri)
        else:
            made = f"CREATE OR REPLACE TABLE delta.`{uri}` USING delta"
            web.session().sql(f"{made} AS SELECT * FROM delta.`{uri}` VERSION AS OF 0")

    with pytest.raises(DeadLettersReplaced, match="adopt"):
        web.drain(at=at)
    assert web.version() == version
    web.resolve("adopt-dead-letters")
    web.drain()

    dropped = before if happened == "dropped" else set()
    web.assert_each_offset_once([m for m in produced if m.offset not in dropped])


@scenario("dead letters cannot be written")
@pytest.mark.parametrize("written", [False, True])
def test_a_drain_whose_dead_letters_cannot_be_appended_does_not_commit(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """Purpose: few letters are appended without Spark, and storage may fail there as well, or its answer may be lost.
    Procedure: the append of a drain's letters fails, before or after its commit; drain again.
    Pass: refused with the cause, and nothing committed; in the end each offset exactly once.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 20, bad=0.3)
    produced, version = web.produce(20, bad=0.3, seed=2), web.version()

    def fails(*arguments: Any, **options: Any) -> None:
        if written:
            write_deltalake(*arguments, **options)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as storage:
        storage.setattr(deltalake, "write_deltalake", fails)
        with pytest.raises(StorageForbids, match="No space left on device"):
            web.drain()
    assert web.version() == version
    web.drain()

    web.assert_each_offset_once(produced)
    assert bool(web.found().ghosts) is written
