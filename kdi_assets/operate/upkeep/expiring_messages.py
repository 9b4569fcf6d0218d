"""The messages that are kept no longer: those whose rows all have older dates, and old dead letters.

Dead letters leave with the rows of their message, or if their message is old; orphaned ones stay, and those inside a
declared loss: they may be the only copies.

A message leaves as a whole. If it became rows of several dates, it stays until the newest of them is kept no longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from kdi_assets.delta.files import rows_at
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.storage import open_delta_table, storage_failures
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import bounds_sql, coordinates, explodes
from kdi_assets.streams.audit.coverage import coverage
from kdi_assets.streams.audit.offsets_in_spark import covered_sql, messages_by_partition
from kdi_assets.streams.drain.cached_messages import cached
from kdi_assets.streams.ledger.dates import day_of
from kdi_assets.streams.ledger.entry import Erasure, LedgerEntry
from kdi_assets.streams.ledger.history import LiveHistory
from kdi_assets.streams.ledger.letters import OUTCOME, committed_attempts, open_in_ledger, outside_losses
from kdi_assets.streams.ledger.positions import LedgerState
from kdi_assets.streams.ledger.rewrite import MESSAGE, count_by_date, message_key, rows_of_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LETTER = ("partition", "offset", "topic_id")


@dataclass(frozen=True, slots=True)
class ExpiringMessages:
    """The messages at one version of the table.

    Attributes:
        rows: Those that are rows: the columns of ``MESSAGE``, each once.
        letters: The dead letters that leave, also of messages that became rows: ``partition: int, offset: bigint,
            topic_id: string``.
        staying: Messages with older rows that stay, because other rows of theirs are kept: the columns of ``MESSAGE``;
            ``None``: there are none.
        rows_by_date: Rows that leave.
        counts: What the ledger records.
        letter_count: Dead letters whose message is no row.
    """

    rows: DataFrame
    letters: DataFrame
    staying: DataFrame | None
    rows_by_date: Mapping[date, int]
    counts: Erasure
    letter_count: int

    @property
    def is_nothing(self) -> bool:
        return not self.rows_by_date and not self.letter_count


@contextmanager
def expiring_messages(
    spark: SparkSession, stream: Stream, lake: str, ledger: LedgerState, history: LiveHistory, kept_from: date
) -> Iterator[ExpiringMessages]:
    """Select the messages, cached while the body runs."""
    table, before = rows_at(spark, ledger.uri, ledger.version), f"{day_of()} < DATE'{kept_from}'"
    old = table.where(before)
    covered = covered_sql(coverage(history.entries).begin)
    with cached(_staying(table, old, before, stream)) as staying:
        stay = staying.count()
        leaving = rows_of_messages(old, stream, staying, others=True) if stay else old
        # Rows of other writers may show no message; they leave, and no entry has counted them.
        placed = leaving.select(*coordinates(leaving, stream)).where("partition IS NOT NULL AND offset IS NOT NULL")
        first = placed.where("index = 0").select(*MESSAGE)
        stored = _letters_outside_losses(spark, stream, lake, history)
        old_letters = stored.where(f"timestamp < TIMESTAMP'{kept_from} 00:00:00 UTC'")
        letters = open_in_ledger(spark, stream, lake, old_letters, history).select(*_LETTER)
        with cached(first) as rows, cached(letters) as without_row:
            became_rows, digest = messages_by_partition(rows.where(covered), stream.topic)
            dead_letters, of_dead_letters = messages_by_partition(without_row.where(covered), stream.topic)
            of_rows = _of_messages(stored, rows, message_key(table.schema.jsonValue(), stream))
            with_topic = of_rows.join(committed_attempts(spark, history.entries), "attempt_id").select(*_LETTER)
            yield ExpiringMessages(
                rows,
                without_row.unionByName(with_topic),
                staying if stay else None,
                dict(sorted(count_by_date(leaving).items())),
                Erasure(became_rows=became_rows, dead_letters=dead_letters, digest=digest ^ of_dead_letters),
                without_row.count(),
            )


def _staying(table: DataFrame, old: DataFrame, before: str, stream: Stream) -> DataFrame:
    """``MESSAGE`` of messages that have rows of older dates and of kept ones."""
    from pyspark.sql import functions as F

    if not explodes(table, stream):
        return old.select(*coordinates(old, stream)).select(*MESSAGE).limit(0)
    several = old.select(*coordinates(old, stream)).where("count > 1").select(*MESSAGE).distinct()
    extent = several.groupBy("partition").agg(F.min("offset").alias("start"), F.max("offset").alias("last")).collect()
    bounds = {
        (tp := TopicPartition(stream.topic, r["partition"])): OffsetRange(tp, r["start"], r["last"] + 1)
        for r in extent
        if r["partition"] is not None
    }
    kept = table.where(f"NOT coalesce({before}, false)").where(bounds_sql(bounds, struct=stream.coordinates))
    of_kept = kept.select(*coordinates(kept, stream)).where("count > 1").select(*MESSAGE).distinct().alias("kept")
    key = message_key(table.schema.jsonValue(), stream)
    same = " AND ".join(f"several.{column} <=> kept.{column}" for column in key)
    return several.alias("several").join(of_kept, F.expr(same), "left_semi")


def _letters_outside_losses(spark: SparkSession, stream: Stream, lake: str, history: LiveHistory) -> DataFrame:
    """The stored dead letters and records without those inside a declared loss, which may be the only copies."""
    log = TableLog.open(stream.dead_letters_uri(lake))
    if log is None:
        ddl = "partition int, offset bigint, timestamp timestamp, attempt_id string"
        return spark.createDataFrame([], ddl)
    stored = rows_at(spark, log.uri, log.version)
    for condition in outside_losses(history.entries):
        stored = stored.where(condition)
    return stored


def _of_messages(letters: DataFrame, messages: DataFrame, key: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    same = " AND ".join(f"letter.{column} <=> message.{column}" for column in key)
    return letters.alias("letter").join(messages.alias("message"), F.expr(same), "left_semi")


def count_old_letters(stream: Stream, lake: str, entries: Sequence[LedgerEntry], *, before: date) -> int:
    """Dead letters that count, of messages with an older timestamp (UTC), outside declared losses and without a row.

    Those that an entry declared and nobody deleted yet are among them. No JVM.

    Raises:
        StorageFailed: The storage does not answer.
    """
    log = TableLog.open(stream.dead_letters_uri(lake))
    if log is None:
        return 0
    has_outcomes = any(f.name == OUTCOME for f in log.delta_table.schema().fields)
    columns = ["partition", "offset", "timestamp", "attempt_id", *([OUTCOME] if has_outcomes else [])]
    old = [("timestamp", "<", datetime(before.year, before.month, before.day, tzinfo=UTC))]
    with storage_failures(log.uri):
        found = open_delta_table(log.uri).to_pyarrow_table(columns=columns, filters=old).to_pylist()
    attempts, lost = {e.attempt_id for e in entries}, [r for e in entries for r in e.declared_losses]
    counting = [r for r in found if r["attempt_id"] in attempts]
    with_row = {(r["partition"], r["offset"]) for r in counting if r.get(OUTCOME) == "row"}
    return sum(
        r.get(OUTCOME) is None
        and (r["partition"], r["offset"]) not in with_row
        and not any(x.topic_partition.partition == r["partition"] and x.start <= r["offset"] < x.end for x in lost)
        for r in counting
    )
