"""What the messages of a sample are: one recogniser for each format; the first that fits decides."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kdi_assets.formats.framing import Frame, split_frame
from kdi_assets.formats.registry.schemas import HIGHEST_ID
from kdi_assets.scaffold.csv_lines import lines_of
from kdi_assets.scaffold.field_stats import stats_of
from kdi_assets.scaffold.infer_types import STRING, Struct, record_of
from kdi_assets.scaffold.json_text import JsonRecord, Misfit, NoRecord, json_object
from kdi_assets.scaffold.registry_lookup import NotRegistered, Subject

FormatName = Literal["json", "csv", "text", "bytes", "avro", "protobuf"]
Read = JsonRecord | Misfit
"""A message's record, or why it is a dead letter."""
MOST_IDS, MOST_SHOWN = 100, 5
"""Where messages are framed, they share the ids of a few schemas."""
HOW: Mapping[bytes, tuple[str, str]] = {
    b"Obj\x01": ("Avro object containers", "format: {avro: {container: true, schema_file: FILE.avsc}}"),
    b"\xc3\x01": ("Avro in single-object encoding", "format: {avro: {schemas: FOLDER}}"),
    b"\x1f\x8b\x08": ("compressed with gzip", "compression: gzip"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "compression: zstd"),
}
"""What messages begin with that are not looked into, and what to write for it."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """What the messages are.

    Attributes:
        format: What decodes them.
        written: The same as a document has it.
        what: What they are, and how many of them: the reason for the format.
        records: Of each message.
        record: Their fields with what was seen of them; ``None`` where there are none.
        advice: Lines for the document: what to write where less lands than is there.
    """

    format: FormatName
    written: str
    what: str
    records: Sequence[Read]
    record: Struct | None = None
    advice: Sequence[str] = ()


Ask = Callable[[Collection[int], Sequence[bytes]], Subject]
"""Asks a registry for the topic's subject, with the ids of frames and what stands behind them, or ``NotRegistered``."""


def recognise(payloads: Sequence[bytes], ask: Ask | None) -> Recognised:
    """Say what messages are."""
    return _json(payloads) or _behind_frames(payloads, ask) or _csv(payloads) or _text(payloads) or _bytes(payloads)


def _json(payloads: Sequence[bytes]) -> Recognised | None:
    records = [_read(json_object, payload) for payload in payloads]
    objects = [record for record in records if isinstance(record, dict)]
    if not _most(len(objects), payloads):
        return None
    record = record_of(stats_of(objects))
    if not record.fields:
        return None  # no field of theirs can be a column
    return Recognised("json", "json", f"JSON objects, {_of(len(objects), payloads)}", records, record)


def _behind_frames(payloads: Sequence[bytes], ask: Ask | None) -> Recognised | None:
    frames = [f for f in map(split_frame, payloads) if isinstance(f, Frame) and 0 < f.schema_id <= HIGHEST_ID]
    ids = Counter(frame.schema_id for frame in frames)
    if not _most(len(frames), payloads) or len(ids) > min(MOST_IDS, max(3, len(frames) // 4)):
        return None  # a number that begins with a zero is another in every message
    shown = ", ".join(f"{n} ({count:,} messages)" for n, count in ids.most_common(MOST_SHOWN))
    schemas = f"schemas by their ids: {shown}{', …' if len(ids) > MOST_SHOWN else ''}"
    what, why = f"a schema registry's frame, {_of(len(frames), payloads)}", "no SchemaRegistry document is there to ask"
    try:
        if ask:
            return _of_subject(payloads, ask(list(ids), [frame.payload for frame in frames]), what, schemas)
    except NotRegistered as unread:
        why = str(unread)
    how = "They land as they are. `format: {avro: {registry: NAME}}`, or json or protobuf, decodes them."
    return Recognised("bytes", "bytes", f"messages behind {what}", [{}] * len(payloads), advice=(schemas, why, how))


def _of_subject(payloads: Sequence[bytes], subject: Subject, what: str, schemas: str) -> Recognised:
    """What the subject says of them; raises ``NotRegistered`` if no table can have its record."""
    records = [_by_frame(payload, subject) for payload in payloads]
    record = subject.record or record_of(stats_of(record for record in records if isinstance(record, dict)))
    if not record.fields:
        raise NotRegistered(f"the record of {subject.name} has no fields that could be columns")
    message = f", message: {json.dumps(subject.message)}" if subject.message else ""
    written = f"{{{subject.format}: {{registry: {json.dumps(subject.registry)}{message}}}}}"
    kind = {"avro": "Avro", "json": "JSON", "protobuf": "Protobuf"}[subject.format]
    advice = [schemas]
    if subject.record:
        advice.append(
            f"The record is that of the latest version of {subject.name}, now {subject.latest}, and moves with it"
        )
        advice.append(f"unless `version: {subject.latest}` stands behind the registry. Nothing was decoded here.")
    return Recognised(subject.format, written, f"{kind} behind {what}", records, record, advice)


def _by_frame(payload: bytes, subject: Subject) -> Read:
    """Its record if it is JSON, else an empty one, or what is wrong with the frame."""
    frame = split_frame(payload)
    if isinstance(frame, str):
        return frame, ""
    of_its_kind = subject.of_its_kind.get(frame.schema_id)
    if not of_its_kind:
        return "unknown_schema" if of_its_kind is None else "incompatible_schema", ""
    return {} if subject.record else _read(json_object, frame.payload)


def _csv(payloads: Sequence[bytes]) -> Recognised | None:
    texts = [payload.decode() for payload in payloads if _is_text(payload) and payload.strip()]
    lines = lines_of(texts) if len(texts) == sum(1 for payload in payloads if payload.strip()) else None
    if lines is None:
        return None
    records = [_read(lambda payload: lines.read(payload.decode()), payload) for payload in payloads]
    what = f"lines of CSV, {_of(lines.agree, payloads)} with {len(lines.record.fields)} columns"
    told = "The columns are called as the first line says, which is a dead letter itself."
    advice = [told if lines.header else "Messages do not say what their columns are called: give them names."]
    return Recognised(
        "csv", f"{{csv: {{delimiter: {json.dumps(lines.delimiter)}}}}}", what, records, lines.record, advice
    )


def _text(payloads: Sequence[bytes]) -> Recognised | None:
    if not all(map(_is_text, payloads)):
        return None
    records: list[Read] = [{"value": payload.decode()} for payload in payloads]
    return Recognised("text", "text", "text, all of it", records, Struct({"value": STRING}))


def _bytes(payloads: Sequence[bytes]) -> Recognised:
    text = sum(map(_is_text, payloads))
    what = f"bytes: no format suits most of them, {_of(text, payloads)} are text"
    advice = f"write `format: text`, which makes dead letters of {len(payloads) - text:,}."
    if not text:
        advice = "write `format: {avro: {schema_file: FILE}}` or `{protobuf: {proto_file: FILE, message: NAME}}`."
    for magic, (kind, how) in HOW.items():
        if _most(begun := sum(payload.startswith(magic) for payload in payloads), payloads):
            what, advice = f"{kind}, {_of(begun, payloads)}", f"write `{how}`."
    land = "They land as they are. To decode them, with files of schemas beside this document where one is named,"
    return Recognised("bytes", "bytes", what, [{}] * len(payloads), advice=(land, advice))


def _read(reader: Callable[[bytes], JsonRecord], payload: bytes) -> Read:
    try:
        return reader(payload)
    except NoRecord as refused:
        reason, field = (*refused.args, "")[:2]
        return reason, field


def _most(count: int, payloads: Sequence[bytes]) -> bool:
    """Blank ones tell nothing."""
    return 2 * count > sum(1 for payload in payloads if payload.strip())


def _of(count: int, payloads: Sequence[bytes]) -> str:
    return f"{count:,} of {len(payloads):,} values"


def _is_text(payload: bytes) -> bool:
    try:
        return "\0" not in payload.decode("utf-8")
    except UnicodeDecodeError:
        return False
