"""The messages of a replay: those of dates or of dead letters, and where their bytes come from.

The messages of dates are those whose rows have the date, and the open dead letters that were produced on it. Kafka has
their bytes; those of dead letters are what the letters hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.drain.cached_messages import cached
from kdi_assets.drain.rules.records import KAFKA_DDL
from kdi_assets.drain.rules.verdict import ROW, VERDICTS
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.ledger.coordinates import DIGEST_SQL, Bounds, coordinates, explodes
from kdi_assets.ledger.letters import WITHHELD
from kdi_assets.ledger.rewrite import MESSAGE, rows_of_messages
from kdi_assets.replay.dead_letter_filter import DeadLetterFilter
from kdi_assets.replay.open_letters import THERE, WAS, open_letters, tallies_by
from kdi_assets.replay.replay_transaction import ReplayTransaction
from kdi_assets.replay.report import Missing, Tally
from kdi_assets.sources.kafka.reader import read_ranges
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IS_LETTER = "is_letter"
_ROWS = "rows"
_PLACED = " AND ".join(f"{column} IS NOT NULL" for column in MESSAGE)
"""Spark SQL over messages: whether their rows say where they stood."""


@dataclass(frozen=True, slots=True)
class SelectedMessages:
    """Messages that are replayed, each once.

    Attributes:
        frame: ``partition: int, offset: bigint, timestamp: timestamp, is_letter: boolean``: no row is there of it; and
            the columns of ``WAS``, what was said of the letter before.
        rows, letters: How many they are.
        ranges: Where they lie; other offsets lie between them.
        there: Open letters whose message is a row by now, so nothing is to be judged: what is said of them, and the
            columns of ``frame``; ``None`` if there are none, or they are not meant.
        waiting: How many more letters lie at or behind the positions: they are drained again anyway.
        withheld: How many more letters do not hold all of their message, where nothing else has it.
        torn: How many more lack some of the rows that they became: someone deleted these, and would have them back.
        unplaced: Rows of the dates that do not say where their message stood.
    """

    frame: DataFrame
    rows: Tally
    letters: Tally
    ranges: tuple[OffsetRange, ...]
    there: DataFrame | None = None
    waiting: int = 0
    withheld: int = 0
    torn: int = 0
    unplaced: int = 0

    @property
    def messages(self) -> Tally:
        return self.rows + self.letters

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to do."""
        return not self.messages.count and self.there is None

    @property
    def bounds(self) -> Bounds:
        return {r.topic_partition: r for r in self.ranges}


@contextmanager
def select_messages(case: ReplayTransaction, first: date, last: date) -> Iterator[SelectedMessages]:
    """The messages of dates, at the version that the case is planned on.

    Args:
        first, last: Inclusive: of rows their ``date``, of dead letters the date of Kafka's timestamp, UTC.
    """
    from pyspark.sql import functions as F

    table = case.spark.read.format("delta").option("versionAsOf", case.ledger.version).load(case.ledger.uri)
    of_dates = table.where(f"date BETWEEN DATE'{first}' AND DATE'{last}'")
    at = of_dates.select(*coordinates(of_dates, case.stream))
    rows = at.groupBy(*MESSAGE).agg(F.count("*").alias(_ROWS))
    with ExitStack() as until_done:
        torn = 0
        if explodes(table, case.stream):
            torn_ones = until_done.enter_context(cached(_torn(rows_of_messages(table, case.stream, rows), case.stream)))
            rows = rows.join(torn_ones, list(MESSAGE), "left_anti")
            torn = torn_ones.count()
        letters = until_done.enter_context(open_letters(case, DeadLetterFilter(first=first, last=last)))
        without_row = _as_meant(letters.frame.where(f"NOT {THERE}")).withColumn(_ROWS, F.lit(1))
        rows = rows.withColumn(IS_LETTER, F.lit(False))
        frame = until_done.enter_context(cached(rows.unionByName(without_row, allowMissingColumns=True)))
        with spark_failures(case.stream, "looking for the messages of the dates"):
            found = grouped(frame).collect()
        placed = [r for r in found if r["placed"]]
        parts = {r["partition"]: [other for other in placed if other["partition"] == r["partition"]] for r in placed}
        ranges = (
            OffsetRange(TopicPartition(case.stream.topic, p), min(r["start"] for r in of), max(r["end"] for r in of))
            for p, of in sorted(parts.items())
        )
        tallies = [(r[IS_LETTER], Tally(r["n"], r["digest"])) for r in placed]
        yield SelectedMessages(
            frame=frame.where(_PLACED).drop(_ROWS),
            rows=sum((tally for is_letter, tally in tallies if not is_letter), Tally()),
            letters=sum((tally for is_letter, tally in tallies if is_letter), Tally()),
            ranges=tuple(ranges),
            waiting=letters.waiting,
            torn=torn,
            unplaced=sum(r[_ROWS] for r in found if not r["placed"]),
        )


def grouped(frame: DataFrame) -> DataFrame:
    """Messages and the rows that they have, counted in one look at both.

    Args:
        frame: ``partition: int, offset: bigint, timestamp: timestamp, is_letter: boolean``, and ``rows: bigint``: how
            many there are of the message; of rows that do not say where it stood, one of the others is null.

    Returns:
        By ``placed: boolean`` (whether they say so), ``partition`` and ``is_letter``: ``n: bigint``, ``digest:
        bigint``, ``start: bigint``, ``end: bigint``, ``rows: bigint``.
    """
    from pyspark.sql import functions as F

    return frame.groupBy(F.expr(_PLACED).alias("placed"), "partition", IS_LETTER).agg(
        F.count("*").alias("n"),
        F.expr(DIGEST_SQL).alias("digest"),
        F.min("offset").alias("start"),
        F.expr("max(offset) + 1").alias("end"),
        F.sum(_ROWS).alias(_ROWS),
    )


def _torn(rows: DataFrame, stream: Stream) -> DataFrame:
    """``partition, offset, timestamp`` of the messages of which not all rows are there."""
    from pyspark.sql import functions as F

    at = rows.select(*coordinates(rows, stream)).groupBy(*MESSAGE)
    return at.agg(F.countDistinct("index").alias("n"), F.max("count").alias("of")).where("n < of").select(*MESSAGE)


def _as_meant(letters: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    was = (F.col(now).alias(was) for now, was in WAS.items())
    return letters.select(*MESSAGE, F.lit(True).alias(IS_LETTER), *was)


@dataclass(frozen=True, slots=True)
class Held:
    """The bytes of messages that are meant, as far as their source has them.

    Attributes:
        messages: As ``kafka_frame.read_ranges`` gives them.
        meant: What is meant, as far as the source has it.
        missing: What Kafka has not.
        lacking: Those, as ``meant`` has its own.
    """

    messages: DataFrame
    meant: SelectedMessages
    missing: Missing = Missing()
    lacking: DataFrame | None = None


@contextmanager
def held_by_kafka(case: ReplayTransaction, meant: SelectedMessages, first: date, last: date) -> Iterator[Held]:
    """Read the messages again, in one pass over the topic; what lies between them is passed over."""

    readable = _readable(case, meant)
    if readable:
        read = read_ranges(case.spark, case.stream.cluster, readable)
    else:
        read = case.spark.createDataFrame([], KAFKA_DDL)
    # By the time, too: at the same offset of a topic that was made anew lies another message.
    of_meant = read.join(meant.frame, list(MESSAGE)).select(*read.columns, IS_LETTER)
    with cached(of_meant) as found:
        messages, there = found.drop(IS_LETTER), found.select(*MESSAGE)
        with spark_failures(case.stream, "reading the topic"):
            tally = _tallies(found)
        if tally[False] + tally[True] == meant.messages:
            yield Held(messages, meant)
            return
        with cached(meant.frame.join(there, list(MESSAGE), "left_anti")) as lacking:
            with spark_failures(case.stream, "looking for what the topic has lost"):
                missing = _missing(case, lacking, meant, first, last)
            rest = meant.frame.join(there, list(MESSAGE), "left_semi")
            partial = replace(meant, frame=rest, rows=tally[False], letters=tally[True])
            yield Held(messages, partial, missing, lacking)


@contextmanager
def held_by_letters(case: ReplayTransaction, chosen: DeadLetterFilter) -> Iterator[Held]:
    """Open dead letters, with what they hold of their messages."""
    with open_letters(case, chosen) as letters:
        there = None
        if letters.there.count:
            of_rows = letters.frame.where(THERE)
            there = letters.told(f"'{VERDICTS[ROW]}'", where=THERE).join(_as_meant(of_rows), list(MESSAGE))
        meant = SelectedMessages(
            frame=_as_meant(letters.frame.where(f"NOT {THERE} AND NOT {WITHHELD}")),
            rows=Tally(),
            letters=letters.whole,
            ranges=letters.ranges,
            there=there,
            waiting=letters.waiting,
            withheld=letters.withheld.count,
        )
        yield Held(letters.messages, meant)


def _readable(case: ReplayTransaction, meant: SelectedMessages) -> tuple[OffsetRange, ...]:
    """The ranges as far as the broker has them."""
    ranges = []
    for r in meant.ranges:
        if offsets := case.topic.partitions.get(r.topic_partition):
            start, end = max(r.start, offsets.earliest), min(r.end, offsets.end)
            ranges += [OffsetRange(r.topic_partition, start, end)] if start < end else []
    return tuple(ranges)


def _tallies(frame: DataFrame) -> dict[bool, Tally]:
    found = tallies_by(frame, IS_LETTER)
    return {kind: found.get((kind,), Tally()) for kind in (False, True)}


def _missing(case: ReplayTransaction, lacking: DataFrame, meant: SelectedMessages, first: date, last: date) -> Missing:
    tally = _tallies(lacking)
    table = case.spark.read.format("delta").option("versionAsOf", case.ledger.version).load(case.ledger.uri)
    of_dates = table.where(f"date BETWEEN DATE'{first}' AND DATE'{last}'")
    rows = rows_of_messages(of_dates, case.stream, lacking.where(f"NOT {IS_LETTER}")).groupBy("date").count().collect()
    return Missing((tally[False] + tally[True]).count, tally[True].count, {r["date"]: r["count"] for r in rows})
