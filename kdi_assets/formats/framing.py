"""What stands in front of a message that a registry's serializers wrote: ``00``, the schema's id, the payload.

Protobuf's payload begins with the index of the message within its file. Serializers can also put the schema's GUID into
a record header, ``__value_schema_id``, and nothing in front of the payload; that is not supported: such a message has
no magic byte, or its first bytes are taken for a frame.

Source: Confluent, "Wire format" and "Formats, Serializers, and Deserializers".
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class FrameSql:
    """Spark SQL over one message; neither fails on any bytes. ``schema_id`` and ``payload`` mean something only where
    ``reason`` is null.

    Attributes:
        reason: string: ``no_magic_byte``, ``too_short``, or null; null also of a null value.
        schema_id: bigint: the id's four bytes without a sign, so that no bytes are beyond it; ids end at 2³¹ - 1.
        payload: binary: what is behind the id.
    """

    reason: str
    schema_id: str
    payload: str


def frame_sql(value: str) -> FrameSql:
    """The frame of a message.

    Args:
        value: Spark SQL of type binary; it is repeated, so let it be a column.
    """
    return FrameSql(
        reason=f"CASE WHEN length({value}) = 0 THEN 'too_short' "
        f"WHEN substring({value}, 1, 1) <> X'00' THEN 'no_magic_byte' "
        f"WHEN length({value}) < {ID_END} THEN 'too_short' END",
        schema_id=f"CAST(conv(hex(substring({value}, 2, 4)), 16, 10) AS BIGINT)",
        payload=f"substring({value}, {ID_END + 1})",
    )


def with_frame(messages: DataFrame) -> DataFrame:
    """Take the frame off ``_kdi_payload`` and add it as ``_kdi_frame``; a payload without a frame becomes null."""
    from pyspark.sql import functions as F

    frame = frame_sql(PAYLOAD)
    schema_id = f"CASE WHEN {frame.reason} IS NULL THEN {frame.schema_id} END"
    found = F.expr(f"named_struct('reason', {frame.reason}, 'schema_id', {schema_id})")
    return messages.withColumn(FRAME, F.when(F.col(PAYLOAD).isNotNull(), found)).withColumn(
        PAYLOAD, F.expr(f"CASE WHEN {FRAME}.reason IS NULL THEN {frame.payload} END")
    )


def without_frame(messages: DataFrame) -> DataFrame:
    """Messages that have none: ``_kdi_frame`` is null."""
    from pyspark.sql import functions as F

    return messages.withColumn(FRAME, F.expr("CAST(NULL AS STRUCT<reason: STRING, schema_id: BIGINT>)"))


def frame_rules() -> list[Rule]:
    """Why a message has no frame."""
    return [Rule(reason, f"{FRAME}.reason = {literal(reason)}") for reason in get_args(FrameReason)]


@dataclass(frozen=True, slots=True)
class Frame:
    """One message, taken apart; as ``FrameSql`` has it."""

    schema_id: int
    payload: bytes


def split_frame(value: bytes) -> Frame | FrameReason:
    """The frame of a message, or why it has none; says what ``frame_sql`` says."""
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
