"""The messages of a topic: the demo's requests in every format, some bad, some with more fields."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kdi_assets.documents.model.message_format import Avro, AvroSingleObject, Bytes, Csv, Protobuf, SchemaFile, Text

Fields = dict[str, Any]
"""Fields that replace those of the demo's stream."""


def _record(name: str, **types: object) -> Fields:
    """An Avro record; all fields may be null."""
    return {"type": "record", "name": name, "fields": [{"name": n, "type": ["null", t]} for n, t in types.items()]}


AVRO = _record(
    "WebRequest",
    meta=_record("Meta", producer=_record("Producer", timestamp="string")),
    **dict.fromkeys(("method", "session_id", "url", "uuid"), "string"),
    status="int",
)
SCHEMA_FILE = SchemaFile("web_request.avsc", json.dumps(AVRO))
PROTO = """
syntax = "proto3";
message Producer { optional string timestamp = 1; }
message Meta { Producer producer = 1; }
message WebRequest {
  Meta meta = 1; optional string method = 2; optional string session_id = 3; optional string url = 4;
  optional string uuid = 5; optional int32 status = 6;
}
"""
UNKNOWN = b',"plan":"gold","attempt":2,"region":"eu-central"}'
NO_RECORD: Fields = {"record_ddl": "", "columns": {}, "coordinates": "kafka"}


@dataclass(frozen=True, slots=True)
class Content:
    """A kind of message.

    Attributes:
        title: As tables call it.
        encode: Makes the message of a JSON document.
        stream: Fields of the stream that the demo's does not have.
        bad: Whether each hundredth message cannot become a row.
        engine: The engine that drains it, of ``worker.ENGINES``.
        consumer: The mode in which it is read from a stream of Kinesis; empty: from a topic of Kafka.
    """

    title: str
    encode: Callable[[bytes], bytes] = bytes
    stream: Callable[[], Fields] = dict
    bad: bool = False
    engine: str = "drain"
    consumer: Literal["", "polling", "efo"] = ""


def _csv(document: bytes) -> bytes:
    said = json.loads(document)
    fields = [said["meta"]["producer"]["timestamp"], *(said[n] for n in ("method", "session_id", "url", "uuid"))]
    return "|".join([*fields, str(said["status"])]).encode()


def _csv_stream() -> Fields:
    ddl = "timestamp string, method string, session_id string, url string, uuid string, status int"
    date = "to_date(substr(timestamp, 1, 10))"
    return {**NO_RECORD, "format": Csv(delimiter="|"), "record_ddl": ddl, "date_expression": date}


def _protobuf(document: bytes) -> bytes:
    from tests.formats.protobuf_messages import message_class

    return bytes(message_class(PROTO, "WebRequest")(**json.loads(document)).SerializeToString())


def _protobuf_stream() -> Fields:
    from tests.formats.protobuf_messages import descriptors

    return {"format": Protobuf("web_request.desc", descriptors(PROTO), "WebRequest"), "record_ddl": ""}


def _zstd(document: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.compress(document, codec="zstd", asbytes=True))


def _avro(document: bytes) -> bytes:
    from tests.formats.avro_bytes import datum  # here: a cold process must not import the publisher's packages

    return datum(AVRO, json.loads(document))


def _single_object(document: bytes) -> bytes:
    from tests.formats.avro_bytes import single_object

    return single_object(AVRO, json.loads(document))


def _single_object_stream() -> Fields:
    return {"format": AvroSingleObject(SCHEMA_FILE, (SCHEMA_FILE,)), "record_ddl": ""}


def _plain(format_: Text | Bytes) -> Fields:
    return {**NO_RECORD, "format": format_, "date_expression": "to_date(kafka.timestamp)"}


CONTENTS: Mapping[str, Content] = {
    "clean": Content("JSON"),
    "bad": Content("JSON, 1 % bad", bad=True),
    "unknown": Content("JSON, three unknown fields", lambda document: document[:-1] + UNKNOWN),
    "avro": Content("Avro", _avro, lambda: {"format": Avro(SCHEMA_FILE), "record_ddl": ""}),
    "single_object": Content("Avro, single object", _single_object, _single_object_stream),
    "protobuf": Content("Protobuf", _protobuf, _protobuf_stream),
    "gzip": Content("JSON, gzip", gzip.compress, lambda: {"compression": "gzip"}),
    "zstd": Content("JSON, zstd", _zstd, lambda: {"compression": "zstd"}),
    "csv": Content("CSV, without nesting and host", _csv, _csv_stream),
    "text": Content("text", stream=lambda: _plain(Text())),
    "bytes": Content("bytes", stream=lambda: _plain(Bytes())),
    "one_pass": Content("JSON to three tables, one pass", engine="one pass"),
    "three_drains": Content("JSON to three tables, three drains", engine="three drains"),
    "kinesis": Content("JSON from Kinesis", consumer="polling"),
    "kinesis_efo": Content("JSON from Kinesis, enhanced fan-out", consumer="efo"),
}
