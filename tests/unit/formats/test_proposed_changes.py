"""`kdi new` for a topic of Debezium's changes: two documents that load, with keys, order and types of the messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kdi_assets.documents.model.refined_modes import Upsert
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kafka.sample import SampledMessage
from kdi_assets.tools.scaffold.changes import changes_of
from kdi_assets.tools.scaffold.document import refined_path
from kdi_assets.tools.scaffold.propose import Proposal
from tests.formats.sampled import NOW, objects, proposed, read_back, text_of

SENT = round(NOW.timestamp() * 1000)
DECIMAL = {
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "12"},
}
TYPES: dict[str, dict[str, Any]] = {
    "id": {"type": "int64"},
    "amount": {"type": "bytes", **DECIMAL},
    "born": {"type": "int32", "name": "io.debezium.time.Date"},
    "seen": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "a b": {"type": "string"},
}


def change(number: int, *, connector: str = "postgresql", **fields: Any) -> dict[str, Any]:
    """Every fifth change is a delete, of which the source says the key alone."""
    row = {"id": number, "amount": "BNI=", "born": 20777, "note": None}
    gone = number % 5 == 0
    return {
        "before": {**dict.fromkeys(row), "id": number} if gone else None,
        "after": None if gone else row,
        "source": {"connector": connector, "ts_ms": SENT, "lsn": number, "xmin": None},
        "transaction": None,
        "op": "d" if gone else "u",
        "ts_ms": SENT,
        **fields,
    }


def with_schema(content: dict[str, Any]) -> dict[str, Any]:
    """As Connect's converter writes it with schemas enabled."""
    row = [{**kind, "field": name} for name, kind in TYPES.items()]
    source = [{"type": "string", "field": "connector"}, {"type": "int64", "field": "lsn"}]
    fields = [
        {"type": "struct", "field": "before", "fields": row},
        {"type": "struct", "field": "after", "fields": row},
        {"type": "struct", "field": "source", "fields": source},
        {"type": "string", "field": "op"},
        {"type": "int64", "field": "ts_ms"},
    ]
    return {"schema": {"type": "struct", "fields": fields}, "payload": content}


def of(contents: list[dict[str, Any]], keys: Sequence[dict[str, Any] | None] = ()) -> Proposal:
    keyed = [None if key is None else json.dumps(key).encode() for key in keys or [None] * len(contents)]
    return proposed([json.dumps(content).encode() for content in contents], keys=keyed)


def test_two_documents_come_of_changes(tmp_path: Path) -> None:
    found = of([change(n) for n in range(20)], [{"id": n} for n in range(20)])
    folder = read_back(tmp_path, text_of(found))

    assert folder.mistakes == []
    stream, (table,) = folder.streams["bronze/orders"], folder.refined.values()
    # What was null in all messages is left to `evolve`; columns of the source are kept, and `before` has their types.
    assert "xmin" not in stream.record_ddl
    assert "transaction" not in stream.record_ddl
    assert stream.record_ddl.count("amount: string") == stream.record_ddl.count("note: string") == 2
    assert (stream.date_expression, stream.columns) == (
        "to_date(timestamp_millis(ts_ms))",
        {"message_key": "CAST(kafka.key AS STRING)"},
    )
    assert stream.contract.new_columns == "evolve"
    assert (table.table, table.upstreams[0].table, table.sql) == ("silver/orders", "bronze/orders", "")
    assert table.mode == Upsert(keys=("id",), envelope="debezium", sequence_by="source.lsn")
    assert (found.outcome.rows, found.outcome.letters.total()) == (20, 0)


def test_schemas_in_the_messages_say_what_the_values_are(tmp_path: Path) -> None:
    contents = [with_schema(change(n)) for n in range(20)]
    found = of(contents, [{"schema": {}, "payload": {"id": n}} for n in range(20)])
    folder = read_back(tmp_path, text_of(found))

    assert folder.mistakes == []
    (table,) = folder.refined.values()
    assert "seen: timestamp," in folder.streams["bronze/orders"].record_ddl
    assert "a b" not in text_of(found)  # no column can be called so
    assert isinstance(table.mode, Upsert)
    assert table.mode.keys == ("id",)
    for line in (
        "'born', date_add(DATE'1970-01-01', payload.after.born)",
        "AS DECIMAL(12, 2))",
        "'tags', payload.after.tags",
    ):
        assert line in table.sql


def test_the_newest_message_has_the_columns_and_keys_of_today() -> None:
    """Pass: it is the newest of all topic partitions, not the last one of the last topic partition."""
    contents = [with_schema(change(n)) for n in range(1, 5)]
    contents[0]["schema"]["fields"][1]["fields"].append({"type": "string", "field": "city"})
    keys = [b'{"id": 1}', *[b'{"amount": 1}'] * 3]
    messages = [
        SampledMessage(TopicPartition("orders", n), 0, NOW - timedelta(seconds=n), json.dumps(content).encode(), key)
        for n, (content, key) in enumerate(zip(contents, keys, strict=True))
    ]

    found = changes_of(messages, contents)

    assert found is not None
    assert "city" in found.row.fields
    assert found.keys == ["id"]


@pytest.mark.parametrize(
    ("connector", "sequence"),
    [
        ("mysql", "struct(CAST(substring_index(source.file, '.', -1) AS BIGINT), source.pos)"),
        ("mariadb", "struct(CAST(substring_index(source.file, '.', -1) AS BIGINT), source.pos)"),
        ("oracle", "CAST(source.scn AS DECIMAL(38, 0))"),
        (
            "sqlserver",
            "struct(lpad(coalesce(source.commit_lsn, ''), 22, '0'), lpad(coalesce(source.change_lsn, ''), 22, '0'))",
        ),
        ("vitess", "source.ts_ms"),
    ],
)
def test_each_source_has_its_own_order(connector: str, sequence: str) -> None:
    text = text_of(of([change(n, connector=connector) for n in range(5)], [{"id": n} for n in range(5)]))

    mode = list(yaml.safe_load_all(text))[1]["attributes"]["mode"]
    assert mode["upsert"]["sequence_by"] == sequence


def test_without_keys_nothing_is_proposed_of_the_rows(tmp_path: Path) -> None:
    found = of([change(n) for n in range(20)])

    assert read_back(tmp_path, text_of(found)).refined == {}
    assert "The messages have no keys" in text_of(found)


@pytest.mark.parametrize(
    "contents",
    [
        [json.loads(value or b"") for value in objects(op="c", after={"id": 1})],
        [change(n, after='{"id": 1}') for n in range(1, 5)],  # MongoDB's text
        [change(n, op="x") for n in range(5)],
        [*(change(n) for n in range(5)), *({"id": n} for n in range(5))],
        [{"schema": None, "payload": change(n)} for n in range(5)],
    ],
    ids=["no source", "text", "another op", "half of them", "a wrapper without a schema"],
)
def test_other_messages_are_no_changes(contents: list[dict[str, Any]]) -> None:
    assert refined_path(of(contents), "bronze/orders") == ""


def test_no_value_of_a_change_is_written_into_the_documents() -> None:
    hidden = change(1, after={"id": 1, "name": "hunter2"})

    assert "hunter2" not in text_of(of([hidden] * 5, [{"id": "hunter2"}] * 5))
    assert "hunter2" not in text_of(of([with_schema(hidden)] * 5, [{"id": "hunter2"}] * 5))
