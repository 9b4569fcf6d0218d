"""Tally: what a pass over messages saw, counted where they are judged: in the kernel, in Spark's tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.drain.rules.contract import FieldsFound, fields_found
from kdi_assets.drain.rules.expectations import Unmet, unmet_counted
from kdi_assets.drain.rules.records import DEAD_LETTER, FILTERED, ROW, TOMBSTONE
from kdi_assets.formats.catalyst import counted_by
from kdi_assets.ledger.entry import BUCKETS_PER_OCTAVE, HIGHEST_BUCKET, LOWEST_BUCKET, LedgerEntry
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CLASS = "kdi.drain.PassTally"
LETTERS_BYTES = 64 << 20
"""Dead letters of a pass are kept in the driver's memory up to this; of more, their messages are judged once more."""
LETTER_DDL = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestamp_type int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, schema_id int, reason string, field string, withheld boolean"
)


class PassTally:
    """Counts the messages of one pass.

    Args:
        now: When the drain was planned: ages of messages are counted from there.
    """

    def __init__(self, spark: SparkSession, now: datetime) -> None:
        jvm: Any = spark._jvm
        ages = jvm.kdi.drain.Ages(round(now.timestamp() * 1000), BUCKETS_PER_OCTAVE, LOWEST_BUCKET, HIGHEST_BUCKET)
        letter = jvm.org.apache.spark.sql.types.DataType.fromDDL(LETTER_DDL)
        tally = jvm.kdi.drain.PassTally(ages, letter, LETTERS_BYTES)
        self._spark, self._tally = spark, tally.registered(spark.sparkContext._jsc.sc())

    def counted(self, arguments: Sequence[str]) -> Column:
        """Count a message, and say whether it becomes rows; for one action alone, else it counts twice.

        Args:
            arguments: Spark SQL of what ``kdi.drain.PassTally.counted`` takes of a message.
        """
        return counted_by(self._spark, _CLASS, "counted", self._tally, arguments)

    def counts(self, stream: Stream) -> Counts:
        """What was seen; to be asked behind the action."""
        told = json.loads(self._tally.told())
        by_verdict, digests = told["by_verdict"], told["digests"]
        digest = 0
        for of_verdict in digests:
            digest ^= of_verdict
        return Counts(
            messages=sum(by_verdict),
            became_rows=by_verdict[ROW],
            rows=told["rows"],
            others={
                (int(partition), verdict): n
                for partition, counts in told["others"].items()
                for verdict, n in enumerate(counts)
                if n
            },
            digest=digest,
            dead_letter_digest=digests[DEAD_LETTER],
            tombstone_digest=digests[TOMBSTONE],
            filtered_digest=digests[FILTERED],
            ages={int(age): n for age, n in told["ages"].items()},
            message_bytes=told["bytes"],
            unknown_schemas=told["unknown_schemas"],
            unmet=unmet_counted(stream, told["unmet"]["named"]),
            unknown=fields_found(told["unknown"]),
            misfits=fields_found(told["misfits"]),
            letters=self._letters(),
        )

    def _letters(self) -> DataFrame | None:
        from pyspark.sql import DataFrame

        letters = self._tally.letters(self._spark._jsparkSession)
        return None if letters is None else DataFrame(letters, self._spark)


@dataclass(frozen=True, slots=True)
class Counts:
    """What one pass over the messages saw.

    Attributes:
        messages: All of them.
        became_rows: Those that became a row, or several.
        rows: The rows that these became.
        others: (number of the topic partition, verdict) to messages, of those that did not.
        digest: ``bit_xor(xxhash64(partition, offset))`` of all messages: equal sets of offsets have equal digests.
        dead_letter_digest: The same of the dead letters.
        tombstone_digest: The same of the tombstones.
        filtered_digest: The same of the filtered messages.
        ages: Messages by their age when the drain was planned, in buckets of ``kdi_assets.ledger.entry``.
        message_bytes: Of their keys and values.
        unknown_schemas: Those that name a schema which the decoder does not know.
        unmet: By expectation, the messages that do not meet it, among those that would be rows otherwise.
        unknown: Fields that messages have and the record has not, among the same.
        misfits: Fields that were left out because a value does not suit its type, among the same.
        letters: The dead letters, as ``judge.to_dead_letters`` gives them; ``None`` if they are too many to be kept.
    """

    messages: int
    became_rows: int
    rows: int
    others: Mapping[tuple[int, int], int]
    digest: int
    dead_letter_digest: int
    tombstone_digest: int
    filtered_digest: int = 0
    ages: Mapping[int, int] = field(default_factory=dict)
    message_bytes: int = 0
    unknown_schemas: int = 0
    unmet: Mapping[str, Unmet] = field(default_factory=dict)
    unknown: FieldsFound = FieldsFound()
    misfits: FieldsFound = FieldsFound()
    letters: DataFrame | None = None

    @property
    def dead_letters(self) -> int:
        """Dead letters of all topic partitions."""
        return sum(n for (_, verdict), n in self.others.items() if verdict == DEAD_LETTER)

    def noted_in(self, entry: LedgerEntry) -> LedgerEntry:
        """The entry, with what the messages were besides their verdicts."""
        unmet = {expected: unmet.count for expected, unmet in self.unmet.items()}
        return replace(entry, unmet=unmet, unknown=self.unknown.fields, misfits=self.misfits.fields)
