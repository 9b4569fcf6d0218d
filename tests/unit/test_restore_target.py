"""Positions after a RESTORE, from the log alone: which version it went to, and what held there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kdi_assets.ledger.entry import Kind, LedgerEntry
from kdi_assets.ledger.history import live_history
from kdi_assets.ledger.state import LedgerGap, LedgerState, read_ledger
from kdi_assets.ledger.table_facts import TableWatch
from kdi_assets.stream import KafkaCluster, Stream, TopicPartition

pytestmark = pytest.mark.scenario("RESTORE and time travel")

P0 = TopicPartition("orders", 0)
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", KafkaCluster("main", "nowhere:1"))
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


class LedgerTable:
    """A table with one row in each commit; version n was committed n hours after noon."""

    def __init__(self, lake: str) -> None:
        self.lake, self.uri = lake, STREAM.table_uri(lake)

    def append(self, transactions: Mapping[str, int], *, entry: LedgerEntry | None = None) -> int:
        """One row; answers the version."""
        properties = CommitProperties(
            app_transactions=[Transaction(app, version) for app, version in transactions.items()],
            custom_metadata={"userMetadata": entry.to_json()} if entry else None,
        )
        kept = {"delta.enableExpiredLogCleanup": "false"}
        rows = pa.table({"id": [1]})
        write_deltalake(self.uri, rows, mode="append", configuration=kept, commit_properties=properties)
        return self.dated()

    def ledger_commit(self, kind: Kind, positions: Mapping[TopicPartition, int]) -> int:
        """One row and all that a ledger commit sets."""
        version = DeltaTable(self.uri).version() + 1 if DeltaTable.is_deltatable(self.uri) else 0
        ids = {f"orders-{tp.partition}": at - 1 for tp, at in positions.items()}
        names = dict.fromkeys(("orders/version", "orders|topic|topic"), version)
        entry = LedgerEntry(version, kind, "orders", "try", "orders", "topic", "table", positions)
        return self.append({**ids, **names}, entry=entry)

    def restore(self, version: int) -> None:
        DeltaTable(self.uri).restore(version)
        self.dated()

    def restore_as_spark_did(self, version: int, timestamp: datetime) -> None:
        """A RESTORE whose commit names a time without a zone."""
        self.restore(version)
        commit = self.commit_file(DeltaTable(self.uri).version())
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if info := action.get("commitInfo"):
                info["operationParameters"] = {"timestamp": timestamp.strftime("%Y-%m-%d %H:%M:%S"), "version": None}
        commit.write_text("\n".join(map(json.dumps, actions)))
        self.dated()

    def dated(self) -> int:
        version = DeltaTable(self.uri).version()
        moment = (NOON + timedelta(hours=version)).timestamp()
        os.utime(self.commit_file(version), (moment, moment))
        return version

    def commit_file(self, version: int) -> Path:
        return Path(self.uri) / "_delta_log" / f"{version:020}.json"

    def ledger(self) -> LedgerState:
        found = read_ledger(STREAM, self.lake, topic_id="topic", topic_partitions=3)
        assert found is not None
        return found


@pytest.fixture
def table(lake: str) -> LedgerTable:
    return LedgerTable(lake)


def test_a_restore_to_a_time_without_a_zone_is_believed_where_the_files_agree(table: LedgerTable) -> None:
    for position in (0, 10, 20):
        table.ledger_commit("drain" if position else "start", {P0: position})

    table.restore_as_spark_did(1, NOON + timedelta(hours=1, minutes=30))  # in UTC, that is version 1

    assert (table.ledger().restored_to, table.ledger().positions) == (1, {P0: 10})


def test_a_restore_to_a_time_without_a_zone_is_not_guessed_at_where_the_files_do_not_agree(
    table: LedgerTable, lake: str
) -> None:
    for position in (0, 10, 20):
        table.ledger_commit("drain" if position else "start", {P0: position})

    table.restore_as_spark_did(1, NOON + timedelta(minutes=30))  # read as UTC, that would be version 0

    with pytest.raises(LedgerGap, match="commit 3 .* depends on a time zone .*\n.*\n.*kdi resolve .* rewind"):
        table.ledger()
    history = live_history(table.uri, STREAM.app_id)
    assert history is not None
    assert (history.entries, history.since) == ((), 4)
    facts = TableWatch()(STREAM, lake, now=NOON)
    assert (facts.version, facts.drained_at, facts.dead_letters) == (3, None, 0)


@pytest.mark.parametrize(("before", "kind"), [({"orders-0": 4}, "takeover"), ({}, "resolve")])
def test_a_restore_to_before_the_first_ledger_commit_names_what_decides(
    table: LedgerTable, before: Mapping[str, int], kind: Kind
) -> None:
    table.append(before)
    table.ledger_commit(kind, {P0: 5})
    table.ledger_commit("drain", {P0: 9})

    table.restore(0)

    with pytest.raises(LedgerGap, match="commit 0 .* older than .* first ledger commit.*\n.*\n.*kdi resolve .* rewind"):
        table.ledger()


def test_a_restore_of_a_table_that_was_not_ours_yet_goes_back_to_the_other_writers_positions(
    table: LedgerTable,
) -> None:
    table.append({"orders-0": 9})
    table.append({"orders-0": 19})
    table.restore(0)

    ledger = table.ledger()

    assert (ledger.restored_to, ledger.positions) == (0, {P0: 10})
