"""A format of each kind through a broker, a drain and two tables: what its messages hold arrives, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from tests.conftest import DrivenFactory
from tests.format_cases import CASES, SEVERAL, Case, Columns
from tests.kafka_log import Produced
from tests.oracle import Reading

MESSAGES = 600


@pytest.mark.scenario("poison message")
@pytest.mark.parametrize("name", CASES)
def test_what_a_format_carries_arrives_and_every_bad_message_is_a_dead_letter_with_its_reason(
    driven: DrivenFactory, name: str
) -> None:
    """Procedure: messages with all that the format can carry, one in a hundred spoilt; drain; ask the oracle."""
    case, chance = CASES[name], random.Random(7)
    stream = driven(
        format=case.format,
        compression=case.compression,
        record_ddl=case.ddl,
        columns={},
        coordinates="kafka",
        date_expression="to_date(kafka.timestamp)",
        **case.stream,
    )
    rows = dict(case.encode(n) for n in range(MESSAGES))
    assert len(rows) == MESSAGES
    bad = dict(case.bad)
    values: list[bytes | None] = [*rows, *list(bad) * -(-MESSAGES // 100 // max(1, len(bad))), None]
    for n, value in enumerate(chance.sample(values, len(values))):
        headers = [("h", b"\xff"), ("h", None)] if n % 3 else []
        stream.publisher.produce(
            stream.stream.topic, value, partition=chance.randrange(2), key=f"k{n}" if n % 2 else None, headers=headers
        )
    produced = stream.publisher.flush()

    report = stream.drain()

    stream.assert_each_offset_once(produced, reading=_reading(rows, case))
    assert report.rows_added == sum(len(row.get(SEVERAL, [row])) for row in rows.values())
    assert {(x["value"], x["reason"]) for x in stream.found().dead_letters} == set(bad.items())
    assert stream.audit().complete


def _reading(rows: Mapping[bytes, Columns], case: Case) -> Reading:
    def each(message: Produced) -> list[Columns]:
        row = rows[message.value or b""]
        more = {**case.beside(message), "date": message.timestamp.date()}
        return [{**one, **more} for one in row.get(SEVERAL, [row])]

    return Reading(lambda message: each(message)[0], lambda message: message.value in rows, each)
