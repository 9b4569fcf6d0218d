"""Positions from the log alone: after a RESTORE, beside another writer's, and with a missing table or without
positions.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.operate.monitoring.table_facts import TableWatch
from kdi_assets.streams.drain.plan import PositionCommit
from kdi_assets.streams.drain.plan_errors import RowsWithoutPositions, TableMissing
from kdi_assets.streams.drain.snapshot import take_snapshot
from kdi_assets.streams.ledger.entry import Kind
from kdi_assets.streams.ledger.errors import LedgerGap
from kdi_assets.streams.ledger.history import live_history
from kdi_assets.streams.ledger.positions import LedgerState, read_ledger
from tests.kinesis.drained import document
from tests.table_by_hand import TOPIC, TableByHand, data_file, orders, position

P0 = TopicPartition(TOPIC, 0)
NOON, HOUR = datetime(2026, 5, 5, 12, tzinfo=UTC), timedelta(hours=1)
RESTORES = pytest.mark.scenario("RESTORE and time travel")
REPLACED = pytest.mark.scenario("table replaced, dropped or cloned")


class Rows(TableByHand):
    """Each commit adds a row; version n is n hours before noon."""

    def append(self, *others: tuple[int, int]) -> None:
        """A row, and positions of another writer: topic partition and the next offset."""
        self.commit(self._row(), *(position(TOPIC, at, partition) for partition, at in others), ago=self._next())

    def ours(self, kind: Kind, **positions: int) -> None:
        at = {TopicPartition(TOPIC, int(name[1:])): offset for name, offset in positions.items()}
        self.ledger_commit(kind, self._row(), at=at, ago=self._next())

    def _row(self) -> dict[str, object]:
        return data_file(self.version, self.now.date(), rows=1)

    def _next(self) -> timedelta:
        return -HOUR * (self.version + 1)


@pytest.fixture
def table(lake: str) -> Rows:
    return Rows(lake, now=NOON)


def ledger(lake: str) -> LedgerState:
    found = read_ledger(orders(), lake, topic_id="topic", topic_partitions=3)
    assert found is not None
    return found


@RESTORES
def test_a_restore_to_a_time_without_a_zone_is_accepted_only_if_the_files_agree(table: Rows, lake: str) -> None:
    """Procedure: Spark writes the time by the clock of the machine, here UTC, then another."""
    for kind, offset in (("start", 0), ("drain", 10), ("drain", 20)):
        table.ours(kind, P0=offset)  # type: ignore[arg-type]
    table.restore(2, ago=-4 * HOUR, timestamp=f"{NOON + 2.5 * HOUR:%Y-%m-%d %H:%M:%S}")
    believed = ledger(lake)
    table.restore(2, ago=-5 * HOUR, timestamp=f"{NOON + 1.5 * HOUR:%Y-%m-%d %H:%M:%S}")

    assert (believed.restored_to, believed.positions) == (2, {P0: 10})
    with pytest.raises(LedgerGap, match="commit 5 .* depends on a time zone .*\n.*\n.*kdi resolve .* rewind"):
        ledger(lake)
    history = live_history(str(table.log.parent), TOPIC)
    assert history is not None
    assert (history.entries, history.since) == ((), 6)
    facts = TableWatch()(orders(), lake, now=NOON)
    assert (facts.version, facts.drained_at, facts.dead_letters) == (5, None, 0)


@RESTORES
@pytest.mark.parametrize(("others", "kind"), [(((0, 5),), "takeover"), ((), "resolve")])
def test_a_restore_to_before_the_ledger_is_refused(
    table: Rows, lake: str, others: tuple[tuple[int, int], ...], kind: Kind
) -> None:
    table.append(*others)
    table.ours(kind, P0=5)
    table.ours("drain", P0=9)

    table.restore(1)

    with pytest.raises(LedgerGap, match="commit 1 .* older than .* first ledger commit.*\n.*\n.*kdi resolve .* rewind"):
        ledger(lake)


@RESTORES
def test_positions_of_kinesis_that_are_not_known_are_answered_by_a_new_path(
    table: Rows, lake: str, tmp_path: Path
) -> None:
    """No decision sets the number of a record."""
    table.ours("resolve", P0=5)
    table.ours("drain", P0=9)
    table.restore(0)

    with pytest.raises(LedgerGap, match="a new path"):
        read_ledger(document(tmp_path / "defs"), lake, topic_id="topic", topic_partitions=1)


@RESTORES
def test_a_restore_before_our_first_commit_brings_the_other_writers_positions_back(table: Rows, lake: str) -> None:
    table.append((0, 10))
    table.append((0, 20))
    table.restore(1)

    assert (ledger(lake).restored_to, ledger(lake).positions) == (1, {P0: 10})


@RESTORES
def test_a_restore_to_before_the_other_writers_first_positions_reads_no_older_commit(
    table: Rows, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pass: the table has no positions, so everything is read again; the history before the RESTORE is not walked."""
    for others in ((), (), (), ((0, 10),), ((0, 20),)):
        table.append(*others)
    table.restore(3)
    read: list[int] = []
    commit = TableLog.commit

    def counted(log: TableLog, version: int) -> CommitInfo:
        read.append(version)
        return commit(log, version)

    monkeypatch.setattr(TableLog, "commit", counted)

    found = ledger(lake)

    assert (found.restored_to, found.positions) == (3, {P0: 0})
    assert read == [6]


@RESTORES
def test_positions_behind_a_hole_and_the_sources_last_number_are_found_at_every_version(table: Rows, lake: str) -> None:
    """Procedure: the source has three numbers now; the table began without the first four, and 9 came later."""
    table.ours("start", P4=5, P5=6)
    before = ledger(lake).positions
    table.ours("drain", P4=5, P5=7, P9=1)
    drained = ledger(lake).positions
    table.restore(1)
    restored = ledger(lake)

    assert {tp.partition: at for tp, at in before.items()} == {4: 5, 5: 6}
    assert {tp.partition: at for tp, at in drained.items()} == {4: 5, 5: 7, 9: 1}
    assert {tp.partition: at for tp, at in restored.positions.items()} == {4: 5, 5: 6, 9: 0}
    assert restored.restored_to == 1


def settlement(lake: str) -> PositionCommit | None:
    """The position commit of a drain of ten waiting messages."""
    return take_snapshot(orders(), lake, TopicState(TOPIC, "topic", {P0: BrokerOffsets(0, 10, 10)})).position_commit


@REPLACED
@pytest.mark.parametrize("statistics", [None, {"numRecords": 10}, {"maxValues": {"kafka": {"offset": 9}}}])
def test_data_files_without_positions_are_refused(lake: str, statistics: dict[str, object] | None) -> None:
    file = data_file(1, NOON.date(), rows=10)
    file["add"]["stats"] = json.dumps(statistics) if statistics else None
    TableByHand(lake).commit(file, ago=HOUR)

    with pytest.raises(RowsWithoutPositions, match=r"no positions.*\n.*\n.*kdi resolve .* adopt"):
        settlement(lake)


@REPLACED
def test_an_empty_table_starts_and_one_with_positions_of_another_writer_is_taken_over(table: Rows, lake: str) -> None:
    empty = settlement(lake)
    table.append((0, 5))
    ingested = settlement(lake)

    assert empty and ingested
    assert (empty.kind, empty.positions) == ("start", {P0: 0})
    assert (ingested.kind, ingested.positions) == ("takeover", {P0: 5})


@REPLACED
@pytest.mark.parametrize("beside", ["_dead_letters", "_ledger", "_removed"])
def test_a_missing_table_is_not_created_again_while_its_dead_letters_or_archive_exist(lake: str, beside: str) -> None:
    neighbour = orders().table_uri(lake) + beside
    write_deltalake(neighbour, pa.table({"id": [1]}))

    with pytest.raises(TableMissing, match=rf"but there is .*{beside}: .*\n.*\n.*put the table back; or, .* move "):
        settlement(lake)
    Path(neighbour).rename(f"{lake}/elsewhere")
    started = settlement(lake)

    assert started and started.kind == "start"
