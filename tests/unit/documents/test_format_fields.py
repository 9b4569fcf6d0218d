"""The `format` of a document, and its mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from kdi_assets.documents.loading.errors import Mistakes
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.announcement import parse_announcement
from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.documents.model.message_format import (
    Avro,
    AvroContainer,
    AvroSingleObject,
    Bytes,
    Csv,
    Envelope,
    Files,
    Format,
    Json,
    Parquet,
    Protobuf,
    ProtobufRegistry,
    RegistrySchemas,
    SchemaFile,
    Text,
)
from kdi_assets.documents.model.stream import Stream
from kdi_assets.documents.model.stream_fields import Announce
from kdi_assets.messages.formats.protobuf.descriptors import DescriptorMistake, Descriptors
from kdi_assets.messages.formats.protobuf.records import record_of
from tests.conftest import CHECKOUT
from tests.documents import CLUSTER, ORDERS, REGISTRY, stream
from tests.formats.protobuf_messages import SHOP, descriptors

SCHEMA = '{"type": "record", "name": "R", "fields": []}'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def only_stream(*lines: str) -> Stream:
    Path("defs.yaml").write_text(ORDERS + "".join(f"  {line}\n" for line in lines), encoding="utf-8")
    (stream,) = load_streams(Path()).values()
    return stream


def with_schemas(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(SCHEMA, encoding="utf-8")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["schema: id int"], Json()),
        (["schema: id int", "format: {json: {validate: false}}"], Json()),
        (["format: text"], Text()),
        (["format: bytes"], Bytes()),
        (["format: envelope", "schema: 'k binary, v binary, h array<struct<key: string, value: binary>>'"], Envelope()),
        (["schema: id int", "format: csv"], Csv()),
        (["schema: id int", "format: {csv: {delimiter: ';', quote: \"'\"}}"], Csv(";", "'")),
        (["schema: id int", 'format: {csv: {delimiter: "\\t", null_text: "\\\\N"}}'], Csv("\t", null_text="\\N")),
    ],
)
def test_a_format_is_named_by_a_word_or_with_its_fields(lines: list[str], expected: Format) -> None:
    assert only_stream(*lines).format == expected


def test_a_json_schema_lies_beside_the_document_and_a_record_may_be_declared_all_the_same() -> None:
    with_schemas("order.schema.json")
    file = SchemaFile("order.schema.json", SCHEMA)

    assert only_stream("format: {json: {schema_file: order.schema.json}}").format == Json(file)
    declared = only_stream("format: {json: {schema_file: order.schema.json, validate: true}}", "schema: id int")
    assert (declared.format, declared.record_ddl) == (Json(file, validate=True), "id int")


def test_a_schema_of_avro_is_read_with_the_document_and_lies_beside_it() -> None:
    with_schemas("avro/orders.avsc")

    stream = only_stream("format: {avro: {schema_file: avro/orders.avsc}}")

    assert stream.format == Avro(SchemaFile("avro/orders.avsc", SCHEMA))
    assert not stream.explodes
    several = only_stream("format: {avro: {container: true, schema_file: avro/orders.avsc}}")
    assert several.format == AvroContainer(SchemaFile("avro/orders.avsc", SCHEMA))
    assert several.explodes
    assert stream.record_ddl == ""


def test_single_objects_have_one_schema_or_a_folder_of_them_and_a_reader() -> None:
    with_schemas("a/1.avsc", "a/2.avsc", "b/1.avsc")
    first, second, other = (SchemaFile(name, SCHEMA) for name in ("a/1.avsc", "a/2.avsc", "b/1.avsc"))

    def of(fields: str) -> Format:
        return only_stream(f"format: {{avro: {fields}}}").format

    assert of("{schemas: b/1.avsc}") == of("{schemas: b}") == AvroSingleObject(other, (other,))
    assert of("{schemas: a, reader: a/2.avsc}") == AvroSingleObject(second, (first, second))


def test_a_message_of_protobuf_is_named_with_a_set_of_descriptors_or_a_file_that_is_compiled_with_its_imports() -> None:
    Path("shop.desc").write_bytes(descriptors(SHOP))
    Path("shop").mkdir()
    Path("shop/place.proto").write_text('syntax = "proto3"; package shop; message Place { string city = 1; }')
    Path("shop/order.proto").write_text(
        'syntax = "proto3"; package shop; import "shop/place.proto"; message Order { Place place = 1; }'
    )

    described = only_stream("format: {protobuf: {descriptor_file: shop.desc, message: shop.Order}}").format
    compiled = only_stream("format: {protobuf: {proto_file: shop/order.proto, message: shop.Order}}").format

    assert described == Protobuf("shop.desc", descriptors(SHOP), "shop.Order")
    assert isinstance(compiled, Protobuf)
    assert Descriptors(compiled.descriptors).messages() == ["shop.Place", "shop.Order"]


def test_a_registry_has_the_text_and_a_message_of_protobuf_need_not_be_named() -> None:
    Path("registry").mkdir()
    Path("registry/defs.yaml").write_text(REGISTRY, encoding="utf-8")
    Path("kafka").mkdir()
    Path("kafka/defs.yaml").write_text(CLUSTER, encoding="utf-8")
    Path("orders").mkdir()
    main = Registry("main", "https://registry:8081")
    named = {
        "{registry: main}": ProtobufRegistry(RegistrySchemas(main, "t-value")),
        "{registry: main, subject: s, version: 2, message: a.B}": ProtobufRegistry(
            RegistrySchemas(main, "s", 2), "a.B"
        ),
    }

    for fields, expected in named.items():
        Path("orders/defs.yaml").write_text(stream("orders", record=f"format: {{protobuf: {fields}}}"))
        assert load_streams(Path())["orders"].format == expected


PROTO = {
    "broken": 'syntax = "proto3"; message Order { string a = 1; Place place = 2; }',
    "tree": 'syntax = "proto3"; message Tree { Tree tree = 1; } message Empty {}',
}
OF_PROTOBUF = [
    ("{message: shop.Order}", "protobuf: takes one of registry, descriptor_file and proto_file; e.g. descriptor_"),
    ("{descriptor_file: shop.desc}", "protobuf: does not name a message; e.g. message: shop.Order"),
    ("{descriptor_file: shop.desc, message: shop.Oder}", "protobuf.message: shop.desc describes no message"),
    ("{descriptor_file: none.desc, message: shop.Order}", "protobuf.descriptor_file: none.desc: No such file or"),
    ("{descriptor_file: defs.yaml, message: shop.Order}", "protobuf.descriptor_file: defs.yaml: it is not a set of"),
    (
        "{descriptor_file: alone.desc, message: shop.Order}",
        "protobuf.descriptor_file: alone.desc: order.proto imports place.proto, which is not in it; what protoc "
        "--include_imports --descriptor_set_out writes",
    ),
    (
        "{proto_file: broken.proto, message: shop.Order}",
        'protobuf.proto_file: broken.proto: broken.proto:1:50: "Place" is not defined.; what protoc compiles',
    ),
    ("{proto_file: tree.proto, message: Tree}", "protobuf.message: Tree has no fields that a column could have"),
    ("{proto_file: tree.proto, message: Empty}", "protobuf.message: Empty has no fields; a message that has some"),
]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["format: jsn"], "9 format: there is no format 'jsn'; did you mean json?"),
        (
            ["format: 3"],
            "9 format: there is no format 3; known: avro, bytes, csv, envelope, files, json, protobuf",
        ),
        (["format: {text: {}, csv: {}}"], "9 format: names several formats; keep one of them"),
        (["format: {text: {encoding: latin1}}"], "9 format.text.encoding: no such field; there is none"),
        (
            ["format: {csv: {delimiter: ab}}"],
            "9 format.csv.delimiter: 'ab' is not such a character; a character that is not",
        ),
        (["format: {csv: {delimiter: '\"'}}"], "9 format.csv: '\"' is the delimiter and something else; three"),
        (["format: csv"], "5 schema: is missing; e.g. schema: id bigint, at timestamp"),
        (["format: {json: {schemafile: a}}"], "9 format.json.schemafile: no such field; did you mean schema_file?"),
        (["schema: id int", "format: {json: {subject: s}}"], "10 format.json: names subject or version and no"),
        (["format: {json: {registry: main, schema_file: a.json}}"], "9 format.json: names a registry and a"),
        (["format: {json: {validate: true}}", "schema: id int"], "9 format.json: validates, and does not name a"),
        (["format: text", "compression: gzp"], "10 compression: takes none, gzip or zstd, not 'gzp'; e.g. gzip"),
        (["format: avro"], "9 format.avro: takes one of registry, schema_file and schemas; e.g. avro: {schema_file: "),
        (["format: {avro: {container: true, registry: main}}"], "9 format.avro: is a container, and does not name"),
        (
            ["format: {avro: {container: true, schema_file: a.avsc}}", "explode: {item: items}"],
            "10 explode: a container's records are rows already; remove the line",
        ),
        (
            ["format: {avro: {container: true, schema_file: a.avsc}}", "contract: {types: evolve}"],
            "10 contract: evolve does not know the columns of elements; another contract",
        ),
        (["format: {avro: {schema_file: a.avsc, reader: a.avsc}}"], "9 format.avro: names a reader for one schema"),
        (["format: {protobuf: {descriptor_file: shop.desc, message: shop.Order}}", "schema: id int"], "10 schema: "),
        (["format: {avro: {schema_file: a.avsc}}", "schema: id int"], "10 schema: the record is what the schema of"),
        (["format: {avro: {schema_file: a.avsc}}"], "9 format.avro.schema_file: a.avsc: No such file or directory; a"),
        (["format: {avro: {schema_file: defs.yaml}}"], "9 format.avro.schema_file: defs.yaml is not JSON: "),
        (["format: {avro: {schemas: empty}}"], "9 format.avro.schemas: no schema lies in empty; files that end in"),
        (["format: {avro: {schemas: several}}"], "9 format.avro.reader: is missing: there are several schemas; e.g"),
    ]
    + [([f"format: {{protobuf: {fields}}}"], f"9 format.{said}") for fields, said in OF_PROTOBUF],
)
def test_a_mistake_names_line_field_and_what_would_be_right(lines: list[str], said: str) -> None:
    Path("empty").mkdir()
    with_schemas("several/1.avsc", "several/2.avsc")
    alone = FileDescriptorSet()
    alone.file.add(name="order.proto", dependency=["place.proto"])
    written = {"shop.desc": descriptors(SHOP), "empty.desc": b"", "alone.desc": alone.SerializeToString()}
    for name, content in (written | {f"{name}.proto": text.encode() for name, text in PROTO.items()}).items():
        Path(name).write_bytes(content)

    with pytest.raises(Mistakes) as refused:
        only_stream(*lines)

    (mistake,) = refused.value.mistakes
    assert mistake.text().startswith(f"defs.yaml:{said}")


def test_a_message_that_grows_beyond_all_bounds_is_refused() -> None:
    levels = [f"message M{n} {{ {' '.join(f'M{n + 1} f{i} = {i};' for i in range(1, 11))} }}" for n in range(5)]
    text = 'syntax = "proto3"; ' + " ".join(levels) + " message M5 { int32 a = 1; }"

    with pytest.raises(DescriptorMistake, match="M0 has more than 10,000 fields"):
        record_of(Descriptors(descriptors(text)).message("M0"))


OF_FILES = "format: {files: {root: /a}}"


def only_format(line: str) -> Format:
    return only_stream("schema: id int", line).format


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("format: {files: {root: /lake}}", Files(Parquet(), "paths", ("/lake",))),
        (
            "format: {files: {of: json, names: s3_events, root: /lake}}",
            Files(Json(), "s3_events", ("/lake",)),
        ),
        (
            "format: {files: {names: announcements, root: s3://lake/}}",
            Files(Parquet(), "announcements", ("s3://lake",)),
        ),
        ("format: {files: {root: [/a/b, s3a://c]}}", Files(Parquet(), "paths", ("/a/b", "s3a://c"))),
    ],
)
def test_files_are_parquet_and_named_by_their_paths_unless_the_document_says_more(line: str, expected: Format) -> None:
    assert only_format(line) == expected


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([OF_FILES], "schema: is missing"),
        (["schema: id int", "format: files"], "does not say in which folder the files lie"),
        (["schema: id int", "format: {files: {names: s3_events}}"], "e.g. root: s3://lake/bronze"),
        (["schema: id int", "format: {files: {of: xml}}"], "format.files.of: takes"),
        (["schema: id int", "format: {files: {root: lake}}"], "'lake' is not the address of a folder"),
        (["schema: id int", "format: {files: {root: /a/../b}}"], "'/a/../b' is not the address of a folder"),
        (
            ["schema: id int", OF_FILES, "contract: {types: freeze}"],
            "contract: files are read by the columns",
        ),
        (
            ["schema: id int", OF_FILES, "tombstones: row"],
            "tombstones: does not suit messages that only name",
        ),
        (
            ["schema: id int", OF_FILES, "route: {when: a}"],
            "route: does not suit messages that only name",
        ),
        (
            ["schema: id int", OF_FILES, "explode: {a: b}"],
            "explode: the rows of files are rows already",
        ),
        (["schema: id int", OF_FILES, "rescued: r"], "rescued: needs single fields of messages"),
        (
            ["schema: id int", OF_FILES, "dead_letter_payload: mask"],
            "dead_letter_payload: does not suit",
        ),
    ],
)
def test_what_does_not_suit_files_is_refused_with_its_field(lines: list[str], said: str) -> None:
    with pytest.raises(Mistakes) as refused:
        only_stream(*lines)

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("announce: {topic: orders}", "announce.topic: is the topic that this stream drains; another topic"),
        ("announce: {topic: orders, cluster: main}", "announce.topic: is the topic that this stream drains"),
        ("announce: {topic: files, cluster: other}", "announce.cluster: no KafkaCluster document is named 'other'"),
        ("announce: {}", "announce.topic: is missing"),
    ],
)
def test_files_are_announced_in_another_topic_of_a_known_cluster(line: str, said: str) -> None:
    with pytest.raises(Mistakes) as refused:
        only_stream("schema: id int", line)

    assert said in str(refused.value)
    assert only_stream("schema: id int", "announce: {topic: files, cluster: main}").announce == Announce(
        "files", only_stream("schema: id int").kafka
    )


def test_the_documents_of_the_page_about_files_are_read() -> None:
    page = (CHECKOUT / "docs" / "files.md").read_text(encoding="utf-8")
    documents = re.findall(r"```yaml\n(type: .*?)```", page, re.DOTALL)
    Path("defs.yaml").write_text("---\n".join([CLUSTER, *documents]), encoding="utf-8")

    found = load_streams(Path())

    assert len(found) == len(documents) == 3
    (announced,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    example = parse_announcement(announced)
    assert json.loads(example.to_json()) == json.loads(announced)
    assert example.only_adds and example.added[0].offsets
