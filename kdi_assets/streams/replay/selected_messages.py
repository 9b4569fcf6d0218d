"""The messages of a replay, and their bytes.

The messages of dates are those whose rows have the date, and the open dead letters that were produced on it; their
bytes are read from the source. Dead letters hold the bytes of their messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.delta.files import rows_at
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import DIGEST_SQL, Bounds, coordinates, explodes
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.source import messages_ddl
from kdi_assets.streams.audit.coverage import coverage
from kdi_assets.streams.audit.offsets_in_spark import covered_sql
from kdi_assets.streams.drain.cached_messages import cached
from kdi_assets.streams.ledger.dates import day_of
from kdi_assets.streams.ledger.letters import WITHHELD
from kdi_assets.streams.ledger.rewrite import MESSAGE, count_by_date, rows_of_messages
from kdi_assets.streams.replay.dead_letter_filter import DeadLetterFilter
from kdi_assets.streams.replay.open_letters import HAS_ROW, PREVIOUS, WRONG_SHARD, open_letters, tallies_by
from kdi_assets.streams.replay.replay_transaction import ReplayTransaction
from kdi_assets.streams.replay.report import Missing, Tally
from kdi_assets.streams.rules.verdict import ROW, VERDICTS
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IS_LETTER = "is_letter"
_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class SelectedMessages:
    """Messages to replay, each once.

    Attributes:
        frame: ``partition: int, offset: bigint, timestamp: timestamp, is_letter: boolean`` (it has no row), and the
            columns of ``PREVIOUS``.
        rows, letters: Count and digest of messages with rows, and of dead letters.
        ranges: The offsets between which they lie; other messages lie there as well.
        with_row: Open letters whose message has a row by now, so it is not judged: their outcomes, and the columns of
            ``frame``; ``None`` if there are none, or dates are replayed.
        waiting: How many more letters lie at or after the positions: the next drain reads them anyway.
        withheld: How many more letters do not hold their whole message, if only letters have it.
        torn: How many more messages lack some of their rows: someone deleted these, and a replay would restore them.
        unplaced: How many rows of the dates do not show which message they came from.
    """

    frame: DataFrame
    rows: Tally
    letters: Tally
    ranges: tuple[OffsetRange, ...]
    with_row: DataFrame | None = None
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
        return not self.messages.count and self.with_row is None

    @property
    def bounds(self) -> Bounds:
        return {r.topic_partition: r for r in self.ranges}


@dataclass(frozen=True, slots=True)
class ReplayMessages:
    """Selected messages with their bytes.

    Attributes:
        frame: The messages, as ``Source.read`` gives them.
        selected: The selection, without the missing messages.
        missing: Messages that the source no longer gives.
        missing_frame: The same, with the columns of ``SelectedMessages.frame``; ``None`` if there are none.
    """

    frame: DataFrame
    selected: SelectedMessages
    missing: Missing = Missing()
    missing_frame: DataFrame | None = None


@contextmanager
def select_messages(transaction: ReplayTransaction, first: date, last: date) -> Iterator[SelectedMessages]:
    """Select the messages of dates at the version of the transaction.

    Messages that also have rows of dates that are kept no longer are left out: they leave as a whole, later.

    Args:
        first, last: Inclusive: the ``date`` of rows, and the date of Kafka's timestamp of dead letters, UTC.
    """
    from pyspark.sql import functions as F

    stream, table, placed = transaction.stream, _table(transaction), _placed(transaction)
    of_dates = table.where(_between(first, last))
    rows = of_dates.select(*coordinates(of_dates, stream)).groupBy(*MESSAGE).agg(F.count("*").alias(_ROWS))
    with ExitStack() as until_done:
        torn = 0
        if explodes(table, stream):
            torn_ones = until_done.enter_context(cached(_torn(rows_of_messages(table, stream, rows), stream)))
            rows = rows.join(torn_ones, list(transaction.message_key), "left_anti")
            torn = torn_ones.count()
            rows = _without_older_rows(transaction, table, rows)
        letters = until_done.enter_context(open_letters(transaction, DeadLetterFilter(first=first, last=last)))
        without_row = _selection(letters.frame.where(f"NOT {HAS_ROW}")).withColumn(_ROWS, F.lit(1))
        rows = rows.withColumn(IS_LETTER, F.lit(False))
        frame = until_done.enter_context(cached(rows.unionByName(without_row, allowMissingColumns=True)))
        with spark_failures(stream, "looking for the messages of the dates"):
            found = grouped(frame, placed=placed).collect()
        tallies, bounds = {False: Tally(), True: Tally()}, dict[int, tuple[int, int]]()
        for r in (r for r in found if r["placed"]):
            tallies[r[IS_LETTER]] += Tally(r["n"], r["digest"])
            start, end = bounds.get(r["partition"], (r["start"], r["end"]))
            bounds[r["partition"]] = min(start, r["start"]), max(end, r["end"])
        yield SelectedMessages(
            frame=frame.where(placed).drop(_ROWS),
            rows=tallies[False],
            letters=tallies[True],
            ranges=tuple(OffsetRange(TopicPartition(stream.topic, p), *bounds[p]) for p in sorted(bounds)),
            waiting=letters.waiting,
            torn=torn,
            unplaced=sum(r[_ROWS] for r in found if not r["placed"]),
        )


def _without_older_rows(transaction: ReplayTransaction, table: DataFrame, rows: DataFrame) -> DataFrame:
    """The messages without those that also have rows of dates that are kept no longer.

    The date window has no older dates any more: judged again, these messages would become dead letters.
    """
    stream, key = transaction.stream, list(transaction.message_key)
    kept_from = stream.kept_from(transaction.now)
    if kept_from is None:
        return rows
    older = table.where(f"{day_of()} < DATE'{kept_from}'")
    return rows.join(older.select(*coordinates(older, stream)).select(*key).distinct(), key, "left_anti")


def _placed(transaction: ReplayTransaction) -> str:
    """Spark SQL over messages: whether it is certain which message the rows came from.

    Without timestamps the offset must tell it. Of rows from before the takeover it cannot: the other writer may have
    read them from an earlier topic of this name.
    """
    known = " AND ".join(f"{column} IS NOT NULL" for column in transaction.message_key)
    if tuple(transaction.message_key) == MESSAGE:
        return known
    return f"{known} AND {covered_sql(coverage(transaction.history.entries).begin)}"


def grouped(frame: DataFrame, *, placed: str) -> DataFrame:
    """Count messages and their rows in one pass.

    Args:
        frame: ``partition: int, offset: bigint, timestamp: timestamp, is_letter: boolean``, and ``rows: bigint``, how
            many rows the message has.
        placed: Condition: it is certain which message the rows came from.

    Returns:
        By ``placed: boolean``, ``partition`` and ``is_letter``: ``n: bigint``, ``digest:
        bigint``, ``start: bigint``, ``end: bigint``, ``rows: bigint``.
    """
    from pyspark.sql import functions as F

    return frame.groupBy(F.expr(placed).alias("placed"), "partition", IS_LETTER).agg(
        F.count("*").alias("n"),
        F.expr(DIGEST_SQL).alias("digest"),
        F.min("offset").alias("start"),
        F.expr("max(offset) + 1").alias("end"),
        F.sum(_ROWS).alias(_ROWS),
    )


@contextmanager
def read_from_source(
    transaction: ReplayTransaction, selected: SelectedMessages, first: date, last: date
) -> Iterator[ReplayMessages]:
    """Read the messages again, in one pass over the topic that drops all others."""
    from pyspark.sql import functions as F

    spark, stream = transaction.spark, transaction.stream
    again = source_of(stream).again(transaction.topic, selected.ranges, reversed(transaction.history.entries))
    ranges = again.held(selected.ranges)
    read = again.read(spark, ranges) if ranges else spark.createDataFrame([], messages_ddl(stream))
    # Joined by the timestamp as well: a recreated topic has other messages at the same offsets.
    key = list(transaction.message_key)
    of_letter, previous = [IS_LETTER, PREVIOUS["reason"]], PREVIOUS["reason"]
    own = read.join(selected.frame.select(*key, *of_letter), key).select(*read.columns, *of_letter)
    if WRONG_SHARD in own.columns:  # the letter decides: one may have been replayed by its reason, a stream become AUTO
        own = own.withColumn(WRONG_SHARD, F.expr(f"{IS_LETTER} AND {previous} <=> 'wrong_shard'"))
    with cached(own.drop(previous)) as found:
        messages, present = found.drop(IS_LETTER), found.select(*MESSAGE)
        if tuple(key) != MESSAGE:  # rows without timestamps: from here on they have those of their messages
            selected = replace(selected, frame=selected.frame.drop("timestamp").join(present, key, "left"))
        with spark_failures(transaction.stream, "reading the topic"):
            tally = _tallies(found)
        if tally[False] + tally[True] == selected.messages:
            yield ReplayMessages(messages, selected)
            return
        with cached(selected.frame.join(present, list(MESSAGE), "left_anti")) as missing_frame:
            with spark_failures(transaction.stream, "looking for what the topic has lost"):
                missing = _missing(transaction, missing_frame, first, last)
            rest = selected.frame.join(present, list(MESSAGE), "left_semi")
            partial = replace(selected, frame=rest, rows=tally[False], letters=tally[True])
            yield ReplayMessages(messages, partial, missing, missing_frame)


@contextmanager
def read_from_letters(transaction: ReplayTransaction, letter_filter: DeadLetterFilter) -> Iterator[ReplayMessages]:
    """Take the messages of open dead letters from the letters."""
    with open_letters(transaction, letter_filter) as letters:
        with_row = None
        if letters.with_row.count:
            selection = _selection(letters.frame.where(HAS_ROW))
            with_row = letters.outcomes(f"'{VERDICTS[ROW]}'", where=HAS_ROW).join(selection, list(MESSAGE))
        selected = SelectedMessages(
            frame=_selection(letters.frame.where(f"NOT {HAS_ROW} AND NOT {WITHHELD}")),
            rows=Tally(),
            letters=letters.complete,
            ranges=letters.ranges,
            with_row=with_row,
            waiting=letters.waiting,
            withheld=letters.withheld.count,
        )
        yield ReplayMessages(letters.messages, selected)


def _table(transaction: ReplayTransaction) -> DataFrame:
    return rows_at(transaction.spark, transaction.ledger.uri, transaction.ledger.version)


def _between(first: date, last: date) -> str:
    return f"{day_of()} BETWEEN DATE'{first}' AND DATE'{last}'"


def _torn(rows: DataFrame, stream: Stream) -> DataFrame:
    """``partition, offset, timestamp`` of the messages that lack some of their rows."""
    from pyspark.sql import functions as F

    at = rows.select(*coordinates(rows, stream)).groupBy(*MESSAGE)
    return at.agg(F.countDistinct("index").alias("n"), F.max("count").alias("of")).where("n < of").select(*MESSAGE)


def _selection(letters: DataFrame) -> DataFrame:
    """Letters with the columns of ``SelectedMessages.frame``."""
    from pyspark.sql import functions as F

    previous = (F.col(column).alias(name) for column, name in PREVIOUS.items())
    return letters.select(*MESSAGE, F.lit(True).alias(IS_LETTER), *previous)


def _tallies(frame: DataFrame) -> dict[bool, Tally]:
    found = tallies_by(frame, IS_LETTER)
    return {kind: found.get((kind,), Tally()) for kind in (False, True)}


def _missing(transaction: ReplayTransaction, missing_frame: DataFrame, first: date, last: date) -> Missing:
    tally, of_dates = _tallies(missing_frame), _table(transaction).where(_between(first, last))
    rows = rows_of_messages(of_dates, transaction.stream, missing_frame.where(f"NOT {IS_LETTER}"))
    return Missing((tally[False] + tally[True]).count, tally[True].count, count_by_date(rows))
