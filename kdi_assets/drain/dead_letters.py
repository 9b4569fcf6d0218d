"""Dead letters: messages that cannot become rows, kept with their coordinates; they count only through the ledger."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kdi_assets.drain.refusals import DeadLettersReplaced
from kdi_assets.ledger.entry import DeadLettersAt, LedgerEntry
from kdi_assets.ledger.log import TableLog
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CREATIONS = 3
_PROPERTIES = {"delta.appendOnly": "false", "delta.enableExpiredLogCleanup": "false"}


def append_letters(letters: DataFrame, uri: str, *, attempt_id: str) -> tuple[int, DeadLettersAt]:
    """Append the letters of one try, once.

    Args:
        letters: As ``judge.condemned`` gives them.

    Returns:
        How many were written, and where: the version holds them, it may hold others' too.
    """
    from delta.exceptions import ConcurrentWriteException, MetadataChangedException, ProtocolChangedException
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    for left in reversed(range(_CREATIONS)):
        written = Observation()
        stamped = letters.withColumn("schema_id", F.lit(None).cast("int")).withColumn("attempt_id", F.lit(attempt_id))
        observed = stamped.observe(written, F.count("*").alias("letters"))
        try:
            observed.write.format("delta").mode("append").options(**_PROPERTIES).save(uri)
        except (ConcurrentWriteException, MetadataChangedException, ProtocolChangedException):
            # Two drains that both make the table: one of them finds it there the next time. Appends do not conflict.
            if not left:
                raise
            continue
        break
    log = TableLog.existing(uri)
    return int(written.get["letters"]), DeadLettersAt(log.table_id, log.version)


def refuse_replaced(stream: Stream, lake: str, entry: LedgerEntry | None) -> None:
    """Refuse if the letters that the ledger counts on may not be there any more.

    Raises:
        DeadLettersReplaced: The table is gone, another one, or was restored since.
    """
    if entry is None or entry.dead_letters_at is None:
        return
    recorded, uri = entry.dead_letters_at, stream.dead_letters_uri(lake)
    log = TableLog.open(uri)
    if log is None or log.version < recorded.version:
        happened = "dropped"
    elif log.table_id != recorded.table_id:
        happened = f"replaced by table {log.table_id}"
    elif any(commit.replaces_rows for commit in log.commits(after=recorded.version)):
        happened = "restored or overwritten"
    else:
        return
    raise DeadLettersReplaced(
        stream=stream.name,
        uri=uri,
        recorded_id=recorded.table_id,
        recorded_version=recorded.version,
        happened=happened,
    )


def counting_letters(spark: SparkSession, uri: str, attempts: Collection[str]) -> DataFrame:
    """The letters that count: those of attempts that a live ledger entry names. Every reader of ours reads these.

    Args:
        attempts: Attempt ids of the live ledger entries; ``ledger.history`` knows them.
    """
    from pyspark.sql import functions as F

    letters = spark.read.format("delta").load(uri)
    return letters.where(F.col("attempt_id").isin(list(attempts)))
