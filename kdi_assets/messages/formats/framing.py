"""The frame that a registry's serializers write before the payload: ``00`` and the schema's id.

A Protobuf payload then begins with the index of the message in its file. Serializers can also put the schema's GUID
into a record header, ``__value_schema_id``, and write no frame. That is not supported: such a message has no magic
byte, or its first bytes are taken for a frame.

Source: Confluent, "Wire format" and "Formats, Serializers, and Deserializers".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from kdi_assets.messages.formats.decoder import FRAME, PAYLOAD
from kdi_assets.messages.formats.rules import Rule, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAGIC: Final = 0
ID_END: Final = 5
"""Magic byte and id. An empty payload is valid: a Protobuf message of defaults, an Avro record without fields."""
FIRST_MESSAGE: Final = (0,)
MOST_NESTED: Final = 100
"""Protobuf's own limit of nesting; a longer index is none."""
MOST_VARINT_BYTES: Final = 5

FrameReason = Literal["no_magic_byte", "too_short", "bad_message_index"]
"""Why a message has no frame; an empty message is ``too_short``."""


_REASON = (
    f"CASE WHEN length({PAYLOAD}) = 0 THEN 'too_short' "
    f"WHEN substring({PAYLOAD}, 1, 1) <> X'00' THEN 'no_magic_byte' "
    f"WHEN length({PAYLOAD}) < {ID_END} THEN 'too_short' END"
)
# Four bytes without a sign, so that any bytes are a number; ids end at 2³¹ - 1.
_SCHEMA_ID = f"CASE WHEN {_REASON} IS NULL THEN CAST(conv(hex(substring({PAYLOAD}, 2, 4)), 16, 10) AS BIGINT) END"


def with_frame(messages: DataFrame) -> DataFrame:
    """Move the frame from ``_kdi_payload`` to ``_kdi_frame``; a payload without a frame becomes null."""
    from pyspark.sql import functions as F

    found = F.expr(f"named_struct('reason', {_REASON}, 'schema_id', {_SCHEMA_ID})")
    return messages.withColumn(FRAME, F.when(F.col(PAYLOAD).isNotNull(), found)).withColumn(
        PAYLOAD, F.expr(f"CASE WHEN {FRAME}.reason IS NULL THEN substring({PAYLOAD}, {ID_END + 1}) END")
    )


def other_schema_than(ids: Iterable[int]) -> str:
    """Spark SQL, never null: whether a frame names a schema that is not among these."""
    return f"coalesce({FRAME}.schema_id NOT IN ({', '.join(map(str, ids)) or '-1'}), false)"


def frame_rules() -> list[Rule]:
    """Why a message has no frame."""
    return [Rule(reason, f"{FRAME}.reason = {literal(reason)}") for reason in get_args(FrameReason)]


@dataclass(frozen=True, slots=True)
class Frame:
    """A message with a frame."""

    schema_id: int
    payload: bytes


def split_frame(value: bytes) -> Frame | FrameReason:
    """As ``with_frame``, for one message on the driver."""
    if value and value[0] != MAGIC:
        return "no_magic_byte"
    if len(value) < ID_END:
        return "too_short"
    return Frame(int.from_bytes(value[1:ID_END], "big"), value[ID_END:])


@dataclass(frozen=True, slots=True)
class MessageIndex:
    """Which message of a Protobuf file a payload is.

    Attributes:
        path: Its place in the file, then the place in that message, and so on.
        end: Where in the payload the message begins.
    """

    path: tuple[int, ...]
    end: int


def split_message_index(payload: bytes) -> MessageIndex | FrameReason:
    """The message index before a Protobuf message, or why there is none.

    It is a count and that many places, each a zigzag varint; the count 0 stands for the first message of the file.
    """
    if not payload:
        return "too_short"
    if payload[0] == 0:  # the usual case
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
    """The number at an offset and the offset after it; ``None`` if it has more than 32 bits.

    Source: Protocol Buffers, "Encoding": "Base 128 Varints" and "Signed Integers".
    """
    number = 0
    for n, byte in enumerate(data[at : at + MOST_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return ((number >> 1) ^ -(number & 1) if number < 2**32 else None), at + n + 1
    return None, at
