"""Tagged columns in drains: a schema that gains a tagged field, the tables made of the column, and erasing by tag."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.components.column_facts import table_facts
from kdi_assets.delta.column_types import table_fields
from kdi_assets.documents.model.message_format import AvroRegistry, JsonRegistry, RegistrySchemas
from kdi_assets.documents.model.message_rules import Contract, Mask
from kdi_assets.follow.refine.refine import refine
from kdi_assets.messages.formats.comments import tags_by_path
from kdi_assets.operate.erase.downstream import downstream_of, follow_erasure
from kdi_assets.operate.erase.erase import EraseReport, erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.operate.erase.tagged import TaggedValue, tagged_elsewhere, where_tagged
from kdi_assets.operate.upkeep.errors import EraseRefused
from kdi_assets.streams.rules.errors import SchemaDisagrees
from tests.conftest import DrivenFactory
from tests.driven import AS_DECODED, DrivenStream
from tests.formats.fake_registry import RunningRegistry
from tests.formats.framed import framed
from tests.formats.registered import SUBJECT, in_avro
from tests.refined import refined_table
from tests.spark.formats.test_masks import HASH, SECRET, hashed

TAGS = "confluent:tags"
PHONE = "+491701234567"


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HASH.secret, SECRET)


def avro(*fields: dict[str, Any], note: dict[str, Any] | None = None) -> dict[str, Any]:
    """A record with an id, a text, and further fields."""
    plain = {"name": "note", "type": ["null", "string"], "default": None, **(note or {})}
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, plain, *fields]}


TAGGED_PHONE = {"name": "phone", "type": ["null", "string"], "default": None, TAGS: ["PII"], "doc": "of the buyer"}


def tags(uri: str) -> dict[str, Any]:
    return dict(tags_by_path(table_fields(uri)))


def stored_bytes(web: DrivenStream) -> bytes:
    """Every row of the table and of its dead letters, and their logs."""
    tables = [uri for uri in (web.uri, web.stream.dead_letters_uri(web.lake)) if Path(uri).exists()]
    rows = [str(web.session().read.parquet(f).collect()) for uri in tables for f in DeltaTable(uri).file_uris()]
    logs = [f.read_bytes() for uri in tables for f in Path(uri, "_delta_log").glob("*.json")]
    return "".join(rows).encode() + b"".join(logs)


@pytest.mark.core
def test_a_tagged_field_that_a_schema_gains_is_never_written_unmasked(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """Purpose: `mask_tagged` holds for fields that nobody knew when the document was written.
    Procedure: drain a first version; register one with a tagged field, and one that tags a field that is there; drain
    messages of each, broken ones too.
    Pass: no file of rows or dead letters has the values; the column is tagged, also in a refined table and in Dagster.
    """
    first, second, third = avro(), avro(TAGGED_PHONE), avro(TAGGED_PHONE, note={TAGS: ["PII"]})
    format_ = AvroRegistry(RegistrySchemas(registry.described(), SUBJECT, None))
    fields = {"format": format_, "contract": Contract("evolve"), "mask_tagged": {"pii": HASH}}
    web = driven(partitions=1, **{**AS_DECODED, **fields})
    one = registry.register(SUBJECT, json.dumps(first))
    web.send(in_avro(one, first, id=1, note="plain"), in_avro(one, first, id=1, note=PHONE) + b"\x00")
    web.drain()
    two = registry.register(SUBJECT, json.dumps(second))
    web.send(in_avro(two, second, id=2, note="plain", phone=PHONE))
    web.send(in_avro(two, second, id=2, note="x", phone=PHONE) + b"\x00")
    web.drain()
    of_second = tags(web.uri)
    three = registry.register(SUBJECT, json.dumps(third))
    web.send(in_avro(three, third, id=3, note=PHONE, phone=None), in_avro(two, second, id=4, note=PHONE, phone=None))
    web.drain()

    rows = [(1, "plain", None), (2, "plain", hashed(PHONE)), (3, hashed(PHONE), None), (4, hashed(PHONE), None)]
    assert web.rows("id", "note", "phone") == rows
    assert web.letters("value") == [None, None]
    assert PHONE.encode() not in stored_bytes(web)
    assert web.audit().complete
    assert of_second == {"phone": ["pii"]}
    columns = table_facts(web.uri, version=web.version(), days=[]).of_table["dagster/column_schema"].columns
    assert {c.name: dict(c.tags) for c in columns if c.tags} == {"phone": {"pii": "true"}}
    upstream = {"table": web.stream.table, "as": "o"}
    sql = "SELECT id, phone AS contact, date FROM o"
    silver = refined_table(**{"table": "silver/orders", "from": [upstream], "sql": sql})
    refine(silver, lake=web.lake, session=web.session)
    assert tags(silver.table_uri(web.lake)) == {"contact": ["pii"]}


def test_a_tag_whose_mask_changes_the_type_of_a_column_stops_the_stream(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """An evolving stream falls back to the version before, where the table cannot follow; that one has no tag."""
    first = avro()
    tagged = {**first, "fields": [{**first["fields"][0], TAGS: ["PII"]}, first["fields"][1]]}
    format_ = AvroRegistry(RegistrySchemas(registry.described(), SUBJECT, None))
    fields = {"format": format_, "contract": Contract("evolve"), "mask_tagged": {"pii": HASH}}
    web = driven(partitions=1, **{**AS_DECODED, **fields})
    one = registry.register(SUBJECT, json.dumps(first))
    web.send(in_avro(one, first, id=1, note="plain"))
    web.drain()
    two = registry.register(SUBJECT, json.dumps(tagged))
    web.send(in_avro(two, tagged, id=2, note="plain"))

    with pytest.raises(SchemaDisagrees, match="column id is bigint in the table and string in the stream"):
        web.drain()

    assert web.rows("id") == [1]


def test_a_field_of_a_newer_json_schema_is_not_taken_from_messages_if_tags_are_masked(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """The document pins version 1; messages of version 2 have a field whose tag only that version knows."""
    first: dict[str, Any] = {"id": {"type": "integer"}}
    second = {**first, "phone": {"type": "string", TAGS: ["PII"]}}
    schemas = (json.dumps({"type": "object", "properties": each}) for each in (first, second))
    _, two = (registry.register(SUBJECT, schema, type="JSON") for schema in schemas)
    format_ = JsonRegistry(RegistrySchemas(registry.described(), SUBJECT, 1))
    fields = {"format": format_, "contract": Contract("evolve"), "mask_tagged": {"pii": Mask("null")}}
    web = driven(partitions=1, **{**AS_DECODED, **fields})
    said = json.dumps({"id": 1, "phone": PHONE}).encode()
    web.send(framed(two, said), framed(two, said + b"x"))

    report = web.drain()

    assert report.unknown.named == {"phone": 1}
    assert [f["name"] for f in table_fields(web.uri)] == ["id", "kafka", "date"]
    assert PHONE.encode() not in stored_bytes(web)


def erased(web: DrivenStream, tagged: TaggedValue, **options: Any) -> EraseReport:
    chosen = EraseFilter(where_tagged(web.stream, web.lake, web.session(), tagged))
    given = {"decided_by": "me", "because": "asked", **options}
    return erase(web.stream, lake=web.lake, session=web.session, chosen=chosen, **given)


def test_erasing_by_tag_finds_the_value_in_every_tagged_column_and_in_what_is_made_of_them(
    driven: DrivenFactory,
) -> None:
    ddl = "id bigint, user struct<mail: string>, ips array<string>, note string"
    given: dict[str, Any] = {"record_ddl": ddl, "tags": {"id": ("pii",), "user.mail": ("pii",), "ips": ("pii", "net")}}
    web = driven(partitions=1, **{**AS_DECODED, **given})
    texts = ({"id": 4711}, {"user": {"mail": "4711"}}, {"ips": ["1", "4711"]}, {"note": "4711"}, {"id": 47110})
    web.send(*(json.dumps(text) for text in texts))
    web.drain()
    sql = "SELECT id AS number, user.mail AS mail, ips, date FROM o"
    silver = refined_table(**{"table": "silver/orders", "from": [{"table": web.stream.table, "as": "o"}], "sql": sql})
    refine(silver, lake=web.lake, session=web.session)
    chain, tagged = downstream_of(web.stream, [silver], [], lake=web.lake), TaggedValue("pii", "4711")

    done = erased(web, tagged)
    (followed,) = follow_erasure(chain, lake=web.lake, session=web.session, where="", tagged=tagged)

    assert (done.rows, followed.rows_left) == (3, 0)
    assert {r["number"] for r in DeltaTable(silver.table_uri(web.lake)).to_pyarrow_table().to_pylist()} == {None, 47110}
    assert web.rows("id", "note") == [(None, "4711"), (47110, None)]
    assert web.audit().complete
    recorded = web.entries()[-1].erasure
    assert recorded is not None and "4711" not in recorded.where and recorded.where.count("?") == 3
    with pytest.raises(EraseRefused, match="no column of the table is tagged gdpr"):
        erased(web, TaggedValue("gdpr", "4711"))
    others = tagged_elsewhere(web.stream, web.lake, web.session(), "id = 4711")
    assert others == {"pii": ["user.mail", "ips"]}
    assert tagged_elsewhere(web.stream, web.lake, web.session(), "note = '4711'") == {}
