"""Opens containers in Spark's Python workers: the decompressed blocks become one Avro array, no datum is decoded.

An Avro array and a container are both blocks of datums, each after its count; sizes, marks and checksums between them
are checked and left out. Libraries that read containers decompress a block of any size (fastavro 1.13: 300 MiB from a
block of 300 kB before a datum can be refused); here there is a limit.

Source: Avro 1.12 specification, "Object Container Files" and "Arrays".
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kdi_assets.messages.formats.avro.schema_text import NoSchema, canonical_form

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC: Final = b"Obj\x01"
LIMIT: Final = 64 * 1024 * 1024
"""Bytes that the blocks of a container may hold together."""
MOST_DATUMS: Final = 1_000_000
"""In a container: datums may have no bytes, so the limit of bytes alone is not enough."""
BATCH_BYTES: Final = 32 * 1024 * 1024
MOST_FORMS: Final = 1000
_SYNC_BYTES: Final = 16
_LONG_BYTES: Final = 10
_XZ_MEMORY: Final = 128 * 1024 * 1024
REASONS: Final = ("not_a_container", "malformed_container", "unknown_codec", "corrupt_block", "too_large")
REASON, WRITER, SCHEMA, DATUMS = "reason", "writer", "schema", "datums"


class NoContainer(Exception):
    """A payload that is not a container or cannot be read; the reason is one of ``REASONS``."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The content of a container.

    Attributes:
        schema: The schema of its datums, as the container has it.
        datums: All of them, as an Avro array.
    """

    schema: bytes
    datums: bytes


def opened(payload: bytes, *, limit: int = LIMIT) -> Opened:
    """Open a container.

    Raises:
        NoContainer: It cannot be read to the last byte.
    """
    if not payload.startswith(MAGIC):
        raise NoContainer("not_a_container")
    bytes_ = _Bytes(payload, len(MAGIC))
    header = dict(bytes_.entries())
    sync = bytes_.taken(_SYNC_BYTES)
    if not header.get(b"avro.schema"):
        raise NoContainer("malformed_container")
    decompress = _CODECS.get(header.get(b"avro.codec", b"null"))
    if decompress is None:
        raise NoContainer("unknown_codec")
    datums, count, left = bytearray(), 0, limit
    while not bytes_.at_end:
        number, block = bytes_.long(), bytes_.taken(bytes_.long())
        if bytes_.taken(_SYNC_BYTES) != sync or number < 0:
            raise NoContainer("malformed_container")
        data = decompress(block, left)
        count, left = count + number, left - len(data)
        if left < 0 or count > MOST_DATUMS:
            raise NoContainer("too_large")
        if number:
            datums += _long(number) + data
        elif data:
            raise NoContainer("malformed_container")
    return Opened(header[b"avro.schema"], bytes(datums + _long(0)))


def opening(known: Mapping[str, int]) -> Callable[[Iterator[pa.Array]], Iterator[pa.StructArray]]:
    """The function that workers run.

    Args:
        known: Number of a schema by its canonical form.

    Returns:
        Batches of payloads (binary) to structs: ``reason: string``, null where the payload is a container; ``writer:
        int``, the number of its schema, or ``schema: string``, its canonical form if it is not known; ``datums:
        binary``. Batches may be split: their decompressed content may be too large for one.
    """

    def open_all(batches: Iterator[pa.Array]) -> Iterator[pa.StructArray]:
        forms: dict[bytes, str | None] = {}
        for payloads in batches:
            rows, size = [], 0
            for payload in payloads:
                rows.append(_opened_row(payload.as_py() or b"", known, forms))
                size += len(rows[-1].datums or b"")
                if size > BATCH_BYTES:
                    yield _structs(rows)
                    rows, size = [], 0
            yield _structs(rows)

    return open_all


class _Row(NamedTuple):
    reason: str | None = None
    writer: int | None = None
    schema: str | None = None
    datums: bytes | None = None


def _opened_row(payload: bytes, known: Mapping[str, int], forms: dict[bytes, str | None]) -> _Row:
    try:
        container = opened(payload)
    except NoContainer as refused:
        return _Row(reason=str(refused))
    if container.schema not in forms:
        if len(forms) >= MOST_FORMS:
            forms.clear()
        forms[container.schema] = _form(container.schema)
    form = forms[container.schema]
    if form is None:
        return _Row(reason="malformed_container")
    return _Row(writer=known[form], datums=container.datums) if form in known else _Row(schema=form)


def _form(schema: bytes) -> str | None:
    try:
        return canonical_form(schema)
    except NoSchema:
        return None


def _structs(rows: Sequence[_Row]) -> pa.StructArray:
    import pyarrow as pa

    types = (pa.string(), pa.int32(), pa.string(), pa.binary())
    columns = [pa.array([row[place] for row in rows], type_) for place, type_ in enumerate(types)]
    return pa.StructArray.from_arrays(columns, names=list(_Row._fields))


class _Bytes:
    """Reads bytes one after the other; ``or_else`` is the reason if they are malformed."""

    def __init__(self, payload: bytes, at: int, *, or_else: str = "malformed_container") -> None:
        self._payload, self._at, self._or_else = payload, at, or_else

    @property
    def at_end(self) -> bool:
        return self._at == len(self._payload)

    def taken(self, size: int) -> bytes:
        """The next bytes; raises ``NoContainer`` if there are fewer."""
        if not 0 <= size <= len(self._payload) - self._at:
            raise NoContainer(self._or_else)
        self._at += size
        return self._payload[self._at - size : self._at]

    def number(self) -> int:
        """A number without a sign: seven bits in each byte, the lowest first."""
        number = 0
        for digit in range(_LONG_BYTES):
            byte = self.taken(1)[0]
            number |= (byte & 0x7F) << 7 * digit
            if byte < 0x80:
                return number
        raise NoContainer(self._or_else)

    def long(self) -> int:
        """A number in Avro's encoding."""
        number = self.number()
        return (number >> 1) ^ -(number & 1)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """The entries of a map of bytes."""
        while count := self.long():
            if count < 0:  # then the size of the block follows
                count, _ = -count, self.long()
            for _ in range(count):
                yield self.taken(self.long()), self.taken(self.long())


def _long(number: int) -> bytes:
    """Avro's encoding of a number that is not negative."""
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _within(limit: int, block: bytes, decompressor: Any) -> bytes:
    """A block by one of Python's decompressors, which stop at a limit."""
    try:
        data = bytes(decompressor.decompress(block, limit + 1))
    except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError) as broken:
        raise NoContainer("corrupt_block") from broken
    # Bytes after the end are ignored: some writers of deflate leave the checksum of zlib there.
    return _whole(data, limit, ended=decompressor.eof)


def _unsnapped(block: bytes, limit: int) -> bytes:
    """Snappy, with the checksum of the data after it."""
    import pyarrow as pa

    body, checksum = block[:-4], block[-4:]
    size = _Bytes(body, 0, or_else="corrupt_block").number()  # it comes first
    if size > limit:
        raise NoContainer("too_large")
    try:
        data = bytes(pa.decompress(body, decompressed_size=size, codec="snappy", asbytes=True))
    except (OSError, pa.ArrowException) as broken:
        raise NoContainer("corrupt_block") from broken
    if zlib.crc32(data).to_bytes(4, "big") != checksum:
        raise NoContainer("corrupt_block")
    return data


def _unzstandard(block: bytes, limit: int) -> bytes:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as frames:
            data = bytes(frames.read(limit + 1))
    except (OSError, pa.ArrowException) as broken:
        raise NoContainer("corrupt_block") from broken
    return _whole(data, limit, ended=True)


def _whole(data: bytes, limit: int, *, ended: bool) -> bytes:
    if len(data) > limit:
        raise NoContainer("too_large")
    if not ended:
        raise NoContainer("corrupt_block")
    return data


_CODECS: Final[dict[bytes, Callable[[bytes, int], bytes]]] = {
    b"null": lambda block, limit: block,
    b"deflate": lambda block, limit: _within(limit, block, zlib.decompressobj(-zlib.MAX_WBITS)),
    b"bzip2": lambda block, limit: _within(limit, block, bz2.BZ2Decompressor()),
    b"xz": lambda block, limit: _within(limit, block, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)),
    b"snappy": _unsnapped,
    b"zstandard": _unzstandard,
}
