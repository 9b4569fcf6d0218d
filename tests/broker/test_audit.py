"""The audit: what it can tell of a table, whatever happened to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.drain.resolve import carry_out_decision, decide
from kdi_assets.ledger.audit import AuditReport, audit
from kdi_assets.stream import TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_audit_names_what_someone_removed_and_what_someone_doubled(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(100)
    web.drain()
    spark = web.session()

    spark.sql(f"DELETE FROM delta.`{web.uri}` WHERE meta.kafka.offset IN (10, 11)")
    one = spark.read.format("delta").load(web.uri).where("meta.kafka.offset = 50")
    one.write.format("delta").mode("append").save(web.uri)
    report = web.audit()

    assert not report.complete
    assert [(r.start, r.end) for r in report.holes] == [(10, 12)]
    assert [(r.start, r.end) for r in report.doubles] == [(50, 51)]
    assert any("DELETE" in note for note in report.notes)


def test_the_audit_after_a_rewind_names_what_is_there_twice(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(30, bad=0.2)
    web.drain()

    rewind(web, 20)
    web.drain()
    report = web.audit()

    assert not report.complete
    assert (report.holes, [(r.start, r.end) for r in report.doubles]) == ((), [(20, 30)])
    assert report.notes == (f"v2 set {web.stream.topic}/0 back from 30 to 20",)


def test_the_audit_is_complete_after_a_rewind_over_rows_that_were_removed(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    produced = web.produce(30)
    web.drain()
    web.session().sql(f"DELETE FROM delta.`{web.uri}` WHERE meta.kafka.offset >= 20")
    removed = web.audit()

    rewind(web, 20)
    rewound = web.audit()
    web.drain()
    drained = web.audit()

    assert [(r.start, r.end) for r in removed.holes] == [(20, 30)]
    assert [(r.complete, r.offsets, r.rows) for r in (rewound, drained)] == [(True, 20, 20), (True, 30, 30)]
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
    web.session().sql(f"DELETE FROM delta.`{web.uri}` WHERE meta.kafka.offset = 3")
    before_us = web.audit()
    kept = max(row["meta"]["kafka"]["offset"] for row in web.found().rows)
    web.session().sql(f"DELETE FROM delta.`{web.uri}` WHERE meta.kafka.offset = {kept}")
    ours = web.audit()

    assert (complete.complete, complete.offsets) == (True, 10)
    assert complete.notes == ("audited from the takeover at v3 on",)
    assert before_us.complete  # of what the other writer wrote the ledger cannot speak
    assert [(r.start, r.end) for r in ours.holes] == [(kept, kept + 1)]


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


def rewind(web: DrivenStream, to: int) -> None:
    only = TopicPartition(web.stream.topic, 0)
    decision = decide(web.stream, web.lake, "rewind", topic_partition=only, to=to, session=web.session)
    carry_out_decision(web.session(), decision, web.stream, web.lake)
