"""The audit: what it can tell of a table, whatever happened to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import TYPE_CHECKING

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


def copied(web: DrivenStream, name: str) -> DrivenStream:
    """The same stream over a copy of its tables."""
    copy = replace(web, lake=f"{web.lake}_{name}")
    copytree(web.lake, copy.lake)
    return copy


@pytest.mark.core
def test_what_someone_removed_is_named_with_its_commit_and_missing_once_nobody_can_say_which_rows(
    driven: DrivenFactory,
) -> None:
    """Procedure: rows are deleted, one is updated, and letters are deleted; then the change files are removed as VACUUM
    does it, and more rows are deleted.
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


@pytest.mark.core
def test_what_is_missing_or_twice_is_named_with_the_commits_that_took_or_added_it(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: an overwrite leaves rows out, an append brings others a second time; audit again, by stretches of 8
    offsets. In a copy rows are deleted before others come a second time.
    """
    web = driven(partitions=1)
    web.produce(60, tombstones=0.1)
    web.drain()
    before, deleted = web.audit(), copied(web, "deleted")
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
    assert "taken away by v2 WRITE" in whole.line()
    assert {d.versions for d in whole.doubles} == {(1, 3)}
    assert (beside.complete, beside.missing, beside.deleted) == (False, 0, before.rows - beside.rows + beside.twice)
    assert (beside.twice, {d.versions for d in beside.doubles}) == (whole.twice, {(1, 3)})
    assert adds_up(whole) and adds_up(beside)


def test_the_audit_is_complete_after_a_rewind_over_rows_that_were_removed(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    produced = web.produce(40, tombstones=0.2)
    web.drain()
    DeltaTable(web.uri).delete("meta.kafka.offset >= 20")
    removed = web.audit()

    only = TopicPartition(web.stream.topic, 0)
    decision = decide(web.stream, web.lake, "rewind", topic_partition=only, to=20, session=web.session)
    carry_out_decision(web.session(), decision, web.stream, web.lake)
    rewound = web.audit()
    web.drain()
    drained = web.audit()

    assert [d.version for d in removed.deletions] == [2]
    assert [(r.complete, r.offsets, r.deleted) for r in (removed, rewound, drained)] == [
        (True, 40, removed.deleted),
        (True, 20, 0),
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


def offsets_of(rows: pa.Table, start: int, end: int) -> pa.Array:
    """Which of the rows have an offset in ``[start, end)``."""
    offsets = pc.struct_field(rows["meta"], ["kafka", "offset"])
    return pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))


def adds_up(report: AuditReport) -> bool:
    """Every offset is one thing, and what is there beyond that is twice."""
    kept = report.became_rows + report.dead_letters + report.tombstones + report.filtered + report.gaps
    kept += report.declared_losses
    return report.offsets + report.twice == kept + report.deleted + report.missing
