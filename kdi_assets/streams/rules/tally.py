"""Tally: the counts of one pass over messages. The kernel counts them in the Spark tasks that judge them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.stream import Stream
from kdi_assets.runtime.spark_internals import (
    frame_of,
    jvm_context,
    jvm_session,
    jvm_type,
    kernel_call,
    kernel_object,
)
from kdi_assets.streams.ledger.entry import BUCKETS_PER_OCTAVE, HIGHEST_BUCKET, LOWEST_BUCKET, FieldCounts
from kdi_assets.streams.rules.verdict import DEAD_LETTER, FILTERED, ROW, TOMBSTONE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CLASS = "kdi.drain.PassTally"
LETTERS_BYTES = 64 << 20
"""The driver keeps the dead letters of a pass in memory up to this size. If there are more, the messages are judged a
second time."""
NAMES = ("unknown", "misfits", "unmet")
"""What rules count by name (``MessageRule.observed``), in the order of the kernel's arguments."""
NAMED = 100
"""How many unknown fields an entry names: those that most messages have."""
LETTER_DDL = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestamp_type int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, schema_id int, reason string, field string, withheld boolean"
)


@dataclass(frozen=True, slots=True)
class FieldsFound:
    """Fields that messages have, and partition and offset of the first of these messages; ``None`` if there is none."""

    fields: FieldCounts = FieldCounts()
    example: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Unmet:
    """How many messages do not meet an expectation, and partition and offset of the first; ``None`` if all meet it."""

    count: int
    example: tuple[int, int] | None = None


class PassTally:
    """Counts the messages of one pass.

    Args:
        stream: Whose messages are counted.
        now: The moment of planning, from which ages are counted.
    """

    def __init__(self, spark: SparkSession, stream: Stream, now: datetime) -> None:
        buckets = BUCKETS_PER_OCTAVE, LOWEST_BUCKET, HIGHEST_BUCKET
        ages = kernel_object(spark, "kdi.drain.Ages", round(now.timestamp() * 1000), *buckets)
        letter = jvm_type(spark, LETTER_DDL + stream.source_struct.more_ddl)
        tally = kernel_object(spark, _CLASS, ages, letter, LETTERS_BYTES)
        self._spark, self._tally = spark, tally.registered(jvm_context(spark))

    def counted(self, arguments: Sequence[str]) -> Column:
        """Boolean column: the message becomes rows. Only the first action counts, and it must judge all messages.

        Args:
            arguments: Spark SQL of the arguments of ``kdi.drain.PassTally.counted``.
        """
        return kernel_call(self._spark, _CLASS, "counted", "boolean", self._tally, *arguments, counts=True)

    def messages(self) -> int:
        """The messages of Spark's tasks that have ended; may be asked while the action runs."""
        return int(self._tally.messages())

    def counts(self, stream: Stream) -> Counts:
        """The counts, once the action has ended."""
        counts = json.loads(self._tally.toJson())
        by_verdict, digests = counts["by_verdict"], counts["digests"]
        unmet = [counts["unmet"]["named"].get(str(number)) for number in range(len(stream.expectations))]
        digest = 0
        for of_verdict in digests:
            digest ^= of_verdict
        return Counts(
            messages=sum(by_verdict),
            became_rows=by_verdict[ROW],
            rows=counts["rows"],
            not_rows={
                (int(partition), verdict): n
                for partition, by_verdict in counts["others"].items()
                for verdict, n in enumerate(by_verdict)
                if n
            },
            digest=digest,
            dead_letter_digest=digests[DEAD_LETTER],
            tombstone_digest=digests[TOMBSTONE],
            filtered_digest=digests[FILTERED],
            ages={int(age): n for age, n in counts["ages"].items()},
            message_bytes=counts["bytes"],
            unknown_schemas=counts["unknown_schemas"],
            unmet={
                expected: Unmet(seen[0], (seen[1], seen[2])) if seen else Unmet(0)
                for expected, seen in zip(stream.expectations, unmet, strict=True)
            },
            unknown=_fields_found(counts["unknown"]),
            misfits=_fields_found(counts["misfits"]),
            letters=self._letters(),
        )

    def _letters(self) -> DataFrame | None:
        letters = self._tally.letters(jvm_session(self._spark))
        return None if letters is None else frame_of(self._spark, letters)


def _fields_found(seen: Mapping[str, Any]) -> FieldsFound:
    messages, *at = seen["any"]
    if not messages:
        return FieldsFound()
    by_name = Counter({path: of[0] for path, of in seen["named"].items()})
    named = dict(by_name.most_common(NAMED))
    others = len(by_name) - len(named) + (1 if seen["others"] else 0)
    return FieldsFound(FieldCounts(messages, named, others), (at[0], at[1]))


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of one pass over messages.

    Attributes:
        messages: All messages.
        became_rows: Messages that became a row, or several.
        rows: The rows of these messages.
        not_rows: (number of the topic partition, verdict) to count, of the messages that became no row, dead letters
            included.
        digest: ``bit_xor(xxhash64(partition, offset))`` of all messages: equal sets of offsets have equal digests.
        dead_letter_digest, tombstone_digest, filtered_digest: The same of the messages with that verdict.
        ages: Messages by their age at the moment of planning, in buckets of ``streams.ledger.entry``.
        message_bytes: Of keys and values.
        unknown_schemas: Messages that name a schema which the decoder does not know.
        unmet: By expectation, the messages that do not meet it and would be rows otherwise.
        unknown: Fields that messages have and the record does not, of messages that would be rows otherwise.
        misfits: Fields that are left out because a value does not suit its type, of the same messages.
        letters: The dead letters, as ``judge.to_dead_letters`` gives them; ``None`` if they are too many to be kept.
    """

    messages: int
    became_rows: int
    rows: int
    not_rows: Mapping[tuple[int, int], int]
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
        return sum(n for (_, verdict), n in self.not_rows.items() if verdict == DEAD_LETTER)
