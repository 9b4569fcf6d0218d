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

P0, P1, P2 = (TopicPartition("orders", n) for n in range(3))
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


def test_a_restore_to_before_a_takeover_goes_back_to_the_other_writers_positions(table: LedgerTable) -> None:
    for last in (4, 9):
        table.append({"orders-0": last})
    table.ledger_commit("takeover", {P0: 10, P1: 7})
    table.ledger_commit("drain", {P0: 30, P1: 8})

    table.restore(0)

    found = table.ledger()
    assert (found.restored_to, found.knows_topic) == (0, True)
    assert found.positions == {P0: 5, P1: 7}  # of P1 nothing was read before the takeover: it began where that said


def test_what_the_other_writer_began_after_the_version_restored_to_begins_at_0_there(table: LedgerTable) -> None:
    table.append({"orders-0": 4})
    table.append({"orders-1": 70})
    table.ledger_commit("takeover", {P0: 5, P1: 71, P2: 3})

    table.restore(0)

    assert table.ledger().positions == {P0: 5, P1: 0, P2: 3}  # P1 as one that appeared


def test_where_the_takeover_cannot_be_read_the_refusal_names_what_decides(table: LedgerTable) -> None:
    table.append({"orders-0": 4})
    table.ledger_commit("takeover", {P0: 5})
    table.ledger_commit("drain", {P0: 9})
    DeltaTable(table.uri).create_checkpoint()
    table.restore(0)
    table.commit_file(1).unlink()

    with pytest.raises(LedgerGap, match="commit 1 .* cannot be read.*\n.*\n.*kdi resolve bronze/orders rewind"):
        table.ledger()


def test_a_restore_to_before_a_decision_on_the_rows_of_then_needs_another_decision(table: LedgerTable) -> None:
    """The decision skipped what the rows covered, and after the RESTORE they do not cover it any more."""
    for _ in range(3):
        table.append({})
    table.ledger_commit("resolve", {P0: 1000})
    table.restore(1)

    with pytest.raises(LedgerGap, match="set positions by the rows that were there then"):
        table.ledger()


def test_a_restore_of_a_table_that_was_not_ours_yet_goes_back_to_the_other_writers_positions(
    table: LedgerTable,
) -> None:
    table.append({"orders-0": 9})
    table.append({"orders-0": 19})
    table.restore(0)

    ledger = table.ledger()

    assert (ledger.restored_to, ledger.positions) == (0, {P0: 10})
