"""The audit: what it can tell of a table, whatever happened to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.drain.resolve import carry_out_decision, decide
from kdi_assets.ledger import offsets
from kdi_assets.ledger.audit import AuditReport, audit
from kdi_assets.stream import TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.core
def test_rows_that_someone_deleted_are_named_with_the_commit_and_not_called_missing(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(100, tombstones=0.1, bad=0.1)
    web.drain()

    DeltaTable(web.uri).delete("meta.kafka.offset IN (10, 11, 12)")
    web.session().sql(f"UPDATE delta.`{web.uri}` SET method = 'GET' WHERE meta.kafka.offset < 30")
    report = web.audit()

    [deletion] = report.deletions
    assert report.complete
    assert (deletion.version, deletion.operation, deletion.by_count) == (2, "DELETE", False)
    assert "offset" in deletion.predicate
    assert (report.deleted, report.missing) == (deletion.offsets, 0)
    assert adds_up(report)
    assert f"+ {report.deleted} deleted; none missing" in report.line()


@pytest.mark.core
def test_the_audit_names_what_is_twice_with_the_commits_that_added_it(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(100)
    web.drain()
    DeltaTable(web.uri).delete("meta.kafka.offset IN (10, 11)")
    some = DeltaTable(web.uri).to_pyarrow_table()

    write_deltalake(web.uri, some.filter(offsets_of(some, 50, 52)), mode="append")
    report = web.audit()

    assert not report.complete
    assert (report.deleted, report.missing, report.holes) == (2, 0, ())
    assert [(d.range.start, d.range.end, d.versions) for d in report.doubles] == [(50, 52, (1, 3))]
    assert adds_up(report)


def test_rows_that_an_overwrite_took_are_missing_and_both_commits_are_named(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(40, tombstones=0.1)
    web.drain()
    before = web.audit()
    kept = DeltaTable(web.uri).to_pyarrow_table()

    write_deltalake(web.uri, kept.filter(offsets_of(kept, 0, 30)), mode="overwrite")
    report = web.audit()

    assert not report.complete
    assert {(h.version, h.taken_by, h.operation) for h in report.holes} == {(1, 2, "WRITE")}
    assert {h.range.start for h in report.holes} >= {30} or report.holes[0].range.start > 30
    assert report.missing == before.rows - report.rows
    assert report.tombstones == before.tombstones
    assert adds_up(report)
    assert "taken away by v2 WRITE" in report.line()


def test_only_stretches_that_differ_are_looked_at_and_nothing_in_them_is_overlooked(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = driven(partitions=1)
    web.produce(60, tombstones=0.1)
    web.drain()
    rows = DeltaTable(web.uri).to_pyarrow_table()
    kept = pc.invert(offsets_of(rows, 21, 23))
    write_deltalake(web.uri, rows.filter(kept), mode="overwrite")
    write_deltalake(web.uri, rows.filter(offsets_of(rows, 40, 42)), mode="append")

    whole = web.audit()
    monkeypatch.setattr(offsets, "BUCKET_BITS", 3)
    by_stretch = web.audit()

    assert (whole.missing > 0, whole.twice > 0, adds_up(whole)) == (True, True, True)
    assert by_stretch == whole


def test_deletions_whose_changes_are_gone_are_explained_by_their_own_count_alone(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(40, tombstones=0.1)
    web.drain()
    DeltaTable(web.uri).delete("meta.kafka.offset IN (10, 11, 12)")

    rmtree(Path(web.uri) / "_change_data")  # as VACUUM does
    explained = web.audit()
    DeltaTable(web.uri).delete("meta.kafka.offset >= 30")
    named_too = web.audit()

    assert explained.complete
    assert [d.by_count for d in explained.deletions] == [True]
    assert any("its own count" in note for note in explained.notes)
    assert adds_up(explained)
    assert named_too.complete
    assert [(d.version, d.by_count) for d in named_too.deletions] == [(3, False), (2, True)]


def test_what_the_count_of_a_deletion_does_not_explain_is_missing(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(40)
    web.drain()
    DeltaTable(web.uri).delete("meta.kafka.offset IN (10, 11, 12)")
    kept = DeltaTable(web.uri).to_pyarrow_table()
    write_deltalake(web.uri, kept.filter(offsets_of(kept, 0, 38)), mode="overwrite")

    rmtree(Path(web.uri) / "_change_data")
    report = web.audit()

    assert not report.complete
    assert report.missing == 2
    assert adds_up(report)


def test_dead_letters_that_someone_deleted_are_named(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(60, bad=0.2)
    web.drain()
    letters = DeltaTable(web.stream.dead_letters_uri(web.lake))
    count = letters.to_pyarrow_table().num_rows

    letters.delete("offset < 30")
    report = web.audit()

    [deletion] = report.deletions
    assert report.complete
    assert (deletion.what, deletion.offsets) == ("dead letters", count - report.dead_letters)
    assert adds_up(report)


def test_the_audit_after_a_rewind_names_what_is_there_twice(driven: DrivenFactory) -> None:
    """Procedure: positions are set back as an older release did, which let rows stay and did not replace them."""
    web = driven(partitions=1)
    web.produce(30)
    web.drain()

    rewind(web, 20, rows_until={})
    web.drain()
    report = web.audit()

    assert not report.complete
    assert (report.holes, report.twice) == ((), 10)
    assert [(d.range.start, d.range.end, d.versions) for d in report.doubles] == [(20, 30, (1, 3))]
    assert report.notes == (f"v2 set {web.stream.topic}/0 back from 30 to 20",)
    assert adds_up(report)


def test_the_audit_is_complete_after_a_rewind_over_rows_that_were_removed(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    produced = web.produce(40, tombstones=0.2)
    web.drain()
    DeltaTable(web.uri).delete("meta.kafka.offset >= 20")
    removed = web.audit()

    rewind(web, 20)
    rewound = web.audit()
    web.drain()
    drained = web.audit()

    assert [d.version for d in removed.deletions] == [2]
    assert [(r.complete, r.offsets, r.deleted) for r in (removed, rewound, drained)] == [
        (True, 40, removed.deleted),
        (True, 40, removed.deleted),  # what became of them stands until they are drained again
        (True, 40, 0),
    ]
    assert drained.tombstones == removed.tombstones
    assert all(adds_up(r) for r in (removed, rewound, drained))
    web.assert_each_offset_once(produced)


def test_the_audit_of_a_table_that_was_taken_over_begins_where_the_other_writer_ended(driven: DrivenFactory) -> None:
    before = driven(partitions=1)
    before.produce(15)
    before.drain()
    before.as_another_writer("kafka_delta_ingest", last=14)
    web = before.with_definition(app_id="kafka_delta_ingest")
    web.produce(10, bad=0.2, seed=1)
    web.drain()

    complete = web.audit()
    DeltaTable(web.uri).delete("meta.kafka.offset = 3")
    before_us = web.audit()
    rows = DeltaTable(web.uri).to_pyarrow_table()
    last = max(row["meta"]["kafka"]["offset"] for row in web.found().rows)
    write_deltalake(web.uri, rows.filter(offsets_of(rows, 0, last)), mode="overwrite")
    ours = web.audit()

    assert (complete.complete, complete.offsets) == (True, 10)
    assert complete.notes == ("audited from the takeover at v3 on",)
    assert (before_us.complete, before_us.deletions) == (True, ())  # of another's rows the ledger cannot speak
    assert [(h.range.start, h.range.end, h.taken_by) for h in ours.holes] == [(last, last + 1, 6)]


def test_an_audit_during_a_drain_sees_one_version(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(30, bad=0.2, seed=1)
    web.drain()
    web.produce(30, bad=0.2, seed=2)
    within: list[AuditReport] = []

    def drained_meanwhile() -> SparkSession:
        web.drain(at=lambda point: within.append(web.audit()) if point == "dead letters written" else None)
        return web.session()

    across = audit(web.stream, lake=web.lake, session=drained_meanwhile)

    seen = [(r.complete, r.version, r.offsets) for r in (*within, across, web.audit())]
    assert seen == [(True, 1, 30), (True, 1, 30), (True, 2, 60)]
    assert within[0].ghosts > 0  # letters of the drain that had not committed yet


def rewind(web: DrivenStream, to: int, **otherwise: Any) -> None:
    only = TopicPartition(web.stream.topic, 0)
    decision = decide(web.stream, web.lake, "rewind", topic_partition=only, to=to, session=web.session)
    carry_out_decision(web.session(), replace(decision, **otherwise), web.stream, web.lake)


def offsets_of(rows: pa.Table, start: int, end: int) -> pa.Array:
    """Which of the rows have an offset in ``[start, end)``."""
    offsets = pc.struct_field(rows["meta"], ["kafka", "offset"])
    return pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))


def adds_up(report: AuditReport) -> bool:
    """Every offset is one thing, and what is there beyond that is twice."""
    kept = report.became_rows + report.dead_letters + report.tombstones + report.filtered + report.gaps
    kept += report.declared_losses
    return report.offsets + report.twice == kept + report.deleted + report.missing
