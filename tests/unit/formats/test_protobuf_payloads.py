"""Protobuf bytes: what Protobuf's own library reads in them, or a reason why they have no row."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from kdi_assets.messages.formats import framing, protobuf
from kdi_assets.messages.formats.protobuf.payloads import Payloads, Reading, decoding
from kdi_assets.runtime.worker_code import send_by_value
from tests.deployment.bare_worker import called_in_bare_worker
from tests.formats.damage import damaged
from tests.formats.protobuf_messages import (
    LEGACY,
    SHOP,
    OutOfRange,
    descriptors,
    message_class,
    random_message,
    read_row,
    said,
)
from tests.formats.wire import of, varint

SEED = 7
DAMAGED = 1500
ORDER = message_class(SHOP, "shop.Order")
OLD_ORDER = message_class(LEGACY, "legacy.Order")

Row = dict[str, Any]
Reason = tuple[str, str]


def decoded(
    payloads: Payloads, values: Sequence[bytes | None], schema_ids: Sequence[int | None] | None = None
) -> list[Row | Reason]:
    """The record of every payload, or reason and field."""
    reasons, ids = Reading(payloads).reasons, () if schema_ids is None else (pa.array(schema_ids, pa.int64()),)
    found = decoding(payloads)(pa.array(values, pa.binary()), *ids)
    return [row["record"] if row["rule"] is None else reasons[row["rule"] - 1] for row in found.to_pylist()]


def shop(values: Sequence[bytes | None]) -> list[Row | Reason]:
    return decoded(Payloads(descriptors(SHOP), "shop.Order"), values)


def legacy(values: Sequence[bytes | None]) -> list[Row | Reason]:
    return decoded(Payloads(descriptors(LEGACY), "legacy.Order"), values)


@pytest.mark.parametrize(("decode", "message"), [(shop, ORDER), (legacy, OLD_ORDER)], ids=["proto3", "proto2"])
def test_a_record_is_what_protobuf_reads(decode: Callable[[Sequence[bytes]], list[Row | Reason]], message: Any) -> None:
    chance = random.Random(SEED)
    messages = [random_message(message, chance) for _ in range(200)]

    rows = decode([message.SerializeToString() for message in messages])

    for written, row in zip(messages, rows, strict=True):
        assert isinstance(row, dict), f"{row}: {written}"
        assert read_row(row, message.DESCRIPTOR) == said(written), written


def test_damaged_bytes_are_read_as_protobufs_own_library_reads_them_or_not_at_all() -> None:
    chance = random.Random(SEED)
    broken = [damaged(random_message(ORDER, chance, share=0.1).SerializeToString(), chance) for _ in range(DAMAGED)]
    counts = {"row": 0, "malformed_protobuf": 0, "invalid_utf8": 0, "out_of_range": 0}

    for value, found in zip(broken, shop(broken), strict=True):
        expected = _reference(value)
        if isinstance(found, dict):
            counts["row"] += 1
            assert read_row(found, ORDER.DESCRIPTOR) == expected, value.hex()
        else:
            counts[found[0]] += 1
            assert (expected, found[0]) in [(None, "malformed_protobuf"), (None, "invalid_utf8"), ("", "out_of_range")]
            assert bool(found[1]) or found[0] != "out_of_range", value.hex()

    assert min(counts.values()) > 0, counts


def _reference(value: bytes) -> Row | str | None:
    """The row; ``""`` if no row can hold it; ``None`` if it is no message."""
    try:
        return said(ORDER.FromString(value))
    except OutOfRange:
        return ""
    except DecodeError:
        return None


PAIR = of(1, 0, varint(253402300800))
NAN = b"\x11" + bytes.fromhex("000000000000f87f")
ENTRY_A, ENTRY_B = (of(1, 2, of(1, 2, name) + of(2, 2, b"")) for name in (b"a", b"b"))
WIRE: list[tuple[bytes, Row | Reason]] = [
    (of(16, 0, varint(77)), {"kind": "77"}),
    (of(16, 0, varint(2**64 - 5)), {"kind": "BELOW"}),
    (of(25, 2, varint(1) + varint(99) + varint(2)), {"kinds": ["RED", "99", "GREEN"]}),
    (of(25, 0, varint(2)) + of(25, 2, varint(1)), {"kinds": ["GREEN", "RED"]}),  # packed or not
    (of(6, 0, varint(2**64 - 1)), {"u64": Decimal(2**64 - 1)}),
    (of(17, 0, varint(0)), {"maybe": 0}),
    (of(34, 2, b"x") + of(35, 0, varint(3)), {"card": None, "account": 3}),  # of a oneof the last
    (
        of(21, 2, of(1, 2, b"a")) + of(21, 2, of(2, 2, b"b")),
        {"place": {"city": "a", "zip": "b", "spot": None}},
    ),  # merged
    (of(28, 2, of(1, 2, b"k") + of(2, 0, b"\x01")) + of(28, 2, of(1, 2, b"k")), {"counts": [("k", 0)]}),  # the last
    (of(3, 2, b"wrong wire type"), {"i32": 0}),
    (of(999, 2, b"unknown") + of(3, 0, varint(1)), {"i32": 1}),
    (of(998, 3, of(1, 0, b"\x01") + varint(998 << 3 | 4)) + of(3, 0, varint(1)), {"i32": 1}),  # an unknown group
    (of(41, 2, b""), {"w_text": ""}),
    (of(55, 2, b""), {"empty": True}),
    (of(54, 2, of(1, 2, b"u") + of(2, 2, b"\xff")), {"anything": {"type_url": "u", "value": b"\xff"}}),
    (of(52, 2, of(1, 0, b"\x00")), {"any_value": "null"}),
    (of(51, 2, ENTRY_B + ENTRY_A), {"meta": '{"a": null, "b": null}'}),
    (of(38, 2, PAIR), ("out_of_range", "at")),
    (of(40, 2, b"") + of(40, 2, PAIR), ("out_of_range", "ats[]")),
    (of(30, 2, of(1, 0, b"\x01") + of(2, 2, of(2, 2, PAIR))), ("out_of_range", "by_big[].at")),
    (of(39, 2, of(1, 0, b"\x01") + of(2, 0, varint(2**64 - 1))), ("out_of_range", "took")),
    (of(58, 2, of(1, 0, varint(315_576_000_001))), ("out_of_range", "spans[]")),
    (of(52, 2, NAN), ("out_of_range", "any_value")),
    (of(14, 2, b"\xff"), ("invalid_utf8", "name")),
    (of(23, 2, b"ok") + of(23, 2, b"\xff"), ("invalid_utf8", "tags[]")),
    (of(28, 2, of(1, 2, b"\xff")), ("invalid_utf8", "counts[]")),
    (of(22, 2, of(3, 2, of(1, 2, b"\xff"))), ("invalid_utf8", "items[].places[].city")),
    (of(51, 2, of(1, 2, of(1, 2, b"\xff"))), ("invalid_utf8", "meta")),
    (of(14, 2, b"\xff") + of(14, 2, b"fine"), ("invalid_utf8", "")),
    (b"\x0a", ("malformed_protobuf", "")),
    (b"\xff" * 11, ("malformed_protobuf", "")),
    (of(14, 2, b"abc")[:-1], ("malformed_protobuf", "")),
]


ID = of(1, 2, b"a")
PART = of(1, 0, b"\x01")
OLD_WIRE: list[tuple[bytes, Row | Reason]] = [
    (ID, {"id": "a", "count": None, "kind": None, "hint": None}),  # a default is not written, and so absent
    (ID + of(3, 0, varint(9)) + of(4, 0, b"\x01") + of(4, 0, varint(9)) + of(4, 0, b"\x02"), {"kind": "9"}),
    (ID + of(8, 0, b"\x01") + of(8, 2, b"\x02\x03"), {"packed": [1, 2, 3]}),
    (ID + of(6, 2, PART + of(100, 0, b"\x01")), {"part": {"number": 1, "label": None}}),
    (b"", ("missing_field", "id")),
    (ID + of(6, 2, b""), ("missing_field", "part.number")),
    (ID + of(5, 2, PART) + of(5, 2, b""), ("missing_field", "parts[].number")),
    (ID + of(7, 2, of(1, 2, b"k")), ("missing_field", "by_name[].number")),
    (of(1, 2, b"\xff"), ("invalid_utf8", "id")),
    (ID + of(6, 2, PART + of(2, 2, b"\xff")), ("invalid_utf8", "part.label")),
    (ID + of(7, 2, of(1, 2, b"\xff") + of(2, 2, PART)), ("invalid_utf8", "by_name[]")),
]


@pytest.mark.parametrize(("decode", "wire"), [(shop, WIRE), (legacy, OLD_WIRE)], ids=["proto3", "proto2"])
def test_the_wire_is_read_as_it_says(
    decode: Callable[[Sequence[bytes]], list[Row | Reason]], wire: list[tuple[bytes, Row | Reason]]
) -> None:
    found = decode([value for value, _ in wire])

    for (value, expected), row in zip(wire, found, strict=True):
        told = {name: row[name] for name in expected} if isinstance(row, dict) and isinstance(expected, dict) else row
        assert told == expected, value


def test_a_bad_message_spoils_no_other_of_its_batch() -> None:
    good = [random_message(OLD_ORDER, random.Random(n)).SerializeToString() for n in range(300)]
    bad = [of(1, 2, b"\xff"), b"", None, b"\x0a\x05"]
    mixed = [value for n, value in enumerate(good) for value in ([bad[n // 7 % 4], value] if n % 7 == 0 else [value])]

    found = legacy(mixed)

    assert [row for row in found if isinstance(row, dict)] == legacy(good)
    assert sum(isinstance(row, tuple) for row in found) == len(mixed) - len(good)


FRAMED = """
syntax = "proto3";
package shop;
message Other { int32 a = 1; message Inner { int32 b = 1; } map<int32, int32> m = 2; }
message Order { string name = 14; int32 i32 = 3; }
"""


BODY = of(3, 0, varint(5))
INDEXED: list[tuple[int | None, bytes | None, str]] = [
    # schema id, payload, reason
    (1, b"\x02\x06" + BODY, ""),  # the fourth message
    (2, b"\x02\x02" + BODY, ""),
    (2, b"\x00" + BODY, "other_message"),
    (2, b"\x04\x00\x00" + BODY, "other_message"),
    (3, b"\x02\x02" + BODY, "other_message"),
    (2, b"\x02\x12" + BODY, "bad_message_index"),
    (2, b"\x01" + BODY, "bad_message_index"),
    (2, b"", "too_short"),
    (9, b"\x00" + BODY, "unknown_schema"),
    (None, b"\x00" + BODY, "unknown_schema"),
    (2, b"\x02\x02\x0a", "malformed_protobuf"),
    (2, None, "malformed_protobuf"),
]


def test_a_message_index_says_with_the_schemas_id_which_message_it_is() -> None:
    writers = {1: descriptors(SHOP), 2: descriptors(FRAMED), 3: descriptors(LEGACY)}
    payloads = Payloads(descriptors(SHOP), "shop.Order", writers)

    rows = decoded(payloads, [value for _, value, _ in INDEXED], [schema_id for schema_id, _, _ in INDEXED])

    assert [5 if isinstance(row, dict) and row["i32"] == 5 else row[0] for row in rows] == [  # type: ignore[index]
        reason or 5 for _, _, reason in INDEXED
    ]


def test_what_goes_to_workers_runs_where_this_package_is_not() -> None:
    send_by_value(framing, protobuf)
    payloads = Payloads(descriptors(SHOP), "shop.Order")

    found = called_in_bare_worker(decoding(payloads), pa.array([b"", b"\x0a"]))

    assert found.field("rule").to_pylist() == [None, len(Reading(payloads).reasons)]
