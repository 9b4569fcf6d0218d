"""The last message read of a topic partition: how long it is known, and what another one at its offset means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kdi_assets.drain.truncation import truncated
from kdi_assets.ledger.entry import LastRead, LedgerEntry
from kdi_assets.ledger.next_entry import next_entry
from kdi_assets.sources.kafka_messages import AtPosition
from kdi_assets.stream import TopicPartition
from tests.table_by_hand import TOPIC, orders
from tests.unit.test_plan import ledger

P0, P1 = (TopicPartition(TOPIC, n) for n in range(2))
READ = {P0: LastRead(9, 1_700_000_000_000, "ab"), P1: LastRead(4, 1_700_000_000_000, "cd")}


@pytest.mark.parametrize(
    ("positions", "kept"),
    [
        ({P0: 10, P1: 5}, READ),
        ({P0: 3, P1: 5}, {P1: READ[P1]}),  # set back: the message is to be read again
        ({P0: 20, P1: 5}, {P1: READ[P1]}),  # given up: what stands there is nobody's any more
    ],
)
def test_the_message_read_last_is_known_for_as_long_as_the_position_stays(
    positions: dict[TopicPartition, int], kept: dict[TopicPartition, LastRead]
) -> None:
    newest = LedgerEntry(7, "drain", TOPIC, "v7", TOPIC, "topic", "table", {P0: 10, P1: 5}, last_read=READ)
    state = ledger({P0: 10, P1: 5}, entry=newest)

    made = next_entry(orders(), state, kind="resolve", topic_id="topic", positions=positions)

    assert made.last_read == kept
    assert next_entry(orders(), state, kind="resolve", topic_id="another").last_read == {}


@pytest.mark.parametrize(
    ("there", "refused"),
    [
        (READ[P0], False),
        (None, False),  # deleted by retention, or compacted
        (replace(READ[P0], timestamp=1_700_000_000_001), True),
        (replace(READ[P0], digest="ac"), True),
        (replace(READ[P0], timestamp=1_700_000_000_000_000_000), True),  # no time that can be written as a date
    ],
)
def test_another_message_at_the_offset_read_last_is_a_truncation_and_none_is_not(
    there: LastRead | None, refused: bool
) -> None:
    refusal = truncated(orders(), READ, {P0: AtPosition(there), P1: AtPosition(READ[P1])})

    assert (refusal is not None) == refused
    if refusal:
        assert "kdi resolve bronze/orders rewind --topic-partition orders/0 --to" in str(refusal)
