"""Dead letters: messages that cannot become rows, kept with their coordinates; they count only through the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING

from kdi_assets.drain.refusals import DeadLettersGone, DeadLettersReplaced
from kdi_assets.ledger.delta import CHECKPOINT_INTERVAL
from kdi_assets.ledger.entry import DeadLettersAt
from kdi_assets.ledger.log import CommitUnreadable, TableLog
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TRIES = 3
_EPOCH, _DAY_MICROSECONDS = date(1970, 1, 1), 86_400_000_000
_DATES = "dates"
_PROPERTIES = {**CHECKPOINT_INTERVAL, "delta.appendOnly": "false", "delta.enableExpiredLogCleanup": "false"}


@dataclass(frozen=True, slots=True)
class Written:
    """Letters of one try: how many, ``bit_xor(xxhash64(partition, offset))`` of them, and where they lie.

    Attributes:
        by_date: Of the dates that were asked for, those that messages' own timestamps (UTC) have, and how many.
    """

    count: int
    digest: int
    at: DeadLettersAt | None
    by_date: Mapping[date, int] = field(default_factory=dict)


def append_letters(
    letters: DataFrame, uri: str, *, attempt_id: str, between: tuple[date, date] | None = None
) -> Written:
    """Append the letters of one try, once.

    Args:
        letters: As ``judge.condemned`` gives them, or ``judge.verdicts`` of letters that are there.
        between: Dates that are counted one by one, both inclusive; ``None``: none.

    Returns:
        What was written, and where: the version holds them, it may hold others' too.
    """
    from delta.exceptions import ConcurrentWriteException, MetadataChangedException, ProtocolChangedException
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    for left in reversed(range(_TRIES)):
        written = Observation()
        stamped = letters.withColumn("attempt_id", F.lit(attempt_id))
        digest = F.expr("bit_xor(xxhash64(partition, offset))").alias("digest")
        observed = stamped.observe(written, F.count("*").alias("letters"), digest, *_dates(between))
        try:
            writing = observed.write.format("delta").mode("append").options(**_PROPERTIES)
            writing.option("mergeSchema", "true").save(uri)  # there are columns that not every letter has
        except (ConcurrentWriteException, MetadataChangedException, ProtocolChangedException):
            # Two that both make the table, or add a column: one finds it there the next time. Appends do not conflict.
            if not left:
                raise
            continue
        break
    log = TableLog.existing(uri)
    seen = written.get
    days: Counter[date] = Counter()
    for bin_ in sorted(seen.get(_DATES) or ()):
        days[_EPOCH + timedelta(days=int(bin_["x"]))] += int(bin_["y"])  # of each task a bin of its own
    return Written(int(seen["letters"]), int(seen["digest"] or 0), DeadLettersAt(log.table_id, log.version), dict(days))


def _dates(between: tuple[date, date] | None) -> list[Column]:
    """Letters by the days of their messages' timestamps, counted while they are written."""
    from pyspark.sql import functions as F

    if between is None:
        return []
    first, last = ((day - _EPOCH).days for day in between)
    # Timestamps are whatever producers say: only so many dates are looked at. In UTC, whatever the session's zone is.
    day = f"CAST(floor(unix_micros(timestamp) / {_DAY_MICROSECONDS}D) AS BIGINT)"
    # Exact as long as there are at least twice as many bins as different values; it skips nulls.
    wanted = f"CASE WHEN {day} BETWEEN {first} AND {last} THEN {day} END"
    return [F.expr(f"histogram_numeric({wanted}, {2 * (last - first + 1)})").alias(_DATES)]


def refuse_replaced(stream: Stream, lake: str, recorded: DeadLettersAt | None) -> None:
    """Refuse if the letters that the ledger counts on may not be there any more.

    Raises:
        DeadLettersReplaced: The table is gone, another one, was restored since, or may have been.
    """
    if recorded is None:
        return
    uri = stream.dead_letters_uri(lake)
    log = TableLog.open(uri)
    if log is None or log.version < recorded.version:
        happened = "dropped"
    elif log.table_id != recorded.table_id:
        happened = f"replaced by table {log.table_id}"
    elif not (happened := _rewritten(log, since=recorded.version)):
        return
    raise replaced(stream, lake, recorded, happened)


def refuse_gone(stream: Stream, lake: str, written: DeadLettersAt | None) -> None:
    """Look again for letters that a commit is to count on: without them it would let go of their messages.

    Raises:
        DeadLettersGone: They may not be there any more.
    """
    try:
        refuse_replaced(stream, lake, written)
    except DeadLettersReplaced as gone:
        raise DeadLettersGone(stream=stream.name, uri=gone.uri, happened=gone.happened) from gone


def replaced(stream: Stream, lake: str, recorded: DeadLettersAt, happened: str) -> DeadLettersReplaced:
    """The refusal."""
    return DeadLettersReplaced(
        stream=stream.name,
        uri=stream.dead_letters_uri(lake),
        recorded_id=recorded.table_id,
        recorded_version=recorded.version,
        happened=happened,
    )


def _rewritten(log: TableLog, *, since: int) -> str:
    """What may have taken letters away since a version; empty if nothing did."""
    try:
        rewritten = any(commit.replaces_rows for commit in log.commits(after=since))
    except CommitUnreadable as gone:
        return f"changed by commit {gone.version}, which cannot be read"
    return "restored or overwritten" if rewritten else ""
