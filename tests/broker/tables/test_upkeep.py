"""Upkeep of a table's log: everything removed was archived, and no reader of the ledger notices."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.errors import StorageFailed
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.loading.route_groups import link_routes
from kdi_assets.documents.model.message_rules import Route
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.operate.erase.erase import EraseReport, erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.operate.upkeep.clean_up import CleanUp, clean_up, plan_clean_up
from kdi_assets.operate.upkeep.errors import EraseRefused, NoUpkeepNow
from kdi_assets.sensors.table_log import read_new_entries
from kdi_assets.streams.audit.audit import audited_history
from kdi_assets.streams.drain.snapshot import take_snapshot
from kdi_assets.streams.ledger.routes import Routes
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import DrivenStream
from tests.tables.dead_letters import discarded

KEEPS_NOTHING = dict.fromkeys(("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"), "interval 0 days")


def clean(web: DrivenStream) -> CleanUp:
    return clean_up(web.stream, web.lake, session=web.session, now=datetime.now(UTC))


def in_log(web: DrivenStream) -> list[int]:
    return sorted(TableLog.existing(web.uri).commit_files())


@also_on_s3
@pytest.mark.core
@pytest.mark.scenario("log clean-up, transaction ids expire")
def test_after_a_clean_up_drains_go_on_and_the_audit_is_complete(driven: DrivenFactory) -> None:
    """Purpose: the log is the ledger; a clean-up must cost neither a position nor the proof of an offset.
    Procedure: drain, delete rows, clean up with zero retention, drain, clean up again.
    Pass: old commits are gone from the log, positions and letters remain, every offset is accounted for, and the oracle
    finds each message once.
    """
    web = driven(partitions=2, properties=KEEPS_NOTHING)
    web.produce(30, bad=0.2, tombstones=0.1)
    web.drain()
    before = web.audit()

    done = clean(web)
    produced = web.produce(20, bad=0.2, seed=1)
    looked, report = read_backlog(web.stream, web.lake), web.drain()
    between = web.audit()
    again = clean(web)
    after = web.audit()

    assert (done.removed, done.copied, done.renewed_at) == (1, 2, None)
    assert (looked.refusal, looked.offsets, report.backlog_after) == (None, 20, 0)
    assert again.removed >= 1 and min(in_log(web)) >= 2
    audits = [(r.complete, r.offsets, r.notes) for r in (before, between, after)]
    assert audits == [(True, offsets, ()) for offsets in (30, 50, 50)]
    web.assert_each_offset_once(produced)


@also_on_s3
def test_an_idle_tables_positions_are_renewed_before_its_newest_ledger_commit_goes(driven: DrivenFactory) -> None:
    web = driven(partitions=2, properties=KEEPS_NOTHING, route=Route("true", "rows"))
    web = replace(web, stream=next(link_routes([web.stream])))
    produced = web.produce(20, bad=0.3)
    web.drain()
    for last in range(3):
        web.as_another_writer("another", last=last)
    letters = audited_history(web.stream, web.lake).entries[-1].dead_letters_at

    planned = plan_clean_up(web.stream, web.lake, now=datetime.now(UTC))
    done = clean(web)
    seen = take_snapshot(web.stream, web.lake)

    assert (planned.renews, done.renewed_at) == (True, planned.version + 1)
    assert in_log(web) == [done.renewed_at]
    assert seen.ledger is not None and seen.ledger.entry is not None
    assert (seen.ledger.entry.kind, seen.ledger.entry.dead_letters_at) == ("renewal", letters)
    assert seen.ledger.entry.routes == Routes.of(web.stream)
    assert (seen.backlog(), seen.position_commit) == (0, None)
    assert web.audit().complete
    piece = read_new_entries(web.uri, web.stream.app_id, table_id=seen.ledger.table_id, since=0)
    assert piece is not None and piece.through == done.renewed_at
    web.assert_each_offset_once(produced)


def test_rows_deleted_before_the_clean_up_are_missing_after_it_and_the_commit_is_named(driven: DrivenFactory) -> None:
    web = driven(partitions=1, properties=KEEPS_NOTHING)
    web.produce(20)
    web.drain()
    DeltaTable(web.uri).delete("meta.kafka.offset < 3")

    clean(web)
    report = web.audit()

    assert (report.complete, report.missing, report.deletions) == (False, 3, ())
    assert any(note.startswith("v2 DELETE (") and "3 rows" in note for note in report.notes)


def test_a_dry_run_changes_nothing_and_what_is_young_stays(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(5)
    web.drain()

    now = plan_clean_up(web.stream, web.lake, now=datetime.now(UTC))
    later = plan_clean_up(web.stream, web.lake, now=datetime.now(UTC) + timedelta(days=31))
    assert not Path(web.stream.archive_uri(web.lake)).exists()
    done = clean(web)

    assert (now.expired, now.renews, now.uncopied, now.retention) == ((), False, 2, timedelta(days=30))
    assert later.expired == (0,)
    assert (done.copied, done.removed) == (2, 0)
    assert in_log(web) == [0, 1]


def test_what_must_be_done_first_is_said_and_a_clean_up_that_storage_ends_is_done_again(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: clean up after a RESTORE that no drain has recorded; with a commit that cannot be read; with storage
    that fails at either step.
    """
    web = driven(partitions=1, properties=KEEPS_NOTHING)
    web.produce(5)
    web.drain()
    DeltaTable(web.uri).restore(0)

    first = "positions must be committed first .the table was restored.*\n.*\n.*kdi drain"
    with pytest.raises(NoUpkeepNow, match=first):
        clean(web)
    web.drain()
    DeltaTable(web.uri).create_checkpoint()
    commit = Path(web.uri) / "_delta_log" / f"{1:020}.json"
    whole = commit.read_text()
    commit.write_text("{cut off")
    with pytest.raises(NoUpkeepNow, match="commit 1 cannot be read, so it cannot be copied"):
        clean(web)
    assert min(in_log(web)) == 0
    commit.write_text(whole)
    for step in ("create_checkpoint", "cleanup_metadata"):
        with monkeypatch.context() as failing, pytest.raises(StorageFailed):
            failing.setattr(DeltaTable, step, fail)
            clean(web)

    assert clean(web).removed == 4
    assert web.audit().complete


def fail(*_: object) -> None:
    raise OSError("the storage does not answer")


def test_a_retired_stream_whose_topic_is_gone_is_restored_discarded_erased_and_kept(driven: DrivenFactory) -> None:
    """Procedure: drain twice, retire the stream, and let nobody answer for its topic; restore the table to before the
    second drain; follow what `kdi erase` shows.
    Pass: the letters of the live history are discarded, the rows are erased, and the audit is complete.
    """
    web = driven(partitions=2, properties=KEEPS_NOTHING)
    web.produce(20, bad=0.3)
    web.drain()
    letters = len(web.letters())
    web.produce(20, bad=0.3, seed=1)
    web.drain()
    retired = web.with_definition(status="retired", cluster=Cluster("main", "nowhere:1"))
    DeltaTable(retired.uri).restore(1)

    def erased() -> EraseReport:
        chosen = EraseFilter(where="status = 200")
        return erase(retired.stream, lake=web.lake, session=web.session, chosen=chosen, because="asked")

    with pytest.raises(EraseRefused, match=f"kdi upkeep {retired.stream.name} --yes"):
        erased()
    done = clean(retired)
    given_up = discarded(retired, because="nobody mends them")
    found = erased()
    clean(retired)

    assert done.renewed_at == 4
    assert given_up.outcomes == {"discarded": letters}
    assert found.messages > 0
    assert retired.audit().complete
