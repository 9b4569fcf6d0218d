"""Compaction and VACUUM of a stream's tables: rows, positions and running drains do not notice."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.upkeep import Upkeep
from kdi_assets.errors import KdiError
from kdi_assets.operate.upkeep.document_upkeep import DocumentUpkeep, kept_tables
from kdi_assets.operate.upkeep.errors import NotClusterable, RetentionTooShort, UpkeepFailed
from kdi_assets.operate.upkeep.table_upkeep import KeptTable, TableUpkeep, keep_table, plan_table_upkeep
from kdi_assets.streams.replay.replay_dates import replay_dates
from tests.broker.tables.compacting import held_compaction, keep
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, Once

SOON = Upkeep(small_files=2)
FORGETS_FILES = {"delta.deletedFileRetentionDuration": "interval 0 hours"}


def keep_own_table(web: DrivenStream, **fields: Any) -> TableUpkeep:
    """Upkeep of the stream's table with other limits."""
    own = kept_tables(web.stream, web.lake)[0]
    table = KeptTable(own.name, own.uri, own.target_bytes, own.upkeep, archive_uri=own.archive_uri, **fields)
    now = datetime.now(UTC)
    planned = plan_table_upkeep(table, now=now, vacuums=True)
    assert planned is not None
    return keep_table(table, planned, session=web.session)


def test_a_drain_commits_over_a_compaction_that_came_between_its_plan_and_its_commit(driven: DrivenFactory) -> None:
    web = driven(partitions=2, upkeep=SOON)
    web.drain_rounds(3, 20, bad=0.1)
    produced = web.produce(20, bad=0.1, seed=9)
    compacted: list[DocumentUpkeep] = []

    report = web.drain(at=Once("files written", lambda: compacted.append(keep(web))))

    assert [t.compacted for t in compacted[0].tables if t.table == web.stream.name] != [()]
    assert (len(report.commits), report.commits[0].conflicts) == (1, 0)
    assert web.audit().complete
    web.assert_each_offset_once(produced)


def test_a_compaction_commits_after_a_drain_that_came_between_its_read_and_its_commit(driven: DrivenFactory) -> None:
    web = driven(partitions=2, upkeep=SOON)
    web.drain_rounds(3, 20)
    produced = web.produce(20, seed=9)

    with held_compaction(web) as outcome:
        drained = web.drain()
    (done,) = outcome

    assert (len(drained.commits), done.all_errors) == (1, ())
    assert TableLog.existing(web.uri).commit(web.version()).operation == "OPTIMIZE"
    assert web.audit().complete and not web.drain().commits
    web.assert_each_offset_once(produced)


def test_a_compaction_gives_way_to_a_replay_that_replaced_its_files_and_is_done_the_next_time(
    driven: DrivenFactory,
) -> None:
    web = driven(partitions=1, upkeep=SOON)
    produced = web.drain_rounds(3, 10)
    today = datetime.now(UTC).date()
    changed = replace(web.stream, columns={"host": "'other'"})

    with held_compaction(web) as outcome:
        replay_dates(changed, lake=web.lake, session=web.session, first=today - timedelta(days=400), last=today)
    (done,) = outcome
    again = keep(web, now=datetime.now(UTC) + timedelta(hours=7))

    assert {type(error) for error in done.all_errors} == {UpkeepFailed}
    assert again.all_errors == ()
    assert set(web.rows("host")) == {"other"}
    assert web.audit().complete
    assert len(web.rows()) == len(produced)


def test_files_of_closed_dates_become_one_and_dead_letters_too_and_vacuum_spares_what_readers_need(
    driven: DrivenFactory,
) -> None:
    """Procedure: three drains; upkeep at once, which finds nothing to do; the same seven hours later; VACUUM with a
    retention that is too short, and without one.
    """
    web = driven(partitions=2, properties=FORGETS_FILES)
    produced = web.drain_rounds(3, 20, bad=0.2)

    early = keep(web)
    late = keep(web, now=datetime.now(UTC) + timedelta(hours=7), thorough=True)
    stored = set(DeltaTable(web.uri).file_uris())
    vacuumed = keep_own_table(web, least_retention=timedelta(0))

    assert not any(t.compacted for t in early.tables)
    by_name = {t.table.removeprefix(web.stream.name): t for t in late.tables}
    assert by_name[""].before.files == 3 * by_name[""].after.files
    assert by_name["_dead_letters"].before.files > by_name["_dead_letters"].after.files == 1
    assert [type(error) for error in by_name[""].errors] == [RetentionTooShort]
    assert by_name[""].vacuumed is None
    assert vacuumed.vacuumed is not None
    assert vacuumed.vacuumed.files == vacuumed.expired == 3 * len(stored)
    assert set(DeltaTable(web.uri).file_uris()) == stored
    assert web.audit().complete and not web.drain().commits
    web.assert_each_offset_once(produced)


def test_rows_of_a_closed_date_are_ordered_once_and_again_after_it_got_more(driven: DrivenFactory) -> None:
    web = driven(partitions=1, upkeep=Upkeep(cluster_by=("status",)))
    web.drain_rounds(2, 20)
    later = datetime.now(UTC) + timedelta(hours=7)

    first, second = keep(web, now=later, thorough=True), keep(web, now=later, thorough=True)
    produced = web.produce(20, seed=9)
    web.drain()
    third = keep(web, now=datetime.now(UTC) + timedelta(hours=7))

    dates = first.tables[0].compacted
    assert dates and (second.tables[0].due, second.tables[0].compacted) == ((), ())
    assert {due.why for due in third.tables[0].due} == {"cluster"} and third.tables[0].compacted
    assert web.audit().complete
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize("column", ["absent", "session_id"])
def test_a_column_that_is_absent_or_has_no_statistics_is_refused_and_nothing_changes(
    driven: DrivenFactory, column: str
) -> None:
    web = driven(partitions=1, upkeep=Upkeep(cluster_by=(column,)))
    web.drain_rounds(2, 5)
    version = web.version()

    done = keep(web, now=datetime.now(UTC) + timedelta(hours=7))

    assert {type(error) for error in done.all_errors} == {NotClusterable}
    assert web.version() == version


def test_a_table_that_cannot_be_read_keeps_the_others_from_nothing(driven: DrivenFactory) -> None:
    web = driven(partitions=1, upkeep=SOON)
    web.drain_rounds(4, 10, bad=0.3)
    letters = TableLog.existing(web.stream.dead_letters_uri(web.lake))
    newest = f"{letters.uri}/_delta_log/{letters.version:020}.json"
    with open(newest, "w") as damaged:
        damaged.write("{cut off")

    done = keep(web)

    assert [isinstance(error, KdiError) for error in done.all_errors] == [True]
    assert done.tables[0].compacted
