"""The table's own log is damaged, or its old part is gone: the drain copes or names it, and nothing is lost."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.errors import TableUnreadable
from kdi_assets.streams.ledger.errors import LedgerGap, TransactionRetentionSet
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults import others

_RETENTION = "delta.setTransactionRetentionDuration"
Damage = Callable[[Path], object]


@pytest.fixture
def web(driven: DrivenFactory) -> DrivenStream:
    """Two drains of six messages: versions 1 and 2."""
    web = driven(partitions=1)
    web.drain_rounds(2, 6)
    return web


def log_file(web: DrivenStream, name: int | str) -> Path:
    """A file of the table's log by its name, its commit's number, or a pattern that matches one file."""
    (found,) = (Path(web.uri) / "_delta_log").glob(name if isinstance(name, str) else f"{name:020}.json")
    return found


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def garbage(file: Path) -> None:
    file.write_bytes(b"\x00\xff" * 200)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def stale(file: Path) -> None:
    file.write_text('{"version": 99, "size": 3}')


CHECKPOINT, NEWEST = "*.checkpoint.parquet", "_last_checkpoint"


@pytest.mark.scenario("checkpoint or commit file corrupted")
@pytest.mark.parametrize(
    ("name", "damage"),
    [(CHECKPOINT, cut), (CHECKPOINT, empty), (CHECKPOINT, Path.unlink), (NEWEST, stale), (NEWEST, garbage)],
)
def test_a_damaged_checkpoint_or_hint_is_ignored_or_refused_and_loses_nothing(
    web: DrivenStream, name: str, damage: Damage
) -> None:
    """Purpose: a checkpoint only repeats the commits, and the file that names the newest one is a hint.
    Procedure: two drains and a checkpoint; it is cut off, emptied or removed, or the hint names a missing one or is no
    JSON; more messages; a drain; the command of the refusal, if there is one; drain.
    Pass: with a damaged checkpoint the drain writes nothing and names the files that can be removed; a wrong hint alone
    names no checkpoint; every offset is there once.
    """
    produced = web.produce(6, bad=0.3, seed=3)
    DeltaTable(web.uri).create_checkpoint()
    damage(log_file(web, name))

    refused = None
    try:
        web.drain()
    except TableUnreadable as refusal:
        refused = refusal
        assert sorted(Path(web.uri).glob("_delta_log/*.json"))[-1].name == f"{2:020}.json"
        remove_as_told(refusal.message_parts()[2])
        assert name != NEWEST or log_file(web, CHECKPOINT).exists()
        web.drain()

    assert refused or name == NEWEST
    web.assert_each_offset_once(produced)


def remove_as_told(run: str) -> None:
    """What a person does who follows the refusal: remove the files that it names, and no others."""
    command, *patterns = run.partition("   (")[0].split()
    assert command == "rm"
    for pattern in patterns:
        for file in Path(pattern).parent.glob(Path(pattern).name):
            file.unlink()


@pytest.mark.scenario("checkpoint or commit file corrupted")
@pytest.mark.parametrize(("damage", "version"), [(cut, 2), (garbage, 1), (empty, 1), (empty, 2)])
def test_a_damaged_commit_stops_the_stream_until_it_is_restored(
    web: DrivenStream, damage: Damage, version: int
) -> None:
    """Purpose: readers take an empty commit file for a commit without actions: its rows would be missing silently.
    Procedure: two drains; the newest commit, or the one before it, is cut off, overwritten or emptied; more messages;
    drain; then the commit is put back, as from the storage's versions.
    Pass: the drain names the log's damage and writes nothing; after that every offset is there once.
    """
    produced = web.produce(6, bad=0.3, seed=3)
    commit = log_file(web, version)
    whole = commit.read_bytes()
    damage(commit)
    before = sorted(Path(web.uri).rglob("*"))

    with pytest.raises((TableUnreadable, LedgerGap), match="_delta_log|rewind"):
        web.drain()
    assert sorted(Path(web.uri).rglob("*")) == before
    commit.write_bytes(whole)
    web.drain()

    web.assert_each_offset_once(produced)


@pytest.mark.scenario("log clean-up, transaction ids expire")
def test_positions_outlast_the_commits_that_set_them(web: DrivenStream) -> None:
    """Purpose: someone cleans the log although the table's properties forbid it; the positions are in the checkpoint.
    Procedure: two drains, an OPTIMIZE and a checkpoint of it; every commit before it is removed; more messages; drain.
    Pass: the drain begins where the last one ended, without a position commit; every offset is there once.
    """
    others.optimize(web)
    others.checkpoint(web)
    for version in range(3):
        log_file(web, version).unlink()
    produced = web.produce(6, seed=3)

    report = web.drain()

    assert [str(r.range) for c in report.commits for r in c.ranges] == [f"{web.stream.topic}/0 [12, 18)"]
    assert report.position_commits == ()
    web.assert_each_offset_once(produced)


@pytest.mark.scenario("log clean-up, transaction ids expire", "RESTORE and time travel")
def test_a_log_without_its_newest_commits_is_decided_by_the_rows(web: DrivenStream) -> None:
    """Purpose: after the newest ledger commit someone else's commit may have been a RESTORE, and it is gone.
    Procedure: two drains, a RESTORE to the first, a checkpoint; the log is cleaned by delta-rs without retention;
    drain; then rewind to the end of the rows; drain again.
    Pass: the drain refuses and names the command; after the decision every offset is there once.
    """
    others.restore(web)
    DeltaTable(web.uri).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 hours"})
    table = DeltaTable(web.uri)
    table.create_checkpoint()
    table.cleanup_metadata()
    assert not (Path(web.uri) / f"_delta_log/{3:020}.json").exists()
    produced = web.produce(6, seed=3)

    with pytest.raises(LedgerGap, match="kdi resolve .* rewind"):
        web.drain()
    web.resolve("rewind")
    web.drain()

    web.assert_each_offset_once(produced)


@pytest.mark.scenario("log clean-up, transaction ids expire")
def test_a_table_that_drops_transaction_ids_is_refused_until_its_property_is_removed(web: DrivenStream) -> None:
    """Purpose: positions of idle topic partitions would expire, and look as if they had never been read.
    Procedure: two drains; set the table property that expires transaction ids; drain; unset it; drain again.
    Pass: nothing is read while the property is set, and the error names the command that unsets it; every offset is
    there once.
    """
    produced = web.produce(6, bad=0.3, seed=3)
    DeltaTable(web.uri).alter.set_table_properties({_RETENTION: "interval 365 days"}, raise_if_not_exists=False)

    with pytest.raises(TransactionRetentionSet) as refused:
        web.drain()
    *_, statement = shlex.split(refused.value.message_parts()[2])
    web.session().sql(statement)
    web.drain()

    web.assert_each_offset_once(produced)
