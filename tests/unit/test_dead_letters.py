"""Dead letters that the ledger counts on are there, or the stream stops."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.drain.dead_letters import refuse_replaced
from kdi_assets.drain.refusals import DeadLettersReplaced
from kdi_assets.ledger.entry import DeadLettersAt
from kdi_assets.stream import KafkaCluster, Stream

STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", KafkaCluster("main", "nowhere:1"))


def test_letters_behind_a_commit_that_cannot_be_read_may_be_gone_and_adopt_decides(lake: str) -> None:
    uri = STREAM.dead_letters_uri(lake)
    for offset in range(3):
        write_deltalake(uri, pa.table({"offset": [offset]}), mode="append")
    letters = DeltaTable(uri)
    letters.create_checkpoint()
    counts_on = DeadLettersAt(str(letters.metadata().id), 0)

    refuse_replaced(STREAM, lake, counts_on)
    (Path(uri) / "_delta_log" / f"{1:020}.json").unlink()

    with pytest.raises(
        DeadLettersReplaced, match="changed by commit 1, which cannot be read.*\n.*\n.*adopt-dead-letters accepts"
    ):
        refuse_replaced(STREAM, lake, counts_on)
