"""`contract`: what becomes of messages that are other than the record, through whole drains."""

from __future__ import annotations

import pytest

from kdi_assets.drain.contract import UnknownFieldsFound
from kdi_assets.ledger.entry import UnknownFields
from kdi_assets.ledger.history import entries
from kdi_assets.ledger.log import TableLog
from kdi_assets.metrics.totals import Totals
from kdi_assets.stream import Contract, TopicPartition
from tests.conftest import DrivenFactory

GOOD = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"method":"GET","status":200,"url":"https://a.b/"}'
PLAN = GOOD[:-1] + ',"plan":"gold"}'
NESTED = GOOD.replace('00:00Z"}', '00:00Z","host":"h"}')


def test_unknown_fields_are_counted_by_name_and_left_out(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    produced = web.publisher.produce_all(web.stream.topic, [GOOD, PLAN, NESTED, PLAN, None, "bad"])

    report = web.drain()

    expected = UnknownFields(3, {"plan": 2, "meta.producer.host": 1})
    assert (report.rows_added, report.unknown) == (4, expected)
    *_, entry = entries(web.uri, web.stream.app_id)
    totals = Totals()
    totals.add(entry)
    assert (entry.unknown, totals.with_unknown_fields) == (expected, 3)
    web.assert_each_offset_once(produced)


def test_a_frozen_contract_stops_the_drain_and_names_the_fields(driven: DrivenFactory) -> None:
    """Pass: nothing is committed; a contract that makes dead letters of them goes on."""
    web = driven(partitions=2, contract=Contract("freeze"))
    web.publisher.produce_all(web.stream.topic, [GOOD, "bad"], partition=0)
    web.publisher.produce_all(web.stream.topic, [GOOD, PLAN, NESTED, PLAN], partition=1)

    with pytest.raises(UnknownFieldsFound) as refused:
        web.drain()

    at = TopicPartition(web.stream.topic, 1)
    assert (refused.value.topic_partition, refused.value.offset, refused.value.rows) == (at, 1, 5)
    what, _, then = refused.value.parts()
    assert "3 of 5 messages" in what and "plan (2), meta.producer.host (1)" in what
    assert f"--topic-partition {at} --offset 1" in then
    assert [e.kind for e in entries(web.uri, web.stream.app_id)] == ["start"]
    assert TableLog.open(web.stream.dead_letters_uri(web.lake)) is None

    report = web.with_definition(contract=Contract("discard_row")).drain()

    assert (report.rows_added, report.dead_letters) == (2, 4)
    assert sorted((x["reason"], x["field"] or "") for x in web.found().dead_letters) == [
        ("malformed_json", ""),
        ("unknown_field", "meta.producer.host"),
        ("unknown_field", "plan"),
        ("unknown_field", "plan"),
    ]
    assert web.audit().complete
