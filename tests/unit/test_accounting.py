"""Accounting: numbers and digests that disagree stop a drain before its commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kdi_assets.drain.accounting import account_for
from kdi_assets.drain.counts import Counts
from kdi_assets.drain.dead_letters import Written
from kdi_assets.drain.refusals import AccountingMismatch
from kdi_assets.drain.verdict import DEAD_LETTER
from kdi_assets.stream import KafkaCluster, Stream, TopicPartition
from tests.unit.test_plan import ledger, plan, topic

P0 = TopicPartition("orders", 0)
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", KafkaCluster("main", "nowhere:1"))
TEN = plan(ledger({P0: 0}), topic({P0: (0, 10)}))
READ = Counts(
    messages=10,
    became_rows=8,
    rows=8,
    others={(0, DEAD_LETTER): 2},
    digest=1,
    dead_letter_digest=2,
    tombstone_digest=0,
)


@pytest.mark.parametrize(
    ("rows_written", "letters", "read", "said"),
    [
        (7, Written(2, 2, None), READ, "7 rows against 8 that were read"),
        (8, Written(3, 2, None), READ, "3 dead letters against 2 that were read"),
        (8, Written(2, 3, None), READ, "the dead letters written are not the messages that became no row"),
        (8, Written(2, 2, None), replace(READ, messages=11), "10 messages with a verdict against 11 that were read"),
    ],
)
def test_what_was_written_must_be_what_was_read(rows_written: int, letters: Written, read: Counts, said: str) -> None:
    with pytest.raises(AccountingMismatch, match=said):
        account(read, rows_written=rows_written, letters=letters)


def account(read: Counts, **written: Any) -> None:
    """Account for ten offsets; neither Spark nor the broker is asked before these numbers agree."""
    nobody: Any = None
    account_for(TEN, STREAM, read, messages=nobody, **written)
