"""The ledger's archive and its use when the log is gone; letters of attempts that never committed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.sensors.reconcile import may_have_orphans, remove_orphans
from kdi_assets.streams.audit.audit import audited_history
from kdi_assets.streams.audit.errors import NothingToAudit
from kdi_assets.streams.ledger.archive import Archive, copy_to_archive
from kdi_assets.streams.ledger.entry import REPLAY_PREFIX, DeadLettersAt, LedgerEntry, RangeCounts
from kdi_assets.streams.ledger.errors import ArchiveBusy
from kdi_assets.streams.ledger.history import live_history
from kdi_assets.streams.ledger.letters import remove_orphaned_dead_letters
from tests.table_by_hand import TP, TableByHand, orders

STREAM = orders()
COUNTS_ON = DeadLettersAt("letters", 1)


@pytest.fixture
def table(lake: str) -> TableByHand:
    """Started in version 1, and drained in version 2."""
    made = TableByHand(lake)
    made.ledger_commit("start", attempt_id="start")
    made.drain(10, attempt_id="first", dead_letters=1, dead_letters_at=COUNTS_ON)
    return made


def copied(lake: str) -> int:
    return copy_to_archive(TableLog.existing(STREAM.table_uri(lake)), STREAM.archive_uri(lake))


def versions(lake: str) -> list[int]:
    """The commits in the archive."""
    return sorted(DeltaTable(STREAM.archive_uri(lake)).to_pyarrow_table()["version"].to_pylist())


def attempts(lake: str, *, archived: bool = True) -> list[str]:
    """The attempts of the live history."""
    archive = STREAM.archive_uri(lake) if archived else ""
    history = live_history(STREAM.table_uri(lake), "orders", archive_uri=archive)
    assert history is not None
    return [e.attempt_id for e in history.entries]


def test_every_commit_is_copied_once_by_repeated_copies(table: TableByHand, lake: str) -> None:
    first, again = copied(lake), copied(lake)
    table.drain()
    behind = copied(lake)

    assert (first, again, behind) == (3, 0, 1)
    assert versions(lake) == [0, 1, 2, 3]


def test_of_two_copies_at_once_one_copies_every_commit_and_the_other_is_refused(table: TableByHand, lake: str) -> None:
    """Purpose: readers would count a commit twice that the archive has twice.
    Procedure: when one copier has compared log and archive, another copies; then the first one writes.
    Pass: it is refused, and every commit is there once, whether they met creating the archive or appending to it.
    """

    def meanwhile(point: str) -> None:
        copied(lake)

    for _ in ("making the archive", "appending to it"):
        log = TableLog.existing(STREAM.table_uri(lake))
        with pytest.raises(ArchiveBusy):
            copy_to_archive(log, STREAM.archive_uri(lake), at=meanwhile)

        assert versions(lake) == list(range(log.version + 1))
        table.drain()


def test_the_archive_has_the_commits_of_a_cleaned_log_and_the_target_of_a_restore(
    table: TableByHand, lake: str
) -> None:
    table.drain(attempt_id="undone")
    table.restore(2)
    table.drain(attempt_id="behind it")
    before = attempts(lake, archived=False)
    copied(lake)
    table.drain(attempt_id="last")

    table.clean()

    assert before == ["start", "first", "behind it"]
    assert (attempts(lake), attempts(lake, archived=False)) == ([*before, "last"], ["last"])
    restore = Archive(STREAM.archive_uri(lake), table.table_id).commit(4)
    assert restore is not None
    assert (restore.restored_to, restore.archived) == (2, True)
    assert Archive(STREAM.archive_uri(lake), "a table made anew").commit(4) is None


def test_a_log_that_was_cleaned_without_a_copy_is_refused_with_that_reason(table: TableByHand, lake: str) -> None:
    table.commit(ago=timedelta())
    table.clean()

    with pytest.raises(NothingToAudit, match="cleaned up without copying.*\n.*\n.*kdi upkeep bronze/orders"):
        audited_history(STREAM, lake)


def letters(lake: str, *attempt_ids: str, offset: int = 3, **more: Sequence[str | int | datetime | None]) -> None:
    """Dead letters of one offset, each of its own attempt."""
    said = {"partition": [0] * len(attempt_ids), "offset": [offset] * len(attempt_ids), "attempt_id": attempt_ids}
    write_deltalake(STREAM.dead_letters_uri(lake), pa.table(said | more), mode="append", schema_mode="merge")


def left(lake: str) -> list[str]:
    """The attempts whose letters are there."""
    return sorted(DeltaTable(STREAM.dead_letters_uri(lake)).to_pyarrow_table()["attempt_id"].to_pylist())


@pytest.mark.parametrize("text", [None, "{cut off"])
def test_orphaned_dead_letters_are_kept_while_a_commit_cannot_be_read(
    table: TableByHand, lake: str, text: str | None
) -> None:
    letters(lake, "first", "never committed")
    DeltaTable(table.log.parent).create_checkpoint()
    whole = table.file(1).read_text()
    table.file(1).unlink()
    if text:
        table.file(1).write_text(text)

    with pytest.raises(CommitUnreadable):
        remove_orphaned_dead_letters(STREAM, lake)
    kept = left(lake)
    table.file(1).write_text(whole)
    removed = remove_orphaned_dead_letters(STREAM, lake)

    assert kept == ["first", "never committed"]
    assert (removed, left(lake)) == (1, ["first"])


def test_orphaned_dead_letters_are_removed_if_the_archive_has_the_cleaned_commits(
    table: TableByHand, lake: str
) -> None:
    letters(lake, "first", "never committed")
    table.drain()
    copied(lake)
    table.clean()
    hidden = Path(STREAM.archive_uri(lake)).rename(f"{lake}/hidden")

    with pytest.raises(CommitUnreadable):
        remove_orphaned_dead_letters(STREAM, lake)
    hidden.rename(STREAM.archive_uri(lake))

    assert (remove_orphaned_dead_letters(STREAM, lake), left(lake)) == (1, ["first"])


def test_records_and_dead_letters_of_a_replay_that_never_committed_are_kept(table: TableByHand, lake: str) -> None:
    """The records are below the position, and their replay may be about to commit; so may one that makes dead letters
    of rows.
    """
    letters(lake, "first", "never committed")
    letters(lake, "a replay", "never committed", f"{REPLAY_PREFIX}of dates", outcome=["row", None, None])

    assert remove_orphaned_dead_letters(STREAM, lake) == 2
    assert left(lake) == ["a replay", "first", f"{REPLAY_PREFIX}of dates"]


def test_dead_letters_of_records_that_kinesis_lost_are_kept(lake: str) -> None:
    """One offset stands for all of them, and a drain after the loss gives their offsets to other records.

    Procedure: drains of two shards end before they commit; records of one shard are accepted as lost; a drain of it
    ends before it commits, and the next one moves the positions past all that they wrote.
    """
    noon, hour = datetime(2026, 5, 5, 12, tzinfo=UTC), timedelta(hours=1)
    table, other = TableByHand(lake), TopicPartition(TP.topic, 1)
    table.ledger_commit("start", at={TP: 10, other: 10})
    loss, until = OffsetRange(TP, 10, 11), noon + hour
    between = {TP: (round(noon.timestamp() * 1000), round(until.timestamp() * 1000))}
    table.ledger_commit("resolve", at={TP: 11, other: 10}, declared_losses=(loss,), lost_between=between)
    table.ledger_commit("drain", at={TP: 30, other: 30})
    for attempt, tp, offset, arrived in (
        ("first lost", TP, 10, noon),
        ("last lost", TP, 19, until),
        ("read again", TP, 19, until + timedelta(milliseconds=1)),
        ("other shard", other, 19, noon),
    ):
        letters(lake, attempt, offset=offset, partition=[tp.partition], timestamp=[arrived])

    assert remove_orphaned_dead_letters(STREAM, lake) == 2
    assert left(lake) == ["first lost", "last lost"]


@pytest.mark.parametrize("restored", [False, True])
def test_dead_letters_of_messages_that_only_an_earlier_topic_had_are_kept(lake: str, restored: bool) -> None:
    """The topic is gone, so that these letters may be the only copies of its messages; offsets come again.

    Procedure: drains of two topic partitions end before they commit, one of them before a drain that takes its
    messages; the topic is made again, maybe after a RESTORE, and drained past all that they wrote.
    """
    table, other = TableByHand(lake), TopicPartition(TP.topic, 1)
    table.ledger_commit("start", at={TP: 0})
    table.ledger_commit("drain", at={TP: 20})
    if restored:
        table.restore(1)
    table.ledger_commit("resolve", at={TP: 0, other: 0}, topic_id="made again")
    table.ledger_commit("drain", at={TP: 30, other: 30}, topic_id="made again")
    for attempt, tp, offset in (("taken", TP, 19), ("not taken", TP, 20), ("of an unknown one", other, 3)):
        letters(lake, attempt, offset=offset, partition=[tp.partition])

    remove_orphaned_dead_letters(STREAM, lake)

    assert left(lake) == ["not taken", "of an unknown one", *(["taken"] if restored else [])]


@pytest.mark.parametrize("adopted", [True, False], ids=["adopted", "younger than its letters"])
def test_dead_letters_of_an_earlier_table_are_kept(lake: str, adopted: bool) -> None:
    """They may be the only copies of their messages; no entry of this table's log names their attempts."""
    letters(lake, "of the former table")
    table = TableByHand(lake) if adopted else TableByHand(lake, days_old=-1)
    table.ledger_commit("resolve" if adopted else "start")
    table.drain()

    assert (remove_orphaned_dead_letters(STREAM, lake), left(lake)) == (0, ["of the former table"])


def test_a_tick_tries_to_remove_orphaned_dead_letters_again_if_the_log_did_not_answer(
    table: TableByHand, lake: str
) -> None:
    letters(lake, "first", "never committed")
    DeltaTable(table.log.parent).create_checkpoint()
    drained = [entry(letters=1, at=1)]  # version 1 of the letters; with one drain only, 0
    hidden = table.file(1).rename(table.log / "hidden")

    silent = remove_orphans(STREAM, lake, drained, known=-1)
    hidden.rename(table.file(1))
    answered = remove_orphans(STREAM, lake, drained, known=silent)

    assert (silent, answered) == (-1, COUNTS_ON.version)
    assert left(lake) == ["first"]


def entry(*, letters: int, at: int | None, **fields: dict[str, int]) -> LedgerEntry:
    """A drain of this many dead letters that counts on this version of them."""
    counts = RangeCounts(OffsetRange(TP, 0, 10), dead_letters=letters)
    counts_on = None if at is None else DeadLettersAt("letters", at)
    names = ("orders", "try", "orders", "topic", "table")
    return LedgerEntry(1, "drain", *names, {TP: 10}, ranges=(counts,), dead_letters_at=counts_on, **fields)  # type: ignore[arg-type]


def test_a_version_of_the_dead_letters_without_an_entry_may_have_orphaned_ones() -> None:
    replay = entry(letters=0, at=2, outcomes={"row": 3})
    drains = [entry(letters=2, at=0), entry(letters=0, at=0), entry(letters=1, at=1), replay]

    assert not may_have_orphans(drains, known=-1), "each moved the dead letters once"
    assert not may_have_orphans([entry(letters=0, at=None)], known=-1)
    assert may_have_orphans([entry(letters=2, at=1)], known=-1)
    assert may_have_orphans([entry(letters=2, at=5), entry(letters=3, at=7)], known=4)
    assert may_have_orphans([entry(letters=0, at=5)], known=4)
