"""The messages that an erasure selects: by conditions on rows and dead letters, or because a RESTORE undid one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.files import rows_at
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import Bounds, bounds_sql, coordinates, keeps_timestamps
from kdi_assets.operate.upkeep.errors import EraseRefused
from kdi_assets.runtime.spark_internals import written_again
from kdi_assets.streams.audit.coverage import coverage
from kdi_assets.streams.audit.offsets_in_spark import covered_sql, islands, messages_by_partition
from kdi_assets.streams.drain.cached_messages import cached
from kdi_assets.streams.ledger.entry import Erasure
from kdi_assets.streams.ledger.erased import erased_offsets
from kdi_assets.streams.ledger.history import LiveHistory
from kdi_assets.streams.ledger.letters import OUTCOME, committed_attempts, open_in_ledger, with_optional_columns
from kdi_assets.streams.ledger.positions import LedgerState
from kdi_assets.streams.ledger.rewrite import MESSAGE, count_by_date, rows_of_messages
from kdi_assets.streams.resolve.rows_past_position import from_positions, of_older_topics
from kdi_assets.wording import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT = ["partition", "offset"]
_MESSAGE_DDL = "partition int, offset bigint, timestamp timestamp"
_VALUES = re.compile(r"""(`(?:[^`]|``)*`)|'(?:[^'\\]|\\.)*'|\b\d[\w.]*""", re.DOTALL)
"""A quoted name, or a value, in the SQL that Spark writes of an expression: strings have one form there."""


@dataclass(frozen=True, slots=True)
class EraseFilter:
    """Which messages are erased.

    Attributes:
        where: Spark SQL over the table's columns; a message whose row meets it is erased with all its rows and dead
            letters. Empty: none.
        letters_where: The same over the columns of the dead letters.
        again: Messages that were erased before, and that a RESTORE brought back or that are not deleted everywhere.
    """

    where: str = ""
    letters_where: str = ""
    again: bool = False


def without_values(condition: str, spark: SparkSession) -> str:
    """The condition with ``?`` in place of each value: what the ledger keeps must not name a person.

    Spark's parser reads it and writes it again, without comments and with one form of strings.
    """
    if not condition:
        return ""
    return _VALUES.sub(lambda found: found[1] or "?", written_again(spark, condition))


@dataclass(frozen=True, slots=True)
class ErasedMessages:
    """The selected messages at one version of the table.

    Attributes:
        frame: ``partition: int, offset: bigint, timestamp: timestamp``, each once.
        removed: The same of messages with rows in ``<table>_removed``.
        marked_rows, marked_letters: The offsets as ``append_erased`` takes them.
        bounds: The offsets between which the messages lie.
        rows_by_date: Their rows, by date.
        became_rows, dead_letters: Messages by topic partition, as the ledger counts them.
        digest: ``bit_xor(xxhash64(partition, offset))`` of these.
        letter_records: What is stored of them among the dead letters, records of replays included.
        removed_rows: Rows in ``<table>_removed``.
        uncertain_rows: Rows at offsets that were erased before, which are not selected: an earlier topic had the same
            offsets, and a row has no topic.
        uncertain_at: The first ranges of these offsets.
    """

    frame: DataFrame
    removed: DataFrame
    marked_rows: DataFrame
    marked_letters: DataFrame
    bounds: Bounds = field(default_factory=dict)
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    became_rows: Mapping[TopicPartition, int] = field(default_factory=dict)
    dead_letters: Mapping[TopicPartition, int] = field(default_factory=dict)
    digest: int = 0
    letter_records: int = 0
    removed_rows: int = 0
    uncertain_rows: int = 0
    uncertain_at: tuple[OffsetRange, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is stored of any selected message."""
        return not (self.rows_by_date or self.letter_records or self.removed_rows)

    def erasure(self, chosen: EraseFilter, spark: SparkSession) -> Erasure:
        """What the ledger records."""
        return Erasure(
            where=without_values(chosen.where, spark),
            letters_where=without_values(chosen.letters_where, spark),
            became_rows=self.became_rows,
            dead_letters=self.dead_letters,
            digest=self.digest,
            removed_rows=self.removed_rows,
            again=chosen.again,
        )


@dataclass(frozen=True, slots=True)
class EraseSelection:
    """Selects messages at one version of a stream's table.

    Attributes:
        topic_id: Of the topic that the positions belong to.
    """

    spark: SparkSession
    stream: Stream
    lake: str
    ledger: LedgerState
    history: LiveHistory
    topic_id: str

    @contextmanager
    def select(self, chosen: EraseFilter) -> Iterator[ErasedMessages]:
        """Select the messages, cached while the body runs.

        Raises:
            EraseRefused: A condition is wrong, or rows that meet it do not show their message.
        """
        from pyspark.sql import functions as F

        with cached(self._messages(chosen).distinct()) as frame, cached(self._removed(chosen, frame)) as removed:
            extent = frame.groupBy("partition").agg(F.min("offset").alias("start"), F.max("offset").alias("last"))
            bounds = {
                (tp := TopicPartition(self.stream.topic, r["partition"])): OffsetRange(tp, r["start"], r["last"] + 1)
                for r in extent.collect()
            }
            found = self._counted(frame, removed, bounds)
            yield replace(found, **self._uncertain(frame)) if chosen.again else found

    def letter_of_message(self) -> str:
        """Spark SQL: whether a record ``letter`` is of a message ``erased``, which has the columns of ``MESSAGE``."""
        # Messages of two topics may have one offset. A row without a timestamp is found by the offset, if only one has.
        same_time = "letter.timestamp <=> erased.timestamp"
        alone = f"erased.timestamp IS NULL AND NOT ({bounds_sql(self._of_two_topics(), struct='letter')})"
        return f"letter.partition = erased.partition AND letter.offset = erased.offset AND ({same_time} OR ({alone}))"

    def _of_two_topics(self) -> Bounds:
        """Offsets at which messages of an earlier topic may lie too; ``new-topic`` needs a table with timestamps."""
        if not keeps_timestamps(self._table().schema.jsonValue(), self.stream):
            return {}
        return of_older_topics(self.history, self.topic_id, from_positions(dict.fromkeys(self.ledger.positions, 0)))

    def _messages(self, chosen: EraseFilter) -> DataFrame:
        nothing = self.spark.createDataFrame([], _MESSAGE_DDL)
        by_row = self._rows_where(self._table(), chosen.where) if chosen.where else nothing
        by_letter = self._letters_where(chosen.letters_where) if chosen.letters_where else nothing
        again = self._erased_before() if chosen.again else nothing
        return by_row.unionByName(by_letter).unionByName(again)

    def _rows_where(self, table: DataFrame, where: str) -> DataFrame:
        with self._condition("--where"):
            matching = table.where(where)
        found = matching.select(*coordinates(matching, self.stream)).select(*MESSAGE)
        if unplaced := found.where("partition IS NULL OR offset IS NULL").count():
            delete = f"kdi sql 'DELETE FROM delta.`{self.stream.table_uri(self.lake)}` WHERE CONDITION'"  # noqa: S608
            raise self._refusal(
                f"{unplaced:,} rows that meet the condition do not show which message they came from",
                f"{delete}   (for these rows; the ledger does not count them)",
            )
        return found

    def _letters_where(self, where: str) -> DataFrame:
        letters = self._stored_letters()
        if letters is None:
            raise self._refusal("there are no dead letters", f"kdi dead-letters list {self.stream.name}")
        with self._condition("--dead-letters-where"):
            matching = letters.where(where)
        return self._with_topic(matching).where(self._is_at_rest()).select(*MESSAGE)

    def _erased_before(self) -> DataFrame:
        """Rows and dead letters at offsets that were erased, if a RESTORE did not undo more than that.

        Where messages of two topics have the offset, only the dead letters that are certainly of the same topic.
        """
        erased, alone = self._erased_offsets(), f"NOT ({bounds_sql(self._of_two_topics())})"
        own = erased.where(f"topic_id = '{self.topic_id}'").select(*_AT)
        found, letters = self._placed_rows().where(alone).join(own, _AT, "left_semi"), self._stored_letters()
        if letters is None:
            return found
        with_topic = self._with_topic(letters)
        of_letters = erased.where(f"is_letter OR {alone}")
        of_topic = with_topic.where(f"{OUTCOME} IS NULL AND ({self._is_at_rest()})")
        of_topic = of_topic.join(of_letters, [*_AT, "topic_id"], "left_semi")
        others = with_topic.where(f"topic_id IS NULL AND {alone} AND ({self._below_positions()})")
        others = others.join(own, _AT, "left_semi")
        return found.unionByName(of_topic.select(*MESSAGE)).unionByName(others.select(*MESSAGE))

    def _uncertain(self, frame: DataFrame) -> dict[str, Any]:
        """The rows that ``_erased_before`` leaves out, as fields of ``ErasedMessages``."""
        if not (of_two := self._of_two_topics()):
            return {}
        rows = self._placed_rows().where(bounds_sql(of_two)).join(frame, list(MESSAGE), "left_anti")
        rows = rows.join(self._erased_offsets().select(*_AT).distinct(), _AT, "left_semi")
        found = islands(rows.select(*_AT).distinct(), [], topic=self.stream.topic)
        return {"uncertain_rows": rows.count(), "uncertain_at": tuple(r for r, _ in found)}

    def _erased_offsets(self) -> DataFrame:
        entries = [e for e in (*self.history.entries, *self.history.undone_erasures) if e.kind == "erase"]
        return erased_offsets(self.spark, self.stream.erased_uri(self.lake), entries)

    def _placed_rows(self) -> DataFrame:
        table = self._table()
        return table.select(*coordinates(table, self.stream)).select(*MESSAGE)

    def _removed(self, chosen: EraseFilter, frame: DataFrame) -> DataFrame:
        """``MESSAGE`` of rows in the table of removed rows that are selected, one for each row."""
        uri = self.stream.removed_uri(self.lake)
        if TableLog.open(uri) is None:
            return frame.limit(0)
        kept = self.spark.read.format("delta").load(uri)
        of_messages = rows_of_messages(kept, self.stream, frame)
        found = of_messages.select(*coordinates(of_messages, self.stream)).select(*MESSAGE)
        if not chosen.where:
            return found
        matching = self._rows_where(kept, chosen.where)
        return found.unionByName(matching.join(found, list(MESSAGE), "left_anti"))

    def _counted(self, frame: DataFrame, removed: DataFrame, bounds: Bounds) -> ErasedMessages:
        begin = coverage(self.history.entries).begin
        table = self._table().where(bounds_sql(bounds, struct=self.stream.coordinates))
        rows = rows_of_messages(table, self.stream, frame)
        first = rows.select(*coordinates(rows, self.stream)).where("index = 0")
        became_rows, of_rows = messages_by_partition(first.where(covered_sql(begin)), self.stream.topic)
        records = self._records(frame)
        # Without those that an entry has already erased.
        letters = open_in_ledger(self.spark, self.stream, self.lake, records, self.history).where(covered_sql(begin))
        dead_letters, of_letters = messages_by_partition(letters, self.stream.topic)
        # A record of a replay has the attempt of the replay, and with it perhaps another topic than its dead letter.
        of_topic = self._with_topic(records).where(f"{OUTCOME} IS NULL AND topic_id IS NOT NULL")
        others = frame.join(of_topic.select(*MESSAGE), list(MESSAGE), "left_anti")
        return ErasedMessages(
            frame=frame,
            removed=removed,
            marked_rows=others.select(*_AT).unionByName(first.select(*_AT)),
            marked_letters=of_topic.select(*_AT, "topic_id"),
            bounds=bounds,
            rows_by_date=dict(sorted(count_by_date(rows).items(), key=lambda counted: str(counted[0]))),
            became_rows=became_rows,
            dead_letters=dead_letters,
            digest=of_rows ^ of_letters,
            letter_records=records.count(),
            removed_rows=removed.count(),
        )

    def _records(self, frame: DataFrame) -> DataFrame:
        """What is stored of the messages among the dead letters."""
        from pyspark.sql import functions as F

        letters = self._stored_letters()
        if letters is None:
            return self.spark.createDataFrame([], f"{_MESSAGE_DDL}, attempt_id string, {OUTCOME} string")
        return letters.alias("letter").join(frame.alias("erased"), F.expr(self.letter_of_message()), "left_semi")

    def _table(self) -> DataFrame:
        return rows_at(self.spark, self.ledger.uri, self.ledger.version)

    def _stored_letters(self) -> DataFrame | None:
        """All records of the dead-letter table; ``None`` if there is no such table."""
        log = TableLog.open(self.stream.dead_letters_uri(self.lake))
        return None if log is None else with_optional_columns(rows_at(self.spark, log.uri, log.version))

    def _with_topic(self, letters: DataFrame) -> DataFrame:
        """With ``topic_id: string`` of the entry that has their attempt; null if none has."""
        attempts = committed_attempts(self.spark, self.history.entries).select("attempt_id", "topic_id")
        return letters.join(attempts, "attempt_id", "left")

    def _is_at_rest(self) -> str:
        """Spark SQL over ``_with_topic``: no drain writes a letter of this message, and counts on it.

        A drain writes letters after the positions, and after a rewind once more those of the messages that it reads.
        """
        return f"topic_id <> '{self.topic_id}' OR ({self._below_positions()})"

    def _below_positions(self) -> str:
        below = (f"(partition = {tp.partition} AND offset < {at})" for tp, at in self.ledger.positions.items())
        return " OR ".join(below) or "false"

    @contextmanager
    def _condition(self, option: str) -> Iterator[None]:
        from pyspark.errors import AnalysisException, ParseException

        try:
            yield
        except (AnalysisException, ParseException) as wrong:
            again = f"kdi erase {self.stream.name} {option} CONDITION   (Spark SQL; kdi peek shows the columns)"
            raise self._refusal(f"{option} is wrong: {first_line(wrong)}", again) from wrong

    def _refusal(self, detail: str, run: str) -> EraseRefused:
        return EraseRefused(stream=self.stream.name, detail=detail, run=run)
