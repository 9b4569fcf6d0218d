"""The ledger's archive: what the log said, once each, and what it is asked for when the log is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kdi_assets.ledger.archive import Archive, copy_to_archive
from kdi_assets.ledger.audit import audited_history
from kdi_assets.ledger.entry import DeadLettersAt, LedgerEntry, RangeCounts
from kdi_assets.ledger.ghosts import remove_ghosts
from kdi_assets.ledger.history import live_history
from kdi_assets.ledger.log import CommitUnreadable, TableLog
from kdi_assets.ledger.report import NothingToAudit
from kdi_assets.stream import KafkaCluster, OffsetRange, Stream, TopicPartition

P0 = TopicPartition("orders", 0)
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", KafkaCluster("main", "nowhere:1"))


class LedgerLog:
    """A table whose commits can be cleaned up at once."""

    def __init__(self, lake: str) -> None:
        self.lake, self.uri, self.archive = lake, STREAM.table_uri(lake), STREAM.archive_uri(lake)
        self.position = 0

    def start(self) -> None:
        self._commit(LedgerEntry(-1, "start", "orders", "start", "orders", "topic", "table", {P0: 0}))

    def drain(self, attempt: str) -> None:
        drained = OffsetRange(P0, self.position, self.position + 10)
        self.position += 10
        self._commit(
            LedgerEntry(
                -1,
                "drain",
                "orders",
                attempt,
                "orders",
                "topic",
                "table",
                {P0: self.position},
                ranges=(RangeCounts(drained, became_rows=10),),
                dead_letters_at=DeadLettersAt("letters", 1),
            )
        )

    def _commit(self, entry: LedgerEntry) -> None:
        version = DeltaTable(self.uri).version() + 1 if DeltaTable.is_deltatable(self.uri) else 0
        commit = CommitProperties(
            app_transactions=[Transaction("orders/version", version)],
            custom_metadata={"userMetadata": replace(entry, version=version).to_json()},
        )
        kept = {"delta.logRetentionDuration": "interval 0 days", "delta.enableExpiredLogCleanup": "false"}
        write_deltalake(
            self.uri, pa.table({"id": [version]}), mode="append", configuration=kept, commit_properties=commit
        )

    def copy(self) -> int:
        return copy_to_archive(TableLog.existing(self.uri), self.archive)

    def clean(self) -> None:
        DeltaTable(self.uri).create_checkpoint()
        DeltaTable(self.uri).cleanup_metadata()

    def attempts(self) -> list[str]:
        history = live_history(self.uri, "orders", archive_uri=self.archive)
        assert history is not None
        return [e.attempt_id for e in history.entries]


@pytest.fixture
def table(lake: str) -> LedgerLog:
    made = LedgerLog(lake)
    made.start()
    made.drain("first")
    return made


def test_every_commit_is_copied_once_however_often_it_is_asked_for(table: LedgerLog) -> None:
    first, again = table.copy(), table.copy()
    table.drain("second")
    behind = table.copy()

    assert (first, again, behind) == (2, 0, 1)
    assert sorted(DeltaTable(table.archive).to_pyarrow_table()["version"].to_pylist()) == [0, 1, 2]


def test_two_copiers_at_once_copy_every_commit_once(table: LedgerLog) -> None:
    """Purpose: an archive that holds a commit twice would be read twice.
    Procedure: when one copier has compared log and archive, another copies; then the first one writes.
    Pass: every commit is there once, whether they met making the archive or appending to it.
    """
    for _ in ("making the archive", "appending to it"):
        others: list[int] = []

        def meanwhile(point: str, others: list[int] = others) -> None:
            others.append(table.copy())

        mine = copy_to_archive(TableLog.existing(table.uri), table.archive, at=meanwhile)

        assert (mine, len(others), others[0] > 0) == (0, 1, True)
        versions = sorted(DeltaTable(table.archive).to_pyarrow_table()["version"].to_pylist())
        assert versions == list(range(TableLog.existing(table.uri).version + 1))
        table.drain("another")


def test_what_a_cleaned_log_no_longer_tells_the_archive_does(table: LedgerLog) -> None:
    before = live_history(table.uri, "orders")
    table.copy()
    table.drain("second")

    table.clean()

    with_it, without = live_history(table.uri, "orders", archive_uri=table.archive), live_history(table.uri, "orders")
    assert before and with_it and without
    assert with_it.entries[:2] == before.entries
    assert (table.attempts(), with_it.since) == (["start", "first", "second"], 0)
    assert [e.attempt_id for e in without.entries] == ["second"]


def test_a_restore_in_the_archive_still_leads_where_it_led(table: LedgerLog) -> None:
    table.drain("undone")
    DeltaTable(table.uri).restore(1)
    table.drain("behind it")
    before = table.attempts()
    table.copy()

    table.clean()

    archived = Archive(table.archive, TableLog.existing(table.uri).table_id).commit(3)
    assert archived is not None
    assert (archived.restored_to, archived.archived) == (1, True)
    assert table.attempts() == before == ["start", "first", "behind it"]


def test_a_table_made_anew_is_not_answered_from_the_old_ones_archive(table: LedgerLog) -> None:
    table.copy()
    old = TableLog.existing(table.uri).table_id

    assert Archive(table.archive, old).commit(1) is not None
    assert Archive(table.archive, "another table").commit(1) is None


def test_ghosts_are_removed_from_a_cleaned_log_by_what_the_archive_says(table: LedgerLog, lake: str) -> None:
    letters = {"partition": [0, 0], "offset": [3, 3], "attempt_id": ["first", "never committed"]}
    write_deltalake(STREAM.dead_letters_uri(lake), pa.table(letters))
    table.drain("second")
    table.copy()
    table.clean()
    kept = Path(table.archive).rename(Path(table.archive).with_name("hidden"))

    with pytest.raises(CommitUnreadable):
        remove_ghosts(STREAM, lake)
    kept.rename(table.archive)
    removed = remove_ghosts(STREAM, lake)

    left = DeltaTable(STREAM.dead_letters_uri(lake)).to_pyarrow_table()["attempt_id"].to_pylist()
    assert (removed, left) == (1, ["first"])


def test_a_log_that_was_cleaned_without_a_copy_is_said_to_be_that(table: LedgerLog, lake: str) -> None:
    write_deltalake(table.uri, pa.table({"id": [99]}), mode="append")
    table.clean()

    with pytest.raises(NothingToAudit, match="cleaned up without copying.*\n.*\n.*kdi upkeep bronze/orders"):
        audited_history(STREAM, lake)
