"""What upkeep finds due, from the files of a table alone."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kdi_assets.delta.errors import TableUnreadable
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.documents.model.upkeep import Upkeep
from kdi_assets.follow.refine.entry import parse_refine_entry
from kdi_assets.operate.upkeep.clustering import last_clustered
from kdi_assets.operate.upkeep.compaction import Why, clustered_metadata, due_compactions
from kdi_assets.operate.upkeep.document_upkeep import plan_upkeep
from kdi_assets.operate.upkeep.errors import RetentionTooShort, RetentionUnclear
from kdi_assets.operate.upkeep.expiry import Expiry
from kdi_assets.operate.upkeep.refined_expiry import plan_refined_expiry
from kdi_assets.operate.upkeep.table_files import FileFacts, PartFiles, parts_of
from kdi_assets.operate.upkeep.unconsumed import Followers
from kdi_assets.operate.upkeep.vacuum import checked_retention, interval_of
from kdi_assets.streams.audit.coverage import coverage
from kdi_assets.streams.ledger.entry import Erasure, LedgerEntry, RangeCounts
from kdi_assets.streams.ledger.entry_json import entry_to_json, parse_entry
from tests.refined import refined_table
from tests.table_by_hand import TableByHand, data_file, orders

NOW = datetime(2026, 5, 6, 12, tzinfo=UTC)
DAY = date(2026, 5, 1)
HOUR = timedelta(hours=1)
MIB = 2**20


def part(*, small: int, quiet: timedelta) -> PartFiles:
    return PartFiles("2026-05-01", "`date` = DATE'2026-05-01'", FileFacts(small + 1, 9, small, 5), NOW - quiet)


@pytest.mark.parametrize(
    ("small", "quiet", "why"),
    [
        (0, 6 * HOUR, None),
        (1, 6 * HOUR, None),  # a single small file is what remains of a date
        (2, 6 * HOUR, "closed"),
        (2, 5 * HOUR, None),
        (50, 5 * HOUR, None),
        (51, 5 * HOUR, "small files"),
    ],
)
def test_a_closed_date_is_due_with_two_small_files_and_another_when_they_pass_the_limit(
    small: int, quiet: timedelta, why: Why | None
) -> None:
    due = due_compactions([part(small=small, quiet=quiet)], Upkeep(), now=NOW, clustered={})

    assert [d.why for d in due] == ([why] if why else [])


@pytest.mark.parametrize(
    ("quiet", "ordered", "why"),
    [
        (7 * HOUR, None, ["cluster"]),
        (7 * HOUR, NOW - 8 * HOUR, ["cluster"]),  # something was written after it
        (7 * HOUR, NOW - 7 * HOUR, []),
        (1 * HOUR, None, []),
    ],
)
def test_a_closed_date_is_ordered_once_after_its_last_write(
    quiet: timedelta, ordered: datetime | None, why: list[Why]
) -> None:
    upkeep, clustered = Upkeep(cluster_by=("status",)), {"2026-05-01": ordered} if ordered else {}

    due = due_compactions([part(small=0, quiet=quiet)], upkeep, now=NOW, clustered=clustered)

    assert [d.why for d in due] == why


def test_only_the_newest_ordering_by_the_same_columns_counts() -> None:
    said = [
        (clustered_metadata("2026-05-01", ["a"]), NOW - HOUR),
        (clustered_metadata("2026-05-01", ["a"]), NOW - 3 * HOUR),
        (clustered_metadata("2026-05-01", ["b"]), NOW),
        (clustered_metadata("2026-05-02", ["a"]), None),
        ('{"kdi_ledger": 1}', NOW),
        ("another writer's text", NOW),
    ]

    assert last_clustered(said, ["a"]) == {"2026-05-01": NOW - HOUR}


def test_files_are_counted_by_date_and_by_size_against_the_target(tmp_path: Path) -> None:
    table = TableByHand(tmp_path)
    sizes = {DAY: [MIB, 64 * MIB, 128 * MIB, 256 * MIB, 256 * MIB + 1], DAY + timedelta(days=1): [MIB]}
    table.drain(files=sizes)
    table.commit(data_file(99, None, rows=1, size=MIB), ago=timedelta())

    parts = parts_of(TableLog.existing(str(tmp_path / "bronze/orders")), target_bytes=128 * MIB)

    assert [(p.label, p.where) for p in parts] == [
        ("2026-05-01", "`date` = DATE'2026-05-01'"),
        ("2026-05-02", "`date` = DATE'2026-05-02'"),
        ("None", "`date` IS NULL"),
    ]
    assert parts[0].facts == FileFacts(5, sum(sizes[DAY]), small=1, well_sized_bytes=(64 + 128 + 256) * MIB)
    assert parts[0].is_closed(NOW, 1.0)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("interval 1 week", timedelta(weeks=1)),
        ("INTERVAL 14 DAYS", timedelta(days=14)),
        ("30 hours", timedelta(hours=30)),
        ("interval 1 day 6 hours", timedelta(hours=30)),
        ("interval 1 month", None),
        ("soon", None),
        ("", None),
    ],
)
def test_a_retention_is_read_in_the_forms_that_delta_takes_or_not_at_all(text: str, kept: timedelta | None) -> None:
    assert interval_of(text) == kept


def with_retention(tmp_path: Path, text: str | None) -> TableLog:
    table = TableByHand(tmp_path)
    if text is not None:
        first, kept = table.file(0), json.dumps({"delta.deletedFileRetentionDuration": text})
        first.write_text(first.read_text().replace('"configuration": {}', f'"configuration": {kept}'))
    return TableLog.existing(str(tmp_path / "bronze/orders"))


def test_vacuum_is_refused_where_a_run_may_still_need_the_files(tmp_path: Path) -> None:
    usual = with_retention(tmp_path / "usual", None)
    short, odd = with_retention(tmp_path / "short", "interval 23 hours"), with_retention(tmp_path / "odd", "a while")

    assert checked_retention("t", usual) == timedelta(weeks=1)
    with pytest.raises(RetentionTooShort, match="keeps files for 23 h, and a run needs them for 1 d.\n.*\n.*24 hours"):
        checked_retention("t", short)
    with pytest.raises(RetentionUnclear, match="is 'a while'"):
        checked_retention("t", odd)


def test_an_erasure_is_taken_out_of_the_counts_and_the_digest_that_the_audit_compares() -> None:
    tp = TopicPartition("orders", 0)
    at: dict[str, Any] = {"app_id": "a", "topic": "orders", "topic_id": "t", "table_id": "i"}
    drained = RangeCounts(OffsetRange(tp, 0, 10), became_rows=8, dead_letters=2)
    erasure = Erasure(where="id = ?", became_rows={tp: 3}, dead_letters={tp: 1}, digest=7)
    start = LedgerEntry(0, "start", attempt_id="s", positions={tp: 0}, **at)
    drain = LedgerEntry(1, "drain", attempt_id="d", positions={tp: 10}, ranges=(drained,), digest=5, **at)
    erased = LedgerEntry(2, "erase", attempt_id="e", positions={tp: 10}, erasure=erasure, **at)

    covered = coverage([start, drain, erased])
    written = entry_to_json(erased)

    assert (covered.became_rows, covered.dead_letters, covered.digest) == ({0: 5}, {0: 1}, 5 ^ 7)
    assert (covered.offsets, covered.erased, covered.erased_by) == (10, 4, {2: (4, 7)})
    assert parse_entry(written, 2, "a") == erased
    assert json.loads(written)["kdi_ledger"] > json.loads(entry_to_json(drain))["kdi_ledger"]


@pytest.mark.parametrize("mode", ["append", {"upsert": {"keys": ["id"]}}])
def test_a_refined_table_whose_log_is_damaged_is_an_error_of_its_own(lake: str, mode: Any) -> None:
    """The run goes on with the other tables."""
    table = refined_table(**{"table": "silver/torn", "from": "bronze/x", "partition_by": None, "mode": mode})
    log = Path(table.table_uri(lake), "_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text('{"torn')

    planned = plan_upkeep(table, lake, now=NOW)

    assert planned.tables == ()
    assert [type(error) for error in planned.all_errors] == [TableUnreadable]


@pytest.mark.parametrize("marker", ["kdi_clustered", "kdi_refine", "kdi_ledger"])
def test_names_that_messages_have_and_texts_of_other_writers_are_not_read_as_ours(marker: str) -> None:
    """Pass: a commit that counts an unknown field of this name, or whose writer wrote any text, is none of ours."""
    foreign = [
        json.dumps({"kdi_other": 1, "unknown": {"fields": {marker: 3}}}),
        f'no JSON, and yet "{marker}"',
        json.dumps([marker]),
    ]

    for text in foreign:
        assert last_clustered([(text, NOW)], ["id"]) == {}
        assert parse_refine_entry(text, 1) is None
        assert parse_entry(text, 1, "app") is None


def test_a_schedule_waits_if_the_newest_entry_is_older_than_a_month() -> None:
    due = Expiry(DAY, {DAY - timedelta(days=1): 3}, newest_entry=NOW - timedelta(days=30))
    silent = replace(due, newest_entry=NOW - timedelta(days=31))
    nothing, unknown = Expiry(DAY), replace(due, newest_entry=None)

    waiting = silent.unless_clock_is_wrong("bronze/orders", now=NOW)

    assert [each.unless_clock_is_wrong("x", now=NOW) for each in (due, nothing, unknown)] == [due, nothing, unknown]
    assert waiting.waits_for == (
        "the clock of this machine says 2026-05-06, and the newest commit of the table is of 2026-04-05; "
        "if that is right, `kdi upkeep bronze/orders --yes` does it",
    )


def test_rows_that_wait_are_overdue_a_week_after_their_time() -> None:
    waits = [Expiry(DAY, {DAY - timedelta(days=age): 3}, waits_for=("silver/visits: not consumed",)) for age in (7, 8)]

    assert [each.is_overdue for each in waits] == [False, True]
    assert not replace(waits[1], waits_for=()).is_overdue


def test_a_schedule_does_not_trust_a_clock_that_is_far_after_the_newest_commit_of_a_refined_table(
    tmp_path: Path,
) -> None:
    table = refined_table(**{"table": "silver/orders", "from": "bronze/orders", "mode": "append", "keep": "10 days"})
    days = pa.array([date(2026, 1, 1), date(2026, 1, 2)])
    write_deltalake(tmp_path / table.table, pa.table({"id": [1, 2], "date": days}), partition_by=["date"])
    now = datetime.now(UTC)

    waits = []
    for clock in (now, now + timedelta(days=31)):
        found = plan_refined_expiry(table, str(tmp_path), Followers((), (), tmp_path), now=clock)
        assert found is not None and found.rows == 2
        waits.append(bool(found.unless_clock_is_wrong(table.name, now=clock).waits_for))

    assert waits == [False, True]


def test_the_log_of_a_retired_stream_is_cleaned_up_without_its_topic(tmp_path: Path) -> None:
    """Procedure: nobody answers for the topic; the table was restored a minute ago.
    Pass: what is older than the retention may go, once the positions are set back.
    """
    table = TableByHand(tmp_path, now=NOW)
    for days in (50, 40):
        table.drain(ago=timedelta(days=days))
    retired = orders(status="retired")

    before = plan_upkeep(retired, str(tmp_path), now=NOW)
    table.drain()
    drained = plan_upkeep(retired, str(tmp_path), now=NOW)
    table.restore(2)
    restored = plan_upkeep(retired, str(tmp_path), now=NOW)

    assert (before.errors, drained.errors, restored.errors) == ((), (), ())
    found = [(p.clean_up.expired, p.clean_up.renews) for p in (before, drained, restored) if p.clean_up]
    assert found == [((0, 1), False), ((0, 1, 2), False), ((0, 1, 2), True)]


def test_a_retired_stream_without_a_table_of_ours_is_not_told_to_drain_as_it_is(tmp_path: Path) -> None:
    TableByHand(tmp_path, now=NOW)

    [error] = plan_upkeep(orders(status="retired"), str(tmp_path), now=NOW).errors

    assert error.message_parts()[2] == "kdi drain bronze/orders   (first take `status: retired` out of its document)"
