"""Dead letters: messages that cannot become rows, with their coordinates; they count only through the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.lost_races import until_won
from kdi_assets.delta.transaction import CHECKPOINT_INTERVAL
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.messages.coordinates import digest_of_columns
from kdi_assets.streams.drain.errors import SHOWN, DeadLettersGone, DeadLettersReplaced, ReasonCount, TooManyDeadLetters
from kdi_assets.streams.ledger.entry import DeadLettersAt
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_EPOCH, _DAY_MICROSECONDS = date(1970, 1, 1), 86_400_000_000
_DATES = "dates"
_PROPERTIES = {**CHECKPOINT_INTERVAL, "delta.appendOnly": "false", "delta.enableExpiredLogCleanup": "false"}


@dataclass(frozen=True, slots=True)
class AppendedLetters:
    """The letters that one attempt appended.

    Attributes:
        digest: ``bit_xor(xxhash64(partition, offset))`` of them.
        at: The dead-letter table, and a version that contains them.
        by_date: Letters by the date of their messages' timestamps (UTC), of the dates asked for.
    """

    count: int
    digest: int
    at: DeadLettersAt | None
    by_date: Mapping[date, int] = field(default_factory=dict)


def append_letters(
    letters: DataFrame, uri: str, *, attempt_id: str, between: tuple[date, date] | None = None, few: bool = False
) -> AppendedLetters:
    """Append the letters of one attempt, once.

    Args:
        letters: As ``judge.to_dead_letters`` gives them, or ``judge.verdicts`` of letters that the table has.
        between: First and last date to count letters by, both inclusive; ``None``: no date.
        few: They fit into this process: delta-rs writes ten letters in a tenth of Spark's time.
    """
    if few and _is_plain(uri):
        count, digest, days = _append_here(letters, uri, attempt_id)
    else:
        count, digest, days = _append_by_spark(letters, uri, attempt_id, between)
    log = TableLog.existing(uri)
    by_date = {_EPOCH + timedelta(days=day): n for day, n in sorted(days.items()) if _lies_in(between, day)}
    return AppendedLetters(count, digest, DeadLettersAt(log.table_id, log.version), by_date)


def _is_plain(uri: str) -> bool:
    """Whether delta-rs creates the table, or appends to it, as Spark would: on this machine, and without features of
    its own.
    """
    if "://" in uri:
        return False
    try:
        table = TableLog.open(uri)
    except KdiError:  # Spark says what is wrong with the table
        return False
    return table is None or table.has_no_features


_Appended = tuple[int, int, Mapping[int, int]]
"""The number of letters, their digest, and their number by day of the messages' timestamps (UTC, days since 1970)."""


def _append_here(letters: DataFrame, uri: str, attempt_id: str) -> _Appended:
    """Append by delta-rs, which also creates the table."""
    import numpy as np
    import pyarrow as pa
    from deltalake import PostCommitHookProperties, write_deltalake
    from deltalake.exceptions import CommitFailedError

    rows = letters.toArrow()
    stamped = rows.append_column("attempt_id", pa.repeat(attempt_id, len(rows)))
    stamped = stamped.cast(pa.schema([column.with_nullable(True) for column in stamped.schema]))
    kept = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
    append = partial(write_deltalake, uri, stamped, mode="append", schema_mode="merge", post_commithook_properties=kept)
    # The properties are those of a new table. Two writers create it, or add a column, at once: one of them repeats.
    until_won(partial(append, configuration=_PROPERTIES), lost=CommitFailedError)
    partitions, offsets = (rows[c].to_numpy().astype(np.int64) for c in ("partition", "offset"))
    days = rows["timestamp"].cast(pa.int64()).to_numpy() // _DAY_MICROSECONDS
    return len(rows), digest_of_columns(partitions, offsets, offsets + 1), Counter(days.tolist())


def _append_by_spark(letters: DataFrame, uri: str, attempt_id: str, between: tuple[date, date] | None) -> _Appended:
    """Append by Spark, which also creates the table; days outside ``between`` are not counted."""
    from delta.exceptions import ConcurrentWriteException, MetadataChangedException, ProtocolChangedException
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    def attempt() -> Observation:
        written = Observation()
        stamped = letters.withColumn("attempt_id", F.lit(attempt_id))
        digest = F.expr("bit_xor(xxhash64(partition, offset))").alias("digest")
        observed = stamped.observe(written, F.count("*").alias("letters"), digest, *_dates(between))
        writing = observed.write.format("delta").mode("append").options(**_PROPERTIES)
        writing.option("mergeSchema", "true").save(uri)  # not every letter has every column
        return written

    # Two writers create the table, or add a column, at once: one of them repeats. Appends do not conflict.
    lost = (ConcurrentWriteException, MetadataChangedException, ProtocolChangedException)
    seen = until_won(attempt, lost=lost).get
    days: Counter[int] = Counter()
    for bin_ in seen.get(_DATES) or ():
        days[int(bin_["x"])] += int(bin_["y"])  # each task has bins of its own
    return int(seen["letters"]), int(seen["digest"] or 0), days


def _lies_in(between: tuple[date, date] | None, day: int) -> bool:
    # Compared as numbers: producers choose timestamps, and not every day is a valid date.
    return between is not None and (between[0] - _EPOCH).days <= day <= (between[1] - _EPOCH).days


def _dates(between: tuple[date, date] | None) -> list[Column]:
    """A column that counts letters by the days of their messages' timestamps during the write; none without dates."""
    from pyspark.sql import functions as F

    if between is None:
        return []
    first, last = ((day - _EPOCH).days for day in between)
    # Producers choose timestamps, so only the days asked for are counted. In UTC, whatever the session's time zone is.
    day = f"CAST(floor(unix_micros(timestamp) / {_DAY_MICROSECONDS}D) AS BIGINT)"
    # The histogram is exact if it has twice as many bins as there are different values; it skips nulls.
    wanted = f"CASE WHEN {day} BETWEEN {first} AND {last} THEN {day} END"
    return [F.expr(f"histogram_numeric({wanted}, {2 * (last - first + 1)})").alias(_DATES)]


def check_letters_intact(stream: Stream, lake: str, recorded: DeadLettersAt | None) -> None:
    """Refuse if letters that the ledger counts on may be gone.

    Raises:
        DeadLettersReplaced: The table was dropped, replaced or restored since, or its log cannot rule that out.
    """
    if recorded is None:
        return
    uri = stream.dead_letters_uri(lake)
    log = TableLog.open(uri)
    if log is None or log.version < recorded.version:
        change = "dropped"
    elif log.table_id != recorded.table_id:
        change = f"replaced by table {log.table_id}"
    elif not (change := _rewritten(log, since=recorded.version)):
        return
    raise letters_replaced(stream, lake, recorded, change)


def check_letters_intact_or_retry(stream: Stream, lake: str, written: DeadLettersAt | None) -> None:
    """Check once more the letters that a commit will count on: without them it would lose their messages.

    Raises:
        DeadLettersGone: They may be gone.
    """
    try:
        check_letters_intact(stream, lake, written)
    except DeadLettersReplaced as gone:
        raise DeadLettersGone(stream=stream.name, uri=gone.uri, change=gone.change) from gone


def letters_replaced(stream: Stream, lake: str, recorded: DeadLettersAt, change: str) -> DeadLettersReplaced:
    """The refusal of letters that may be gone."""
    return DeadLettersReplaced(
        stream=stream.name,
        uri=stream.dead_letters_uri(lake),
        recorded_id=recorded.table_id,
        recorded_version=recorded.version,
        change=change,
    )


def _rewritten(log: TableLog, *, since: int) -> str:
    """What may have removed letters since a version; empty if nothing did."""
    try:
        rewritten = any(commit.replaces_rows for commit in log.commits(after=since))
    except CommitUnreadable as gone:
        return f"changed by commit {gone.version}, which cannot be read"
    return "restored or overwritten" if rewritten else ""


def refuse_too_many_letters(stream: Stream, dead_letters: int, letters: Callable[[], DataFrame], *, of: int) -> None:
    """Refuse more dead letters than the stream's limit allows.

    Args:
        of: The messages that should become rows, dead letters included.
        letters: Gives the dead letters; called only to name the reasons of a refusal.

    Raises:
        TooManyDeadLetters: There are more.
    """
    if not stream.dead_letter_limit.is_passed_by(dead_letters, of=of):
        return
    with spark_failures(stream, "counting the reasons of dead letters"):
        reasons = _reasons(letters())
    raise TooManyDeadLetters(
        stream=stream.name,
        dead_letters=dead_letters,
        messages=of,
        limit=str(stream.dead_letter_limit),
        reasons=reasons,
    )


def _reasons(letters: DataFrame) -> tuple[ReasonCount, ...]:
    from pyspark.sql import functions as F

    by_reason = letters.groupBy("reason", "field").agg(F.count("*").alias("letters"))
    most = by_reason.orderBy(F.desc("letters"), "reason", "field").limit(SHOWN).collect()
    return tuple(ReasonCount(r["reason"], r["field"] or "", r["letters"]) for r in most)
