"""What `kdi status` reads from a table's log and says about a stream."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.cli.status import StreamStatus, TableFacts, table_facts
from kdi_assets.drain.look import Backlog, PartitionBacklog
from kdi_assets.drain.refusals import RetentionPassedPosition
from kdi_assets.errors import KdiError
from kdi_assets.ledger.entry import Kind, LedgerEntry, RangeCounts
from kdi_assets.ledger.log import NotADeltaTable
from kdi_assets.sources.kafka import BrokerUnreachable
from kdi_assets.stream import KafkaCluster, OffsetRange, Stream, TopicPartition

NOW = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
TP = TopicPartition("orders", 0)
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", KafkaCluster("main", "localhost:9092"))


class TableWithLog:
    """A Delta table whose commits are written by hand, so that they can lie in the past."""

    def __init__(self, folder: Path) -> None:
        self.log, self.version = folder / "bronze" / "orders" / "_delta_log", -1
        self.log.mkdir(parents=True)
        column = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
        schema = json.dumps({"type": "struct", "fields": [column]})
        table = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
        metadata = {**table, "partitionColumns": [], "configuration": {}}
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
        self.commit({"protocol": protocol}, {"metaData": metadata}, ago=timedelta(days=90), operation="CREATE TABLE")

    def commit(self, *actions: dict[str, Any], ago: timedelta, operation: str = "WRITE", **info: object) -> None:
        self.version += 1
        milliseconds = int((NOW - ago).timestamp() * 1000)
        described = {"timestamp": milliseconds, "operation": operation, "operationParameters": {}, **info}
        lines = [{"commitInfo": described}, *actions]
        (self.log / f"{self.version:020}.json").write_text("\n".join(map(json.dumps, lines)))

    def ledger_commit(self, *, ago: timedelta, dead_letters: int, kind: Kind = "drain") -> None:
        ranges = (RangeCounts(OffsetRange(TP, 0, 100), 100 - dead_letters, dead_letters),) if kind == "drain" else ()
        entry = LedgerEntry(self.version + 1, kind, "orders", "try", "orders", "id", "t", {TP: 100}, ranges=ranges)
        self.commit(ago=ago, userMetadata=entry.to_json())


@pytest.fixture
def table(tmp_path: Path) -> TableWithLog:
    return TableWithLog(tmp_path)


def test_dead_letters_are_those_of_drains_within_a_day(table: TableWithLog, tmp_path: Path) -> None:
    table.ledger_commit(ago=timedelta(hours=25), dead_letters=40)
    table.ledger_commit(ago=timedelta(hours=23), dead_letters=2)
    table.commit(ago=timedelta(hours=2), operation="OPTIMIZE")
    table.ledger_commit(ago=timedelta(hours=1), dead_letters=1)

    facts = table_facts(STREAM, str(tmp_path), NOW)

    assert facts == TableFacts(version=4, drained_at=NOW - timedelta(hours=1), dead_letters=3)


def test_the_last_drain_is_found_however_long_ago_it_was(table: TableWithLog, tmp_path: Path) -> None:
    table.ledger_commit(ago=timedelta(days=9), dead_letters=5)
    table.commit(ago=timedelta(days=3), operation="OPTIMIZE")
    table.ledger_commit(ago=timedelta(hours=1), dead_letters=0, kind="resolve")

    facts = table_facts(STREAM, str(tmp_path), NOW)

    assert facts == TableFacts(version=3, drained_at=NOW - timedelta(days=9), dead_letters=0)


def test_a_drain_that_a_restore_undid_counts_no_more(table: TableWithLog, tmp_path: Path) -> None:
    table.ledger_commit(ago=timedelta(hours=5), dead_letters=1)
    table.ledger_commit(ago=timedelta(hours=4), dead_letters=10)
    table.commit(ago=timedelta(hours=3), operation="RESTORE", operationParameters={"version": 1})

    facts = table_facts(STREAM, str(tmp_path), NOW)

    assert facts == TableFacts(version=3, drained_at=NOW - timedelta(hours=5), dead_letters=1)


def test_without_a_table_nothing_is_known_of_it(tmp_path: Path) -> None:
    assert table_facts(STREAM, str(tmp_path), NOW) == TableFacts()


def status(
    offsets: int,
    *,
    refusal: KdiError | None = None,
    drained_ago: timedelta | None = timedelta(minutes=1),
    looked: bool = True,
    held: int = 0,
) -> StreamStatus:
    partitions = {TP: PartitionBacklog(100, 100 + offsets, 0)} if looked else {}
    lag = 38.2 if offsets else None
    backlog = Backlog("bronze/orders", partitions, offsets, lag, refusal, held)
    return StreamStatus(STREAM, backlog, TableFacts(9, NOW - drained_ago if drained_ago else None, 0))


def test_a_stream_with_nothing_waiting_says_when_it_was_drained() -> None:
    assert status(0).cells(NOW) == ("bronze/orders", "0", "-", "0", "v9", "drained 11:59:00Z")


def test_a_drain_of_another_day_is_told_with_its_date() -> None:
    assert status(0, drained_ago=timedelta(days=2)).cells(NOW)[-1] == "drained 2026-06-29T12:00:00Z"


def test_a_backlog_is_told_with_the_age_of_its_oldest_message() -> None:
    assert status(1234).cells(NOW) == ("bronze/orders", "1,234", "38 s", "0", "v9", "waiting")


def test_a_stream_that_was_never_drained_does_not_say_drained() -> None:
    assert status(0, drained_ago=None).cells(NOW)[-1] == "never drained"


def test_an_open_transaction_is_told_and_not_called_fresh() -> None:
    assert status(0, held=12).cells(NOW)[-1] == "drained 11:59:00Z, 12 held back by an open transaction"


def test_what_someone_must_decide_is_called_refused() -> None:
    lost = RetentionPassedPosition(stream="bronze/orders", topic_partition=TP, position=10, earliest=25)

    assert status(90, refusal=lost).cells(NOW)[-1] == "refused: retention passed position"


def test_where_positions_cannot_be_read_no_backlog_is_claimed() -> None:
    unread = Backlog(
        "bronze/orders", {TP: PartitionBacklog(None, 90, 0)}, 0, None, NotADeltaTable(uri="/lake/orders"), 0
    )

    seen = StreamStatus(STREAM, unread, TableFacts())

    assert seen.cells(NOW) == ("bronze/orders", "?", "?", "-", "-", "refused: not a delta table")
    assert seen.fields()["backlog_offsets"] is None


def test_of_a_silent_broker_nothing_is_claimed() -> None:
    silent = BrokerUnreachable(cluster="main", bootstrap_servers="localhost:1", detail="timed out")

    seen = status(0, refusal=silent, looked=False)

    assert seen.cells(NOW) == ("bronze/orders", "?", "?", "0", "v9", "broker unreachable")
    assert seen.fields()["backlog_offsets"] is None
    assert seen.fields()["state"] == "unreachable"
