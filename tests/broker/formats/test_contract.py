"""`contract`: what happens to messages that differ from the record, through whole drains."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_rules import Contract
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.streams.rules.errors import OtherTypesFound, SchemaDisagrees, UnknownFieldsFound
from tests.conftest import DrivenFactory
from tests.driven import WEB_REQUESTS, DrivenStream
from tests.readers import by_duckdb

GOOD = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"method":"GET","status":200,"url":"https://a.b/"}'
PLAN = GOOD[:-1] + ',"plan":"gold"}'
NESTED = GOOD.replace('00:00Z"}', '00:00Z","host":"h"}')


def test_a_frozen_contract_stops_the_drain_and_names_the_fields(driven: DrivenFactory) -> None:
    """Pass: nothing is committed; with a contract that makes dead letters of them, the drain continues."""
    web = driven(partitions=2, contract=Contract("freeze"))
    web.send(GOOD, "bad")
    web.send(GOOD, PLAN, NESTED, PLAN, partition=1)

    with pytest.raises(UnknownFieldsFound) as refused:
        web.drain()

    assert (refused.value.topic_partition, refused.value.offset, refused.value.messages) == (web.tp(1), 1, 5)
    what, _, then = refused.value.message_parts()
    assert "3 of 5 messages" in what and "plan (2), meta.producer.host (1)" in what
    assert f"--topic-partition {web.tp(1)} --offset 1" in then
    assert [e.kind for e in web.entries()] == ["start"]
    assert TableLog.open(web.stream.dead_letters_uri(web.lake)) is None

    report = web.with_definition(contract=Contract("discard_row")).drain()

    assert (report.rows_added, report.dead_letters) == (2, 4)
    assert web.letters("reason", "field") == [
        ("malformed_json", None),
        ("unknown_field", "plan"),
        ("unknown_field", "meta.producer.host"),
        ("unknown_field", "plan"),
    ]
    assert web.audit().complete


def with_(**fields: object) -> str:
    """A good message with more fields; ``host`` is in ``meta.producer``."""
    said = json.loads(GOOD)
    said["meta"]["producer"] |= {"host": fields.pop("host")} if "host" in fields else {}
    return json.dumps(said | fields)


def columns(web: DrivenStream) -> dict[str, Any]:
    return {f["name"]: f["type"] for f in TableLog.existing(web.uri).schema["fields"]}


def rows(web: DrivenStream, where: str) -> list[dict[str, Any]]:
    """By Spark: delta-rs returns nulls for mapped columns."""
    return [r.asDict(recursive=True) for r in web.session().read.format("delta").load(web.uri).where(where).collect()]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({}, id="plain", marks=pytest.mark.core),
        pytest.param({"delta.columnMapping.mode": "name"}, id="columns mapped"),
    ],
)
def test_an_evolving_table_gains_the_fields_of_its_messages_in_the_commit_of_the_rows(
    driven: DrivenFactory, properties: dict[str, str]
) -> None:
    """Procedure: drain; drain messages with new fields: of every type, in a struct, in elements, of types that do not
    combine, only null, with names that cannot be columns or are taken; drain messages with some of them.
    Pass: one commit holds rows and columns; what cannot be a column is counted; check, comparison with Kafka and audit
    agree; comments of the older columns stay.
    """
    ddl = f"{WEB_REQUESTS} COMMENT 'unique', items array<struct<sku: string>> COMMENT 'what'"
    web = driven(partitions=1, contract=Contract("evolve"), record_ddl=ddl, properties=properties)
    web.send(GOOD)
    web.drain()
    before = TableLog.existing(web.uri)
    new = {"plan": "gold", "count": 7, "ratio": 1.5, "on": True, "large": 12345678901234567890, "tags": ["a", None]}
    new |= {"box": {"size": {"w": 1}, "sort of": 2}, "host": "h", "items": [{"sku": "a", "n": 1}, {"n": 2}]}
    unfit: dict[str, object] = {"a b": 1, "METHOD": "x", "Host": "x", "date": "x", "_kdi_x": 1, "empty": {}, "none": []}
    web.send(with_(**new, **unfit), with_(mixed=1), with_(mixed="a", nothing=None))

    report = web.drain()

    (commit,) = report.commits
    assert commit.version == before.version + 1
    assert report.unknown.named == {**dict.fromkeys(unfit, 1), "mixed": 2, "box.sort of": 1}
    assert web.entries()[-1].unknown == report.unknown
    found_ = columns(web)
    types = {"plan": "string", "count": "long", "ratio": "double", "on": "boolean", "large": "decimal(38,0)"}
    assert found_.items() >= types.items()
    assert found_.keys() - {f["name"] for f in before.schema["fields"]} == {*new} - {"host", "items"}
    (row,) = rows(web, "plan IS NOT NULL")
    assert (row["box"], row["meta"]["producer"]["host"]) == ({"size": {"w": 1}}, "h")
    assert row["items"] == [{"sku": "a", "n": 1}, {"sku": None, "n": 2}]
    assert (row["tags"], row["large"]) == (["a", None], 12345678901234567890)

    web.send(with_(plan="tin", count="many"), with_(plan="tin", host="i"))
    later = web.drain()

    assert (later.rows_added, later.dead_letters, later.unknown) == (1, 1, FieldCounts())
    assert web.letters("reason", "field") == [("wrong_type", "count")]
    assert [r["meta"]["producer"]["host"] for r in rows(web, "plan = 'tin'")] == ["i"]
    assert run_check("schema_as_declared", CheckSubject(web.stream, web.lake, web.session)).level == "passed"
    assert web.audit().complete
    assert web.compare().agrees
    comments = {f["name"]: f["metadata"].get("comment") for f in TableLog.existing(web.uri).schema["fields"]}
    assert (comments["uuid"], comments["items"]) == ("unique", "what")
    web.send(GOOD)
    with pytest.raises(SchemaDisagrees, match="column meta.producer.host is not in the stream"):
        web.with_definition(contract=Contract()).drain()


def test_columns_that_a_document_and_a_message_gained_are_added_with_the_rows_and_read_by_others(
    driven: DrivenFactory,
) -> None:
    web = driven(partitions=1, contract=Contract("evolve"))
    web.send(GOOD)
    web.drain()
    web.send(with_(plan="gold", host="h"))

    more = {**web.stream.columns, "ok": "status < 400", "meta.kind": "method"}
    web.with_definition(columns=more, record_ddl=f"{WEB_REQUESTS}, later date").drain()

    assert columns(web).keys() >= {"ok", "later"}
    for table in (DeltaTable(web.uri).to_pyarrow_table(), by_duckdb(web.uri, "ok, plan, meta")):
        read = {(r["ok"], r["plan"], r["meta"]["kind"], r["meta"]["producer"]["host"]) for r in table.to_pylist()}
        assert read == {(None,) * 4, (True, "gold", "GET", "h")}


def test_drains_that_find_the_same_new_field_at_once_both_end_well(driven: DrivenFactory) -> None:
    """Procedure: two drains with separate sessions find the new field, wait for each other after they wrote their
    files, and commit.
    Pass: one lands with rows and column, the other plans again and finds nothing left; each message is there once.
    """
    web = driven(partitions=2, contract=Contract("evolve"))
    web.send(GOOD)
    web.drain()
    web.send(*(with_(plan="gold", at=n) for n in range(20)))
    both = Barrier(2, timeout=60)

    def wait(point: str) -> None:
        if point == "files written":
            with suppress(BrokenBarrierError):
                both.wait()

    def run(_: int) -> DrainReport:
        session = web.session().newSession()
        try:
            return replace(web, session=lambda: session).drain(at=wait)
        finally:
            both.abort()

    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(run, range(2)))

    assert sorted(len(report.commits) for report in reports) == [0, 1]
    assert [r["plan"] for r in web.found().rows].count("gold") == 20
    assert sum(c.changes_metadata for c in TableLog.existing(web.uri).commits(after=0)) == 1
    assert web.audit().complete


def test_a_drain_that_ends_before_its_commit_leaves_the_columns_as_they_were(driven: DrivenFactory) -> None:
    """Procedure: end a drain with a new field at each of its points, after its files are written and after the commit.
    Pass: up to the commit the table is unchanged; from there on it has column, rows and positions.
    """
    web = driven(partitions=1, contract=Contract("evolve"))
    web.send(GOOD)
    web.drain()
    before = TableLog.existing(web.uri)
    web.send(with_(plan="gold"), "bad")

    def ending_at(wanted: str) -> Callable[[str], None]:
        def at(point: str) -> None:
            if point == wanted:
                raise InterruptedError(point)

        return at

    for point in ("before reading", "files written", "dead letters written", "accounted for"):
        with pytest.raises(InterruptedError):
            web.drain(at=ending_at(point))
        assert (TableLog.existing(web.uri).version, "plan" in columns(web)) == (before.version, False), point
    with pytest.raises(InterruptedError):
        web.drain(at=ending_at("commit sent"))

    assert (TableLog.existing(web.uri).version, "plan" in columns(web)) == (before.version + 1, True)
    assert web.drain().commits == ()
    found_ = web.found()
    assert ([r["plan"] for r in found_.rows].count("gold"), len(found_.dead_letters)) == (1, 1)
    assert web.audit().complete


def test_a_frozen_contract_stops_the_drain_at_values_of_other_types(driven: DrivenFactory) -> None:
    """Pass: the fields are named with their reasons; dead letters with other reasons alone stop nothing."""
    web = driven(partitions=1, contract=Contract(types="freeze"))
    web.send(GOOD, "bad", with_(status=2**40), with_(status="x"))

    with pytest.raises(OtherTypesFound) as refused:
        web.drain()

    assert (refused.value.offset, refused.value.messages) == (2, 4)
    assert refused.value.fields.named == {"status: wrong_type": 1, "status: out_of_range": 1}
    assert [e.kind for e in web.entries()] == ["start"]
    report = web.with_definition(contract=Contract(types="discard_value")).drain()
    assert (report.rows_added, report.dead_letters, report.misfits) == (3, 1, FieldCounts(2, {"status": 2}))
    web.send("bad")
    assert web.drain().dead_letters == 1


def test_types_are_widened_in_the_commit_of_the_rows(driven: DrivenFactory) -> None:
    """Procedure: drain; drain values that need wider types, beside one that no type holds; drain small values again.
    Pass: one commit holds rows and types; each row has its value; what fits no type is a dead letter; ledger, audit,
    comparison and DuckDB still work; a table without the feature is refused, and the error says what the feature costs.
    """
    ddl = f"{WEB_REQUESTS}, price decimal(4,2), ratio float, box struct<n: smallint>, numbers array<int>"
    web = driven(partitions=1, contract=Contract(types="evolve"), record_ddl=ddl, rescued="more")
    small: dict[str, Any] = {"status": 1, "price": 1.25, "ratio": 0.5, "box": {"n": 3}, "numbers": [1]}
    web.send(with_(**small))
    web.drain()
    before = TableLog.existing(web.uri).version
    large = {"status": 2**40, "price": 123456.789, "ratio": 1e200, "box": {"n": 70000}, "numbers": [1, 2**50]}
    web.send(*(with_(**{name: value}) for name, value in large.items()))
    web.send(with_(status="x"), with_(plan="gold"))

    report = web.drain()

    assert [c.version for c in report.commits] == [before + 1]
    assert (report.rows_added, report.dead_letters, report.unknown.named) == (6, 1, {"plan": 1})
    assert [(x["reason"], x["field"]) for x in of_letters(web)] == [("wrong_type", "status")]
    found_ = {row["meta"]["kafka"]["offset"]: row for row in rows(web, "true")}
    read = {name: found_[offset][name] for offset, name in enumerate(large, 1)}
    assert read == {**large, "price": Decimal("123456.789")}
    assert columns(web).items() >= {"status": "long", "price": "decimal(9,3)", "ratio": "double"}.items()
    web.send(with_(**small), with_(status=2**41))
    assert web.drain().rows_added == 2
    assert sum(c.changes_metadata for c in TableLog.existing(web.uri).commits(after=0)) == 1
    assert web.audit().complete
    assert web.compare().agrees
    assert sorted(by_duckdb(web.uri, "status")["status"].drop_null().to_pylist())[-2:] == [2**40, 2**41]

    plain = driven(partitions=1)
    plain.send(GOOD)
    plain.drain()
    plain.send(GOOD)
    evolving = plain.with_definition(contract=Contract(types="evolve"))
    with pytest.raises(SchemaDisagrees, match="needs the table's property delta.enableTypeWidening") as refused:
        evolving.drain()
    _, _, statement = shlex.split(refused.value.message_parts()[2].split("   ")[0])
    plain.session().sql(statement)
    plain.send(with_(status=2**40))
    assert evolving.drain().rows_added == 2
    assert columns(plain)["status"] == "long"


def of_letters(web: DrivenStream) -> list[dict[str, Any]]:
    """Only dead letters: delta-rs reads no rows of such a table."""
    letters: list[dict[str, Any]] = DeltaTable(web.stream.dead_letters_uri(web.lake)).to_pyarrow_table().to_pylist()
    return letters
