"""Headers are read for those streams alone that need them."""

from __future__ import annotations

from typing import Any

import pytest

from kdi_assets.drain.carry_out import reads_headers
from kdi_assets.message_format import Envelope
from kdi_assets.message_rules import Expectation
from tests.judged import stream_of


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({}, False),
        (
            {"columns": {"k": "CAST(kafka.key AS STRING)", "p": "`kafka` . `partition`", "kafkas": "my_kafka_key"}},
            False,
        ),
        ({"date_expression": "to_date(KAFKA.timestamp)"}, False),
        ({"columns": {"h": "kafka.headers"}}, True),
        ({"date_expression": "to_date(CAST(`kafka`.`Headers`[0].value AS STRING))"}, True),
        ({"filter": "exists(kafka.headers, h -> h.key = 'kept')"}, True),
        ({"expectations": {"traced": Expectation("kafka.headers IS NOT NULL")}}, True),
        ({"columns": {"whole": "to_json(kafka)"}}, True),
        ({"columns": {"all": "struct(kafka.*)"}}, True),
        ({"format": Envelope()}, True),
    ],
)
def test_headers_are_read_where_an_expression_or_the_format_needs_them(fields: dict[str, Any], read: bool) -> None:
    assert reads_headers(stream_of("id bigint", **fields)) is read
