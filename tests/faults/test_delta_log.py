"""The table's own log is damaged, or its old part is gone: said, or seen through, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kdi_assets.drain.resolve import carry_out_decision, decide
from kdi_assets.ledger.damage import TableUnreadable
from kdi_assets.ledger.state import LedgerGap, TransactionRetentionSet
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults import others

_RETENTION = "delta.setTransactionRetentionDuration"


def log_file(web: DrivenStream, name: int | str) -> Path:
    """A file of the table's log; a number is a commit's."""
    return Path(web.uri) / "_delta_log" / (name if isinstance(name, str) else f"{name:020}.json")


def checkpoint_of(web: DrivenStream) -> Path:
    (found,) = (Path(web.uri) / "_delta_log").glob("*.checkpoint.parquet")
    return found


@pytest.fixture
def web(driven: DrivenFactory) -> DrivenStream:
    """Two drains of six messages: versions 1 and 2."""
    web = driven(partitions=1)
    for seed in (1, 2):
        web.produce(6, seed=seed)
        web.drain()
    return web


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _garbage(file: Path) -> None:
    file.write_bytes(b"\x00\xff" * 200)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _gone(file: Path) -> None:
    file.unlink()


@pytest.mark.scenario("checkpoint or commit file corrupted")
@pytest.mark.parametrize("damage", [_cut, _empty, _gone])
def test_a_checkpoint_that_cannot_be_read_is_said_and_what_it_repeats_is_still_there(
    web: DrivenStream, damage: Callable[[Path], None]
) -> None:
    """Purpose: a checkpoint only repeats the commits; while these are there, nothing is lost with it.
    Procedure: two drains and a checkpoint; it is cut off, emptied or removed; more messages; a drain;
    then the command of the refusal is carried out, and the stream drained again.
    Pass: the drain writes nothing and names the files that can be removed; after that every offset is there once.
    """
    produced = web.produce(6, bad=0.3, seed=3)
    DeltaTable(web.uri).create_checkpoint()
    damage(checkpoint_of(web))

    with pytest.raises(TableUnreadable) as refused:
        web.drain()
    assert sorted(Path(web.uri).glob("_delta_log/*.json"))[-1].name == f"{2:020}.json"
    _carry_out(refused.value.parts()[2])
    web.drain()

    web.assert_each_offset_once(produced)


def _carry_out(run: str) -> None:
    """What a person does who believes the refusal: remove the files that it names, and no others."""
    command, *patterns = run.partition("   (")[0].split()
    assert command == "rm"
    for pattern in patterns:
        for file in Path(pattern).parent.glob(Path(pattern).name):
            file.unlink()


@pytest.mark.scenario("checkpoint or commit file corrupted")
@pytest.mark.parametrize("hint", ['{"version": 99, "size": 3}', "no JSON"])
def test_a_wrong_word_about_the_newest_checkpoint_loses_nothing(web: DrivenStream, hint: str) -> None:
    """Purpose: the file that names the newest checkpoint is a hint; it may be stale, wrong or torn.
    Procedure: two drains and a checkpoint; the hint names one that does not exist, or is no JSON; drain.
    Pass: the drain sees through it, or names the file to be removed; every offset is there once, behind it too.
    """
    produced = web.produce(6, bad=0.3, seed=3)
    DeltaTable(web.uri).create_checkpoint()
    log_file(web, "_last_checkpoint").write_text(hint)

    try:
        web.drain()
    except TableUnreadable as refused:
        _carry_out(refused.parts()[2])
        assert checkpoint_of(web).exists()
        web.drain()

    web.assert_each_offset_once(produced)


@pytest.mark.scenario("checkpoint or commit file corrupted")
@pytest.mark.parametrize(("damage", "version"), [(_cut, 2), (_garbage, 1), (_empty, 1), (_empty, 2)])
def test_a_commit_that_is_not_whole_stops_the_stream_until_it_is_back(
    web: DrivenStream, damage: Callable[[Path], None], version: int
) -> None:
    """Purpose: readers take an empty commit file for one that did nothing: its rows would be missing in silence.
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
    """Purpose: someone cleans the log although the table says not to; the positions are in the checkpoint.
    Procedure: two drains, an OPTIMIZE and a checkpoint of it; every commit before it is removed; more messages; drain.
    Pass: the drain begins where the last one ended; every offset is there once.
    """
    others.optimize(web)
    others.checkpoint(web)
    for version in range(3):
        log_file(web, version).unlink()
    produced = web.produce(6, seed=3)

    report = web.drain()

    assert [str(r) for c in report.commits for r in c.ranges] == [f"{web.stream.topic}/0 [12, 18)"]
    web.assert_each_offset_once(produced)


@pytest.mark.scenario("log clean-up, transaction ids expire")
@pytest.mark.scenario("RESTORE and time travel")
def test_a_log_whose_end_is_gone_is_decided_by_the_rows_that_are_there(web: DrivenStream) -> None:
    """Purpose: behind the newest ledger commit someone else's commit may have been a RESTORE, and it is gone.
    Procedure: two drains, a RESTORE to the first, a checkpoint; the log is cleaned by delta-rs without retention;
    drain; then rewind, which goes by the rows; drain again.
    Pass: the drain refuses and names the command; after the decision every offset is there once.
    """
    table = DeltaTable(web.uri)
    table.restore(1)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 hours"})
    table = DeltaTable(web.uri)
    table.create_checkpoint()
    table.cleanup_metadata()
    assert not log_file(web, 3).exists()
    produced = web.produce(6, seed=3)

    with pytest.raises(LedgerGap, match="kdi resolve .* rewind"):
        web.drain()
    decision = decide(web.stream, web.lake, "rewind", session=web.session)
    carry_out_decision(web.session(), decision, web.stream, web.lake)
    web.drain()

    web.assert_each_offset_once(produced)


@pytest.mark.scenario("log clean-up, transaction ids expire")
def test_a_table_that_forgets_transaction_ids_is_drained_on_once_it_no_longer_does(web: DrivenStream) -> None:
    """Purpose: positions of idle topic partitions would expire, and look as if they had never been read.
    Procedure: two drains; the table is told to forget transaction ids; drain; it is told no more; drain again.
    Pass: nothing is read while it would forget, and the command that mends it is named; every offset is there once.
    """
    produced = web.produce(6, bad=0.3, seed=3)
    DeltaTable(web.uri).alter.set_table_properties({_RETENTION: "interval 365 days"}, raise_if_not_exists=False)

    with pytest.raises(TransactionRetentionSet) as refused:
        web.drain()
    web.session().sql(refused.value.parts()[2])
    web.drain()

    web.assert_each_offset_once(produced)
