"""What is read from a table's log for status and metrics, the first time and again."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.table_facts import SMALL_BYTES, DataFiles, TableFacts, TableWatch
from kdi_assets.stream import KafkaCluster, Stream
from tests.table_by_hand import TableByHand

NOW = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", KafkaCluster("main", "localhost:9092"))


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


def test_a_log_that_did_not_move_on_is_not_opened_again(
    table: TableByHand, tmp_path: Path, reads: Counter[object]
) -> None:
    watch = TableWatch()
    table.drain(ago=timedelta(hours=1), dead_letters=1)
    watch(STREAM, str(tmp_path), now=NOW)
    reads.clear()

    seen = watch(STREAM, str(tmp_path), now=NOW + timedelta(hours=23, minutes=1))

    assert (seen.dead_letters, seen.drained_at) == (0, NOW - timedelta(hours=1)), "a day is up to now"
    assert reads == Counter()


@pytest.mark.parametrize("address", [False, True], ids=["a path", "an address"])
def test_of_a_log_that_moved_on_only_what_is_new_is_read(
    table: TableByHand, tmp_path: Path, reads: Counter[object], address: bool
) -> None:
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
