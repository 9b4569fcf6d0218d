"""What others do to the table between plan and commit: forced by hooks and barriers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JNetworkError

from kdi_assets.delta import internals as delta_internals
from kdi_assets.delta import single_commit
from kdi_assets.delta import transaction as delta_transaction
from kdi_assets.delta.errors import StagedFilesGone, TableBusy
from kdi_assets.delta.storage import TableFolder
from kdi_assets.documents.model.stream import DateWindow
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.streams.drain.drain import Draining, drain
from kdi_assets.streams.drain.execute_plan import DrainContext
from kdi_assets.streams.drain.plan import Plan, PositionCommit
from kdi_assets.streams.drain.report import Commit, DrainReport
from kdi_assets.streams.rules.errors import SchemaDisagrees
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import DrivenStream, Once
from tests.faults import others
from tests.faults.race import drain_at_once


@also_on_s3
@pytest.mark.scenario("two drivers at once", "the same range run twice")
@pytest.mark.parametrize(
    ("definitions", "bad", "rounds"),
    [
        pytest.param("the same", 0, 3, marks=pytest.mark.core),
        ("the same", 0.01, 8),
        ("different", 0.01, 8),
    ],
)
def test_two_drains_at_once_lose_and_double_nothing(
    driven: DrivenFactory, definitions: str, bad: float, rounds: int
) -> None:
    """Purpose: two drains of one stream may race; only one may win, even if their dead letters differ.
    Procedure: many times, two drains of 100 messages, in separate sessions, plan on the same version and wait for each
    other before they read. In the last case their documents differ: what is a row for one is a dead letter for the
    other.
    Pass: every offset exactly once in rows or letters that count; the loser ends with nothing or says that another
    drain is active.
    """
    web = driven(partitions=2)
    today = datetime.now(UTC).date()
    other = replace(web.stream, date_window=DateWindow(start=today)) if definitions == "different" else web.stream
    produced = web.produce(100, bad=bad, seed=1000)
    web.drain()

    for round_ in range(rounds):
        produced = web.produce(100, bad=bad, seed=round_)
        outcomes = drain_at_once(web, [web.stream, other])
        winners = [o for o in outcomes if isinstance(o, DrainReport) and o.commits]
        assert winners, f"round {round_}: nobody won: {outcomes}"
        assert sum(c.offset_count for w in winners for c in w.commits) == 100

    web.assert_each_offset_once(produced)
    assert web.audit().complete


@also_on_s3
@pytest.mark.scenario("OPTIMIZE, DELETE, MERGE, checkpoint during a drain")
@pytest.mark.parametrize(
    ("interference", "point", "plans", "gone"),
    [
        (others.optimize_by_spark, "before reading", 1, set()),
        (others.optimize, "dead letters written", 1, set()),
        (others.delete, "before reading", 1, {3}),
        pytest.param(others.delete, "accounted for", 1, {3}, marks=pytest.mark.core),
        (others.update, "files written", 1, set()),
        (others.merge, "accounted for", 1, set()),
        (others.checkpoint, "accounted for", 1, set()),
        (others.alter, "before reading", 2, set()),
        (others.alter, "accounted for", 2, set()),
        (others.add_column, "files written", 2, set()),
        (others.overwrite, "before reading", 2, {5, 6, 7, 8, 9, 10, 11}),
        (others.overwrite, "dead letters written", 2, {5, 6, 7, 8, 9, 10, 11}),
        (others.replace_where, "accounted for", 2, {6, 7}),
    ],
)
def test_what_comes_between_plan_and_commit_costs_no_message(
    driven: DrivenFactory,
    interference: Callable[[DrivenStream], None],
    point: str,
    plans: int,
    gone: set[int],
) -> None:
    """Purpose: Delta's conflict check accepts a commit whose planned version is no longer the basis.
    Procedure: two drains of six messages; before the third commits, someone changes the table.
    Pass: after harmless commits the drain commits the files already written; after all others it plans again; offsets
    are exactly once, except those that the other one removed on purpose.
    """
    web = driven(partitions=1)
    web.drain_rounds(2, 6)
    produced = web.produce(6, bad=0.4, seed=3)
    planned: list[str] = []
    written: list[bool] = []

    def interfere() -> None:
        before = _log_files(web)
        interference(web)
        written.append(_log_files(web) > before)

    once = Once(point, interfere)

    def at(reached: str) -> None:
        planned.extend([reached] if reached == "before reading" else [])
        once(reached)

    web.drain(at=at)

    assert written == [True], "nothing came between"
    assert len(planned) == plans
    web.assert_each_offset_once([m for m in produced if m.offset not in gone])


@pytest.mark.scenario("two drivers at once")
def test_of_two_drains_that_begin_together_on_a_new_topic_the_loser_finds_nothing_left(driven: DrivenFactory) -> None:
    """Purpose: it loses the creation of the table, then the first rows: that is no reason to fail.
    Procedure: one drain sees no table, and plans its rows when the other has planned the same ones.
    """
    web = driven(partitions=1)
    produced = web.produce(6)
    context = DrainContext(stream=web.stream, lake=web.lake, session=web.session)
    slow = Draining(context, on_commit=lambda commit: None)
    steps: list[Plan | PositionCommit | None] = []

    def loses_the_creation() -> None:
        steps.append(slow.next_step())
        take(slow, steps[0])
        steps.append(slow.next_step())

    web.drain(at=Once("before reading", loses_the_creation))
    take(slow, steps[1])

    assert [type(step) for step in steps] == [PositionCommit, Plan]
    assert slow.next_step() is None
    assert slow.report().taken_by_another
    web.assert_each_offset_once(produced)


def take(draining: Draining, step: Plan | PositionCommit | None) -> None:
    assert step is not None
    draining.take(step)


def _log_files(web: DrivenStream) -> set[str]:
    return {file.name for file in TableFolder(web.uri).log_files()}


@also_on_s3
@pytest.mark.scenario("OPTIMIZE, DELETE, MERGE, checkpoint during a drain")
def test_commits_that_do_not_concern_the_ledger_never_pass_for_another_drain(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: another writer that commits all the time is no drain, and needs no second read.
    Procedure: someone commits before each attempt of a drain's commit, without end; then twelve times.
    Pass: the first drain says that the table is busy, and that a retry helps; the second lands with its first plan.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 6)
    produced = web.produce(6, seed=2)
    real, left = delta_internals.latest_snapshot, [1000]

    def someone_first(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            web.as_another_writer("someone", last=left[0])
        return real(*arguments)

    monkeypatch.setattr(single_commit, "latest_snapshot", someone_first)
    with pytest.raises(TableBusy, match="other writers committed first"):
        web.drain()
    left[0] = 12
    web.drain()

    assert [(e.kind, e.conflicts) for e in web.entries()][2:] == [("drain", 0)]
    web.assert_each_offset_once(produced)


@also_on_s3
@pytest.mark.scenario("VACUUM during a drain")
@pytest.mark.parametrize(
    ("vacuum", "point"), [(others.vacuum, "files written"), (others.vacuum_by_spark, "dead letters written")]
)
def test_a_vacuum_that_spares_no_young_file_costs_a_try_and_no_message(
    driven: DrivenFactory, vacuum: Callable[[DrivenStream], None], point: str
) -> None:
    """Purpose: a VACUUM without retention removes the files of a drain that has not committed yet.
    Procedure: a drain; during every attempt of the second, the files that no version names are removed; during the
    first attempt of the third.
    Pass: the second says so, names VACUUM and leaves the table as it was; the third plans again and commits once; every
    offset exactly once.
    """
    web = driven(partitions=1)
    drained = web.drain_rounds(1, 6)
    produced = web.produce(20, bad=0.3, seed=1)

    with pytest.raises(StagedFilesGone, match="VACUUM"):
        web.drain(at=lambda reached: vacuum(web) if reached == point else None)
    web.assert_each_offset_once(drained)
    once = Once(point, lambda: vacuum(web))
    report = web.drain(at=once)

    assert once.happened
    assert len(report.commits) == 1
    web.assert_each_offset_once(produced)


@pytest.mark.scenario("schema changes between drains", "OPTIMIZE, DELETE, MERGE, checkpoint during a drain")
def test_a_column_that_is_dropped_under_a_drain_is_said_and_costs_no_message(driven: DrivenFactory) -> None:
    """Purpose: files written for a dropped column must not be committed, nor the column be lost silently.
    Procedure: a column of the stream is dropped (by column mapping) between files and commit; the document follows.
    Pass: nothing is committed, the column is named; with the new document every offset is there exactly once.
    """
    without = driven(partitions=1, properties={"delta.columnMapping.mode": "name"})
    web = without.with_definition(columns={**without.stream.columns, "extra": "upper(method)"})
    web.produce(6)
    web.drain()
    produced = web.produce(6, bad=0.3, seed=1)

    drop = f"ALTER TABLE delta.`{web.uri}` DROP COLUMN extra"
    with pytest.raises(SchemaDisagrees, match="column extra is not in the table"):
        web.drain(at=Once("files written", lambda: web.session().sql(drop)))
    without.drain()

    without.assert_spark_finds_each_offset_once(produced)


@pytest.mark.scenario("schema changes between drains")
def test_a_column_that_the_document_gained_waits_for_the_table(driven: DrivenFactory) -> None:
    """Purpose: a schema that changes silently would change what the rows mean.
    Procedure: drain; the document gains a column, and messages wait; drain; add the column to the table; drain; remove
    it from the document again, and drain.
    Pass: a typed refusal names the column and reads nothing, while everything waits; then the rows have it, older ones
    null; without it in the document it is null; every offset exactly once.
    """
    web = driven(partitions=1)
    web.produce(10, bad=0.2)
    web.drain()
    wider = web.with_definition(columns={**web.stream.columns, "path": "parse_url(url, 'PATH')"})
    web.produce(10, bad=0.2, seed=1)

    with pytest.raises(SchemaDisagrees, match="column path is not in the table"):
        wider.drain(at=_refuse_to_read)
    waiting = read_backlog(wider.stream, web.lake).offsets
    web.session().sql(f"ALTER TABLE delta.`{web.uri}` ADD COLUMN (path string)")
    wider.drain()
    produced = web.produce(10, bad=0.2, seed=2)
    web.drain()

    assert waiting == 10
    with_path = [offset for offset, path in web.rows("meta.kafka.offset", "path") if path]
    assert with_path and set(with_path) <= set(range(10, 20))
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def _refuse_to_read(point: str) -> NoReturn:
    raise AssertionError(f"it came to {point!r}")


@also_on_s3
@pytest.mark.core
@pytest.mark.scenario("killed during the commit", "storage fails, throttles, is slow")
def test_a_commit_whose_answer_was_lost_is_found_in_the_log(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: an error from the commit does not say whether it landed.
    Procedure: the driver commits, and a broken connection replaces its answer.
    Pass: the drain reports the version that landed, and commits nothing a second time.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 10, bad=0.2)
    produced = web.produce(10, bad=0.2, seed=2)
    real = delta_transaction.send_commit

    def answer_lost(*arguments: object) -> int:
        real(*arguments)  # type: ignore[arg-type]
        raise Py4JNetworkError("the connection broke")

    monkeypatch.setattr(single_commit, "send_commit", answer_lost)
    report = web.drain()

    assert ([c.version for c in report.commits], web.version()) == ([2], 2)
    web.assert_each_offset_once(produced)


@also_on_s3
@pytest.mark.core
@pytest.mark.scenario("two drivers at once")
def test_two_creators_at_once_make_one_table(driven: DrivenFactory) -> None:
    """Both find no table; one creates it, the other finds it there and continues."""
    web = driven(partitions=1)
    produced = web.produce(40, bad=0.1)
    outcomes = drain_at_once(web, [web.stream, web.stream])

    assert any(isinstance(o, DrainReport) for o in outcomes)
    assert [e.kind for e in web.entries()].count("start") == 1
    web.assert_each_offset_once(produced)


def test_on_commit_hears_of_each_commit_before_the_next_plan(driven: DrivenFactory) -> None:
    web = driven(partitions=1, max_records=10)
    web.produce(20)
    heard: list[tuple[int, int]] = []

    def hear(commit: Commit) -> None:
        heard.append((commit.version, web.version()))

    drain(web.stream, lake=web.lake, session=web.session, on_commit=hear)

    assert heard == [(1, 1), (2, 2)]
