"""The history in a table's log: `kdi history`, the newest commits, and repeated reads of status and metrics."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.documents.model.stream import Cluster, OffsetRange, Stream
from kdi_assets.operate.monitoring.commit_history import commit_history
from kdi_assets.operate.monitoring.ledger_cache import RecentCommits
from kdi_assets.operate.monitoring.metrics.totals import Totals
from kdi_assets.operate.monitoring.table_facts import SMALL_BYTES, DataFiles, TableFacts, TableWatch
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.recent_commits import recent_commits
from tests.table_by_hand import TOPIC, TP, TableByHand, data_file, orders, position

MINUTE = timedelta(minutes=1)


def told(lake: Path) -> list[tuple[int, str, str, bool | None]]:
    """The events, the newest first."""
    return [(e.version, e.operation, e.description, e.live) for e in commit_history(orders(), str(lake))]


def test_a_life_is_told_commit_by_commit_the_newest_first(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start")
    table.drain(100, dead_letters=5)
    table.commit(ago=MINUTE, operation="OPTIMIZE")
    table.ledger_commit("replay", outcomes={"row": 3, "dead_letter": 2}, returned={TP: 3})
    table.commit(ago=MINUTE, operation="DELETE", operationParameters={"predicate": '["(id#1 = 7)"]'})
    table.ledger_commit(
        "replay",
        dates=(date(2026, 1, 2), date(2026, 1, 3)),
        outcomes={"row": 90, "filtered": 7},
        rows_by_date={date(2026, 1, 3): 90},
        removed_by_date={date(2026, 1, 2): 97},
    )

    assert told(tmp_path) == [
        (
            6,
            "replay",
            "messages of 2026-01-02 to 2026-01-03: 90 are rows, 7 are filtered; 97 rows removed, 90 added",
            True,
        ),
        (5, "DELETE", "(id = 7)", True),
        (4, "replay", "dead letters: 3 became rows, 2 stay open", True),
        (3, "OPTIMIZE", "", True),
        (2, "drain", "100 offsets: 95 rows on 1 date, 5 dead letters", True),
        (1, "start", "orders/0: none to 0", True),
        (0, "CREATE TABLE", "", True),
    ]


def test_a_decision_says_who_made_it_why_and_where_it_moved_positions(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start")
    table.drain(100)
    table.position = 150
    lost = (OffsetRange(TP, 100, 150),)
    table.ledger_commit("resolve", declared_losses=lost, decided_by="ann", because="retention was a day")

    decided = next(commit_history(orders(), str(tmp_path)))

    assert decided.entry and (decided.entry.decided_by, decided.entry.because) == ("ann", "retention was a day")
    assert decided.set_positions == {TP: (100, 150)}
    assert decided.description == "orders/0: 100 to 150; orders/0 [100, 150) given up"


def test_what_a_restore_undid_is_marked(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start")
    table.drain(100)
    table.commit(position(TOPIC, 0), ago=MINUTE, operation="RESTORE", operationParameters={"version": 1})

    assert [(v, what, live) for v, what, _, live in told(tmp_path)] == [
        (3, "RESTORE", True),
        (2, "drain", False),
        (1, "start", True),
        (0, "CREATE TABLE", True),
    ]


def test_what_lies_below_a_restore_to_nobody_knows_where_may_be_undone_or_not(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start")
    table.commit(data_file(1, date(2026, 3, 1), rows=5), ago=MINUTE)
    table.commit(ago=MINUTE, operation="RESTORE", operationParameters={"timestamp": "2020-01-01 00:00:00"})
    table.ledger_commit("restore")

    assert [(v, live) for v, _, _, live in told(tmp_path)] == [(4, True), (3, True), (2, None), (1, None), (0, None)]


def test_a_long_life_is_read_no_further_than_it_is_asked_for(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start")
    for _ in range(5):
        table.drain(100)
        table.commit(ago=MINUTE, operation="OPTIMIZE")
    DeltaTable(table.log.parent).create_checkpoint()
    (table.log / f"{3:020}.json").write_text("torn")

    newest = list(islice(commit_history(orders(), str(tmp_path)), 5))
    every = told(tmp_path)

    assert [(e.version, e.operation, e.live) for e in newest[:2]] == [(11, "OPTIMIZE", True), (10, "drain", True)]
    assert [(v, what, live) for v, what, _, live in every[-5:-2]] == [
        (4, "drain", True),
        (3, "unreadable", True),
        (2, "drain", None),
    ]


def test_replays_say_nothing_of_how_a_stream_is_drained_and_hide_no_drain(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start", ago=timedelta(hours=3))
    table.drain(100, ago=timedelta(hours=2), dead_letters=20)
    for _ in range(12):
        table.ledger_commit("replay", outcomes={"row": 1}, returned={TP: 1}, rows_by_date={table.now.date(): 1})
    uri = orders().table_uri(str(tmp_path))

    drained = recent_commits(TableLog.open(uri), "orders")
    recent = RecentCommits.of(drained)
    every = recent_commits(TableLog.open(uri), "orders", excluding=())

    assert [c.entry.kind for c in drained] == ["start", "drain"]
    assert [sample.position for sample in recent.window[TP]] == [0, 100]
    assert recent.last_at == drained[-1].committed_at
    assert {c.entry.kind for c in every} == {"replay"}


def test_totals_have_the_rows_of_replays_too() -> None:
    totals = Totals()
    entry = LedgerEntry(
        1, "replay", "orders", "a", "orders", "t", "d", {TP: 10}, bytes=70, rows_by_date={date(2026, 3, 1): 3}
    )

    totals.add(entry)

    assert [totals.counts[f"kdi_{n}_total"] for n in ("drains", "rows", "file_bytes")] == [0, 3, 70]


NOW = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", Cluster("main", "localhost:9092"))


@pytest.fixture
def table(tmp_path: Path) -> TableByHand:
    return TableByHand(tmp_path, now=NOW)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[object]:
    """How often logs were opened, and which commits were read."""
    counted: Counter[object] = Counter()
    open_, commit = TableLog.open, TableLog.commit

    def counting_open(uri: str, version: int | None = None) -> TableLog | None:
        counted["open"] += 1
        return open_(uri, version)

    def counting_commit(log: TableLog, version: int) -> CommitInfo:
        counted[version] += 1
        return commit(log, version)

    monkeypatch.setattr(TableLog, "open", staticmethod(counting_open))
    monkeypatch.setattr(TableLog, "commit", counting_commit)
    return counted


def facts(lake: Path, now: datetime = NOW) -> TableFacts:
    return TableWatch()(STREAM, str(lake), now=now)


def test_dead_letters_are_those_of_drains_within_a_day(table: TableByHand, tmp_path: Path) -> None:
    table.drain(ago=timedelta(hours=25), dead_letters=40)
    table.drain(ago=timedelta(hours=23), dead_letters=2)
    table.commit(ago=timedelta(hours=2), operation="OPTIMIZE")
    table.drain(ago=timedelta(hours=1), dead_letters=1)

    seen = facts(tmp_path)

    assert (seen.version, seen.dead_letters, seen.messages) == (4, 3, 200)
    assert seen.drained_at == NOW - timedelta(hours=1)


@pytest.mark.parametrize(
    ("drains", "found"),
    [
        ("aba", ("a", "b")),
        ("aab", ()),  # it moved to another host
        ("a-b", ()),
        ("a-a", ()),  # a command between two runs
        ("aabbcac", ("a", "b", "c")),
    ],
)
def test_deployments_that_drain_in_turns_are_found_and_one_that_follows_another_is_not(
    table: TableByHand, tmp_path: Path, drains: str, found: tuple[str, ...]
) -> None:
    table.drain(ago=timedelta(hours=2), run_id="old", deployment="b")
    for minute, deployment in enumerate(drains):
        run_id = "" if deployment == "-" else "run"
        table.drain(ago=timedelta(minutes=50 - minute), run_id=run_id, deployment=deployment)

    assert facts(tmp_path).deployments == found


def test_the_last_drain_is_found_however_long_ago_it_was(table: TableByHand, tmp_path: Path) -> None:
    table.drain(ago=timedelta(days=9), dead_letters=5)
    table.commit(ago=timedelta(days=3), operation="OPTIMIZE")
    table.ledger_commit("resolve", ago=timedelta(hours=1))

    seen = facts(tmp_path)

    assert (seen.version, seen.drained_at, seen.dead_letters) == (3, NOW - timedelta(days=9), 0)


def test_a_drain_that_a_restore_undid_counts_no_more(table: TableByHand, tmp_path: Path) -> None:
    watch = TableWatch()
    table.drain(ago=timedelta(hours=5), dead_letters=1)
    table.drain(ago=timedelta(hours=4), dead_letters=10)
    before = watch(STREAM, str(tmp_path), now=NOW)

    table.commit(ago=timedelta(hours=3), operation="RESTORE", operationParameters={"version": 1})
    after = watch(STREAM, str(tmp_path), now=NOW)

    assert (before.dead_letters, after.dead_letters) == (11, 1)
    assert after.drained_at == NOW - timedelta(hours=5)
    assert facts(tmp_path) == after


def test_a_file_is_small_where_it_could_be_one_with_another(table: TableByHand, tmp_path: Path) -> None:
    large, small = SMALL_BYTES, SMALL_BYTES - 1
    files = {
        NOW.date() - timedelta(days=2): [small],
        NOW.date() - timedelta(days=1): [small, small, large],
        NOW.date(): [large, small],
    }
    table.drain(ago=timedelta(hours=1), files=files)

    assert facts(tmp_path).files == DataFiles(count=6, bytes=2 * large + 4 * small, small=2)


def test_freshness_is_of_the_last_hour_and_counts_until_the_commit(table: TableByHand, tmp_path: Path) -> None:
    table.drain(ago=timedelta(hours=2), ages={120: 1000})
    table.drain(ago=timedelta(minutes=30), ages={16: 95, 32: 5}, wait=3.0)

    fresh = facts(tmp_path).freshness

    assert fresh[0.5] == pytest.approx(4.18 + 3, abs=0.01), "the bucket from 4 s on, and three seconds to the commit"
    assert fresh[0.99] == pytest.approx(16.71 + 3, abs=0.01)


def test_a_log_that_did_not_move_stays_unopened(table: TableByHand, tmp_path: Path, reads: Counter[object]) -> None:
    watch = TableWatch()
    table.drain(ago=timedelta(hours=1), dead_letters=1)
    watch(STREAM, str(tmp_path), now=NOW)
    reads.clear()

    seen = watch(STREAM, str(tmp_path), now=NOW + timedelta(hours=23, minutes=1))

    assert (seen.dead_letters, seen.drained_at) == (0, NOW - timedelta(hours=1)), "a day is up to now"
    assert reads == Counter()


@pytest.mark.parametrize("address", [False, True], ids=["a path", "an address"])
def test_only_new_commits_are_read(table: TableByHand, tmp_path: Path, reads: Counter[object], address: bool) -> None:
    watch, lake = TableWatch(), tmp_path.as_uri() if address else str(tmp_path)
    table.drain(ago=timedelta(hours=2), dead_letters=1)
    watch(STREAM, lake, now=NOW)
    reads.clear()
    table.drain(ago=timedelta(hours=1), dead_letters=2)

    assert watch(STREAM, lake, now=NOW).dead_letters == 3
    assert reads == Counter({"open": 1, 2: 1})


def test_a_table_made_anew_in_the_place_is_read_from_its_beginning(table: TableByHand, tmp_path: Path) -> None:
    watch = TableWatch()
    table.drain(ago=timedelta(hours=2), dead_letters=7)
    watch(STREAM, str(tmp_path), now=NOW)
    for commit in table.log.iterdir():
        commit.unlink()
    table.log.rmdir()

    TableByHand(tmp_path, now=NOW, table_id="another").drain(ago=timedelta(hours=1), dead_letters=2)
    os.utime(table.log / f"{1:020}.json", (0, 0))

    assert watch(STREAM, str(tmp_path), now=NOW).dead_letters == 2
