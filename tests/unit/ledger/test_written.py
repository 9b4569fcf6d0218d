"""What a drain reads and writes: headers, masked dead letters, file sizes, and numbers that must agree."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from kdi_assets.delta.transaction import ONE_FILE_PER_TASK, FileSize
from kdi_assets.documents.model.message_format import Bytes, Csv
from kdi_assets.documents.model.message_rules import Mask
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.streams.drain import stage
from kdi_assets.streams.drain.accounting import account_for
from kdi_assets.streams.drain.dead_letters import AppendedLetters
from kdi_assets.streams.drain.errors import AccountingMismatch
from kdi_assets.streams.drain.plan import Plan, plan_drain
from kdi_assets.streams.drain.stage import file_size, largest_drain
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.recent_commits import LedgerCommit
from kdi_assets.streams.rules.mask import letters_hold, unlocated
from kdi_assets.streams.rules.tally import Counts
from kdi_assets.streams.rules.verdict import DEAD_LETTER
from tests.unit.ledger.plans import P0, ledger, orders, plan, topic

NOW = datetime(2026, 5, 5, tzinfo=UTC)


def drained(rows: int, size: int) -> LedgerCommit:
    """A drain of good messages of 300 bytes each."""
    given: dict[str, Any] = {name: "" for name in ("app_id", "attempt_id", "topic", "topic_id", "table_id")}
    added, read = {date(2026, 5, 5): rows}, 300 * rows
    entry = LedgerEntry(
        version=1, kind="drain", positions={}, rows_by_date=added, bytes=size, message_bytes=read, **given
    )
    return LedgerCommit(entry, NOW)


def planned(offsets: int) -> Plan:
    return plan_drain(orders(), ledger=ledger({P0: 0}), topic=topic({P0: (0, offsets)}), now=NOW)


def test_what_a_row_takes_is_told_by_the_largest_drain_and_by_no_small_one() -> None:
    told = largest_drain([drained(10, 30_000), drained(100_000, 5_000_000), drained(50_000, 900_000)])

    assert told is not None and told.rows == 100_000
    assert largest_drain([drained(9_999, 30_000)]) is None
    assert largest_drain([]) is None


def test_a_plan_of_one_task_is_cut_and_a_larger_one_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "recent_commits", lambda log, app_id: (drained(100_000, 5_000_000),))
    stream = orders(target_file_size=1_000_000)

    assert file_size(stream, planned(100_000)) == FileSize(None, max_rows=20_000)
    assert file_size(stream, planned(100_001)) == FileSize(shuffled_bytes=2 * 20_000 * 300, max_rows=20_000)
    assert file_size(orders(), planned(100_001)) == ONE_FILE_PER_TASK


def test_before_a_large_drain_nobody_knows_how_many_rows_a_file_may_have() -> None:
    assert file_size(orders(target_file_size=1_000_000), planned(100_001)) == FileSize(2_000_000)


STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", Cluster("main", "nowhere:1"))
TEN = plan(ledger({P0: 0}), topic({P0: (0, 10)}))
READ = Counts(
    messages=10,
    became_rows=8,
    rows=8,
    not_rows={(0, DEAD_LETTER): 2},
    digest=1,
    dead_letter_digest=2,
    tombstone_digest=0,
)


@pytest.mark.parametrize(
    ("rows_written", "letters", "read", "said"),
    [
        (7, AppendedLetters(2, 2, None), READ, "7 rows against 8 that were read"),
        (8, AppendedLetters(3, 2, None), READ, "3 dead letters against 2 that were read"),
        (8, AppendedLetters(2, 3, None), READ, "the dead letters written are not the messages that became no row"),
        (
            8,
            AppendedLetters(2, 2, None),
            replace(READ, messages=11),
            "10 messages with a verdict against 11 that were read",
        ),
    ],
)
def test_what_was_written_must_be_what_was_read(
    rows_written: int, letters: AppendedLetters, read: Counts, said: str
) -> None:
    with pytest.raises(AccountingMismatch, match=said):
        account(read, rows_written=rows_written, letters=letters)


def account(read: Counts, **written: Any) -> None:
    """Account for ten offsets; neither Spark nor the broker is asked before these numbers agree."""
    nobody: Any = None
    account_for(TEN, STREAM, read, messages=nobody, **written)


USER = StructType().add("Email", StringType()).add("id", LongType())
RECORD = StructType().add("user", USER).add("card", StringType())
ORDERS = Stream("orders", "bronze/orders", "", "current_date()", Cluster("main", "localhost:1"))
HIDDEN = Mask("null")


@pytest.mark.parametrize(
    ("said", "held"),
    [
        ({"mask": {}}, "keep"),
        ({"mask": {}, "dead_letter_payload": "withhold"}, "withhold"),
        ({}, "mask"),
        ({"mask": {"USER.email": HIDDEN}}, "mask"),
        ({"dead_letter_payload": "keep"}, "keep"),
        ({"dead_letter_payload": "withhold"}, "withhold"),
        ({"mask": {"user.phone": HIDDEN}}, "withhold"),
        ({"columns": {"card": "upper(user.email)"}}, "withhold"),
        ({"columns": {"user": "to_json(user)"}, "mask": {"user.email": HIDDEN}}, "withhold"),
        ({"columns": {"user.mail": "user.email"}, "mask": {"user": HIDDEN}}, "withhold"),
        ({"columns": {"user.email": "user.id"}, "mask": {"user.id": HIDDEN}}, "mask"),
        ({"mask": {}, "dead_letter_payload": "mask"}, "keep"),
        ({"columns": {"Card": "upper(user.email)"}, "dead_letter_payload": "mask"}, "withhold"),
        ({"format": Csv()}, "withhold"),
        ({"format": Bytes(), "dead_letter_payload": "keep"}, "keep"),
        ({"compression": "gzip"}, "withhold"),
    ],
)
def test_what_is_masked_lies_in_no_dead_letter_unless_the_stream_keeps_it(said: dict[str, Any], held: str) -> None:
    stream = replace(ORDERS, **{"mask": {"card": HIDDEN}, **said})

    assert letters_hold(stream, RECORD) == held
    assert held != "mask" or not unlocated(stream, RECORD)
