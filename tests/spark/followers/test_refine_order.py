"""The order of changes: the higher sequence, then the later in Kafka; where neither decides, a refusal by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine import envelope
from kdi_assets.follow.refine.row_errors import NullKeys, OrderUnknown, QueryMistake, SequenceOfTwoTopics
from kdi_assets.follow.refine.topics import TopicsOfRows
from tests.refined import Lakeside, refined_table

DAY = date(2026, 1, 1)
CHANGES = "bronze/changes"
COLUMNS = "id bigint, name string, op string, at bigint, kafka struct<partition: int, offset: bigint>"
Row = tuple[Any, ...]


def upserted(**fields: Any) -> RefinedTableSpec:
    given = {"keys": ["id"], "apply_as_deletes": "op = 'd'", "column_list": ["id", "name"], **fields}
    given = {name: value for name, value in given.items() if value is not None}
    return refined_table(**{"table": "silver/state", "from": CHANGES, "partition_by": None, "mode": {"upsert": given}})


def change(name: str | None, *, at: int = 0, partition: int = 0, offset: int, op: str = "u", id: int | None = 1) -> Row:
    return (id, name, op, at, (partition, offset))


def add(lakeside: Lakeside, *changes: Row) -> None:
    lakeside.append(changes, CHANGES, COLUMNS)


def names(lakeside: Lakeside) -> list[Any]:
    return sorted(str(dict(row)["name"]) for row in lakeside.rows("silver/state").elements())


@pytest.mark.parametrize("scd_type", [1, 2])
def test_of_changes_with_one_sequence_the_later_in_kafka_counts(lakeside: Lakeside, scd_type: int) -> None:
    """Purpose: the changes of one transaction have one time; neither their text nor their kind says which was last.
    Procedure: delete and re-insert, and two updates whose texts sort the other way; then an earlier one again.
    Pass: what came last is the newest state, and what was sent twice changes nothing.
    """
    table = upserted(sequence_by="at", scd_type=scd_type)
    first = [change("new", at=1, offset=0, id=1), change("z", at=1, offset=1, id=2)]
    tied = [change(None, at=9, offset=2, op="d"), change("again", at=9, offset=3), change("b", at=9, offset=4, id=2)]
    for changes in (first, tied, [change("a", at=9, offset=5, id=2)], [change("z", at=1, offset=6, id=2)]):
        add(lakeside, *changes)
        lakeside.refine(table)

        lakeside.assert_as_computed_at_once(table)
    newest = ["a", "again"] if scd_type == 1 else ["a", "again", "new", "z"]
    assert names(lakeside) == newest


@pytest.mark.parametrize("scd_type", [1, 2])
def test_one_sequence_in_two_topic_partitions_has_no_order_and_is_refused(lakeside: Lakeside, scd_type: int) -> None:
    """Pass: the refusal names a key, and nothing is committed; two changes that say the same are no conflict."""
    table = upserted(sequence_by="at", scd_type=scd_type)
    add(lakeside, change("a", at=1, offset=5), change("a", at=1, partition=1, offset=0, id=1))
    lakeside.refine(table)
    add(lakeside, change("b", at=2, partition=1, offset=1))
    lakeside.refine(table)
    before = lakeside.rows(table.table)

    add(lakeside, change("c", at=2, offset=6))
    with pytest.raises(OrderUnknown, match=r'"id":1'):
        lakeside.refine(table)

    assert lakeside.rows(table.table) == before


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_change_that_comes_after_the_delete_of_its_own_time_finds_its_place_before_it(
    lakeside: Lakeside, scd_type: int
) -> None:
    """Purpose: the end of a span shows a delete and not where it lies, which is recorded beside the table.
    Procedure: an update at offset 2 is a dead letter, and its delete, of one transaction, is refined; replay it.
    Pass: nothing is refused, and the row stays deleted.
    """
    table = upserted(sequence_by="at", scd_type=scd_type)
    add(lakeside, change("a", at=10, offset=1), change("other", at=10, offset=9, id=2))
    lakeside.refine(table)
    add(lakeside, change(None, at=20, offset=3, op="d"))
    lakeside.refine(table)

    add(lakeside, change("b", at=20, offset=2))
    lakeside.refine(table)

    assert names(lakeside) == (["other"] if scd_type == 1 else ["a", "other"])
    lakeside.assert_as_computed_at_once(table)


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.parametrize("deleted_first", [False, True])
def test_without_a_sequence_a_key_in_two_topic_partitions_is_refused_and_a_sequence_helps(
    lakeside: Lakeside, scd_type: int, *, deleted_first: bool
) -> None:
    """Purpose: a topic gets partitions, keys move, and the newer change has the lower offset.
    Procedure: a change at offset 20 of one topic partition, in another refinement one at offset 0 of another one; the
    key's row is there, or only its delete is remembered.
    Pass: refused, by name; with ``sequence_by`` the newer one counts.
    """
    table = upserted(scd_type=scd_type)
    add(lakeside, change("old", at=1, offset=20), change("other", at=1, offset=21, id=2))
    if deleted_first:
        add(lakeside, change(None, at=2, offset=22, op="d"))
    lakeside.refine(table)
    add(lakeside, change("new", at=3, partition=1, offset=0))

    with pytest.raises(OrderUnknown, match=r'"id":1'):
        lakeside.refine(table)
    lakeside.refine(upserted(sequence_by="at", scd_type=scd_type))

    assert names(lakeside)[0] == "new"
    if scd_type == 1:
        assert names(lakeside) == ["new", "other"]


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.parametrize("sequence_by", ["kafka.offset", "at"])
def test_changes_of_one_message_are_ordered_by_their_number_in_it(
    lakeside: Lakeside, monkeypatch: pytest.MonkeyPatch, sequence_by: str, scd_type: int
) -> None:
    """Purpose: an array of changes is one message, whose rows have one offset; the last row that Spark reads is none.
    Procedure: two changes of one message, the later one first, by a release that does not know the number; then more.
    Pass: all rows are computed again, and say why; the later change of each message counts, then and in the next run.
    """
    columns = COLUMNS.replace("offset: bigint", "offset: bigint, index: int, count: int")

    def message(offset: int, *names: str) -> list[Row]:
        at = [(1, name, "u", offset, (0, offset, n, len(names))) for n, name in enumerate(names)]
        return at[::-1]

    table = upserted(sequence_by=sequence_by, scd_type=scd_type)
    lakeside.append(message(0, "only"), CHANGES, columns)
    with monkeypatch.context() as earlier:
        earlier.setattr(envelope, "PLACE", {"partition": "int", "offset": "bigint"})
        lakeside.refine(table)
    lakeside.append(message(1, "created", "paid"), CHANGES, columns)
    again = lakeside.refine(table)
    found = names(lakeside)
    lakeside.append(message(2, "sent", "lost", "found"), CHANGES, columns)
    lakeside.refine(table)

    assert again.kind == "rebuild"
    assert "sequence_at" in again.why
    assert found == (["paid"] if scd_type == 1 else ["only", "paid"])
    assert names(lakeside)[0] == "found"
    lakeside.assert_as_computed_at_once(table)


def test_deletes_that_a_release_without_numbers_recorded_are_recorded_again_with_the_rows(
    lakeside: Lakeside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: a delete is recorded without its number; then a row upstream changes, and a change older than the
    delete arrives.
    """
    table, columns = upserted(sequence_by="at"), COLUMNS.replace("offset: bigint", "offset: bigint, index: int")
    lakeside.append([(1, "a", "u", 1, (0, 0, 0)), (2, None, "d", 5, (0, 1, 0))], CHANGES, columns)
    with monkeypatch.context() as earlier:
        earlier.setattr(envelope, "PLACE", {"partition": "int", "offset": "bigint"})
        lakeside.refine(table)
    lakeside.sql("UPDATE {t} SET name = 'b' WHERE id = 1", CHANGES)
    again = lakeside.refine(table)
    lakeside.append([(2, "late", "u", 2, (0, 2, 0))], CHANGES, columns)
    lakeside.refine(table)

    assert again.kind == "rebuild"
    assert names(lakeside) == ["b"]
    lakeside.assert_as_computed_at_once(table)


@pytest.mark.parametrize("sequence_by", [None, "at"])
def test_changes_of_one_message_without_a_number_are_refused_unless_they_say_the_same(
    lakeside: Lakeside, sequence_by: str | None
) -> None:
    """Pass: equal ones are one change; of different ones a key is named; an index that sql gives them helps."""
    table = upserted(sequence_by=sequence_by)
    add(lakeside, change("a", offset=0), change("a", offset=0))
    lakeside.refine(table)
    add(lakeside, change("b", at=1, offset=1), change("c", at=1, offset=1), change("d", at=2, offset=2, id=2))

    with pytest.raises(OrderUnknown, match=r'"id":1'):
        lakeside.refine(table)
    numbered = "SELECT id, name, op, at, struct(kafka.partition, kafka.offset, ascii(name) AS index) AS kafka"
    lakeside.refine(replace(table, sql=f"{numbered} FROM changes"))

    assert names(lakeside) == ["c", "d"]


@pytest.mark.parametrize("sequence_by", ["coalesce(kafka.offset, -1)", "`kafka`.`offset`"])
def test_an_offset_in_another_form_orders_the_changes_of_one_topic_partition_alone(
    lakeside: Lakeside, sequence_by: str
) -> None:
    """Purpose: rows of a table that was taken over have no coordinates, and their place is said by coalesce.
    Pass: such a row is older than all others of its key; a key in two topic partitions is refused.
    """
    table = upserted(sequence_by=sequence_by, apply_as_deletes=None)
    old = [] if sequence_by.startswith("`") else [(1, "old", "u", 0, None), (2, "kept", "u", 0, None)]
    add(lakeside, *old, change("new", offset=20))
    lakeside.refine(table)
    before = names(lakeside)

    add(lakeside, change("newer", at=1, partition=1, offset=0))
    with pytest.raises(OrderUnknown, match=r'"id":1'):
        lakeside.refine(table)

    assert before == (["kept", "new"] if old else ["new"]) == names(lakeside)


@pytest.mark.parametrize("passed_on_before", [True, False], ids=["", "an earlier release"])
@pytest.mark.parametrize(
    ("mode", "by_time"),
    [
        ("upsert", {"sequence_by": "struct(at, kafka.offset)"}),
        ("deduplicate", {"order_by": "struct(at, kafka.offset)"}),
    ],
)
def test_offsets_of_two_topics_are_no_order_also_in_a_table_that_is_made_of_a_refined_one(
    lakeside: Lakeside, monkeypatch: pytest.MonkeyPatch, mode: str, by_time: dict[str, str], *, passed_on_before: bool
) -> None:
    """Purpose: a topic that was made again begins at offset 0, and no row says of which topic it is.
    Procedure: a stream's table, one made of it, and one made of that; the first two commits may be of a release that
    did not pass topics on; then a change of the new topic.
    Pass: refused by name, and nothing is committed; with another order the rows are there. One topic is no reason.
    """
    columns = f"{COLUMNS}, date date"
    middle = refined_table(**{"table": "silver/changes", "from": CHANGES})
    given = {"table": "gold/state", "from": middle.table, "partition_by": "date"}
    by_offset = refined_table(**given, mode={mode: {"keys": ["id"]}})
    with monkeypatch.context() as earlier:
        if not passed_on_before:
            earlier.setattr(TopicsOfRows, "transactions", lambda *_: {})
        for offset in (1000, 1001):
            lakeside.append([(*change("old", at=offset, offset=offset), DAY)], CHANGES, columns, txn="web|topic|one")
            lakeside.refine(middle)
            lakeside.refine(by_offset)
    before = lakeside.rows(by_offset.table)

    lakeside.append([(*change("new", at=2000, offset=3), DAY)], CHANGES, columns, txn="web|topic|two")
    lakeside.refine(middle)
    with pytest.raises(SequenceOfTwoTopics, match="come from two topics of one name"):
        lakeside.refine(by_offset)
    assert lakeside.rows(by_offset.table) == before
    lakeside.refine(refined_table(**given, mode={mode: {"keys": ["id"], **by_time}}))

    newest = {dict(row)["name"] for row in lakeside.rows("gold/state").elements()}
    assert newest == ({"new"} if mode == "upsert" else {"old"})


def test_rows_of_kinesis_are_ordered_by_their_own_offset(lakeside: Lakeside) -> None:
    """Pass: by default the first row of a key is kept, the last change of a key holds, and two shards have no order."""
    columns = COLUMNS.replace("kafka", "kinesis") + ", date date"
    first = refined_table(**{"table": "silver/first", "from": CHANGES, "mode": {"deduplicate": {"keys": ["id"]}}})
    lakeside.append([(*change("b", offset=2), DAY), (*change("z", offset=1), DAY)], CHANGES, columns)
    lakeside.refine(upserted())
    lakeside.refine(first)
    lakeside.append([(*change("c", partition=1, offset=0), DAY)], CHANGES, columns)

    with pytest.raises(OrderUnknown, match=r'"id":1'):
        lakeside.refine(upserted())
    assert names(lakeside) == ["b"]
    assert [dict(row)["name"] for row in lakeside.rows(first.table).elements()] == ["z"]


def test_rows_without_coordinates_are_ordered_by_their_sequence_alone(lakeside: Lakeside) -> None:
    """Pass: equal rows are one change; of two different ones with one sequence the run says that it cannot know."""
    table = refined_table(
        **{
            "table": "silver/state",
            "from": CHANGES,
            "partition_by": None,
            "sql": "SELECT id, name, at FROM changes",
            "mode": {"upsert": {"keys": ["id"], "sequence_by": "at"}},
        }
    )
    add(lakeside, change("a", at=1, offset=0), change("a", at=1, offset=1), change("b", at=2, offset=2))
    lakeside.refine(table)
    assert names(lakeside) == ["b"]

    add(lakeside, change("c", at=2, offset=3))
    with pytest.raises(OrderUnknown, match="need the column kafka"):
        lakeside.refine(table)


@pytest.mark.parametrize(
    ("sequence", "refused"),
    [
        ("name", True),
        ("struct(at, name)", True),
        ("CAST(name AS decimal(38, 0))", False),
        ("lpad(name, 20, '0')", False),
        ("struct(at, lpad(name, 20, '0'))", False),
    ],
)
def test_a_sequence_of_text_is_refused_unless_it_is_cast_or_of_one_length(
    lakeside: Lakeside, sequence: str, *, refused: bool
) -> None:
    table = upserted(sequence_by=sequence)
    add(lakeside, change("9999998", offset=0), change("10000002", offset=1))

    if refused:
        with pytest.raises(QueryMistake, match="ordered by letters"):
            lakeside.refine(table)
        return
    lakeside.refine(table)
    assert names(lakeside) == ["10000002"]


@pytest.mark.parametrize("sequence", ["struct(at, {})", "struct(at, struct(id, {}))"])
def test_a_sequence_with_a_null_in_it_is_refused_until_the_null_has_a_place(lakeside: Lakeside, sequence: str) -> None:
    """Purpose: nulls come first, so by a null a newer change would lose without a word.
    Pass: refused by number, and nothing is committed; with the null last, the change is the newest one.
    """
    table = upserted(sequence_by=sequence.format("length(op)"))
    add(lakeside, change("a", at=1, offset=0))
    lakeside.refine(table)
    before = lakeside.version("silver/state")
    lakeside.append([(1, "b", None, 1, (0, 1))], CHANGES, COLUMNS)

    with pytest.raises(NullKeys, match="1 new rows have a null key or sequence"):
        lakeside.refine(table)
    assert lakeside.version("silver/state") == before
    lakeside.refine(upserted(sequence_by=sequence.format("coalesce(length(op), 9)")))

    assert names(lakeside) == ["b"]


@pytest.mark.parametrize("scd_type", [1, 2])
def test_changes_that_are_older_than_the_rows_are_counted(lakeside: Lakeside, scd_type: int) -> None:
    """Purpose: a sequence that began again, as of a database that moved, loses all changes without a word.
    Pass: report counts changes read, and those older than what the table or its deletes have; the newest ones are not.
    """
    table = upserted(sequence_by="at", scd_type=scd_type)
    add(lakeside, change("a", at=100, offset=0), change(None, at=200, offset=1, op="d", id=2))
    first = lakeside.refine(table)

    add(lakeside, change("b", at=3, offset=2), change("c", at=4, offset=3, id=2), change("d", at=5, offset=4, id=3))
    again = lakeside.refine(table)

    assert (first.changes, first.late_changes) == (0, 0)
    assert (again.changes, again.late_changes) == (3, 2)


def test_a_key_is_spelled_as_its_column(lakeside: Lakeside) -> None:
    add(lakeside, change("a", offset=0))

    with pytest.raises(QueryMistake, match="no column is called ID; the column is called id"):
        lakeside.refine(upserted(keys=["ID"], column_list=[]))


@pytest.mark.parametrize("sequence_by", ["at", "kafka.offset"])
def test_changes_without_a_key_are_refused_as_such_whatever_their_order(lakeside: Lakeside, sequence_by: str) -> None:
    """Procedure: changes of no key, of two topic partitions, which say different things at the same time.
    Pass: the refusal says how many have no key, and nothing of an order; nothing is committed.
    """
    table = upserted(sequence_by=sequence_by, apply_as_deletes=None)
    add(lakeside, change("a", at=1, offset=0))
    lakeside.refine(table)
    before = lakeside.version("silver/state")

    add(lakeside, *(change(name, at=2, partition=n, offset=1, id=None) for n, name in enumerate("bc")))
    with pytest.raises(NullKeys, match="2 new rows have a null key"):
        lakeside.refine(table)

    assert lakeside.version("silver/state") == before
