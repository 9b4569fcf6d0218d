"""The open dead letters that someone chose, kept for as long as they are worked with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdi_assets.drain.failures import spark_failures
from kdi_assets.drain.kept import kept
from kdi_assets.drain.verdict import DEAD_LETTER, ELSEWHERE, VERDICTS
from kdi_assets.formats.rules import literal
from kdi_assets.ledger.history import LiveHistory
from kdi_assets.ledger.letters import OUTCOME, WITHHELD, standing_letters
from kdi_assets.ledger.offsets import DIGEST, inside, rows_at
from kdi_assets.ledger.state import LedgerState
from kdi_assets.replay.chosen import Chosen
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAS = {"reason": "_kdi_was_reason", "field": "_kdi_was_field"}
"""Columns beside a verdict: what was said of the letter before."""
COORDINATES = ["partition", "offset", "timestamp"]
_WAITS, THERE = "_kdi_waits", "there"
_KAFKA = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@dataclass(frozen=True, slots=True)
class Tally:
    """How many letters, and ``bit_xor(xxhash64(partition, offset))`` of them: equal sets have equal ones."""

    count: int = 0
    digest: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, self.digest ^ other.digest)

    def __sub__(self, part: Tally) -> Tally:
        return Tally(self.count - part.count, self.digest ^ part.digest)


@dataclass(frozen=True, slots=True)
class OpenLetters:
    """Open letters at one version of the table and of the letters.

    Attributes:
        frame: As ``standing_letters`` gives them, and ``there``: whether the message is a row by now.
        there: Those whose message is a row by now.
        withheld: Of the others, those that do not hold all of their message.
        whole: Of the others, those that do, and so can be judged.
        waiting: How many more lie at or behind the positions: they are drained again anyway.
        ranges: Where they lie, by topic partition.
    """

    frame: DataFrame
    there: Tally
    withheld: Tally
    whole: Tally
    waiting: int
    ranges: tuple[OffsetRange, ...]

    @property
    def messages(self) -> DataFrame:
        """Those that can be judged, as ``kafka_frame.read_ranges`` gives messages."""
        judged = self.frame.where(f"NOT {THERE} AND NOT {WITHHELD}")
        return judged.withColumnRenamed("timestamp_type", "timestampType").select(*_KAFKA)

    def told(self, outcome: str, *, where: str = "true") -> DataFrame:
        """What becomes of some of them, as ``judge.verdicts`` says it; the outcome is Spark SQL over them."""
        said = f"{outcome} AS {OUTCOME}", "CAST(NULL AS string) AS reason", "CAST(NULL AS string) AS field"
        return self.frame.where(where).selectExpr("topic", *COORDINATES, "timestamp_type", *said)


@contextmanager
def open_letters(
    spark: SparkSession,
    stream: Stream,
    lake: str,
    chosen: Chosen,
    *,
    ledger: LedgerState,
    history: LiveHistory,
    topic_id: str,
) -> Iterator[OpenLetters]:
    """The open letters below the positions, and all of a topic that was there before this one.

    Args:
        history: At the version of the ledger.
        topic_id: Of the topic that the positions belong to.
    """
    from pyspark.sql import functions as F

    # Of a topic partition that is gone, or of a topic that was there before, nothing is drained any more.
    behind = " OR ".join(f"(partition = {tp.partition} AND offset >= {at})" for tp, at in ledger.positions.items())
    waits = f"topic_id = {literal(topic_id)} AND ({behind or 'false'}) AS {_WAITS}"
    meant = standing_letters(spark, stream, lake, history).where("state = 'open'").where(chosen.sql())
    # Letters and rows are each looked at several times, and each time would be sorted anew.
    with kept(meant.selectExpr("*", waits)) as meant:
        with spark_failures(stream, "reading dead letters"):
            waiting, ranges = _extent(meant, stream)
        letters = meant.where(f"NOT {_WAITS}")
        if not ranges:
            yield OpenLetters(letters.withColumn(THERE, F.lit(False)), Tally(), Tally(), Tally(), waiting, ())
            return
        with kept(_rows_of(letters, spark, stream, ledger, ranges)) as rows:
            frame = letters.join(rows, COORDINATES, "left").withColumn(THERE, F.expr(f"coalesce({THERE}, false)"))
            kind = f"CASE WHEN {THERE} THEN 'there' WHEN {WITHHELD} THEN 'withheld' ELSE 'whole' END"
            with spark_failures(stream, "looking for the rows of dead letters"):
                of = tallies(frame.selectExpr("partition", "offset", f"{kind} AS kind"), "kind")
            there, withheld, whole = (of.get(kind, Tally()) for kind in ("there", "withheld", "whole"))
            yield OpenLetters(frame, there, withheld, whole, waiting, ranges)


def tallies(letters: DataFrame, column: str) -> dict[str, Tally]:
    """By the values of a column, null by the empty name."""
    return {value or "": tally for (value,), tally in tallies_by(letters, column).items()}


def tallies_by(letters: DataFrame, *columns: str) -> dict[tuple[Any, ...], Tally]:
    """By the values of all of these columns."""
    from pyspark.sql import functions as F

    groups = letters.groupBy(*columns).agg(F.count("*").alias("n"), F.expr(DIGEST).alias("digest"))
    return {tuple(r[column] for column in columns): Tally(r["n"], r["digest"]) for r in groups.collect()}


def _extent(meant: DataFrame, stream: Stream) -> tuple[int, tuple[OffsetRange, ...]]:
    """How many wait for the next drain, and where the others lie."""
    from pyspark.sql import functions as F

    groups = meant.groupBy(_WAITS, "partition").agg(
        F.count("*").alias("n"), F.min("offset").alias("start"), F.expr("max(offset) + 1").alias("end")
    )
    found = groups.orderBy("partition").collect()
    ranges = ((TopicPartition(stream.topic, r["partition"]), r) for r in found if not r[_WAITS])
    return sum(r["n"] for r in found if r[_WAITS]), tuple(OffsetRange(tp, r["start"], r["end"]) for tp, r in ranges)


def _rows_of(
    letters: DataFrame, spark: SparkSession, stream: Stream, ledger: LedgerState, ranges: tuple[OffsetRange, ...]
) -> DataFrame:
    """The coordinates of the letters whose message is a row; only where they lie is the table looked at."""
    from pyspark.sql import functions as F

    rows = rows_at(spark, stream, ledger.uri, version=ledger.version)
    rows = rows.where(inside({r.topic_partition: r for r in ranges})).select(*COORDINATES)
    both = rows.join(letters.select(*COORDINATES), COORDINATES, "left_semi")
    return both.distinct().withColumn(THERE, F.lit(True))


def beside_standing(said: DataFrame, letters: OpenLetters) -> DataFrame:
    """What is said of letters, as ``judge.verdicts`` says it, and the columns of ``WAS``; of no other message."""
    standing = letters.frame.selectExpr(*COORDINATES, *(f"{now} AS {was}" for now, was in WAS.items()))
    return said.join(standing, COORDINATES)


def is_news() -> str:
    """Spark SQL over what is said beside what stands: not that nothing has changed, nor that it is another table's."""
    unchanged = " AND ".join(f"{now} <=> {was}" for now, was in WAS.items())
    stays = f"{OUTCOME} = '{VERDICTS[DEAD_LETTER]}' AND {unchanged}"
    return f"{OUTCOME} <> '{ELSEWHERE}' AND NOT ({stays})"


def news_in(said: DataFrame) -> DataFrame:
    """What is to be kept of it."""
    return said.where(is_news()).drop(*WAS.values())
