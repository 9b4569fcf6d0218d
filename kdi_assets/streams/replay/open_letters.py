"""The open dead letters that match a filter, cached while they are used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import DIGEST_SQL, coordinates_at, ranges_sql
from kdi_assets.messages.formats.rules import literal
from kdi_assets.streams.drain.cached_messages import cached
from kdi_assets.streams.ledger.letters import (
    OUTCOME,
    WITHHELD,
    dead_letters_with_state,
    read_few_at_once,
    with_messages,
)
from kdi_assets.streams.ledger.rewrite import MESSAGE
from kdi_assets.streams.replay.dead_letter_filter import DeadLetterFilter
from kdi_assets.streams.replay.report import Tally
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kdi_assets.streams.replay.replay_transaction import ReplayTransaction

PREVIOUS = {"reason": "_kdi_previous_reason", "field": "_kdi_previous_field"}
"""Columns beside a verdict: reason and field of the letter until now."""
_WAITING, HAS_ROW = "_kdi_waiting", "has_row"
WRONG_SHARD = "wrong_shard"
_MESSAGE = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@dataclass(frozen=True, slots=True)
class OpenLetters:
    """Open letters at one version of the table and of the letters.

    Attributes:
        frame: As ``with_messages`` gives them, and ``has_row: boolean``: the table has a row of the message.
        returned: How many have a row, by topic partition.
        with_row: All of these.
        withheld: Letters without a row that do not hold their whole message.
        complete: Letters without a row that hold their whole message, and so can be judged.
        waiting: How many more lie at or after the positions: the next drain reads them anyway.
        ranges: The offsets between which they lie.
    """

    stream: Stream
    frame: DataFrame
    returned: Mapping[TopicPartition, int]
    with_row: Tally
    withheld: Tally
    complete: Tally
    waiting: int
    ranges: tuple[OffsetRange, ...]

    @property
    def messages(self) -> DataFrame:
        """The messages of complete letters, as ``reader.read_ranges`` gives messages."""
        complete = self.frame.where(f"NOT {HAS_ROW} AND NOT {WITHHELD}")
        columns = (*_MESSAGE, *self.stream.source_struct.more, WRONG_SHARD)
        return complete.withColumnRenamed("timestamp_type", "timestampType").select(*columns)

    def outcomes(self, outcome: str, *, where: str = "true") -> DataFrame:
        """Outcomes of letters, with the columns of ``judge.verdicts``; both arguments are Spark SQL over ``frame``."""
        verdict = f"{outcome} AS {OUTCOME}", "CAST(NULL AS string) AS reason", "CAST(NULL AS string) AS field"
        return self.frame.where(where).selectExpr("topic", *MESSAGE, "timestamp_type", *verdict)


@contextmanager
def open_letters(transaction: ReplayTransaction, letter_filter: DeadLetterFilter) -> Iterator[OpenLetters]:
    """The open letters below the positions, and all letters of earlier topics."""
    from pyspark.sql import functions as F

    stream, positions = transaction.stream, transaction.ledger.positions
    # Nothing is drained any more of an earlier topic, or of a topic partition that vanished: no such letter waits.
    after = " OR ".join(f"(partition = {tp.partition} AND offset >= {at})" for tp, at in positions.items())
    waiting_letter = f"topic_id = {literal(transaction.topic.topic_id)} AND ({after or 'false'}) AS {_WAITING}"
    spark, lake = transaction.spark, transaction.lake
    standing = dead_letters_with_state(spark, stream, lake, transaction.history)
    matching = with_messages(spark, stream, lake, standing.where("state = 'open'").where(letter_filter.sql()))
    # A message that is in the right shard as well would be two rows, so these stay letters; only a person knows whether
    # its producer has put it there, and asks for the letters of this reason alone.
    stays = f"reason = 'wrong_shard' AND {literal(letter_filter.reason)} <> 'wrong_shard' AS {WRONG_SHARD}"
    # Cached: letters and rows are read several times, and would be sorted each time.
    with cached(matching.selectExpr("*", waiting_letter, stays)) as matching:
        with spark_failures(stream, "reading dead letters"), read_few_at_once(transaction.spark):
            waiting, ranges = _extent(matching, stream)
        letters = matching.where(f"NOT {_WAITING}")
        if not ranges:
            frame = letters.withColumn(HAS_ROW, F.lit(False))
            yield OpenLetters(stream, frame, {}, Tally(), Tally(), Tally(), waiting, ())
            return
        with cached(_rows_of(letters, transaction, ranges)) as rows:
            frame = letters.join(rows, [c for c in rows.columns if c != HAS_ROW], "left")
            frame = frame.withColumn(HAS_ROW, F.expr(f"coalesce({HAS_ROW}, false)"))
            kind = f"CASE WHEN {HAS_ROW} THEN 'with_row' WHEN {WITHHELD} THEN 'withheld' ELSE 'complete' END"
            with spark_failures(stream, "looking for the rows of dead letters"):
                groups = tallies_by(frame.selectExpr("partition", "offset", f"{kind} AS kind"), "kind", "partition")
            of: defaultdict[str, Tally] = defaultdict(Tally)
            for (name, _), tally in groups.items():
                of[name] += tally
            returned = {
                TopicPartition(stream.topic, p): tally.count
                for (name, p), tally in groups.items()
                if name == "with_row"
            }
            yield OpenLetters(stream, frame, returned, of["with_row"], of["withheld"], of["complete"], waiting, ranges)


def tallies_by(letters: DataFrame, *columns: str) -> dict[tuple[Any, ...], Tally]:
    """Count and digest by the values of the columns."""
    from pyspark.sql import functions as F

    groups = letters.groupBy(*columns).agg(F.count("*").alias("n"), F.expr(DIGEST_SQL).alias("digest"))
    return {tuple(r[column] for column in columns): Tally(r["n"], r["digest"]) for r in groups.collect()}


def _extent(letters: DataFrame, stream: Stream) -> tuple[int, tuple[OffsetRange, ...]]:
    """How many letters wait for the next drain, and the offsets of the others."""
    from pyspark.sql import functions as F

    groups = letters.groupBy(_WAITING, "partition").agg(
        F.count("*").alias("n"), F.min("offset").alias("start"), F.expr("max(offset) + 1").alias("end")
    )
    found = groups.orderBy("partition").collect()
    ranges = ((TopicPartition(stream.topic, r["partition"]), r) for r in found if not r[_WAITING])
    return sum(r["n"] for r in found if r[_WAITING]), tuple(OffsetRange(tp, r["start"], r["end"]) for tp, r in ranges)


def _rows_of(letters: DataFrame, transaction: ReplayTransaction, ranges: tuple[OffsetRange, ...]) -> DataFrame:
    """The coordinates of the letters whose message has a row; reads only the part of the table within ``ranges``."""
    from pyspark.sql import functions as F

    ledger, key = transaction.ledger, list(transaction.message_key)
    rows = coordinates_at(transaction.spark, transaction.stream, ledger.uri, version=ledger.version)
    rows = rows.where(ranges_sql(ranges)).select(*key)
    both = rows.join(letters.select(*key), key, "left_semi")
    return both.distinct().withColumn(HAS_ROW, F.lit(True))
