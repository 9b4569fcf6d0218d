"""The open dead letters of a filter, cached while they are worked on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdi_assets.drain.cached_messages import cached
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.formats.rules import literal
from kdi_assets.ledger.coordinates import DIGEST_SQL, bounds_sql, rows_at
from kdi_assets.ledger.letters import OUTCOME, WITHHELD, dead_letters_with_state
from kdi_assets.ledger.rewrite import MESSAGE
from kdi_assets.replay.dead_letter_filter import DeadLetterFilter
from kdi_assets.replay.report import Tally
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kdi_assets.replay.replay_transaction import ReplayTransaction

WAS = {"reason": "_kdi_was_reason", "field": "_kdi_was_field"}
"""Columns beside a verdict: what was said of the letter before."""
_WAITS, THERE = "_kdi_waits", "there"
_KAFKA = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@dataclass(frozen=True, slots=True)
class OpenLetters:
    """Open letters at one version of the table and of the letters.

    Attributes:
        frame: As ``dead_letters_with_state`` gives them, and ``there``: whether the message is a row by now.
        returned: Those whose message is a row by now, by topic partition.
        there: All of these.
        withheld: Of the others, those that do not hold all of their message.
        whole: Of the others, those that do, and so can be judged.
        waiting: How many more lie at or behind the positions: they are drained again anyway.
        ranges: Where they lie, by topic partition.
    """

    frame: DataFrame
    returned: Mapping[TopicPartition, int]
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
        return self.frame.where(where).selectExpr("topic", *MESSAGE, "timestamp_type", *said)


@contextmanager
def open_letters(case: ReplayTransaction, chosen: DeadLetterFilter) -> Iterator[OpenLetters]:
    """The open letters below the positions, and all of a topic that was there before this one."""
    from pyspark.sql import functions as F

    stream = case.stream
    # Of a topic partition that is gone, or of a topic that was there before, nothing is drained any more.
    behind = " OR ".join(f"(partition = {tp.partition} AND offset >= {at})" for tp, at in case.ledger.positions.items())
    waits = f"topic_id = {literal(case.topic.topic_id)} AND ({behind or 'false'}) AS {_WAITS}"
    standing = dead_letters_with_state(case.spark, stream, case.lake, case.history)
    meant = standing.where("state = 'open'").where(chosen.sql())
    # Letters and rows are each looked at several times, and each time would be sorted anew.
    with cached(meant.selectExpr("*", waits)) as meant:
        with spark_failures(stream, "reading dead letters"):
            waiting, ranges = _extent(meant, stream)
        letters = meant.where(f"NOT {_WAITS}")
        if not ranges:
            yield OpenLetters(letters.withColumn(THERE, F.lit(False)), {}, Tally(), Tally(), Tally(), waiting, ())
            return
        with cached(_rows_of(letters, case, ranges)) as rows:
            frame = letters.join(rows, list(MESSAGE), "left").withColumn(THERE, F.expr(f"coalesce({THERE}, false)"))
            kind = f"CASE WHEN {THERE} THEN 'there' WHEN {WITHHELD} THEN 'withheld' ELSE 'whole' END"
            with spark_failures(stream, "looking for the rows of dead letters"):
                groups = tallies_by(frame.selectExpr("partition", "offset", f"{kind} AS kind"), "kind", "partition")
            of: defaultdict[str, Tally] = defaultdict(Tally)
            for (name, _), tally in groups.items():
                of[name] += tally
            returned = {
                TopicPartition(stream.topic, p): tally.count for (name, p), tally in groups.items() if name == "there"
            }
            yield OpenLetters(frame, returned, of["there"], of["withheld"], of["whole"], waiting, ranges)


def tallies_by(letters: DataFrame, *columns: str) -> dict[tuple[Any, ...], Tally]:
    """By the values of all of these columns."""
    from pyspark.sql import functions as F

    groups = letters.groupBy(*columns).agg(F.count("*").alias("n"), F.expr(DIGEST_SQL).alias("digest"))
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


def _rows_of(letters: DataFrame, case: ReplayTransaction, ranges: tuple[OffsetRange, ...]) -> DataFrame:
    """The coordinates of the letters whose message is a row; only where they lie is the table looked at."""
    from pyspark.sql import functions as F

    rows = rows_at(case.spark, case.stream, case.ledger.uri, version=case.ledger.version)
    rows = rows.where(bounds_sql({r.topic_partition: r for r in ranges})).select(*MESSAGE)
    both = rows.join(letters.select(*MESSAGE), list(MESSAGE), "left_semi")
    return both.distinct().withColumn(THERE, F.lit(True))
