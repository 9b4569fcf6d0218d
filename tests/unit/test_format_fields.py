"""What a document says of the messages' format, and what it may not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.components.load import load_streams
from kdi_assets.components.mistakes import Mistakes
from kdi_assets.message_format import (
    Avro,
    AvroContainer,
    AvroSingleObject,
    Bytes,
    Csv,
    Envelope,
    Format,
    Json,
    SchemaFile,
    Text,
)
from kdi_assets.stream import Stream
from tests.documents import ORDERS

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
        (["schema: id int", "format: json"], Json()),
        (["schema: id int", "format: {json: {validate: false}}"], Json()),
        (["format: text"], Text()),
        (["format: {text: }"], Text()),
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


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["format: jsn"], "9 format: there is no format 'jsn'; did you mean json?"),
        (["format: 3"], "9 format: there is no format 3; known: avro, bytes, csv, envelope, json, protobuf, text"),
        (["format: {text: {}, csv: {}}"], "9 format: names several formats; keep one of them"),
        (["format: {text: {encoding: latin1}}"], "9 format.text.encoding: no such field; there is none"),
        (["format: {csv: {delimiter: ab}}"], "9 format.csv.delimiter: 'ab' is not such a character; one that is no"),
        (["format: {csv: {delimiter: 1}}"], "9 format.csv.delimiter: takes text, and 1 is a number in YAML; put it in"),
        (["format: {csv: {delimiter: '\"'}}"], "9 format.csv: '\"' is the delimiter and something else; three"),
        (["format: csv"], "5 schema: is missing; e.g. schema: id bigint, at timestamp"),
        (["format: {json: {}}"], "5 schema: is missing; e.g. schema: id bigint, at timestamp"),
        (["format: {json: {schemafile: a}}"], "9 format.json.schemafile: no such field; did you mean schema_file?"),
        (["schema: id int", "format: {json: {subject: s}}"], "10 format.json: names subject or version and no"),
        (["format: {json: {registry: main, schema_file: a.json}}"], "9 format.json: names a registry and a"),
        (["format: {json: {validate: true}}", "schema: id int"], "9 format.json: is to validate and names no schema"),
        (["format: {json: {schema_file: a.json}}"], "9 format.json.schema_file: a.json: No such file or directory; a"),
        (["format: text", "schema: ' '"], "10 schema: is empty; give it Spark SQL"),
        (["format: text", "compression: gzp"], "10 compression: takes none, gzip or zstd, not 'gzp'; e.g. gzip"),
        (["format: avro"], "9 format.avro: takes one of registry, schema_file and schemas; e.g. avro: {schema_file: "),
        (["format: {avro: {container: true, registry: main}}"], "9 format.avro: is a container and names no"),
        (
            ["format: {avro: {container: true, schema_file: a.avsc}}", "explode: {item: items}"],
            "10 explode: a container's records are rows already; remove the line",
        ),
        (
            ["format: {avro: {container: true, schema_file: a.avsc}}", "contract: {types: evolve}"],
            "10 contract: evolve does not know the columns of elements; another contract",
        ),
        (["format: {avro: {schema_file: a.avsc, reader: a.avsc}}"], "9 format.avro: names a reader for one schema"),
        (["format: {avro: {schema_file: a.avsc}}", "schema: id int"], "10 schema: the record is what the schema of"),
        (["format: {avro: {schema_file: a.avsc}}"], "9 format.avro.schema_file: a.avsc: No such file or directory; a"),
        (["format: {avro: {schema_file: defs.yaml}}"], "9 format.avro.schema_file: defs.yaml is no JSON: "),
        (["format: {avro: {schemas: empty}}"], "9 format.avro.schemas: no schema lies in empty; files that end in"),
        (["format: {avro: {schemas: several}}"], "9 format.avro.reader: is missing: there are several schemas; e.g"),
    ],
)
def test_a_mistake_names_line_field_and_what_would_be_right(lines: list[str], said: str) -> None:
    Path("empty").mkdir()
    with_schemas("several/1.avsc", "several/2.avsc")

    with pytest.raises(Mistakes) as refused:
        only_stream(*lines)

    (mistake,) = refused.value.mistakes
    assert mistake.text().startswith(f"defs.yaml:{said}")
