"""What stands in front of a message that a registry's serializers wrote: ``00``, the schema's id, the payload.

Protobuf's payload begins with the index of the message within its file. Serializers can also put the schema's GUID into
a record header, ``__value_schema_id``, and nothing in front of the payload; that is not supported: such a message has
no magic byte, or its first bytes are taken for a frame.

Source: Confluent, "Wire format" and "Formats, Serializers, and Deserializers".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from kdi_assets.formats.decoder import FRAME, PAYLOAD
from kdi_assets.formats.rules import Rule, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAGIC: Final = 0
ID_END: Final = 5
"""Magic byte and id; an empty payload behind them is one: a Protobuf message of defaults, an Avro record of nothing."""
FIRST_MESSAGE: Final = (0,)
MOST_NESTED: Final = 100
"""Protobuf's own limit of nesting; a longer index is not one."""
MOST_VARINT_BYTES: Final = 5

FrameReason = Literal["no_magic_byte", "too_short", "bad_message_index"]
"""Why a message has no frame; ``too_short`` also of an empty one, since nothing of it can be judged."""


_REASON = (
    f"CASE WHEN length({PAYLOAD}) = 0 THEN 'too_short' "
    f"WHEN substring({PAYLOAD}, 1, 1) <> X'00' THEN 'no_magic_byte' "
    f"WHEN length({PAYLOAD}) < {ID_END} THEN 'too_short' END"
)
# The id's four bytes without a sign, so that no bytes are beyond it; ids end at 2³¹ - 1.
_SCHEMA_ID = f"CASE WHEN {_REASON} IS NULL THEN CAST(conv(hex(substring({PAYLOAD}, 2, 4)), 16, 10) AS BIGINT) END"


def with_frame(messages: DataFrame) -> DataFrame:
    """Take the frame off ``_kdi_payload`` and add it as ``_kdi_frame``; a payload without a frame becomes null."""
    from pyspark.sql import functions as F

    found = F.expr(f"named_struct('reason', {_REASON}, 'schema_id', {_SCHEMA_ID})")
    return messages.withColumn(FRAME, F.when(F.col(PAYLOAD).isNotNull(), found)).withColumn(
        PAYLOAD, F.expr(f"CASE WHEN {FRAME}.reason IS NULL THEN substring({PAYLOAD}, {ID_END + 1}) END")
    )


def without_frame(messages: DataFrame) -> DataFrame:
    """Messages that have none: ``_kdi_frame`` is null."""
    from pyspark.sql import functions as F

    return messages.withColumn(FRAME, F.expr("CAST(NULL AS STRUCT<reason: STRING, schema_id: BIGINT>)"))


def other_schema_than(ids: Iterable[int]) -> str:
    """Spark SQL, never null: whether a frame names a schema that is not among these."""
    return f"coalesce({FRAME}.schema_id NOT IN ({', '.join(map(str, ids)) or '-1'}), false)"


def frame_rules() -> list[Rule]:
    """Why a message has no frame."""
    return [Rule(reason, f"{FRAME}.reason = {literal(reason)}") for reason in get_args(FrameReason)]


@dataclass(frozen=True, slots=True)
class Frame:
    """One message, taken apart."""

    schema_id: int
    payload: bytes


def split_frame(value: bytes) -> Frame | FrameReason:
    """The frame of a message, or why it has none; says what ``with_frame`` says."""
    if value and value[0] != MAGIC:
        return "no_magic_byte"
    if len(value) < ID_END:
        return "too_short"
    return Frame(int.from_bytes(value[1:ID_END], "big"), value[ID_END:])


@dataclass(frozen=True, slots=True)
class MessageIndex:
    """Which message of a Protobuf file it is: its place in the file, then its place in that message, and so on.

    Attributes:
        end: Where in the payload the message begins.
    """

    path: tuple[int, ...]
    end: int


def split_message_index(payload: bytes) -> MessageIndex | FrameReason:
    """The message index in front of a Protobuf message, or why there is none.

    A count and so many places, each a zigzag varint; a count of 0 is short for the first message of the file.
    """
    if not payload:
        return "too_short"
    if payload[0] == 0:  # nearly always
        return MessageIndex(FIRST_MESSAGE, 1)
    numbers: list[int] = []
    count, at = _zigzag_varint(payload, 0)
    while count is not None and 0 < count <= MOST_NESTED and len(numbers) < count:
        place, at = _zigzag_varint(payload, at)
        if place is None or place < 0:
            return "bad_message_index"
        numbers.append(place)
    return MessageIndex(tuple(numbers), at) if numbers else "bad_message_index"


def _zigzag_varint(data: bytes, at: int) -> tuple[int | None, int]:
    """The number at a place and the place behind it; ``None`` if it does not end within 32 bits.

    Source: Protocol Buffers, "Encoding": "Base 128 Varints" and "Signed Integers".
    """
    number = 0
    for n, byte in enumerate(data[at : at + MOST_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return ((number >> 1) ^ -(number & 1) if number < 2**32 else None), at + n + 1
    return None, at
