"""`filter`: messages that a stream passes over, and the account of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.drain.compare import compare
from kdi_assets.ledger.history import entries
from kdi_assets.metrics.totals import Totals
from kdi_assets.stream import TopicPartition
from tests.broker.test_audit import adds_up
from tests.conftest import DrivenFactory
from tests.kafka_log import Produced

GOOD = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"method":"GET","status":200,"url":"https://a.b/"}'
POST = GOOD.replace("GET", "POST")


def decodes(message: Produced) -> bool:
    """Whether the message is a record, if one without a date that is allowed."""
    try:
        status = json.loads(message.value or b"")["status"]
    except ValueError:
        return False
    return isinstance(status, int) and abs(status) < 2**31


@pytest.mark.core
def test_every_message_is_a_row_a_dead_letter_a_tombstone_or_filtered(driven: DrivenFactory) -> None:
    """Procedure: two thirds of what decodes are filtered, some of it without a date; others do not decode; drain."""
    web = driven(partitions=3, filter="kafka.offset % 3 = 1", max_records=400)
    produced = web.produce(600, bad=0.2, tombstones=0.05)
    filtered = [m for m in produced if m.value is not None and decodes(m) and m.offset % 3 != 1]

    report = web.drain()

    web.assert_each_offset_once([m for m in produced if m not in filtered])
    assert report.filtered == len(filtered) > 300
    assert report.positions == {TopicPartition(web.stream.topic, p): 200 for p in range(3)}
    audit = web.audit()
    assert (audit.complete, audit.filtered, audit.tombstones) == (True, len(filtered), 600 - len(values(produced)))
    assert adds_up(audit)


def test_what_is_filtered_is_counted_by_topic_partition_in_the_ledger(driven: DrivenFactory) -> None:
    web = driven(partitions=2, filter="method = 'GET'")
    web.publisher.produce_all(web.stream.topic, [GOOD, POST, POST, None, "bad"], partition=0)
    web.publisher.produce_all(web.stream.topic, [GOOD, POST], partition=1)

    web.drain()

    *_, entry = entries(web.uri, web.stream.app_id)
    assert [(r.became_rows, r.dead_letters, r.tombstones, r.filtered, r.gaps) for r in entry.ranges] == [
        (1, 1, 1, 2, 0),
        (1, 0, 0, 1, 0),
    ]
    totals = Totals()
    totals.add(entry)
    assert [totals.counts[f"kdi_{n}_total"] for n in ("messages", "filtered")] == [7, 3]


def test_a_condition_that_is_null_is_not_true(driven: DrivenFactory) -> None:
    web = driven(partitions=1, filter="status >= 200")
    web.publisher.produce_all(web.stream.topic, [GOOD, GOOD.replace('"status":200,', "")])

    report = web.drain()

    assert (report.rows_added, report.filtered, report.dead_letters) == (1, 1, 0)


def test_what_is_filtered_needs_no_date_and_suits_no_expression(driven: DrivenFactory) -> None:
    """Other kinds of events in the same topic are what filters are for: they have other fields."""
    web = driven(partitions=1, filter="method = 'GET'", columns={"number": "CAST(session_id AS INT)"})
    other = '{"method":"HEARTBEAT","session_id":"none"}'
    web.publisher.produce_all(web.stream.topic, [other, GOOD, other.replace("HEARTBEAT", "GET")])

    report = web.drain()

    assert (report.rows_added, report.filtered) == (1, 1)
    [letter] = web.found().dead_letters
    assert (letter["offset"], letter["reason"], letter["field"]) == (2, "expression_failed", "columns.number")


def test_a_filter_that_raises_makes_the_message_a_dead_letter(driven: DrivenFactory) -> None:
    web = driven(partitions=1, filter="CAST(method AS INT) > 0", columns={})
    web.publisher.produce_all(web.stream.topic, [GOOD, GOOD.replace("GET", "7"), GOOD.replace("GET", "-7")])

    report = web.drain()

    assert (report.rows_added, report.filtered) == (1, 1)
    [letter] = web.found().dead_letters
    assert (letter["offset"], letter["reason"], letter["field"]) == (0, "expression_failed", "filter")


def test_filtered_messages_alone_still_move_the_positions(driven: DrivenFactory) -> None:
    web = driven(partitions=1, filter="false")
    web.publisher.produce_all(web.stream.topic, [GOOD] * 5)

    report = web.drain()

    assert (report.rows_added, report.filtered, web.drain().commits) == (0, 5, ())
    assert report.positions == {TopicPartition(web.stream.topic, 0): 5}
    assert web.audit().complete


def test_a_row_where_a_message_became_none_is_found(driven: DrivenFactory) -> None:
    web = driven(partitions=1, filter="method = 'GET'")
    web.publisher.produce_all(web.stream.topic, [None, POST, GOOD, POST, GOOD])
    web.drain()
    rows = DeltaTable(web.uri).to_pyarrow_table()
    (row,) = rows.slice(0, 1).to_pylist()
    row["meta"]["kafka"]["offset"] = 3  # of a filtered message

    write_deltalake(web.uri, pa.Table.from_pylist([row], rows.schema), mode="append")
    report = web.audit()

    assert not report.complete
    assert any("recorded 1 tombstones and 2 filtered messages" in note for note in report.notes), report.notes


def test_against_kafka_filtered_messages_agree_until_the_filter_is_another(driven: DrivenFactory) -> None:
    web = driven(partitions=1, filter="method = 'GET'")
    web.publisher.produce_all(web.stream.topic, [GOOD, POST, None, "bad"])
    web.drain()

    same = compare(web.stream, lake=web.lake, session=web.session)
    other = compare(replace(web.stream, filter=""), lake=web.lake, session=web.session)

    assert (same.messages, same.agreed) == (4, 4)
    assert (other.agreed, other.absent) == (3, 1)
    assert "1 were filtered" in other.notes[-1]


def values(produced: list[Produced]) -> list[Produced]:
    return [m for m in produced if m.value is not None]
