"""The format of a sample's messages: a recogniser for each format; the first that fits most messages decides."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from kdi_assets.documents.model.message_rules import FieldUse
from kdi_assets.messages.formats.foreign import looks_like
from kdi_assets.messages.formats.framing import Frame, split_frame
from kdi_assets.messages.formats.registry.schemas import HIGHEST_ID
from kdi_assets.tools.scaffold.errors import NoRecord, NotRegistered
from kdi_assets.tools.scaffold.field_stats import JsonRecord, JsonValue, Misfit, json_object, stats_of
from kdi_assets.tools.scaffold.infer_types import STRING, Struct, record_of, type_of_all
from kdi_assets.tools.scaffold.registry_lookup import Subject

FormatName = Literal["json", "csv", "text", "bytes", "avro", "protobuf"]
Decoded = JsonRecord | Misfit
"""A message's record, or why it is a dead letter."""
Ask = Callable[[Collection[int], Sequence[bytes]], Subject]
"""Asks a registry for the topic's subject by the frames' ids and their payloads; may raise ``NotRegistered``."""

MOST_IDS, MOST_SHOWN = 100, 5
"""Framed messages share the ids of a few schemas."""
BY_MAGIC: Mapping[bytes, tuple[str, str]] = {
    b"Obj\x01": ("Avro object containers", "format: {avro: {container: true, schema_file: FILE.avsc}}"),
    b"\xc3\x01": ("Avro in single-object encoding", "format: {avro: {schemas: FOLDER}}"),
    b"\x1f\x8b\x08": ("compressed with gzip", "compression: gzip"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "compression: zstd"),
}
"""By the first bytes of messages that are not decoded here: what they are, and what to write in the document."""

DELIMITERS = ("\t", ";", "|", ",")
"""The rarest in plain text first."""
FEWEST_LINES, LEAST_SHARE = 5, 0.9
"""So many lines must have the same number of columns; the others are dead letters."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,99})")
_FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,99})[.][0-9]{1,99}")
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Recognised:
    """The format of the messages.

    Attributes:
        format: The decoder.
        written: The document's ``format``.
        what: The format in words, and how many messages have it.
        records: The record of each message.
        record: The fields of the records with their statistics; ``None`` without fields.
        fields: Path of a field that cannot be a column as it is, to its use.
        advice: Comments for the document: how to decode more.
    """

    format: FormatName
    written: str
    what: str
    records: Sequence[Decoded]
    record: Struct | None = None
    advice: Sequence[str] = ()
    fields: Mapping[str, FieldUse] = field(default_factory=dict)


def recognise(payloads: Sequence[bytes], ask: Ask | None) -> Recognised:
    """The format of most messages; bytes if there is no other."""
    return _json(payloads) or _framed(payloads, ask) or _csv(payloads) or _text(payloads) or _bytes(payloads)


def _json(payloads: Sequence[bytes]) -> Recognised | None:
    records = [_decode(json_object, payload) for payload in payloads]
    objects = [record for record in records if isinstance(record, dict)]
    if not _most(len(objects), payloads):
        return None
    record = record_of(stats_of(objects))
    if not record.fields:
        return None  # no field can be a column
    return Recognised("json", "json", f"JSON objects, {_of(len(objects), payloads)}", records, record)


def _framed(payloads: Sequence[bytes], ask: Ask | None) -> Recognised | None:
    frames = [f for f in map(split_frame, payloads) if isinstance(f, Frame) and 0 < f.schema_id <= HIGHEST_ID]
    ids = Counter(frame.schema_id for frame in frames)
    if not _most(len(frames), payloads) or len(ids) > min(MOST_IDS, max(3, len(frames) // 4)):
        return None  # binary numbers also begin with a zero byte, but differ in every message
    shown = ", ".join(f"{n} ({count:,} messages)" for n, count in ids.most_common(MOST_SHOWN))
    schemas = f"schemas by their ids: {shown}{', …' if len(ids) > MOST_SHOWN else ''}"
    what, why = f"a schema registry's frame, {_of(len(frames), payloads)}", "no SchemaRegistry document is there to ask"
    try:
        if ask:
            return _of_subject(payloads, ask(list(ids), [frame.payload for frame in frames]), what, schemas)
    except NotRegistered as unread:
        why = str(unread)
    how = "The table gets their bytes. `format: {avro: {registry: NAME}}`, or json or protobuf, decodes them."
    return Recognised("bytes", "bytes", f"messages in {what}", [{}] * len(payloads), advice=(schemas, why, how))


def _of_subject(payloads: Sequence[bytes], subject: Subject, what: str, schemas: str) -> Recognised:
    """The format of a registry's subject; raises ``NotRegistered`` if no table can have its record."""
    records = [_decode_frame(payload, subject) for payload in payloads]
    record = subject.record or record_of(stats_of(record for record in records if isinstance(record, dict)))
    if not record.fields:
        raise NotRegistered(f"the record of {subject.name} has no fields that could be columns")
    message = f", message: {json.dumps(subject.message)}" if subject.message else ""
    written = f"{{{subject.format}: {{registry: {json.dumps(subject.registry)}{message}}}}}"
    kind = {"avro": "Avro", "json": "JSON", "protobuf": "Protobuf"}[subject.format]
    advice = [schemas]
    if subject.record:
        advice.append(f"The columns follow the latest version of {subject.name}, now {subject.latest}, unless")
        advice.append(f"`version: {subject.latest}` stands after the registry. `kdi new` decodes no such message.")
    return Recognised(subject.format, written, f"{kind} in {what}", records, record, advice, subject.fields)


def _decode_frame(payload: bytes, subject: Subject) -> Decoded:
    """The record of JSON, an empty record of other formats, or the mistake in the frame."""
    frame = split_frame(payload)
    if isinstance(frame, str):
        return looks_like(payload) or (frame, "")
    same_kind = subject.same_kind.get(frame.schema_id)
    if not same_kind:
        return "unknown_schema" if same_kind is None else "incompatible_schema", ""
    return {} if subject.record else _decode(json_object, frame.payload)


def _text(payloads: Sequence[bytes]) -> Recognised | None:
    if not all(map(_is_text, payloads)):
        return None
    records: list[Decoded] = [{"value": payload.decode()} for payload in payloads]
    return Recognised("text", "text", "text, all of it", records, Struct({"value": STRING}))


def _bytes(payloads: Sequence[bytes]) -> Recognised:
    text = sum(map(_is_text, payloads))
    what = f"bytes: no format fits most of them, {_of(text, payloads)} are text"
    advice = f"write `format: text`, which makes dead letters of {len(payloads) - text:,}."
    if not text:
        advice = "write `format: {avro: {schema_file: FILE}}` or `{protobuf: {proto_file: FILE, message: NAME}}`."
    for magic, (kind, how) in BY_MAGIC.items():
        if _most(begun := sum(payload.startswith(magic) for payload in payloads), payloads):
            what, advice = f"{kind}, {_of(begun, payloads)}", f"write `{how}`."
    bytes_only = "The table gets their bytes. To decode them (schema files lie beside this document),"
    return Recognised("bytes", "bytes", what, [{}] * len(payloads), advice=(bytes_only, advice))


def _csv(payloads: Sequence[bytes]) -> Recognised | None:
    texts = [payload.decode() for payload in payloads if _is_text(payload) and payload.strip()]
    lines = _csv_lines(texts) if len(texts) == sum(1 for payload in payloads if payload.strip()) else None
    if lines is None:
        return None
    records = [_decode(lambda payload: lines.decode(payload.decode()), payload) for payload in payloads]
    what = f"lines of CSV, {_of(lines.same_width, payloads)} with {len(lines.record.fields)} columns"
    named = "The first line gives the columns their names; it becomes a dead letter itself."
    advice = [named if lines.header else "The columns have no names in the messages: give them names."]
    written = f"{{csv: {{delimiter: {json.dumps(lines.delimiter)}}}}}"
    return Recognised("csv", written, what, records, lines.record, advice)


class CsvLines:
    """How lines are split into columns.

    Attributes:
        delimiter: The character between columns.
        header: The first line, if it holds the names of the columns; else the names are numbers.
        record: The columns.
        same_width: Number of lines with so many columns.
    """

    def __init__(self, lines: Sequence[str], delimiter: str, width: int) -> None:
        rows = [row for line in lines if len(row := _split(line, delimiter)) == width]
        self.delimiter, self.same_width, self.header = delimiter, len(rows), ""
        numbered, first = [f"column_{n + 1}" for n in range(width)], _split(lines[0], delimiter)
        self.record = _csv_record(numbered, rows)
        if len({name.lower() for name in first if _COLUMN_NAME.fullmatch(name)}) == width:
            named = _csv_record(first, rows[1:])
            # A header is recognised only above numbers or times. Above text it may be a message, whose values stay out
            # of the document.
            if any(declared != STRING for declared in named.fields.values()):
                self.header, self.record = lines[0], named

    def decode(self, line: str) -> JsonRecord:
        """A line as a record of JSON values.

        Raises:
            NoRecord: The line does not fit the columns.
        """
        if not line.strip():
            raise NoRecord("blank")
        row, declared = _split(line, self.delimiter), self.record.fields
        if not row:
            raise NoRecord("malformed_csv")
        if len(row) != len(declared):
            raise NoRecord("too_few_columns" if len(row) < len(declared) else "too_many_columns")
        if line == self.header:
            raise NoRecord("wrong_type", next(name for name, type_ in declared.items() if type_ != STRING))
        return dict(zip(declared, map(_csv_value, row), strict=True))


def _csv_lines(texts: Sequence[str]) -> CsvLines | None:
    """How most texts split into the same number of columns, at least two; ``None`` if they do not."""
    best: tuple[int, str] = (1, "")
    for delimiter in DELIMITERS:
        rows = [_split(text, delimiter) for text in texts]
        width, same_width = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
        prose = all(column.startswith(" ") for row in rows for column in row[1:])
        if same_width >= max(FEWEST_LINES, LEAST_SHARE * len(rows)) and width > best[0] and not prose:
            best = width, delimiter
    return CsvLines(texts, best[1], best[0]) if best[1] else None


def _split(line: str, delimiter: str) -> list[str]:
    """The columns of a line; none if the line is malformed."""
    try:
        rows = list(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, strict=True))
    except csv.Error:
        return []
    return rows[0] if len(rows) == 1 else []


def _csv_record(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Struct:
    stats = stats_of(dict(zip(names, map(_csv_value, row), strict=True)) for row in rows).fields
    return Struct({name: type_of_all(stats[name]) for name in names}, stats)


def _csv_value(text: str) -> JsonValue:
    """A number or boolean if its text can be written back unchanged, else text; ``None`` if empty."""
    if _INTEGER.fullmatch(text) and text != "-0":
        return int(text)
    if _FRACTION.fullmatch(text):
        return Decimal(text)
    return text == "true" if text in ("true", "false") else text or None


def _decode(decoder: Callable[[bytes], JsonRecord], payload: bytes) -> Decoded:
    try:
        return decoder(payload)
    except NoRecord as refused:
        reason, field = looks_like(payload) or (*refused.args, "")[:2]
        return reason, field


def _most(count: int, payloads: Sequence[bytes]) -> bool:
    """Whether ``count`` is more than half of the messages that are not blank."""
    return 2 * count > sum(1 for payload in payloads if payload.strip())


def _of(count: int, payloads: Sequence[bytes]) -> str:
    return f"{count:,} of {len(payloads):,} values"


def _is_text(payload: bytes) -> bool:
    try:
        return "\0" not in payload.decode("utf-8")
    except UnicodeDecodeError:
        return False
