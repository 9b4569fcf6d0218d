"""Debezium's changes as databases send them: the table is the database's, whatever arrives late, twice or in part."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from hashlib import md5
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.row_errors import NullKeys, QueryMistake
from tests.refined import Lakeside, refined_table
from tests.tables.cdc import COLUMNS, SCHEMA, WORD, Change, Database, Identity, Span, Topic, in_portions, spans

CHANGES = "bronze/changes"
PORTIONS = 6


class Killed(BaseException):
    """The process ends here."""


def table(key: str = "id", **fields: Any) -> RefinedTableSpec:
    given = {"keys": [key], "envelope": "debezium", "sequence_by": "source.lsn", **fields}
    return refined_table(
        **{
            "table": f"silver/by_{key}_{fields.get('scd_type', 1)}",
            "from": CHANGES,
            "partition_by": None,
            "mode": {"upsert": given},
        }
    )


def contents(lakeside: Lakeside, of: RefinedTableSpec) -> Counter[tuple[Any, ...]]:
    """The rows as the model has them."""
    span = ("valid_from", "valid_to") if of.mode.scd_type == 2 else ("sequence",)  # type: ignore[union-attr]
    found = lakeside.spark.read.format("delta").load(lakeside.uri(of.table)).select(*COLUMNS, *span).collect()
    return Counter(tuple(_plain(value) for value in row) for row in found)


def expected(of: RefinedTableSpec, delivered: list[Change]) -> Counter[tuple[Any, ...]]:
    key, scd_type = of.mode.keys[0], of.mode.scd_type  # type: ignore[union-attr]
    found: Counter[tuple[Any, ...]] = Counter()
    for of_key in spans(delivered, key).values():
        for span in of_key if scd_type == 2 else of_key[-1:]:
            if scd_type == 2 or span.until is None:
                found[_row(span, scd_type)] += 1
    return found


def _row(span: Span, scd_type: int) -> tuple[Any, ...]:
    ends = (span.since, span.until) if scd_type == 2 else (span.since,)
    return (*(_plain(span.values.get(column)) for column in COLUMNS), *ends)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("identity", "key"), [("default", "id"), ("full", "id"), ("full", "email")], ids=lambda value: str(value)
)
@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_table_of_changes_is_the_database_after_every_portion(
    lakeside: Lakeside, pytestconfig: pytest.Config, identity: Identity, key: str, scd_type: int
) -> None:
    """Purpose: unchanged large values, keys that change, deletes and re-inserts, new snapshots, messages that come
    twice or late, topics that get partitions. Keys that are not the primary key need identity FULL.
    Procedure: random changes in random portions; runs that are killed, a RESTORE of the table, a compaction upstream,
    the erasure of all changes of a person, of whom nothing comes any more.
    Pass: after each step the rows are those of a model that applies the delivered changes one by one; at the end they
    are the database's.
    """
    seed = pytestconfig.getoption("--seed") * 100 + int(os.environ.get("KDI_WALK", "0"))
    random = Random(f"{seed} {identity} {key} {scd_type}")
    database, topic = Database(random, identity), Topic(random)
    sent = topic.sent(database.changes(60))
    topic.partitions = 3
    sent += topic.sent([*database.changes(40), *database.snapshot(), *database.changes(40)])
    people, delivered, versions, erased = table(key, scd_type=scd_type), list[Change](), list[int](), set[int]()

    def refined(after: str) -> None:
        lakeside.refine(people)
        assert contents(lakeside, people) == expected(people, delivered), f"{after}, seed {seed}"

    for number, portion in enumerate(in_portions(sent, topic, random, portions=PORTIONS)):
        arrived = [change for change in portion if change.primary_key not in erased]
        lakeside.append([change.values for change in arrived], CHANGES, SCHEMA)
        delivered = [*delivered, *arrived]
        if random.random() < 0.4:
            _killed_at(lakeside, people, random.choice(["deletes recorded", "files written", "committed"]))
        refined(f"portion {number}")
        versions.append(lakeside.version(people.table))
        if random.random() < 0.2:
            erased.add(gone := random.randrange(database.keys))
            lakeside.sql(f"DELETE FROM {{t}} WHERE coalesce(after.id, before.id) = {gone}", CHANGES)
            delivered = [change for change in delivered if change.primary_key != gone]
            refined(f"erasure of {gone} after portion {number}")
        if random.random() < 0.3:
            version = random.choice(versions)
            lakeside.sql(f"RESTORE {{t}} TO VERSION AS OF {version}", people.table)
            refined(f"RESTORE to {version} after portion {number}")
        if random.random() < 0.3:
            lakeside.sql("OPTIMIZE {t}", CHANGES)

    left = [row for row in database.rows.values() if row["id"] not in erased]
    rows = Counter(tuple(_plain(row[c]) for c in COLUMNS) for row in left)
    assert (
        Counter(row[: len(COLUMNS)] for row in contents(lakeside, people) if scd_type == 1 or row[-1] is None) == rows
    )
    lakeside.assert_as_computed_at_once(people)


def _killed_at(lakeside: Lakeside, of: RefinedTableSpec, point: str) -> None:
    def at(reached: str) -> None:
        if reached == point:
            raise Killed

    with suppress(Killed):
        lakeside.refine(of, at=at)


def person(**values: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS), **values}


def test_a_value_that_was_never_seen_is_null_and_not_the_placeholder_until_it_arrives(lakeside: Lakeside) -> None:
    """Pass: null while the value is unknown; the value once an older change brings it; gone with a delete between."""
    people = table()
    unchanged = Change("u", None, person(id=1, name="new", body=WORD, tags=[WORD]), 20, 0, 1)
    for change, body in (
        (unchanged, None),
        (Change("c", None, person(id=1, name="old", body="text", tags=["a"]), 10, 0, 2), "text"),
        (Change("u", None, person(id=1, name="between", body="other", tags=[WORD]), 15, 0, 3), "other"),
        (Change("d", person(id=1), None, 18, 0, 4), None),
    ):
        lakeside.append([change.values], CHANGES, SCHEMA)
        report = lakeside.refine(people)

        (row,) = contents(lakeside, people)
        # The first run computes all rows, and counts none.
        assert report.unknown_values == (0 if report.kind == "rebuild" or body else 1)
        assert (row[COLUMNS.index("name")], row[COLUMNS.index("body")]) == ("new", body)
        lakeside.assert_as_computed_at_once(people)


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_change_that_a_connector_sends_again_to_another_topic_partition_says_the_same(
    lakeside: Lakeside, scd_type: int
) -> None:
    """Purpose: a connector that starts again sends changes again, and the topic may have got partitions meanwhile.
    Procedure: a row; an update without its large value; the same update in another topic partition.
    Pass: the value of before, and no further state.
    """
    people = table(scd_type=scd_type)
    updated = Change("u", None, person(id=1, name="new", body=WORD), 20, 0, 1)
    for change in (Change("c", None, person(id=1, body="text"), 10, 0, 0), updated, replace(updated, partition=1)):
        lakeside.append([change.values], CHANGES, SCHEMA)
        lakeside.refine(people)

    found = contents(lakeside, people)
    assert {row[COLUMNS.index("body")] for row in found} == {"text"}
    assert found.total() == scd_type
    lakeside.assert_as_computed_at_once(people)


@pytest.mark.parametrize("columns", [["id", "name"], ["id", "name", "tags"]])
def test_of_columns_that_the_table_does_not_keep_nothing_is_said(lakeside: Lakeside, columns: list[str]) -> None:
    """Procedure: an update without a large value that the table has not; then, late, the change before it.
    Pass: the table is as computed at once, also what `carried` says.
    """
    people = table(column_list=columns)
    for change in (
        Change("u", None, person(id=1, name="new", body=WORD), 20, 0, 0),
        Change("c", None, person(id=1, name="old", body="text"), 10, 0, 1),
    ):
        lakeside.append([change.values], CHANGES, SCHEMA)
        lakeside.refine(people)

    assert [dict(row)["name"] for row in lakeside.rows(people.table)] == ["new"]
    lakeside.assert_as_computed_at_once(people)


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_run_ends_of_which_the_changes_give_no_row(lakeside: Lakeside, scd_type: int) -> None:
    """Pass: what counts values does not wait for rows: deletes alone, and deletes of nobody."""
    people = table(scd_type=scd_type)
    created = Change("c", None, person(id=1, name="new", body=WORD, tags=[WORD]), 10, 0, 0)
    lakeside.append([created.values], CHANGES, SCHEMA)
    lakeside.refine(people)

    for number, key in enumerate((1, 2), start=1):
        lakeside.append([Change("d", person(id=key), None, 10 + number, 0, number).values], CHANGES, SCHEMA)
        report = lakeside.refine(people)
        assert (report.kind, report.unknown_values) == ("changes", 0)

    assert len(contents(lakeside, people)) == scd_type - 1


@pytest.mark.parametrize("word", [WORD, 'it\'s "away" \\\\ – ü'], ids=["usual word", "any word"])
def test_a_value_that_an_update_left_alone_is_kept_in_each_form_that_stands_for_it(
    lakeside: Lakeside, word: str
) -> None:
    """Purpose: the connector says that it lacks a value by a word in the type of the column, and none may be stored.
    Procedure: a row; an update of all its other columns; an update of the same columns to null.
    Pass: the values of before, which may be anything but the word; then null.
    """
    signed = [int.from_bytes([byte], signed=True) for byte in word.encode()]
    uuid = str(UUID(bytes=md5(word.encode(), usedforsecurity=False).digest(), version=3))
    forms: dict[str, tuple[str, Any, Any]] = {
        "texts": ("string", word, "large"),
        "hstore": ("string", json.dumps({word: word}, ensure_ascii=False, separators=(",", ":")), '{"a":"b"}'),
        "bytes": ("binary", bytearray(word.encode()), bytearray(b"large")),
        "base64": ("string", b64encode(word.encode()).decode(), "bGFyZ2U="),
        "lists": ("array<string>", [word], ["large", None]),
        "uuids": ("array<string>", [uuid], ["0b5c6d80-4b5e-4c69-9bd2-6b2a34b1a2f4"] * 200),
        "pairs": ("map<string, string>", {word: word}, {"a": "b"}),
        **{f"{kind}s": (f"array<{kind}>", signed, [1, None, 3]) for kind in ("smallint", "int", "bigint")},
        **{f"{kind}s": (f"array<{kind}>", [float(n) for n in signed], [0.5, None]) for kind in ("float", "double")},
    }
    columns = ", ".join(f"`{name}`: {kind}" for name, (kind, _, _) in forms.items())
    schema = f"op string, after struct<id: bigint, {columns}>, kafka struct<partition: int, offset: bigint>"
    stored = refined_table(
        **{
            "table": "silver/forms",
            "from": CHANGES,
            "partition_by": None,
            "mode": {"upsert": {"keys": ["id"], "envelope": "debezium", "unavailable_value": word}},
        }
    )
    portions: list[list[Any]] = [[form[n] for form in forms.values()] for n in (2, 1)]

    found = []
    for offset, values in enumerate([*portions, [None] * len(forms)]):
        lakeside.append([("u", (1, *values), (0, offset))], CHANGES, schema)
        lakeside.refine(stored)
        (row,) = lakeside.spark.read.format("delta").load(lakeside.uri(stored.table)).select(*forms).collect()
        found.append(row.asDict())

    assert found == [dict(zip(forms, portions[0], strict=True))] * 2 + [dict.fromkeys(forms)]


KEY, OTHER = "struct<id: bigint>", "struct<gone: string, id: bigint, name: string>"
BUILT = "SELECT op, source, before, kafka, named_struct('id', after.id, 'name', after.name) AS after FROM changes"


@pytest.mark.parametrize(
    ("before", "deleted", "message_key", "sql"),
    [
        (KEY, "NULL", '{"id": 1}', ""),
        (KEY, "NULL", '{"schema": {}, "payload": {"id": 1}}', ""),
        ("struct<id: int>", "named_struct('id', 1)", "", ""),
        (OTHER, "named_struct('gone', 'x', 'id', 1L, 'name', 'x')", "", ""),
        (KEY, "named_struct('id', 1L)", "", BUILT),
    ],
    ids=["message key", "message key with its schema", "narrower key", "other columns", "after built by sql"],
)
def test_before_and_after_may_have_different_columns(
    lakeside: Lakeside, before: str, deleted: str, message_key: str, sql: str
) -> None:
    """Pass: a delete takes the keys from where they are, and deletes its row alone."""
    rest = "op string, source struct<lsn: bigint>, kafka struct<partition: int, offset: bigint>"
    columns = f"message_key string, before {before}, after struct<id: bigint, name: string>, {rest}"
    lakeside.sql(f"CREATE TABLE {{t}} ({columns}) USING delta", CHANGES)
    for n, op, old, new in (
        (1, "c", "NULL", "named_struct('id', 1L, 'name', 'name 1')"),
        (2, "c", "NULL", "named_struct('id', 2L, 'name', 'name 2')"),
        (3, "d", deleted, "NULL"),
    ):
        place = f"named_struct('lsn', {n}L), named_struct('partition', 0, 'offset', {n}L)"
        values = f"'{message_key}', {old}, {new}, '{op}', {place}"
        lakeside.spark.sql(f"INSERT INTO delta.`{lakeside.uri(CHANGES)}` VALUES ({values})")
    people = refined_table(
        **{
            "table": "silver/people",
            "from": CHANGES,
            "partition_by": None,
            "sql": sql,
            "mode": {"upsert": {"keys": ["id"], "envelope": "debezium", "sequence_by": "source.lsn"}},
        }
    )

    lakeside.refine(people)

    assert [dict(row)["name"] for row in lakeside.rows("silver/people")] == ["name 2"]


@pytest.mark.parametrize(("sent", "read"), [("string", "unbase64(after.id)"), ("bigint", "timestamp_micros(after.id)")])
def test_a_key_that_sql_reads_in_after_alone_is_refused_because_no_delete_would_find_its_row(
    lakeside: Lakeside, sent: str, read: str
) -> None:
    """Procedure: a key that Connect's JSON has in another form, such as MySQL's BINARY(16); its insert and its delete.
    Pass: refused, and nothing is written; the way out of the refusal deletes the row, and no key that the message's
        key has in that other form.
    """
    values = "AP8=" if sent == "string" else 1_795_168_800_123_456
    kafka = "kafka struct<partition: int, offset: bigint>"
    changes = [("c", None, (values, "a"), (0, 0)), ("d", (values, "a"), None, (0, 1))]
    row = f"struct<id: {sent}, name: string>"
    lakeside.append(changes, CHANGES, f"op string, before {row}, after {row}, {kafka}")
    after = f"named_struct('id', {read}, 'name', after.name) AS after"
    before = f"named_struct('id', {read.replace('after', 'before')}) AS before"
    mode = {"upsert": {"keys": ["id"], "envelope": "debezium"}}
    fields: dict[str, Any] = {"table": "silver/read", "from": CHANGES, "partition_by": None, "mode": mode}

    with pytest.raises(QueryMistake, match="Make `before` in sql of the same values"):
        lakeside.refine(refined_table(**fields, sql=f"SELECT op, before, kafka, {after} FROM changes"))
    key = f"'{json.dumps({'id': values})}' AS message_key"
    table = refined_table(**fields, sql=f"SELECT op, {before}, kafka, {key}, {after} FROM changes")
    lakeside.refine(table)

    assert not lakeside.rows(table.table)
    assert len(lakeside.rows(f"{table.table}_deletes")) == 1


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_column_that_the_source_gains_is_a_column_of_the_table(lakeside: Lakeside, scd_type: int) -> None:
    """Pass: the next refinement computes all rows with it, and says why."""
    people = table(scd_type=scd_type)
    kafka = "op string, source struct<lsn: bigint>, kafka struct<partition: int, offset: bigint>"
    lakeside.append([((1, "a"), "c", (1,), (0, 0))], CHANGES, f"after struct<id: bigint, name: string>, {kafka}")
    lakeside.refine(people)
    lakeside.sql("ALTER TABLE {t} ADD COLUMNS (after.city string)", CHANGES)
    gained = f"after struct<id: bigint, name: string, city: string>, {kafka}"
    lakeside.append([((1, "a", "Athens"), "u", (2,), (0, 1))], CHANGES, gained)

    report = lakeside.refine(people)

    assert (report.kind, report.why) == ("rebuild", "the rows have other columns: city string is new")
    newest = [dict(row) for row in lakeside.rows(people.table) if scd_type == 1 or dict(row)["valid_to"] is None]
    assert [(row["id"], row["city"]) for row in newest] == [(1, "Athens")]


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_change_without_op_is_a_state(lakeside: Lakeside, scd_type: int) -> None:
    """Pass: the newest row is there; a row of which nothing says whether it is deleted would be lost."""
    changes = [Change(op, None, person(id=1, name=op), n, 0, n).values for n, op in enumerate(("c", "u"))]
    lakeside.append([changes[0], (None, *changes[1][1:])], CHANGES, SCHEMA)

    lakeside.refine(table(scd_type=scd_type))

    found = [dict(row) for row in lakeside.rows(table(scd_type=scd_type).table)]
    assert sorted(row["name"] for row in found) == (["u"] if scd_type == 1 else ["c", "u"])


def test_a_delete_without_any_key_is_refused(lakeside: Lakeside) -> None:
    lakeside.append([Change("d", None, None, 1, 0, 0).values], CHANGES, SCHEMA)

    with pytest.raises(NullKeys):
        lakeside.refine(table())


def test_changes_in_connects_wrapper_are_the_same_changes(lakeside: Lakeside) -> None:
    wrapped = "payload struct<op: string, after: struct<id: bigint, name: string>, source: struct<lsn: bigint>>"
    rows = [(("c", (1, "a"), (1,)), (0, 0)), (("u", (1, "b"), (2,)), (0, 1))]
    lakeside.append(rows, CHANGES, f"{wrapped}, kafka struct<partition: int, offset: bigint>")

    lakeside.refine(table())

    assert [(dict(row)["id"], dict(row)["name"]) for row in lakeside.rows("silver/by_id_1")] == [(1, "b")]
