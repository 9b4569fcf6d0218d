"""What to say of messages that land as less than they are: what they seem to be, and what reads them."""

from __future__ import annotations

from collections.abc import Mapping

from kdi_assets.proposal.payload import Framed
from kdi_assets.proposal.recognise import Looks, Recognised
from kdi_assets.proposal.registered import Registered, described

WORDS: Mapping[Looks, str] = {
    "json": "JSON objects",
    "csv": "lines of CSV",
    "text": "text",
    "bytes": "bytes that say nothing of themselves",
    "json_values": "JSON that is not an object",
    "framed_avro": "Avro behind a schema registry's frame",
    "framed_json": "JSON behind a schema registry's frame",
    "framed_protobuf": "Protobuf, by its looks, behind a schema registry's frame",
    "framed": "Avro, most likely, behind a schema registry's frame",
    "avro_container": "Avro object containers",
    "avro_single_object": "Avro in single-object encoding",
    "protobuf": "Protobuf, by its looks",
    "mixed": "of no one kind",
}
MOST_SHOWN = 5
_REGISTERED = {"AVRO": "avro", "JSON": "json", "PROTOBUF": "protobuf"}
"""Formats that take the schemas of a registry, by what it calls them."""


def what(recognised: Recognised) -> str:
    """What the messages seem to be, in a few words."""
    inside = "" if recognised.compression == "none" else f", compressed with {recognised.compression}"
    return f"{WORDS[recognised.looks]}{inside}"


def advice(recognised: Recognised, registered: Registered | None) -> list[str]:
    """Lines about the format, none where nothing is lost."""
    match recognised.looks:
        case "json" if recognised.format == "bytes":
            return ["No field of theirs can be a column, so they land as they are."]
        case "json":
            return []
        case "csv":
            return ["Messages do not say what their columns are called: give them names."]
        case "text":
            return _of_text(recognised)
        case "bytes":
            return [
                "Nothing in them says what they are. Raw datums of Avro look like this: if you have their schema,",
                "put it beside this document and write `format: {avro: {schema_file: FILE.avsc}}`.",
            ]
        case "json_values":
            return [
                "`format: json` takes objects alone. As text all of them land, and Spark SQL's from_json reads them."
            ]
        case "avro_container":
            return [
                "Each brings a schema along: put the one that its records are to become beside this document and write",
                "`format: {avro: {container: true, schema_file: FILE.avsc}}`. Without it, messages land as they are.",
            ]
        case "avro_single_object":
            return [
                "They are decoded with their schemas, which their writer has: put the files beside this document,",
                "write `format: {avro: {schemas: FOLDER}}`. Without them, messages land as they are.",
            ]
        case "protobuf":
            return [
                "They are decoded with their .proto file: put it beside this document and write",
                "`format: {protobuf: {proto_file: FILE, message: NAME}}`. Without it, messages land as they are.",
            ]
        case "mixed":
            text = recognised.shares.total() - recognised.shares["no text"]
            of_text = f"; `format: text` takes {text:,} of them and makes dead letters of the others" if text else ""
            return [f"No format suits all of them or most, so they land as they are{of_text}."]
        case "framed_json" if registered and recognised.format == "json":
            return _schemas(recognised.frames, registered)
        case "framed_avro" | "framed_protobuf" if registered and recognised.format != "bytes":
            return [*_schemas(recognised.frames, registered), *_record_of(registered)]
    return [*_schemas(recognised.frames, registered), *_no_decoder(recognised.looks, registered)]


def _no_decoder(looks: Looks, registered: Registered | None) -> list[str]:
    types = {schema.type for schema in registered.schemas.values() if schema} if registered else set()
    known = next((name for type_, name in _REGISTERED.items() if type_ in types), "")
    name = known or {"framed": "avro", "framed_json": "json", "framed_protobuf": "protobuf"}.get(looks, "")
    if not name:
        return ["No decoder of this release reads that, so messages land as they are, to be decoded later."]
    return [
        f"They are decoded by `format: {{{name}: {{registry: NAME, subject: SUBJECT}}}}`, the name of a document's",
        "SchemaRegistry. As it is, messages land as bytes.",
    ]


def _record_of(registered: Registered) -> list[str]:
    return [
        f"The record is that of the latest version of {registered.subject}, now {registered.latest}; it moves with the",
        f"subject, unless `version: {registered.latest}` stands behind the registry.",
    ]


def _of_text(recognised: Recognised) -> list[str]:
    if recognised.nearly_csv is None:
        return []
    delimiter, columns, lines = recognised.nearly_csv
    return [
        f"{lines:,} lines have {columns} columns with {delimiter!r} between them, the others have not: with",
        "`format: csv` and so many columns in `schema`, those would be dead letters.",
    ]


def _schemas(frames: Framed | None, registered: Registered | None) -> list[str]:
    """The schemas of the frames, the most frequent first, and what the registry says of them."""
    if frames is None:
        return []
    known = described(registered) if registered else {}
    most = frames.ids.most_common(MOST_SHOWN)
    lines = [f"schema {n}: {count:,} messages{f', {known[n]}' if n in known else ''}" for n, count in most]
    if len(frames.ids) > MOST_SHOWN:
        lines.append(f"and {len(frames.ids) - MOST_SHOWN:,} schemas more")
    if registered is None:
        lines.append("no SchemaRegistry document says where to ask for these schemas")
    elif registered.why:
        lines.append(registered.why)
    return lines
