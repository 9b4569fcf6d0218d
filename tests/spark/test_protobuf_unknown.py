"""Fields of Protobuf that the descriptor file has not: by their numbers, in counts, dead letters and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdi_assets.drain.contract import UnknownFieldsFound, refuse_unknown
from kdi_assets.message_format import Protobuf
from kdi_assets.message_rules import Contract
from tests.judged import Judged, judged, stream_of
from tests.protobuf_messages import SHOP, descriptors
from tests.unit.test_protobuf_payloads import of, varint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = Protobuf("shop.desc", descriptors(SHOP), "shop.Order")
NAMED = of(14, 2, b"name")
NEW = of(999, 2, b"new")
VALUES: list[bytes | None] = [
    NAMED,
    NAMED + NEW,
    NAMED + of(21, 2, of(7, 0, b"\x01")) + of(22, 2, of(3, 2, NEW)) + NEW,
    None,
    NEW + b"\x00",  # malformed
    of(28, 2, of(1, 2, b"b")) + of(28, 2, of(1, 2, b"a")) + of(16, 0, varint(77)),  # well, and unusual
    of(14, 2, b"left out") + NEW,
    of(14, 2, b"\xff") + NEW,
]
COUNTED = {"#999": 2, "items[].places[].#999": 1, "place.#7": 1}
FILTERED = "name <> 'left out'"


@pytest.mark.parametrize("decoded_ahead", [False, True])
def test_numbers_are_counted_of_rows_alone(spark: SparkSession, decoded_ahead: bool) -> None:
    """Also where messages are decoded once for several streams; a frozen contract names them."""
    stream = stream_of("", format=FORMAT, filter=FILTERED, contract=Contract("freeze"))

    found = judged(spark, stream, VALUES, decoded_ahead=decoded_ahead)

    unknown = found.counts.unknown
    assert (unknown.fields.messages, unknown.fields.named, unknown.fields.others) == (2, COUNTED, 0)
    assert [row["name"] for row in found.rows] == ["name", "name", "name", ""]
    assert _letters(found) == [(4, "malformed_protobuf", None), (7, "invalid_utf8", "name")]
    with pytest.raises(UnknownFieldsFound, match=r"2 of 4 messages .* #999 \(2\), items\[\]\.places\[\]\.#999 \(1\)"):
        refuse_unknown(stream, unknown, became_rows=found.counts.became_rows)


def test_numbers_make_dead_letters_where_the_contract_says_so(spark: SparkSession) -> None:
    found = judged(spark, stream_of("", format=FORMAT, filter=FILTERED, contract=Contract("discard_row")), VALUES)

    assert [row["kafka"]["offset"] for row in found.rows] == [0, 5]
    assert _letters(found) == [
        (1, "unknown_field", "#999"),
        (2, "unknown_field", "#999"),
        (4, "malformed_protobuf", None),
        (7, "invalid_utf8", "name"),
    ]
    assert found.counts.unknown.fields.named == COUNTED


def _letters(found: Judged) -> list[tuple[int, str, str | None]]:
    return [(letter["offset"], letter["reason"], letter["field"]) for letter in found.letters]
