"""What values hold when their producer compressed them, and what stands in front of them."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kdi_assets.formats.framing import Frame, split_frame, split_message_index
from kdi_assets.formats.registry.schemas import HIGHEST_ID
from kdi_assets.message_format import Compression

LIMIT = 4 * 1024 * 1024
"""Bytes that one message of a sample may hold. The decoder takes more: larger ones are passed over here."""
MOST_IDS = 1000
"""Where messages are framed, they share the ids of a few schemas."""
_MAGIC: tuple[tuple[Compression, bytes], ...] = (("gzip", b"\x1f\x8b\x08"), ("zstd", b"\x28\xb5\x2f\xfd"))
_WITH_GZIP_HEADER = 16 + zlib.MAX_WBITS


class TooLarge(Exception):
    """A message holds more than a sample should."""


def compression_of(values: Sequence[bytes]) -> Compression:
    """What most values are compressed with."""
    begun = Counter(compression for value in values for compression, magic in _MAGIC if value.startswith(magic))
    most = begun.most_common(1)
    return most[0][0] if most and most[0][1] * 2 > len(values) else "none"


def payload_of(value: bytes, compression: Compression) -> bytes | None:
    """What a value holds; ``None`` if it is not compressed so, to its last byte.

    Raises:
        TooLarge: More than ``LIMIT`` bytes.
    """
    match compression:
        case "gzip":
            return _gunzipped(value)
        case "zstd":
            return _unzstd(value)
    return value


def _gunzipped(value: bytes) -> bytes | None:
    whole, rest = b"", value
    while rest:
        member = zlib.decompressobj(_WITH_GZIP_HEADER)
        try:
            whole += member.decompress(rest, LIMIT + 1 - len(whole))
        except zlib.error:
            return None
        if len(whole) > LIMIT:
            raise TooLarge
        if not member.eof:
            return None
        rest = member.unused_data
    return whole


def _unzstd(value: bytes) -> bytes | None:
    import pyarrow as pa

    if not value.startswith(b"\x28\xb5\x2f\xfd"):
        return None
    try:
        with pa.input_stream(pa.BufferReader(value), compression="zstd") as stream:
            whole: bytes = stream.read(LIMIT + 1)
    except OSError:
        return None
    if len(whole) > LIMIT:
        raise TooLarge
    return whole


@dataclass(frozen=True, slots=True)
class Framed:
    """Messages behind a registry's frame.

    Attributes:
        ids: How many messages have each schema.
        payloads: What stands behind the frames.
    """

    ids: Counter[int]
    payloads: Sequence[bytes]


def framed(payloads: Sequence[bytes]) -> Framed | None:
    """The frames, if most payloads have one that can be meant so."""
    frames = [f for f in map(split_frame, payloads) if isinstance(f, Frame) and 0 < f.schema_id <= HIGHEST_ID]
    ids = Counter(frame.schema_id for frame in frames)
    if len(frames) * 2 <= len(payloads) or len(ids) > min(MOST_IDS, max(3, len(frames) // 4)):
        return None  # a number that begins with a zero is another in every message
    return Framed(ids, [frame.payload for frame in frames])


def is_protobuf(message: bytes) -> bool:
    """Whether bytes can be read as fields of Protobuf to their end; few others can, text seldom.

    Source: Protocol Buffers, "Encoding": "Message Structure".
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire, number = (tag & 7, tag >> 3) if tag is not None else (-1, 0)
        if number == 0:
            return False
        match wire:
            case 0:
                skipped, at = _varint(message, at)
                if skipped is None:
                    return False
            case 1:
                at += 8
            case 2:
                length, at = _varint(message, at)
                if length is None:
                    return False
                at += length
            case 5:
                at += 4
            case _:
                return False
    return at == len(message)


def is_framed_protobuf(payload: bytes) -> bool:
    """Whether a frame's payload is a message index and a message."""
    index = split_message_index(payload)
    return not isinstance(index, str) and is_protobuf(payload[index.end :])


def _varint(data: bytes, at: int) -> tuple[int | None, int]:
    number = 0
    for n, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return number, at + n + 1
    return None, at
