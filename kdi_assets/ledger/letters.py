"""Dead letters as they stand: open, resolved or discarded.

Nobody changes a letter. What becomes of one later is a record beside it, with the attempt id of the commit that says
so; records count like letters do, if an entry of the live history names their attempt. So a RESTORE of the table opens
the letters again whose rows it took.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from kdi_assets.ledger.coordinates import inside
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.entry import OF_REPLAY, LedgerEntry, entry_of
from kdi_assets.ledger.history import LiveHistory, every_commit
from kdi_assets.ledger.storage import storage_uri
from kdi_assets.ledger.superseded_offsets import Superseded, read_again, superseded
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DeadLetterState = Literal["open", "resolved", "discarded"]
"""Waiting for a replay or a decision; a row by now, or nothing by its definition; or given up by someone."""
OUTCOME = "outcome"
"""What became of a letter later; null in a letter itself."""
DISCARDED = "discarded"
WITHHELD = "withheld"
_DDL = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestamp_type int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, schema_id int, reason string, field string, attempt_id string"
)
_AT = ["partition", "offset", "timestamp"]
_SMALL = ("topic", "timestamp_type", "schema_id", WITHHELD, "topic_id")
_MESSAGE = ("key", "value", "headers")
_SILENCED, _AGAIN = "_kdi_silenced", "_kdi_again"
_RANGE = "partition: int, start: bigint, end: bigint, version: bigint, topic_id: string"
_STATE = (
    # A letter whose message was drained again, and condemned again, is not the newest one of it.
    f"CASE WHEN letter.{_AGAIN} THEN 'resolved' WHEN {OUTCOME} = '{DISCARDED}' THEN 'discarded' "
    # The row that it became was taken out, to be drained again, which it is not yet and may never be.
    f"WHEN said.{_SILENCED} OR coalesce({OUTCOME}, 'dead_letter') = 'dead_letter' THEN 'open' ELSE 'resolved' END"
)


def standing_letters(
    spark: SparkSession, stream: Stream, lake: str, history: LiveHistory, *, with_messages: bool = True
) -> DataFrame:
    """Every dead letter that counts, once, with what was said of it last.

    Args:
        history: Of the stream's table; its entries say what counts.
        with_messages: Whether to give key, value and headers as well: sorting them takes long.

    Returns:
        ``topic: string, partition: int, offset: bigint, timestamp: timestamp, date: date, timestamp_type: int,
        schema_id: int, withheld: boolean, topic_id: string, key: binary, value: binary,
        headers: array<struct<key: string, value: binary>>, reason: string, field: string, state: string,
        outcome: string, drained_by: bigint, said_by: bigint``: the reason is the newest, the date that of the timestamp
        in UTC, the last two are versions of the stream's table: of the drain, and of the commit that spoke last. Lazy.
    """
    from pyspark.sql import functions as F

    letters = _complete(_table(spark, stream.dead_letters_uri(lake)))
    counting = _silenced(spark, letters.join(_named(spark, history.entries), "attempt_id"), history.entries)
    kept = (*_SMALL, *(_MESSAGE if with_messages else ()))
    of_letter = f"max_by(struct({', '.join(kept)}, version, {_AGAIN}), version) FILTER (WHERE {OUTCOME} IS NULL)"
    why = "max_by(struct(reason, field), version) FILTER (WHERE reason IS NOT NULL)"
    letters = (
        counting.groupBy(*_AT)
        .agg(
            F.expr(of_letter).alias("letter"),
            F.expr(why).alias("why"),
            F.expr(f"max_by({OUTCOME}, version)").alias(OUTCOME),
            F.expr(f"max_by(struct({_SILENCED}), version)").alias("said"),
            F.max("version").alias("said_by"),
        )
        .where("letter IS NOT NULL")
    )
    return letters.selectExpr(
        "letter.topic",
        "partition",
        "offset",
        "timestamp",
        "CAST(to_utc_timestamp(timestamp, current_timezone()) AS DATE) AS date",
        *(f"letter.{column}" for column in kept[1:]),
        "why.reason",
        "why.field",
        f"{_STATE} AS state",
        OUTCOME,
        "letter.version AS drained_by",
        "said_by",
    )


def letters_now(spark: SparkSession, uri: str, entries: Sequence[LedgerEntry]) -> DataFrame:
    """The dead letters whose message is no row.

    Args:
        entries: Whose letters count, and whose word on what became of others.

    Returns:
        ``partition: int, offset: bigint, counts: boolean`` of every letter, whether it counts or not.
    """
    return unreturned(spark, _table(spark, uri), entries).select("partition", "offset", "counts")


def unreturned(spark: SparkSession, kept: DataFrame, entries: Sequence[LedgerEntry]) -> DataFrame:
    """The dead letters of which no entry says that they became rows; one condemned anew after that is a letter again.

    Of a message that was drained again, or whose rows a decision took out so that it is, older letters are none.

    Args:
        kept: A dead-letter table, at some version.

    Returns:
        ``partition: int, offset: bigint, attempt_id: string, counts: boolean``: it counts if an entry names it.
    """
    from pyspark.sql import functions as F

    counts = F.col("attempt_id").isin([e.attempt_id for e in entries]).alias("counts")
    letter = ["partition", "offset", "attempt_id"]
    if OUTCOME not in kept.columns and not superseded(entries):
        return kept.select(*letter, counts)
    said = _standing(spark, kept, entries).withColumn("counts", counts)
    rows = said.where(f"{OUTCOME} = 'row' AND counts").selectExpr(*_AT, "version AS returned_by")
    rows = rows.groupBy(*_AT).agg(F.max("returned_by").alias("returned_by"))
    letters = said.where(f"{OUTCOME} IS NULL").join(rows, _AT, "left")
    return letters.where("NOT coalesce(counts AND version < returned_by, false)").select(*letter, "counts")


def came_back(spark: SparkSession, uri: str, entries: Sequence[LedgerEntry]) -> DataFrame:
    """The messages of dead letters of which an entry says that they became rows: ``partition: int, offset: bigint``."""
    said = _standing(spark, _table(spark, uri), entries).where(f"{OUTCOME} = 'row' AND version IS NOT NULL")
    return said.select("partition", "offset").distinct()


def _standing(spark: SparkSession, kept: DataFrame, entries: Sequence[LedgerEntry]) -> DataFrame:
    """What letters and later words on them say, but for what a newer entry silences; with their entry's version."""
    letters = _complete(kept).select(*_AT, "attempt_id", OUTCOME)
    said = letters.join(_named(spark, entries), "attempt_id", "left")
    return _silenced(spark, said, entries).where(f"NOT coalesce({_SILENCED}, false)")


def _named(spark: SparkSession, entries: Sequence[LedgerEntry]) -> DataFrame:
    """The attempts that count: ``attempt_id: string, version: bigint, topic_id: string``."""
    from pyspark.sql import functions as F

    named = [(e.attempt_id, e.version, e.topic_id) for e in entries]
    return F.broadcast(spark.createDataFrame(named, "attempt_id string, version bigint, topic_id string"))


def _silenced(spark: SparkSession, letters: DataFrame, entries: Sequence[LedgerEntry]) -> DataFrame:
    """Add whether a newer entry is to speak of the message of each letter, and whether its message was drained again.

    Args:
        letters: With ``partition, offset``, and ``version, topic_id`` of the entry that names their attempt.
    """
    from pyspark.sql import functions as F

    found = {_SILENCED: superseded(entries), _AGAIN: read_again(entries)}
    if not any(found.values()):
        return letters.withColumns(dict.fromkeys(found, F.lit(False)))
    ranges = {name: f"{name}_ranges" for name in found}
    ddl = ", ".join(f"{column} array<struct<{_RANGE}>>" for column in ranges.values())
    one = spark.createDataFrame([tuple(_plain(each) for each in found.values())], ddl)
    lies = (
        "r.partition = partition AND r.start <= offset AND offset < r.end AND version < r.version "
        "AND r.topic_id = topic_id"
    )
    both = letters.crossJoin(F.broadcast(one))
    told = {name: F.expr(f"exists({column}, r -> {lies})") for name, column in ranges.items()}
    return both.withColumns(told).drop(*ranges.values())


def _plain(ranges: Sequence[Superseded]) -> list[tuple[int, int, int, int, str]]:
    return [(a.range.topic_partition.partition, a.range.start, a.range.end, a.version, a.topic_id) for a in ranges]


def _table(spark: SparkSession, uri: str) -> DataFrame:
    """The letters as they lie there, at one version; none where there is no table."""
    log = TableLog.open(uri)
    if log is None:
        return spark.createDataFrame([], _DDL)
    return spark.read.format("delta").option("versionAsOf", log.version).load(uri)


def _complete(letters: DataFrame) -> DataFrame:
    """With the columns that not every table has: the first replay adds outcomes."""
    from pyspark.sql import functions as F

    absent = {OUTCOME: F.lit(None).cast("string"), WITHHELD: F.lit(False)}
    return letters.withColumns({name: value for name, value in absent.items() if name not in letters.columns})


def remove_orphaned_dead_letters(stream: Stream, lake: str) -> int:
    """Remove ghosts, the letters of tries that no commit of the log names, where they can no longer matter. No JVM.

    Only below the position: a drain that is under way writes at or behind it, and can no longer commit once the
    position moved past. Nothing of a replay, which writes below the position and may be under way: neither what became
    of letters nor, known by the name of its try, letters of messages that were rows.
    Never inside a declared loss, where a ghost may be the only copy of its message. Never those of a commit that a
    RESTORE undid: another RESTORE may bring it back. And none at all of a table that was adopted, or that is younger
    than its dead letters: these may be those of the table in whose place it was put, and the only copies of their
    messages.

    Returns:
        How many were removed.

    Raises:
        CommitUnreadable: Part of the log is gone without having been archived, or does not answer, so nobody can say
            who committed.
    """
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    letters = TableLog.open(stream.dead_letters_uri(lake))
    if letters is None:
        return 0
    table = DeltaTable(storage_uri(letters.uri))
    # The letters first, the ledger after: a try that is seen here, and that the ledger then does not name although the
    # position moved past it, cannot commit any more.
    replays = any(f.name == OUTCOME for f in table.schema().fields)
    kept = table.to_pyarrow_table(columns=["attempt_id", *([OUTCOME] if replays else [])])
    written = pc.unique((kept.filter(pc.is_null(kept[OUTCOME])) if replays else kept)["attempt_id"]).to_pylist()
    committed = _every_entry(stream, lake)
    named_otherwise = {attempt for attempt in written if attempt.startswith(OF_REPLAY)}
    ghosts = sorted(set(written) - named_otherwise - {e.attempt_id for e in committed})
    younger = letters.created < TableLog.existing(stream.table_uri(lake)).created
    if not ghosts or not committed or committed[0].kind == "resolve" or younger:
        return 0
    named = ", ".join(f"'{attempt}'" for attempt in ghosts)
    below = " OR ".join(
        f"(partition = {tp.partition} AND offset < {position})" for tp, position in committed[-1].positions.items()
    )
    lost = "".join(f" AND NOT ({inside({r.topic_partition: r})})" for e in committed for r in e.declared_losses)
    letters_alone = f" AND {OUTCOME} IS NULL" if replays else ""
    removed = table.delete(f"attempt_id IN ({named}) AND ({below}){lost}{letters_alone}")
    return int(removed["num_deleted_rows"])


def _every_entry(stream: Stream, lake: str) -> list[LedgerEntry]:
    """Every entry of the log or its archive from the first commit on, the oldest first."""
    rows = TableLog.existing(stream.table_uri(lake))
    commits = every_commit(rows, stream.archive_uri(lake))
    found = (entry_of(c.user_metadata, c.version, stream.app_id) for c in commits)
    return [entry for entry in found if entry]
