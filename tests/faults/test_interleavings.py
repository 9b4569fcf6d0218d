"""What others do to the table between plan and commit, or while nothing runs: forced by hooks and barriers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest
from deltalake import DeltaTable, Schema

from kdi_assets.drain.carry_out import Commit
from kdi_assets.drain.drain import DrainReport
from kdi_assets.drain.refusals import AnotherDrainActive, DeadLettersReplaced
from kdi_assets.ledger.commit import TableChangedUnderDrain
from kdi_assets.ledger.ghosts import remove_ghosts
from kdi_assets.ledger.history import entries
from kdi_assets.ledger.log import NotADeltaTable, TableLog
from kdi_assets.stream import DateWindow
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream

ROUNDS = 20


@pytest.mark.parametrize("definitions", ["the same", "different"])
def test_two_drains_at_once_lose_and_double_nothing(driven: DrivenFactory, definitions: str) -> None:
    """Purpose: two drains of one stream may race; only one may win, whatever each takes for a dead letter.
    Procedure: 20 times, produce 100 messages with 1 % malformed ones; two drains, each in a session of its own, plan on
    the same version and wait for each other before they read. In the second case their documents differ: what one
    makes a row, the other makes a dead letter.
    Pass: every offset exactly once in rows or letters that count; the loser ends with nothing or says who is active.
    """
    web = driven(partitions=2)
    today = datetime.now(UTC).date()
    other = replace(web.stream, date_window=DateWindow(start=today)) if definitions == "different" else web.stream
    produced = web.produce(100, bad=0.01, seed=1000)
    web.drain()

    for round_ in range(ROUNDS):
        produced = web.produce(100, bad=0.01, seed=round_)
        outcomes = _drain_together(web, [web.stream, other])
        winners = [o for o in outcomes if isinstance(o, DrainReport) and o.commits]
        assert winners, f"round {round_}: nobody won: {outcomes}"
        assert all(isinstance(o, DrainReport | AnotherDrainActive) for o in outcomes), outcomes
        assert sum(c.offset_count for w in winners for c in w.commits) == 100

    web.assert_each_offset_once(produced)
    assert web.audit().complete


def _drain_together(web: DrivenStream, definitions: list[object]) -> list[object]:
    both = Barrier(2, timeout=60)

    def run(definition: object) -> object:
        session = web.session().newSession()
        mine = replace(web, session=lambda: session)

        def at(point: str) -> None:
            if point == "before reading":
                try:
                    both.wait()
                except BrokenBarrierError:
                    return  # the second plan of the loser: nobody waits for it

        try:
            return mine.drain(definition, at=at)  # type: ignore[arg-type]
        except AnotherDrainActive as beaten:
            return beaten
        finally:
            both.abort()

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(run, definitions))


def _optimize(web: DrivenStream) -> None:
    web.session().sql(f"OPTIMIZE delta.`{web.uri}`")


def _delete(web: DrivenStream) -> None:
    web.session().sql(f"DELETE FROM delta.`{web.uri}` WHERE meta.kafka.offset = 3")


def _restore(web: DrivenStream) -> None:
    web.session().sql(f"RESTORE TABLE delta.`{web.uri}` TO VERSION AS OF 1")


def _overwrite(web: DrivenStream) -> None:
    table = web.session().read.format("delta").load(web.uri)
    table.where("meta.kafka.offset < 5").write.format("delta").mode("overwrite").save(web.uri)


def _alter(web: DrivenStream) -> None:
    web.session().sql(f"ALTER TABLE delta.`{web.uri}` SET TBLPROPERTIES ('mine' = 'yes')")


@pytest.mark.parametrize("point", ["before reading", "dead letters written"])
@pytest.mark.parametrize(
    ("interference", "plans", "gone"),
    [(_optimize, 1, set()), (_delete, 1, {3}), (_alter, 2, set()), (_overwrite, 2, {5, 6, 7, 8, 9, 10, 11})],
)
def test_what_comes_between_plan_and_commit_costs_no_message(
    driven: DrivenFactory,
    interference: Callable[[DrivenStream], None],
    plans: int,
    gone: set[int],
    point: str,
) -> None:
    """Purpose: Delta's conflict check lets a commit pass that was planned on what is no longer there.
    Procedure: two drains of six messages; before the third commits, someone changes the table.
    Pass: what does not concern the ledger is stepped behind with the files already written; all else is planned again;
    offsets are exactly once, but for those that the other one removed on purpose.
    """
    web = driven(partitions=1)
    for seed in (1, 2):
        web.produce(6, seed=seed)
        web.drain()
    produced = web.produce(6, bad=0.4, seed=3)
    planned = []

    def at(reached: str) -> None:
        planned.extend([reached] if reached == "before reading" else [])
        if reached == point and len(planned) == 1:
            interference(web)

    web.drain(at=at)

    assert len(planned) == plans
    web.assert_each_offset_once([m for m in produced if m.offset not in gone])


@pytest.mark.parametrize("point", ["before reading", "dead letters written"])
def test_a_restore_between_plan_and_commit_drains_the_lost_rows_again(driven: DrivenFactory, point: str) -> None:
    """Purpose: a RESTORE removes rows and leaves their positions standing.
    Procedure: two drains of six; before the third commits, the table is restored to the version after the first.
    Pass: the third drain answers the RESTORE, and drains the second and third six: every offset exactly once.
    """
    web = driven(partitions=1)
    for seed in (1, 2):
        web.produce(6, bad=0.2, seed=seed)
        web.drain()
    produced = web.produce(6, bad=0.2, seed=3)
    restored: list[str] = []

    def at(reached: str) -> None:
        if reached == point and not restored:
            restored.append(reached)
            _restore(web)

    report = web.drain(at=at)

    assert report.settled == ("the table was restored to version 1",)
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_an_idle_restore_is_answered_before_anything_is_read(driven: DrivenFactory) -> None:
    """Purpose and procedure: as above, with nobody draining; also to a version that is itself a RESTORE.
    Pass: the positions are those of the version restored to, resolved through both; every offset exactly once.
    """
    web = driven(partitions=2)
    for seed in (1, 2, 3):
        produced = web.produce(10, bad=0.2, seed=seed)
        web.drain()

    _restore(web)  # to version 1, becomes version 4
    DeltaTable(web.uri).restore(3)  # 5: all rows are back
    DeltaTable(web.uri).restore(4)  # 6: which is version 1
    report = web.drain()

    assert report.settled == ("the table was restored to version 1",)
    assert report.rows_added + report.dead_letters == 20
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_a_restore_by_delta_rs_is_answered_too(driven: DrivenFactory) -> None:
    """delta-rs spells the parameters otherwise: ``version: '1'``, or ``datetime`` in milliseconds."""
    web = driven(partitions=1)
    for seed in (1, 2):
        produced = web.produce(10, seed=seed)
        web.drain()

    DeltaTable(web.uri).restore(1)
    first = web.drain()
    made = (Path(web.uri) / "_delta_log" / f"{2:020}.json").stat().st_mtime
    DeltaTable(web.uri).restore(datetime.fromtimestamp(made, UTC) + timedelta(milliseconds=10))
    second = web.drain()

    assert first.settled == ("the table was restored to version 1",)
    assert second.settled == ("the table was restored to version 2",)
    web.assert_each_offset_once(produced)


def test_a_restore_to_before_the_first_row_drains_everything_again(driven: DrivenFactory) -> None:
    """The first version holds the start positions and nothing else."""
    web = driven(partitions=1)
    produced = web.produce(10)
    web.drain()

    DeltaTable(web.uri).restore(0)
    web.drain()

    web.assert_each_offset_once(produced)


def test_a_restore_to_before_a_takeover_goes_back_to_the_other_writers_positions(driven: DrivenFactory) -> None:
    """Purpose: the version restored to has no ledger entry, but the other writer's transactions stand in its log.
    Procedure: another writer commits ten rows twice; the table is taken over and drained; it is restored to the other
    writer's first commit, and drained again.
    Pass: the first ten stay, all behind them is drained again; every offset exactly once.
    """
    before = driven(partitions=1)
    for last in (9, 19):
        before.produce(10, seed=last)
        before.drain()
        before.as_another_writer("kafka_delta_ingest", last=last)
    web = before.with_definition(app_id="kafka_delta_ingest")
    web.produce(10, bad=0.3)
    web.drain()
    produced = web.produce(10, bad=0.3, seed=1)

    DeltaTable(web.uri).restore(2)
    report = web.drain()

    assert report.settled == ("the table was restored to version 2",)
    assert [str(r) for c in report.commits for r in c.ranges] == [f"{web.stream.topic}/0 [10, 40)"]
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_an_optimize_that_came_last_is_no_reason_to_look_further(driven: DrivenFactory) -> None:
    """Commits of others behind the newest ledger commit leave the positions as they are."""
    web = driven(partitions=1)
    web.produce(10)
    web.drain()
    _optimize(web)
    produced = web.produce(10, seed=1)

    report = web.drain()

    assert report.settled == ()
    web.assert_each_offset_once(produced)


def test_a_table_dropped_and_made_again_under_a_drain_is_left_alone(driven: DrivenFactory) -> None:
    """Purpose: a commit there would tear the new table's log.
    Procedure: before the commit, the folder is emptied and another table is made in it.
    Pass: a typed error; the new table has the one version that its maker gave it.
    """
    from shutil import rmtree

    web = driven(partitions=1)
    web.produce(10)
    web.drain()
    web.produce(10, seed=1)

    def at(point: str) -> None:
        if point == "dead letters written":
            rmtree(web.uri)
            DeltaTable.create(web.uri, _schema(), partition_by=["date"])

    with pytest.raises(TableChangedUnderDrain):
        web.drain(at=at)

    assert TableLog.existing(web.uri).version == 0


def test_a_table_dropped_before_its_files_are_written_is_said_as_such(driven: DrivenFactory) -> None:
    """Purpose: Delta takes the empty place for a new table and writes files; a commit would make half a table of them.
    Procedure: a table is dropped between plan and reading; the drain goes on; drain again.
    Pass: the first says that no table is there, the second that files lie where the table should; no table is made.
    """
    from shutil import rmtree

    web = driven(partitions=1)
    web.produce(10)
    web.drain()
    web.produce(10, seed=1)

    with pytest.raises(TableChangedUnderDrain, match="no table is there now"):
        web.drain(at=lambda point: rmtree(web.uri) if point == "before reading" else None)

    with pytest.raises(NotADeltaTable, match="move the files away"):
        web.drain()


def _schema() -> Schema:
    import pyarrow as pa

    return Schema.from_arrow(pa.schema([("url", pa.string()), ("date", pa.date32())]))


def test_a_commit_whose_answer_was_lost_is_found_in_the_log(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: an error from the commit does not say whether it landed.
    Procedure: the driver commits, and the answer on its way back is replaced by a broken connection.
    Pass: the drain reports the version that landed, and commits nothing a second time.
    """
    from py4j.protocol import Py4JNetworkError

    from kdi_assets.ledger import commit as adapter

    web = driven(partitions=1)
    produced = web.produce(10, bad=0.2)
    web.drain()
    produced = web.produce(10, bad=0.2, seed=1)
    real = adapter._send

    def answer_lost(*arguments: object) -> int:
        real(*arguments)  # type: ignore[arg-type]
        raise Py4JNetworkError("the connection broke")

    monkeypatch.setattr(adapter, "_send", answer_lost)
    report = web.drain()

    assert [c.version for c in report.commits] == [2]
    assert TableLog.existing(web.uri).version == 2
    web.assert_each_offset_once(produced)


def test_letters_of_a_try_that_never_committed_do_not_count(driven: DrivenFactory) -> None:
    """Purpose: the two tables share no transaction, so a try may leave letters and no commit.
    Procedure: a drain is ended between dead letters and commit; drain again.
    Pass: the letters are there twice, and count once.
    """
    web = driven(partitions=1)
    produced = web.produce(30, bad=0.5)

    def at(point: str) -> None:
        if point == "dead letters written":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        web.drain(at=at)
    web.drain()

    found = web.found()
    assert len(found.ghosts) == len(found.dead_letters) > 0
    web.assert_each_offset_once(produced)
    report = web.audit()
    assert report.complete
    assert report.ghosts == len(found.ghosts)


def test_ghosts_go_once_the_position_passed_them_and_letters_that_count_stay(driven: DrivenFactory) -> None:
    """Purpose: what a dead try left should not grow for ever, and may be a live try's letters for a while.
    Procedure: a try is ended before its commit; look for ghosts before and after the next drain; then restore the table
    to before that drain, so that its letters do not count either, drain, and look again.
    Pass: nothing is removed above the position; the dead try's letters go; the undone commit's letters stay, because
    another RESTORE could bring them back.
    """
    web = driven(partitions=1)
    produced = web.produce(30, bad=0.5)

    def at(point: str) -> None:
        if point == "dead letters written":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        web.drain(at=at)
    above = remove_ghosts(web.stream, web.lake)
    web.drain()
    below = remove_ghosts(web.stream, web.lake)
    DeltaTable(web.uri).restore(0)
    web.drain()
    undone = remove_ghosts(web.stream, web.lake)

    found = web.found()
    assert (above, below, undone) == (0, len(found.dead_letters), 0)
    assert len(found.ghosts) == len(found.dead_letters)
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize("happened", ["restored", "dropped", "replaced"])
def test_dead_letters_that_may_be_gone_stop_the_stream(driven: DrivenFactory, happened: str) -> None:
    from shutil import rmtree

    web = driven(partitions=1)
    for seed in (1, 2):
        web.produce(20, bad=0.3, seed=seed)
        web.drain()
    uri, spark = web.stream.dead_letters_uri(web.lake), web.session()
    if happened == "restored":
        DeltaTable(uri).restore(0)
    elif happened == "dropped":
        rmtree(uri)
    else:
        spark.sql(f"CREATE OR REPLACE TABLE delta.`{uri}` USING delta AS SELECT * FROM delta.`{uri}`")

    with pytest.raises(DeadLettersReplaced, match="adopt"):
        web.drain()


def test_two_creators_at_once_make_one_table(driven: DrivenFactory) -> None:
    """Both find no table; one makes it, the other finds it there and goes on."""
    web = driven(partitions=1)
    produced = web.produce(40, bad=0.1)
    outcomes = _drain_together(web, [web.stream, web.stream])

    assert any(isinstance(o, DrainReport) for o in outcomes)
    assert [e.kind for e in entries(web.uri, web.stream.app_id)].count("start") == 1
    web.assert_each_offset_once(produced)


def test_on_commit_hears_of_each_commit_before_the_next_plan(driven: DrivenFactory) -> None:
    from kdi_assets.drain.drain import drain

    web = driven(partitions=1, max_records=10)
    web.produce(20)
    heard: list[tuple[int, int]] = []

    def hear(commit: Commit) -> None:
        heard.append((commit.version, TableLog.existing(web.uri).version))

    drain(web.stream, lake=web.lake, session=web.session, on_commit=hear)

    assert heard == [(1, 1), (2, 2)]
