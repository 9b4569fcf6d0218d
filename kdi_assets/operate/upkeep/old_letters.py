"""The dead letters that are kept no longer, by one rule: with Spark to remove them, and without to say how many.

A dead letter leaves if its message is old and either an open one, or superseded: its message was drained again, so the
ledger counts it no more. Letters of messages that became rows leave with these. Letters that may be the only copy of
their message stay: orphaned ones, those inside a declared loss, and those that a decision superseded while no drain has
read their message again.

A message is as old as its timestamp says. A timestamp before the stream's date window is no time, such as seconds in
place of milliseconds: then the day counts on which the newest of its dead letters was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.files import rows_at
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.lost_races import until_won
from kdi_assets.delta.storage import open_delta_table, storage_failures
from kdi_assets.delta.transaction import delta_log
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.upkeep.errors import UpkeepFailed
from kdi_assets.runtime.application_end import cluster_failure
from kdi_assets.runtime.root_cause import root_cause
from kdi_assets.runtime.spark_failures import spark_exceptions
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.erased import without_erased
from kdi_assets.streams.ledger.history import LiveHistory
from kdi_assets.streams.ledger.letters import (
    BY_DECISION,
    BY_DRAIN,
    OUTCOME,
    committed_attempts,
    outside_losses,
    with_optional_columns,
    with_superseded,
)
from kdi_assets.streams.ledger.superseded_offsets import Superseded, superseded_by_decisions, superseded_by_drains

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_MESSAGE = ["partition", "offset", "timestamp", "topic_id"]


def letters_outside_losses(spark: SparkSession, stream: Stream, lake: str, entries: Sequence[LedgerEntry]) -> DataFrame:
    """The stored dead letters and records without those inside a declared loss, which may be the only copies."""
    log = TableLog.open(stream.dead_letters_uri(lake))
    if log is None:
        ddl = "partition int, offset bigint, timestamp timestamp, attempt_id string"
        return spark.createDataFrame([], ddl)
    stored = rows_at(spark, log.uri, log.version)
    for condition in outside_losses(entries):
        stored = stored.where(condition)
    return stored


def old_letters(
    spark: SparkSession, stream: Stream, lake: str, stored: DataFrame, entries: Sequence[LedgerEntry], *, before: date
) -> DataFrame:
    """The messages whose dead letters leave, without those that became rows.

    Args:
        stored: As ``letters_outside_losses`` gives them.
        before: The first date (UTC) that is kept.

    Returns:
        ``partition: int, offset: bigint, topic_id: string, superseded: boolean``. The ledger counts those that are not
        superseded.
    """
    from pyspark.sql import functions as F

    rows = [(e.attempt_id, e.version, e.topic_id, day) for e, day in zip(entries, _days(entries), strict=True)]
    attempts = spark.createDataFrame(rows, "attempt_id string, version bigint, topic_id string, day date")
    old = with_optional_columns(stored).where(f"timestamp < {_midnight(before)}")
    records = old.select("partition", "offset", "timestamp", "attempt_id", OUTCOME).join(
        F.broadcast(attempts), "attempt_id"
    )
    counts = f"NOT {BY_DECISION}"
    messages = (
        with_superseded(spark, records, entries)
        .groupBy(*_MESSAGE)
        .agg(
            F.expr(f"max(CASE WHEN {counts} AND {OUTCOME} IS NULL THEN version END)").alias("letter"),
            F.expr(f"max(CASE WHEN {counts} AND {OUTCOME} = 'row' THEN version END)").alias("as_row"),
            F.expr(f"bool_and({BY_DECISION} AND {BY_DRAIN})").alias("superseded"),
            F.max("version").alias("newest"),
            F.max("day").alias("day"),
        )
        .where(f"timestamp >= {_midnight(stream.date_window.first)} OR day < DATE'{before}'")
        .where("superseded OR letter > coalesce(as_row, -1)")
        .selectExpr("partition", "offset", "topic_id", "superseded", "coalesce(letter, newest) AS version")
    )
    return without_erased(spark, stream.erased_uri(lake), messages, entries).drop("version")


def delete_letters(
    spark: SparkSession, stream: Stream, lake: str, entries: Sequence[LedgerEntry], *, before: date
) -> None:
    """Delete the dead letters, and the records of what became of them, that expiries declared, and superseded ones.

    Only those of committed attempts: orphaned ones are not touched. No entry declares superseded ones: the ledger
    counts them no more.

    Raises:
        UpkeepFailed: Spark failed, or other commits came first again and again.
    """
    from delta.exceptions import DeltaConcurrentModificationException
    from delta.tables import DeltaTable

    uri, expiries = stream.dead_letters_uri(lake), [e for e in entries if e.kind == "expire"]
    if TableLog.open(uri) is None:
        return

    def attempt() -> None:
        stored = letters_outside_losses(spark, stream, lake, entries)
        written = stored.join(committed_attempts(spark, entries), "attempt_id")
        expired = without_erased(spark, stream.erased_uri(lake), written, expiries, only=True)
        old = old_letters(spark, stream, lake, stored, entries, before=before).where("superseded")
        superseded = written.join(old, ["partition", "offset", "topic_id"], "left_semi")
        record = ("partition", "offset", "attempt_id")
        gone = expired.select(*record).unionByName(superseded.select(*record)).distinct()
        if not gone.limit(1).count():
            return
        same = " AND ".join(f"letter.{column} = gone.{column}" for column in gone.columns)
        DeltaTable.forPath(spark, uri).alias("letter").merge(gone.alias("gone"), same).whenMatchedDelete().execute()

    try:
        delta_log(spark, uri)  # refuses a session that commits by another log store
        # A drain that appends dead letters conflicts with a deletion that reads the whole table.
        until_won(attempt, lost=DeltaConcurrentModificationException)
    except spark_exceptions() as failed:
        if error := cluster_failure(root_cause(failed)):
            raise error from failed
        step = "the removal of dead letters that are kept no longer"
        raise UpkeepFailed(table=stream.name, step=step, detail=root_cause(failed)) from failed


def count_old_letters(stream: Stream, lake: str, history: Callable[[], LiveHistory], *, before: date) -> int:
    """How many messages ``old_letters`` has, and those that an expiry declared and nobody deleted yet. No JVM.

    Args:
        history: Called only if there are old letters.

    Raises:
        StorageFailed: The storage does not answer.
    """
    import pyarrow.compute as pc

    log = TableLog.open(stream.dead_letters_uri(lake))
    if log is None:
        return 0
    has_outcomes = any(f.name == OUTCOME for f in log.delta_table.schema().fields)
    columns = ["partition", "offset", "timestamp", "attempt_id", *([OUTCOME] if has_outcomes else [])]
    with storage_failures(log.uri):
        old = [("timestamp", "<", _moment(before))]
        found = open_delta_table(log.uri).to_pyarrow_table(columns=columns, filters=old)
    if not found.num_rows:
        return 0
    messages = _messages(_committed(found, history().entries), history().entries)
    is_time = pc.greater_equal(messages["timestamp"], _scalar(messages, "timestamp", _moment(stream.date_window.first)))
    is_old = pc.or_kleene(is_time, pc.less(messages["day_max"], _scalar(messages, "day_max", before)))
    is_open = pc.greater(messages["letter_max"], messages["as_row_max"])
    leaves = pc.and_kleene(is_old, pc.or_(messages["superseded_all"], is_open))
    return int(pc.sum(leaves).as_py() or 0)


def _committed(found: pa.Table, entries: Sequence[LedgerEntry]) -> pa.Table:
    """The records of committed attempts outside declared losses, with ``version``, ``topic_id`` and ``day``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    place = pc.index_in(found["attempt_id"], value_set=pa.array([e.attempt_id for e in entries], pa.string()))
    of_entries = {
        "version": pa.array([e.version for e in entries], pa.int64()),
        "topic_id": pa.array([e.topic_id for e in entries], pa.string()),
        "day": pa.array(_days(entries), pa.date32()),
    }
    for name, values in of_entries.items():
        found = found.append_column(name, pc.take(values, place))
    found = found.filter(pc.is_valid(place))
    for lost in (r for e in entries for r in e.declared_losses):
        inside = _inside(found, lost.topic_partition.partition, lost.start, lost.end)
        found = found.filter(pc.invert(inside))
    for tp, until in ((tp, until) for e in entries for tp, (_, until) in e.lost_between.items()):
        moment = _scalar(found, "timestamp", datetime.fromtimestamp(until / 1000, UTC))
        inside = pc.and_(pc.equal(found["partition"], tp.partition), pc.less_equal(found["timestamp"], moment))
        found = found.filter(pc.invert(inside))
    return found


def _messages(records: pa.Table, entries: Sequence[LedgerEntry]) -> pa.Table:
    """The messages of the records: ``letter_max`` and ``as_row_max`` are versions, −1 for none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    by_decision = _superseded(records, superseded_by_decisions(entries))
    outcome = records[OUTCOME] if OUTCOME in records.column_names else pa.nulls(records.num_rows, pa.string())
    counts = pc.invert(by_decision)
    is_row = pc.fill_null(pc.equal(outcome, "row"), False)
    own = {
        "letter": pc.if_else(pc.and_(counts, pc.is_null(outcome)), records["version"], -1),
        "as_row": pc.if_else(pc.and_(counts, is_row), records["version"], -1),
        "superseded": pc.and_(by_decision, _superseded(records, superseded_by_drains(entries))),
    }
    for name, values in own.items():
        records = records.append_column(name, values)
    maxima = [(name, "max") for name in ("letter", "as_row", "day")]
    return records.group_by(_MESSAGE).aggregate([*maxima, ("superseded", "all")])


def _superseded(records: pa.Table, ranges: Sequence[Superseded]) -> Any:
    import pyarrow.compute as pc

    found = pc.less(records["version"], -1)
    for each in ranges:
        r = each.range
        inside = _inside(records, r.topic_partition.partition, r.start, r.end)
        older = pc.and_(pc.less(records["version"], each.version), pc.equal(records["topic_id"], each.topic_id))
        found = pc.or_(found, pc.and_(inside, older))
    return found


def _inside(records: pa.Table, partition: int, start: int, end: int) -> Any:
    import pyarrow.compute as pc

    offset = records["offset"]
    inside = pc.and_(pc.greater_equal(offset, start), pc.less(offset, end))
    return pc.and_(pc.equal(records["partition"], partition), inside)


def _scalar(table: pa.Table, column: str, value: date) -> pa.Scalar:
    import pyarrow as pa

    return pa.scalar(value, table.schema.field(column).type)


def _days(entries: Sequence[LedgerEntry]) -> list[date | None]:
    """The day (UTC) of each entry; where it is not recorded, that of the next one which has it, or ``None``."""
    found: list[date | None] = []
    for entry in reversed(entries):
        day = entry.planned_at.astimezone(UTC).date() if entry.planned_at else None
        found.append(day or (found[-1] if found else None))
    return found[::-1]


def _moment(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _midnight(day: date) -> str:
    return f"TIMESTAMP'{day} 00:00:00 UTC'"
