"""What the messages of a sample are: compression, frame and format, by what most of them show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kdi_assets.message_format import Compression
from kdi_assets.proposal import csv_lines
from kdi_assets.proposal.json_text import Json, NoObject, is_json, json_object
from kdi_assets.proposal.payload import (
    Framed,
    TooLarge,
    compression_of,
    framed,
    is_framed_protobuf,
    is_protobuf,
    payload_of,
)
from kdi_assets.proposal.types import STRING, Struct

Looks = Literal[
    "json",
    "csv",
    "text",
    "bytes",
    "json_values",
    "framed_avro",
    "framed_json",
    "framed_protobuf",
    "framed",
    "avro_container",
    "avro_single_object",
    "protobuf",
    "mixed",
]
"""What messages look like; ``framed`` says nothing of what stands behind the frame."""
FormatName = Literal["json", "csv", "text", "bytes", "avro", "protobuf"]
Record = dict[str, Json]
MOST_BYTES = 64 * 1024 * 1024
"""Of payloads that are held at once; those behind are too large to be looked at."""
_CONTAINER, _SINGLE_OBJECT, _SINGLE_OBJECT_HEADER = b"Obj\x01", b"\xc3\x01", 10


@dataclass(frozen=True, slots=True)
class Recognised:
    """What the values are.

    Attributes:
        format: What decodes them.
        records: Of each value its record, or the decoder's reason why it has none, or ``None`` if it is too large to
            be looked at here. A record of bytes is empty.
        shares: How many payloads are a JSON object, another JSON value, text, or nothing of these.
        frames: What stands behind a registry's frames.
        nearly_csv: Delimiter, columns, and how many lines have so many, where not all have.
        message: Of Protobuf, its full name, if it is not the first of its text.
    """

    compression: Compression
    looks: Looks
    format: FormatName
    records: Sequence[Record | str | None]
    shares: Counter[str]
    delimiter: str = ""
    frames: Framed | None = None
    nearly_csv: tuple[str, int, int] | None = None
    record: Struct | None = None
    message: str = ""


def recognise(values: Sequence[bytes]) -> Recognised:
    """Say what values are.

    Args:
        values: At least one.
    """
    compression = compression_of(values)
    payloads = list(_payloads(values, compression))
    held = [payload for payload in payloads if isinstance(payload, bytes)]
    shares = Counter(_kind(payload) for payload in held)
    looks, frames = _looks(held, shares)
    format_ = _format(looks, held)
    texts = [payload.decode() for payload in held if _is_text(payload) and payload.strip()]
    delimiter = (csv_lines.delimiter_of(texts) if looks == "csv" else None) or ""
    row = _reader(format_, delimiter)
    records = [row(payload) if isinstance(payload, bytes) else payload for payload in payloads]
    nearly = csv_lines.nearly(texts) if looks == "text" else None
    record = Struct({"value": STRING}) if format_ == "text" else None
    if format_ == "csv":
        rows = [csv_lines.columns(text, delimiter) for text in texts]
        record = csv_lines.record_of(rows)
    return Recognised(compression, looks, format_, records, shares, delimiter, frames, nearly, record)


def as_bytes(recognised: Recognised) -> Recognised:
    """The same messages, landing as they are."""
    kept = (None, f"not_{recognised.compression}")
    return replace(recognised, format="bytes", records=[r if r in kept else {} for r in recognised.records])


def _payloads(values: Sequence[bytes], compression: Compression) -> Iterator[bytes | str | None]:
    held = 0
    for value in values:
        payload = _payload(value, compression) if held < MOST_BYTES else None
        held += len(payload) if isinstance(payload, bytes) else 0
        yield payload


def _payload(value: bytes, compression: Compression) -> bytes | str | None:
    """The payload, or the reason why there is none; ``None`` if it is too large to be looked at."""
    try:
        payload = payload_of(value, compression)
    except TooLarge:
        return None
    return f"not_{compression}" if payload is None else payload


def _kind(payload: bytes) -> str:
    try:
        json_object(payload)
    except NoObject as refused:
        if str(refused) == "blank":
            return "blank"
        if str(refused) == "not_an_object":
            return "another JSON value"
        return "text" if _is_text(payload) else "no text"
    return "a JSON object"


def _is_text(payload: bytes) -> bool:
    try:
        return "\0" not in payload.decode("utf-8")
    except UnicodeDecodeError:
        return False


def _looks(payloads: Sequence[bytes], shares: Counter[str]) -> tuple[Looks, Framed | None]:
    """The first that most of the payloads are; blank ones tell nothing."""
    told = [payload for payload in payloads if payload.strip()]
    if _most(shares["a JSON object"], told):
        return "json", None
    if _most(sum(p.startswith(_CONTAINER) for p in told), told):
        return "avro_container", None
    if _most(sum(p.startswith(_SINGLE_OBJECT) and len(p) >= _SINGLE_OBJECT_HEADER for p in told), told):
        return "avro_single_object", None
    if frames := framed(told):
        return _behind_frames(frames.payloads), frames
    if _most(shares["another JSON value"], told) and not shares["no text"] and not _scalars(told):
        return "json_values", None
    if not shares["no text"]:
        texts = [payload.decode() for payload in told]
        return ("csv" if csv_lines.delimiter_of(texts) else "text"), None
    if not shares["a JSON object"] and not shares["text"] and all(map(is_protobuf, told)):
        return "protobuf", None
    return ("mixed" if shares["a JSON object"] or shares["text"] else "bytes"), None


def _most(count: int, of: Sequence[bytes]) -> bool:
    return count * 2 > len(of)


def _scalars(payloads: Sequence[bytes]) -> bool:
    """Whether no array is among them: numbers, say, are lines of text as well."""
    return not any(payload.lstrip().startswith(b"[") for payload in payloads)


def _behind_frames(payloads: Sequence[bytes]) -> Looks:
    if _most(sum(map(is_json, payloads)), payloads):
        return "framed_json"
    return "framed_protobuf" if all(map(is_framed_protobuf, payloads)) else "framed"


def _format(looks: Looks, payloads: Sequence[bytes]) -> FormatName:
    """What decodes such messages, or takes them as they are."""
    match looks:
        case "json" | "csv" | "text":
            return looks
        case "json_values":
            return "text"
    return "text" if looks == "mixed" and all(map(_is_text, payloads)) else "bytes"


def _reader(format_: FormatName, delimiter: str) -> Callable[[bytes], Record | str]:
    """From a payload to its record, or to the decoder's reason."""

    def of_json(payload: bytes) -> Record | str:
        try:
            return json_object(payload)
        except NoObject as refused:
            return str(refused)

    def of_csv(payload: bytes) -> Record | str:
        if not payload.strip():
            return "blank"
        return csv_lines.record(csv_lines.columns(payload.decode(), delimiter))

    def of_text(payload: bytes) -> Record | str:
        try:
            return {"value": payload.decode("utf-8")}
        except UnicodeDecodeError:
            return "invalid_utf8"

    readers: dict[FormatName, Callable[[bytes], Record | str]] = {"json": of_json, "csv": of_csv, "text": of_text}
    return readers.get(format_, lambda payload: {})
