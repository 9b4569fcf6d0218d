"""The audit: what it finds after any change to a table, in parts of a table, and against Kafka."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import typer
from deltalake import DeltaTable, write_deltalake

from kdi_assets.cli.streams.audit import audit_bounds
from kdi_assets.documents.model.stream import DateWindow, OffsetRange, Stream
from kdi_assets.streams.audit import audit as account
from kdi_assets.streams.audit import offsets_in_spark as offsets
from kdi_assets.streams.audit.audit import AuditReport, audit, audited_history
from kdi_assets.streams.audit.coverage import coverage
from kdi_assets.streams.audit.report import Hole
from kdi_assets.streams.ledger.history import LiveHistory
from kdi_assets.streams.replay.dead_letter_filter import DeadLetterFilter
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.rules.errors import SchemaDisagrees
from tests.broker.tables.audits import adds_up, both_ways
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import DrivenStream
from tests.tables.dead_letters import replayed, with_letters


@pytest.mark.core
def test_deleted_rows_are_reported_with_their_commit_and_are_missing_if_its_changes_cannot_be_read(
    driven: DrivenFactory,
) -> None:
    """Procedure: rows are deleted, one is updated, and letters are deleted; then the change files are removed as by
    VACUUM, and more rows are deleted.
    """
    web = driven(partitions=1)
    web.produce(100, tombstones=0.1, bad=0.1)
    web.drain()
    before = web.audit()
    DeltaTable(web.uri).delete("meta.kafka.offset IN (10, 11, 12)")
    web.session().sql(f"UPDATE delta.`{web.uri}` SET method = 'GET' WHERE meta.kafka.offset < 30")
    DeltaTable(web.stream.dead_letters_uri(web.lake)).delete("offset < 50")

    named = web.audit()
    rmtree(Path(web.uri) / "_change_data")
    DeltaTable(web.uri).delete("meta.kafka.offset = 60")
    unnamed = web.audit()

    rows, letters = named.deletions
    assert (named.complete, named.missing, adds_up(named)) == (True, 0, True)
    assert (rows.version, rows.operation, rows.what, rows.offsets) == (2, "DELETE", "rows", before.rows - named.rows)
    assert "offset" in rows.predicate
    assert (letters.what, letters.offsets) == ("dead letters", before.dead_letters - named.dead_letters)
    assert f"+ {named.deleted} deleted; none missing" in named.line()
    assert (unnamed.complete, unnamed.missing, adds_up(unnamed)) == (False, rows.offsets, True)
    assert [d.version for d in unnamed.deletions if d.what == "rows"] == [4]
    assert any(note.startswith("v2 DELETE (") and "can no longer be read" in note for note in unnamed.notes)


def test_missing_and_doubled_offsets_are_reported_with_the_commits_that_removed_or_added_them(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: an overwrite leaves rows out, an append adds others a second time; audit again, in stretches of 8
    offsets. In a copy, rows are deleted before others are added a second time.
    """
    web = driven(partitions=1)
    web.produce(60, tombstones=0.1)
    web.drain()
    before, deleted = web.audit(), web.copied(f"{web.lake}_deleted")
    rows = DeltaTable(web.uri).to_pyarrow_table()
    taken = len(rows) - len(rows.filter(kept := pc.invert(offsets_of(rows, 21, 23))))
    write_deltalake(web.uri, rows.filter(kept), mode="overwrite")
    write_deltalake(web.uri, rows.filter(offsets_of(rows, 40, 42)), mode="append")
    DeltaTable(deleted.uri).delete("meta.kafka.offset IN (10, 11)")
    write_deltalake(deleted.uri, rows.filter(offsets_of(rows, 40, 42)), mode="append")

    whole, beside = web.audit(), deleted.audit()
    monkeypatch.setattr(offsets, "BUCKET_BITS", 3)
    by_stretch = web.audit()

    assert by_stretch == whole
    assert (whole.complete, whole.missing, whole.tombstones) == (False, taken, before.tombstones)
    assert {(h.version, h.taken_by, h.operation) for h in whole.holes} == {(1, 2, "WRITE")}
    assert "removed by v2 WRITE" in whole.line()
    assert {d.versions for d in whole.doubles} == {(1, 3)}
    assert (beside.complete, beside.missing, beside.deleted) == (False, 0, before.rows - beside.rows + beside.twice)
    assert (beside.twice, {d.versions for d in beside.doubles}) == (whole.twice, {(1, 3)})
    assert adds_up(whole) and adds_up(beside)


def test_what_an_audit_that_is_not_complete_says_to_run_makes_it_complete(driven: DrivenFactory) -> None:
    """Procedure: an overwrite leaves rows out, an append adds others a second time; replay the dates of the latter.
    In a copy, insert the former from the version before the overwrite; in the table itself, rewind, and drain.
    """
    web = driven(partitions=1)
    produced = web.produce(60)
    web.drain()
    rows = DeltaTable(web.uri).to_pyarrow_table()
    write_deltalake(web.uri, rows.filter(pc.invert(offsets_of(rows, 21, 24))), mode="overwrite")
    write_deltalake(web.uri, rows.filter(offsets_of(rows, 40, 43)), mode="append")
    wrong = web.audit()

    dates = pc.unique(rows.filter(offsets_of(rows, 40, 43))["date"]).to_pylist()
    replay_dates(web.stream, lake=web.lake, session=web.session, first=min(dates), last=max(dates))
    no_doubles, inserted = web.audit(), web.copied(f"{web.lake}_inserted")
    older = f"SELECT * FROM delta.`{inserted.uri}` VERSION AS OF 1 WHERE meta.kafka.offset BETWEEN 21 AND 23"
    web.session().sql(f"INSERT INTO delta.`{inserted.uri}` {older}")
    web.resolve("rewind", topic_partition=web.tp(), to=21)
    web.drain()

    name = web.stream.name
    assert (wrong.missing, wrong.twice) == (3, 3)
    assert wrong.commands() == (
        f"kdi resolve {name} rewind --topic-partition {web.tp()} --to 21; then kdi drain {name}",
        f"kdi replay {name} --from DATE --to DATE --yes   (the dates of the rows that are there twice)",
    )
    assert (no_doubles.missing, no_doubles.twice) == (3, 0)
    assert inserted.audit().complete
    assert (web.audit().complete, web.audit().commands()) == (True, ())
    web.assert_each_offset_once(produced)


def test_a_table_that_a_drain_takes_over_needs_no_decision_and_its_audit_begins_where_the_other_writer_ended(
    driven: DrivenFactory,
) -> None:
    before = driven(partitions=1)
    before.produce(15)
    before.drain()
    before.as_another_writer("kafka_delta_ingest", last=14)
    web = before.with_definition(app_id="kafka_delta_ingest")
    with pytest.raises(NothingToResolve, match="a drain takes them over"):
        web.decide("adopt")
    web.produce(10, bad=0.2, seed=1)
    web.drain()

    complete = web.audit()
    DeltaTable(web.uri).delete("meta.kafka.offset = 3")
    before_us = web.audit()
    rows = DeltaTable(web.uri).to_pyarrow_table()
    last = web.rows("meta.kafka.offset")[-1]
    write_deltalake(web.uri, rows.filter(offsets_of(rows, 0, last)), mode="overwrite")
    ours = web.audit()

    assert (complete.complete, complete.offsets) == (True, 10)
    assert complete.notes == ("audited from the takeover at v3 on",)
    assert (before_us.complete, before_us.deletions) == (True, ())  # not ours to judge
    assert [(h.range.start, h.range.end, h.taken_by) for h in ours.holes] == [(last, last + 1, 6)]


@also_on_s3
@pytest.mark.parametrize("in_spark", [False, True])
def test_an_audit_during_a_drain_sees_one_version(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch, in_spark: bool
) -> None:
    """Procedure: after the audit has read the history, a drain writes its letters, the audit runs, and the drain
    commits.
    """
    web = driven(partitions=1)
    web.produce(30, bad=0.2, seed=1)
    web.drain()
    web.produce(30, bad=0.2, seed=2)
    within: list[AuditReport] = []

    def drained_meanwhile(stream: Stream, lake: str) -> LiveHistory:
        history = audited_history(stream, lake)
        monkeypatch.setattr(account, "audited_history", audited_history)
        web.drain(at=lambda point: within.append(web.audit()) if point == "dead letters written" else None)
        return history

    if in_spark:
        monkeypatch.setattr(account, "count_without_spark", lambda *_: None)
    monkeypatch.setattr(account, "audited_history", drained_meanwhile)
    across = web.audit()

    seen = [(r.complete, r.version, r.offsets) for r in (*within, across, web.audit())]
    assert seen == [(True, 1, 30), (True, 1, 30), (True, 2, 60)]
    assert within[0].orphaned_dead_letters > 0  # letters of the drain that had not committed yet


def test_an_audit_without_spark_has_the_same_result_as_one_in_spark(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: all messages become dead letters; some are replayed; tombstones follow; columns are mapped; rows are
    deleted by deletion vectors, restored, and moved to other files.
    """
    web = with_letters(driven, 40)
    replayed(web, letter_filter=DeadLetterFilter(offsets=OffsetRange(web.tp(1), 5, 15)))
    reports = [both_ways(web, monkeypatch)]
    web.produce(40, bad=0.2, tombstones=0.1, seed=1)
    web.drain()
    reports.append(both_ways(web, monkeypatch))
    spark, table = web.session(), f"delta.`{web.uri}`"
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    for name, value in properties.items():
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{name}' = '{value}')")
    version = web.version()
    spark.sql(f"DELETE FROM {table} WHERE meta.kafka.offset IN (21, 22)")
    deleted = web.audit()
    spark.sql(f"RESTORE {table} TO VERSION AS OF {version}")
    spark.sql(f"OPTIMIZE {table}")
    reports.append(both_ways(web, monkeypatch))

    assert [r.offsets for r in reports] == [40, 80, 80]
    assert all(r.complete and adds_up(r) for r in reports)
    assert deleted.complete and deleted.deleted and adds_up(deleted)


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GOOD = '{"meta": {"producer": {"timestamp": "2026-03-01T12:00:00Z"}}, "status": 200, "url": "http://a.b/"}'


def audited(
    web: DrivenStream, *, only: int | None = None, start: str | None = None, end: str | None = None
) -> AuditReport:
    """The report of `kdi audit --partition … --from … --to …`."""
    tp = None if only is None else web.tp(only)
    whole = coverage(audited_history(web.stream, web.lake).entries).bounds()
    bounds = audit_bounds(web.stream, tp, start, end, whole)
    return audit(web.stream, lake=web.lake, session=web.session, bounds=bounds)


def publish(web: DrivenStream, values: list[str | None], *, partition: int = 0) -> None:
    """One message a minute from noon on."""
    for number, value in enumerate(values):
        web.send(value, partition=partition, timestamp=NOON + timedelta(minutes=number))


def test_bounds_cut_ranges_by_offset_and_note_what_is_known_only_by_its_count(driven: DrivenFactory) -> None:
    """Procedure: audits of parts of a table; then an overwrite leaves rows of one topic partition out."""
    web = driven(partitions=2)
    publish(web, [GOOD, "bad", None, GOOD, GOOD, None, GOOD, "bad"])
    publish(web, [GOOD] * 6, partition=1)
    web.drain()

    cut = audited(web, only=0, start="1", end="6")
    one = audited(web, only=1)
    by_time = audited(web, start="2026-03-01T12:02:00Z", end="2026-03-01T13:04:00+01:00")
    rows = DeltaTable(web.uri).to_pyarrow_table()
    second = pc.equal(pc.struct_field(rows["meta"], ["kafka", "partition"]), 1)
    kept = pc.invert(pc.and_(second, offsets_of(rows, 4, 6)))
    write_deltalake(web.uri, rows.filter(kept), mode="overwrite")
    inside, outside = audited(web, only=1, end="4"), audited(web, only=1, start="4")

    assert (cut.complete, cut.offsets, cut.rows, cut.dead_letters, cut.tombstones) == (True, 5, 2, 1, 2)
    assert cut.notes[0] == f"only {web.tp()} [1, 6)"
    assert any("known only by their count" in note for note in cut.notes)
    assert (one.complete, one.offsets, one.rows, len(one.notes)) == (True, 6, 6, 1)
    assert (by_time.complete, by_time.offsets, by_time.rows, by_time.tombstones) == (True, 4, 3, 1)
    assert all(adds_up(r) for r in (cut, one, by_time))
    assert (inside.complete, inside.offsets, outside.complete, outside.missing) == (True, 4, False, 2)

    for said, asked in {
        "was never drained": {"only": 7},
        "no offset of": {"only": 0, "start": "8"},
        "needs --partition": {"start": "1"},
        "has no time zone": {"start": "2026-03-01T12:00:00"},
        "is not a timestamp": {"end": "yesterday"},
    }.items():
        with pytest.raises(typer.BadParameter, match=said):
            audited(web, **asked)  # type: ignore[arg-type]


DEEP: dict[str, Any] = {
    "record_ddl": "id bigint, tags map<string, array<struct<a: int, b: timestamp>>>, price double, at date",
    "columns": {"half": "id / 2"},
    "date_expression": "at",
    "coordinates": "kafka",
}


def deep(number: int) -> str:
    tags = {"x": [{"a": number, "b": "2026-03-01T12:00:00.123456Z"}, {"a": None}], "y": []}
    return json.dumps({"id": number, "tags": tags, "price": number / 3, "at": f"2026-03-0{1 + number % 3}"})


@also_on_s3
def test_rows_dead_letters_and_tombstones_agree_with_the_messages_in_kafka(driven: DrivenFactory) -> None:
    web = driven(partitions=2, **DEEP)
    web.send(*map(deep, range(12)), None, "bad", None)
    web.send("also bad", key="k", headers=[("h", b"\x00\xff"), ("n", None)], partition=1)
    web.drain()

    agreed = web.compare()
    later = web.with_definition(date_window=DateWindow(start=date(2026, 3, 2))).compare()
    DeltaTable(web.uri).delete("id < 2")
    deleted = web.compare()

    assert (agreed.messages, agreed.agreed, agreed.agrees) == (16, 16, True)
    assert agreed.ranges == (OffsetRange(web.tp(0), 0, 15), OffsetRange(web.tp(1), 0, 1))
    assert later.agrees  # the date window has moved on; the rows are still what the messages say
    assert (deleted.agreed, deleted.agrees) == (16, True)


def test_changed_and_absent_messages_are_reported_with_the_commit_that_drained_them(driven: DrivenFactory) -> None:
    """Procedure: compare by another document; update rows and a letter; then an overwrite leaves rows out."""
    web = driven(partitions=1, **DEEP)
    for values in ([*map(deep, range(5)), "bad"], map(deep, range(5, 8))):
        web.send(*values)
        web.drain()

    other = web.with_definition(columns={"half": "id / 4"}).compare()
    with pytest.raises(SchemaDisagrees):
        web.with_definition(columns={"half": "id / 4", "third": "id / 3"}).compare()
    spark = web.session()
    spark.sql(f"UPDATE delta.`{web.uri}` SET price = price + 1e-9 WHERE id IN (3, 4)")
    moment = "timestamp'2026-03-01 12:00:00.123457Z'"
    spark.sql(
        f"UPDATE delta.`{web.uri}` SET tags = map('x', array(named_struct('a', 6, 'b', {moment}), "
        "named_struct('a', NULL, 'b', NULL)), 'y', array()) WHERE id = 6"
    )
    DeltaTable(web.stream.dead_letters_uri(web.lake)).update(updates={"value": "CAST('other' AS BYTEA)"})
    report, comparison = web.audit(), web.compare()
    rows = DeltaTable(web.uri).to_pyarrow_table()
    write_deltalake(web.uri, rows.filter([i.as_py() not in (0, 1) for i in rows["id"]]), mode="overwrite")
    overwritten = web.compare()

    assert (other.changed, other.agreed) == (7, 2)  # of 0 both are 0
    assert any("definition" in note for note in other.notes)
    assert report.complete  # every offset is there, once
    assert (comparison.changed, comparison.agreed, comparison.absent) == (4, 5, 0)
    assert places(comparison.changed_at) == [(3, 6, 1), (7, 8, 2)]
    assert any("v3 UPDATE, v4 UPDATE" in note for note in comparison.notes)
    assert "4 changed" in comparison.line()
    assert (overwritten.absent, overwritten.changed) == (2, 4)
    assert places(overwritten.absent_at) == [(0, 2, 1)]


def places(holes: Sequence[Hole]) -> list[tuple[int, int, int]]:
    return [(at.range.start, at.range.end, at.version) for at in holes]


def offsets_of(rows: pa.Table, start: int, end: int) -> pa.Array:
    """The rows with an offset in ``[start, end)``."""
    offsets = pc.struct_field(rows["meta"], ["kafka", "offset"])
    return pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
