"""The messages that are kept no longer: those whose rows all have older dates, and old dead letters.

Dead letters leave with the rows of their message, or if their message is old; ``old_letters`` says which.

A message leaves as a whole. If it became rows of several dates, it stays until the newest of them is kept no longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.delta.files import rows_at
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import bounds_sql, coordinates, explodes
from kdi_assets.operate.upkeep.old_letters import letters_outside_losses, old_letters
from kdi_assets.streams.audit.coverage import coverage
from kdi_assets.streams.audit.offsets_in_spark import covered_sql, messages_by_partition
from kdi_assets.streams.drain.cached_messages import cached
from kdi_assets.streams.ledger.dates import day_of
from kdi_assets.streams.ledger.entry import Erasure
from kdi_assets.streams.ledger.history import LiveHistory
from kdi_assets.streams.ledger.letters import OUTCOME, committed_attempts, with_optional_columns
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
        superseded_count: Messages with dead letters that the ledger counts no more, because they were drained again.
    """

    rows: DataFrame
    letters: DataFrame
    staying: DataFrame | None
    rows_by_date: Mapping[date, int]
    counts: Erasure
    letter_count: int
    superseded_count: int

    @property
    def is_nothing(self) -> bool:
        """Whether no message leaves that the ledger counts."""
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
        stored = letters_outside_losses(spark, stream, lake, history.entries)
        letters = old_letters(spark, stream, lake, stored, history.entries, before=kept_from)
        with cached(first) as rows, cached(letters) as of_letters:
            without_row = of_letters.where("NOT superseded").select(*_LETTER)
            became_rows, digest = messages_by_partition(rows.where(covered), stream.topic)
            dead_letters, of_dead_letters = messages_by_partition(without_row.where(covered), stream.topic)
            # A record of a replay has the replay's attempt, and perhaps another topic than its dead letter.
            written = with_optional_columns(stored).where(f"{OUTCOME} IS NULL")
            of_rows = _of_messages(written, rows, message_key(table.schema.jsonValue(), stream))
            with_topic = of_rows.join(committed_attempts(spark, history.entries), "attempt_id").select(*_LETTER)
            yield ExpiringMessages(
                rows,
                without_row.unionByName(with_topic),
                staying if stay else None,
                dict(sorted(count_by_date(leaving).items())),
                Erasure(became_rows=became_rows, dead_letters=dead_letters, digest=digest ^ of_dead_letters),
                without_row.count(),
                of_letters.where("superseded").count(),
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


def _of_messages(letters: DataFrame, messages: DataFrame, key: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    same = " AND ".join(f"letter.{column} <=> message.{column}" for column in key)
    return letters.alias("letter").join(messages.alias("message"), F.expr(same), "left_semi")
