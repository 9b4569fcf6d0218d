"""Dead letters with their state: open, resolved or discarded.

Dead letters are never changed. A later commit that resolves or discards one adds a record beside it, with the commit's
attempt id; like a dead letter, a record counts only if an entry of the live history has its attempt id. So a RESTORE of
the table opens the dead letters again whose rows it removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from kdi_assets.delta.files import rows_at
from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.delta.storage import open_delta_table, storage_failures
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.messages.coordinates import ranges_sql
from kdi_assets.runtime.spark import changed_settings
from kdi_assets.streams.ledger.entry import REPLAY_PREFIX, LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry
from kdi_assets.streams.ledger.erased import without_erased
from kdi_assets.streams.ledger.history import LiveHistory, every_commit
from kdi_assets.streams.ledger.superseded_offsets import Superseded, superseded_by_decisions, superseded_by_drains

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession

DeadLetterState = Literal["open", "resolved", "discarded"]
"""Open: waits for a replay or a decision. Resolved: a row, tombstone or filtered now. Discarded: someone gave it up."""
OUTCOME = "outcome"
"""The column of a record that says what became of a dead letter; null in the dead letter itself."""
DISCARDED = "discarded"
WITHHELD = "withheld"
_DDL = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestamp_type int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, schema_id int, reason string, field string, attempt_id string"
)
_AT = ["partition", "offset", "timestamp"]
_SMALL = ("topic", "timestamp_type", "schema_id", WITHHELD, "topic_id", "attempt_id")
_MESSAGE = ("key", "value", "headers")
BY_DECISION, BY_DRAIN = "_kdi_superseded_by_decision", "_kdi_superseded_by_drain"
_RANGE = "partition: int, start: bigint, end: bigint, version: bigint, topic_id: string"
_STATE = (
    # Drained again after its newest dead letter was written: the message is no dead letter any more.
    f"CASE WHEN letter.{BY_DRAIN} THEN 'resolved' WHEN {OUTCOME} = '{DISCARDED}' THEN 'discarded' "
    # A decision removed the row that it became, and the message may never be drained again.
    f"WHEN record.{BY_DECISION} OR coalesce({OUTCOME}, 'dead_letter') = 'dead_letter' THEN 'open' ELSE 'resolved' END"
)


@contextmanager
def read_few_at_once(spark: SparkSession) -> Iterator[None]:
    """Let Spark read 8 messages at once in the body, not 4,096: messages of 10 MB would fill the memory."""
    with changed_settings(spark, {"spark.sql.parquet.columnarReaderBatchSize": "8"}):
        yield


def dead_letters_with_state(spark: SparkSession, stream: Stream, lake: str, history: LiveHistory) -> DataFrame:
    """Every dead letter that counts, once, with its state and its newest reason, without its message.

    Args:
        history: Of the stream's table; its entries decide which dead letters count.

    Returns:
        ``topic: string, partition: int, offset: bigint, timestamp: timestamp, date: date, timestamp_type: int,
        schema_id: int, withheld: boolean, topic_id: string, attempt_id: string, reason: string, field: string,
        state: string, outcome: string, drained_by: bigint, said_by: bigint``. ``date`` is that of the timestamp in UTC;
        ``drained_by`` and ``said_by`` are versions of the stream's table: of the drain, and of the newest record. Lazy.
    """
    return _newest_by_message(spark, stream, lake, history).selectExpr(
        "letter.topic",
        "partition",
        "offset",
        "timestamp",
        "CAST(to_utc_timestamp(timestamp, current_timezone()) AS DATE) AS date",
        *(f"letter.{column}" for column in _SMALL[1:]),
        "why.reason",
        "why.field",
        f"{_STATE} AS state",
        OUTCOME,
        "letter.version AS drained_by",
        "said_by",
    )


def with_messages(spark: SparkSession, stream: Stream, lake: str, letters: DataFrame) -> DataFrame:
    """Dead letters with their messages, which are read once it is known which: to sort all of them would take long.

    Args:
        letters: Some of ``dead_letters_with_state``.

    Returns:
        The same, with ``key: binary, value: binary, headers: array<struct<key: string, value: binary>>``, and
        ``SourceStruct.more``. Lazy.
    """
    table = _table(spark, stream.dead_letters_uri(lake))
    written = with_optional_columns(table, stream.source_struct.more).where(f"{OUTCOME} IS NULL")
    by = ["partition", "offset", "attempt_id"]
    columns = (*_MESSAGE, *stream.source_struct.more)
    # An attempt writes one dead letter for a message; twice, if the answer to an append was lost and it was repeated.
    return letters.join(written.select(*by, *columns), by).dropDuplicates(by)


def _newest_by_message(spark: SparkSession, stream: Stream, lake: str, history: LiveHistory) -> DataFrame:
    """``letter``, ``why``, ``outcome``, ``record`` and ``said_by`` of every message with a dead letter that counts."""
    from pyspark.sql import functions as F

    letters = with_optional_columns(_table(spark, stream.dead_letters_uri(lake)))
    counting = letters.join(committed_attempts(spark, history.entries), "attempt_id")
    # Erased ones may still be there, if the process ended before it deleted them: nobody shall read them again.
    counting = without_erased(spark, stream.erased_uri(lake), counting, history.entries)
    letter = f"max_by(struct({', '.join(_SMALL)}, version, {BY_DRAIN}), version) FILTER (WHERE {OUTCOME} IS NULL)"
    why = "max_by(struct(reason, field), version) FILTER (WHERE reason IS NOT NULL)"
    newest = (
        with_superseded(spark, counting, history.entries)
        .groupBy(*_AT)
        .agg(
            F.expr(letter).alias("letter"),
            F.expr(why).alias("why"),
            F.expr(f"max_by({OUTCOME}, version)").alias(OUTCOME),
            F.expr(f"max_by(struct({BY_DECISION}), version)").alias("record"),
            F.max("version").alias("said_by"),
        )
    )
    return newest.where("letter IS NOT NULL")


def letters_without_rows(spark: SparkSession, uri: str, entries: Sequence[LedgerEntry]) -> DataFrame:
    """The dead letters whose message is not a row.

    Args:
        entries: Dead letters and records with their attempt ids count.

    Returns:
        ``partition: int, offset: bigint, counts: boolean`` of every dead letter, whether it counts or not.
    """
    return filter_letters_without_rows(spark, _table(spark, uri), entries).select("partition", "offset", "counts")


def filter_letters_without_rows(spark: SparkSession, letters: DataFrame, entries: Sequence[LedgerEntry]) -> DataFrame:
    """Leave out dead letters of which an entry says that they became rows, unless they became dead letters again.

    If a message was drained again, or a decision removed its rows so that it will be, its older dead letters are left
    out too.

    Args:
        letters: A dead-letter table, at some version.

    Returns:
        ``partition: int, offset: bigint, attempt_id: string, counts: boolean``: whether an entry has the attempt id.
    """
    from pyspark.sql import functions as F

    counts = F.col("attempt_id").isin([e.attempt_id for e in entries]).alias("counts")
    columns = ["partition", "offset", "attempt_id"]
    if OUTCOME not in letters.columns and not superseded_by_decisions(entries):
        return letters.select(*columns, counts)
    records = _not_superseded(spark, letters, entries).withColumn("counts", counts)
    rows = records.where(f"{OUTCOME} = 'row' AND counts").selectExpr(*_AT, "version AS returned_by")
    rows = rows.groupBy(*_AT).agg(F.max("returned_by").alias("returned_by"))
    remaining = records.where(f"{OUTCOME} IS NULL").join(rows, _AT, "left")
    return remaining.where("NOT coalesce(counts AND version < returned_by, false)").select(*columns, "counts")


def open_in_ledger(
    spark: SparkSession, stream: Stream, lake: str, letters: DataFrame, history: LiveHistory
) -> DataFrame:
    """The dead letters that the ledger counts: their message is no row, and no later entry erased it.

    Args:
        letters: A dead-letter table at some version, or of some messages all dead letters and records.

    Returns:
        ``partition: int, offset: bigint, attempt_id: string, version: bigint, topic_id: string``.
    """
    counting = filter_letters_without_rows(spark, letters, history.entries).where("counts").drop("counts")
    counting = counting.join(committed_attempts(spark, history.entries), "attempt_id")
    return without_erased(spark, stream.erased_uri(lake), counting, history.entries)


def letters_with_rows(spark: SparkSession, uri: str, entries: Sequence[LedgerEntry]) -> DataFrame:
    """The messages of dead letters that became rows by a replay: ``partition: int, offset: bigint``."""
    records = _not_superseded(spark, _table(spark, uri), entries)
    return records.where(f"{OUTCOME} = 'row' AND version IS NOT NULL").select("partition", "offset").distinct()


def _not_superseded(spark: SparkSession, letters: DataFrame, entries: Sequence[LedgerEntry]) -> DataFrame:
    """Dead letters and records that no decision supersedes, with the version of their entry, null without one."""
    columns = with_optional_columns(letters).select(*_AT, "attempt_id", OUTCOME)
    records = columns.join(committed_attempts(spark, entries), "attempt_id", "left")
    return with_superseded(spark, records, entries).where(f"NOT coalesce({BY_DECISION}, false)")


def committed_attempts(spark: SparkSession, entries: Sequence[LedgerEntry]) -> DataFrame:
    """The attempts that count: ``attempt_id: string, version: bigint, topic_id: string``."""
    from pyspark.sql import functions as F

    rows = [(e.attempt_id, e.version, e.topic_id) for e in entries]
    return F.broadcast(spark.createDataFrame(rows, "attempt_id string, version bigint, topic_id string"))


def with_superseded(spark: SparkSession, letters: DataFrame, entries: Sequence[LedgerEntry]) -> DataFrame:
    """Add whether a newer decision set the position back over each message, and whether a newer drain read it again.

    Args:
        letters: With ``partition, offset``, and ``version, topic_id`` of the entry that has their attempt id.
    """
    from pyspark.sql import functions as F

    superseded = {BY_DECISION: superseded_by_decisions(entries), BY_DRAIN: superseded_by_drains(entries)}
    if not any(superseded.values()):
        return letters.withColumns(dict.fromkeys(superseded, F.lit(False)))
    ranges = {name: f"{name}_ranges" for name in superseded}
    ddl = ", ".join(f"{column} array<struct<{_RANGE}>>" for column in ranges.values())
    one_row = spark.createDataFrame([tuple(_range_rows(each) for each in superseded.values())], ddl)
    covers = (
        "r.partition = partition AND r.start <= offset AND offset < r.end AND version < r.version "
        "AND r.topic_id = topic_id"
    )
    flags: dict[str, Column] = {name: F.expr(f"exists({column}, r -> {covers})") for name, column in ranges.items()}
    return letters.crossJoin(F.broadcast(one_row)).withColumns(flags).drop(*ranges.values())


def _range_rows(ranges: Sequence[Superseded]) -> list[tuple[int, int, int, int, str]]:
    return [(s.range.topic_partition.partition, s.range.start, s.range.end, s.version, s.topic_id) for s in ranges]


def _table(spark: SparkSession, uri: str) -> DataFrame:
    """The dead-letter table at its newest version; empty if there is none."""
    log = TableLog.open(uri)
    if log is None:
        return spark.createDataFrame([], _DDL)
    return rows_at(spark, uri, log.version)


def with_optional_columns(letters: DataFrame, more: Mapping[str, str] = MappingProxyType({})) -> DataFrame:
    """With the columns that not every table has: the first replay adds outcomes. ``more`` are further ones by type."""
    from pyspark.sql import functions as F

    absent = {OUTCOME: F.lit(None).cast("string"), WITHHELD: F.lit(False)}
    absent |= {column: F.lit(None).cast(kind) for column, kind in more.items()}
    return letters.withColumns({name: value for name, value in absent.items() if name not in letters.columns})


def remove_orphaned_dead_letters(stream: Stream, lake: str) -> int:
    """Remove orphaned dead letters, of attempts that never committed, where nothing can need them. No JVM.

    It keeps:
    - dead letters at or above the position: a running drain may have written them. Below the position, a drain that has
      not committed yet can no longer commit.
    - what replays wrote, recognised by the attempt id or an outcome: they write below the position and may be running.
    - dead letters inside a declared loss: they may be the only copy of their message. If one offset stands for all
      records of a shard that are gone, these are its dead letters of every record that arrived up to the loss's end.
    - dead letters at or above the last positions of an earlier topic, for the same reason. Those of the newer topic
      there look the same, and are kept too.
    - dead letters of a commit that a RESTORE undid: another RESTORE may bring it back.
    - all dead letters of a table that was adopted, or that is younger than its dead letters: they may belong to the
      table that was there before, and be the only copy of their messages.

    Returns:
        How many were removed.

    Raises:
        CommitUnreadable: Part of the log is in neither log nor archive, so the attempts that committed are unknown.
    """
    letters = TableLog.open(stream.dead_letters_uri(lake))
    if letters is None:
        return 0
    table = open_delta_table(letters.uri)
    # Read the dead letters first and the ledger after: an attempt that is seen here, and that the ledger does not have
    # although the position moved past its dead letters, cannot commit any more.
    has_outcomes = any(f.name == OUTCOME for f in table.schema().fields)
    written = _attempts_without_outcome(table, has_outcomes=has_outcomes)
    commits = every_commit(TableLog.existing(stream.table_uri(lake)), stream.archive_uri(lake))
    entries = _every_entry(stream, commits)
    committed = {e.attempt_id for e in entries}
    orphaned = sorted(a for a in written if a not in committed and not a.startswith(REPLAY_PREFIX))
    younger = letters.created_time < TableLog.existing(stream.table_uri(lake)).created_time
    if not orphaned or not entries or entries[0].kind == "resolve" or younger:
        return 0
    not_a_record = f" AND {OUTCOME} IS NULL" if has_outcomes else ""
    removed = table.delete(_removable(orphaned, entries, commits) + not_a_record)
    return int(removed["num_deleted_rows"])


def _attempts_without_outcome(table: DeltaTable, *, has_outcomes: bool) -> list[str]:
    """The attempts that wrote dead letters; what only records an outcome is not a dead letter."""
    import pyarrow.compute as pc

    rows = table.to_pyarrow_table(columns=["attempt_id", *([OUTCOME] if has_outcomes else [])])
    letters = rows.filter(pc.is_null(rows[OUTCOME])) if has_outcomes else rows
    attempts: list[str] = pc.unique(letters["attempt_id"]).to_pylist()
    return attempts


def count_letters_not_named(uri: str, entries: Sequence[LedgerEntry]) -> int:
    """How many messages have dead letters, but none of an attempt that these entries name. No JVM.

    Raises:
        StorageFailed: The storage does not answer.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    log = TableLog.open(uri)
    if log is None:
        return 0
    with storage_failures(uri):
        table = open_delta_table(uri)
        outcome = [f.name for f in table.schema().fields if f.name == OUTCOME]
        letters = table.to_pyarrow_table(columns=[*_AT, "attempt_id", *outcome])
    if outcome:
        letters = letters.filter(pc.is_null(letters[OUTCOME]))
    named = pc.is_in(letters["attempt_id"], value_set=pa.array([e.attempt_id for e in entries], pa.string()))
    by_message = letters.append_column("named", named).group_by(_AT).aggregate([("named", "any")])
    return int(pc.sum(pc.invert(by_message["named_any"])).as_py() or 0)


def _removable(attempts: Sequence[str], entries: Sequence[LedgerEntry], commits: Sequence[CommitInfo]) -> str:
    """SQL: dead letters of these attempts whose messages are committed: below the positions, and not lost."""
    ids = ", ".join(f"'{attempt}'" for attempt in attempts)
    committed = [entries[-1].positions, *_last_of_earlier_topics(entries, commits)]
    where = [f"attempt_id IN ({ids})", *map(_below, committed), *outside_losses(entries)]
    return " AND ".join(where)


def outside_losses(entries: Sequence[LedgerEntry]) -> list[str]:
    """SQL over dead letters: conditions that each hold outside one declared loss; inside, one may be the only copy."""
    lost = [ranges_sql([r]) for e in entries for r in e.declared_losses]
    # Their offsets were not committed, and after the loss other records got them: only the arrival tells them apart.
    lost += [
        f"partition = {tp.partition} AND timestamp <= '{datetime.fromtimestamp(until / 1000, UTC).isoformat()}'"
        for e in entries
        for tp, (_, until) in e.lost_between.items()
    ]
    return [f"NOT ({each})" for each in lost]


def _every_entry(stream: Stream, commits: Sequence[CommitInfo]) -> list[LedgerEntry]:
    found = (parse_entry(c.user_metadata, c.version, stream.app_id) for c in commits)
    return [entry for entry in found if entry]


def _last_of_earlier_topics(
    entries: Sequence[LedgerEntry], commits: Sequence[CommitInfo]
) -> Iterator[Mapping[TopicPartition, int]]:
    """The positions that each earlier topic had last; none if a RESTORE set them back and nothing recorded them."""
    restores = [commit.version for commit in commits if commit.is_restore]
    for last, new in pairwise(entries):
        if last.topic_id != new.topic_id:
            yield {} if any(last.version < version < new.version for version in restores) else last.positions


def _below(positions: Mapping[TopicPartition, int]) -> str:
    each = (f"(partition = {tp.partition} AND offset < {position})" for tp, position in positions.items())
    return f"({' OR '.join(each) or 'false'})"
