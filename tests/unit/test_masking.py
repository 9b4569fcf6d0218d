"""What a stream's rules need: dead letters that hide what is masked, and headers only where they are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from kdi_assets.drain.carry_out import reads_headers
from kdi_assets.drain.masking import letters_hold, unlocated
from kdi_assets.message_format import Bytes, Csv, Envelope
from kdi_assets.message_rules import Expectation, Mask
from kdi_assets.stream import KafkaCluster, Stream
from tests.judged import stream_of

USER = StructType().add("Email", StringType()).add("id", LongType())
RECORD = StructType().add("user", USER).add("card", StringType())
ORDERS = Stream("orders", "bronze/orders", "", "current_date()", KafkaCluster("main", "localhost:1"))
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
        ({"format": Csv()}, "withhold"),
        ({"format": Bytes(), "dead_letter_payload": "keep"}, "keep"),
        ({"compression": "gzip"}, "withhold"),
    ],
)
def test_what_is_masked_lies_in_no_dead_letter_unless_the_stream_keeps_it(said: dict[str, Any], held: str) -> None:
    stream = replace(ORDERS, **{"mask": {"card": HIDDEN}, **said})

    assert letters_hold(stream, RECORD) == held
    assert held != "mask" or not unlocated(stream, RECORD)


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({}, False),
        (
            {"columns": {"k": "CAST(kafka.key AS STRING)", "p": "`kafka` . `partition`", "kafkas": "my_kafka_key"}},
            False,
        ),
        ({"date_expression": "to_date(KAFKA.timestamp)"}, False),
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
