"""Audit: what is in the table and its dead letters against what the ledger entries say was drained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING

from kdi_assets.errors import Terminal
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.history import LiveHistory, live_history
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.state import RETIRED
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SHOWN = 20
"""Holes and doubles named at most; the report says how many there are."""


@dataclass(eq=False, kw_only=True)
class NothingToAudit(Terminal):
    """The stream's table does not exist, or holds no ledger entry."""

    stream: str
    uri: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {self.uri} has no ledger entry; nothing was drained into it.",
            "nothing was changed.",
            f"kdi drain {self.stream}",
        )


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Where every offset went.

    Attributes:
        complete: Every offset from the first position to the current one is accounted for, and none is there twice.
        offsets: Offsets that the live ledger entries cover, less those that a decision set positions back over.
        rows: Rows of the table, by their coordinates.
        dead_letters: Letters that count.
        ghosts: Letters of tries that never committed; they are in the table and count for nothing.
        holes: Offsets covered by an entry, with no row and no letter; the first ones.
        doubles: Offsets that are there more often than entries cover them; the first ones.
        notes: What limits the audit: takeover, cleaned log, rows that others removed.
    """

    complete: bool
    stream: str = ""
    version: int = -1
    offsets: int = 0
    rows: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    gaps: int = 0
    declared_losses: int = 0
    ghosts: int = 0
    holes: tuple[OffsetRange, ...] = ()
    doubles: tuple[OffsetRange, ...] = ()
    notes: tuple[str, ...] = ()

    def line(self) -> str:
        """The report in one line."""
        parts = ("rows", "dead_letters", "tombstones", "gaps", "declared_losses")
        sums = " + ".join(f"{getattr(self, p):,} {p.replace('_', ' ')}" for p in parts)
        verdict = "none missing, none twice" if self.complete else self._faults()
        notes = "".join(f"; {note}" for note in self.notes)
        return f"audit of {self.stream} at v{self.version}: {self.offsets:,} offsets = {sums}; {verdict}{notes}"

    def _faults(self) -> str:
        faults = [f"missing {', '.join(map(str, self.holes))}"] if self.holes else []
        faults += [f"twice {', '.join(map(str, self.doubles))}"] if self.doubles else []
        return "NOT COMPLETE: " + ("; ".join(faults) or "the ledger and the rows disagree")


def audit(stream: Stream, *, lake: str, session: Callable[[], SparkSession]) -> AuditReport:
    """Account for every offset from the first position to the current one.

    The fast way compares counts by topic partition, and one digest over all offsets, with what the entries recorded
    when they read the topic. Only where these differ, single offsets are looked at.

    Raises:
        NothingToAudit: There is no ledger entry.
    """
    uri = stream.table_uri(lake)
    history = live_history(uri, stream.app_id)
    if history is None or not history.entries:
        raise NothingToAudit(stream=stream.name, uri=uri)
    standing, torn, set_back = _standing(history.entries)
    drains = [e for e in standing if e.ranges]
    spark = session()
    rows = _coordinates(spark, stream, uri, version=history.version)
    letters, ghosts = _letters(spark, stream.dead_letters_uri(lake), [e.attempt_id for e in history.entries])
    found = _since(history.entries[0], rows.select("*", _lit(True)).unionByName(letters.select("*", _lit(False))))
    counted = _count(found)
    agrees = not set_back and _agrees(counted, drains)  # of half a range the entries keep no counts
    holes, doubles = ((), ()) if agrees else _faults(spark, found, drains)
    return AuditReport(
        complete=not torn and (agrees or bool(set_back) and not (holes or doubles)),
        stream=stream.name,
        version=max(e.version for e in history.entries),
        offsets=sum(r.range.offset_count for e in drains for r in e.ranges) + _losses(standing),
        rows=sum(c.rows for c in counted.values()),
        dead_letters=sum(c.letters for c in counted.values()),
        tombstones=sum(e.tombstones for e in drains),
        gaps=sum(g.offset_count for e in drains for g in e.gaps),
        declared_losses=_losses(standing),
        ghosts=ghosts,
        holes=holes,
        doubles=doubles,
        notes=(*torn, *set_back, *_notes(history)),
    )


def highest_offsets(spark: SparkSession, stream: Stream, uri: str) -> dict[TopicPartition, int]:
    """The highest offset in the rows of each topic partition."""
    from pyspark.sql import functions as F

    newest = TableLog.existing(uri).version
    highest = _coordinates(spark, stream, uri, version=newest).groupBy("partition").agg(F.max("offset").alias("offset"))
    return {TopicPartition(stream.topic, r["partition"]): r["offset"] for r in highest.collect()}


@dataclass(frozen=True, slots=True)
class _Found:
    """What lies in the tables of one topic partition."""

    rows: int
    letters: int
    digest: int


def _since(first: LedgerEntry, found: DataFrame) -> DataFrame:
    """What the ledger can speak of: of a table that had rows before, those behind the first positions."""
    if first.kind == "start":
        return found
    begun = [f"(partition = {tp.partition} AND offset >= {at})" for tp, at in first.positions.items()]
    return found.where(" OR ".join(begun) or "false")


def _coordinates(spark: SparkSession, stream: Stream, uri: str, *, version: int) -> DataFrame:
    from pyspark.sql import functions as F

    steps = ".".join(f"`{step}`" for step in stream.coordinates.split("."))
    table = spark.read.format("delta").option("versionAsOf", version).load(uri)
    return table.select(F.expr(f"{steps}.partition").alias("partition"), F.expr(f"{steps}.offset").alias("offset"))


def _letters(spark: SparkSession, uri: str, attempts: Sequence[str]) -> tuple[DataFrame, int]:
    """Coordinates of the letters that count, and how many do not."""
    from pyspark.sql import functions as F

    if TableLog.open(uri) is None:
        return spark.createDataFrame([], "partition int, offset bigint"), 0
    letters = spark.read.format("delta").load(uri)
    counts = F.col("attempt_id").isin(list(attempts))
    return letters.where(counts).select("partition", "offset"), letters.where(~counts).count()


def _lit(is_row: bool) -> Column:
    from pyspark.sql import functions as F

    return F.lit(is_row).alias("is_row")


def _count(found: DataFrame) -> dict[int, _Found]:
    from pyspark.sql import functions as F

    counts = found.groupBy("partition").agg(
        F.expr("count_if(is_row)").alias("rows"),
        F.expr("count_if(NOT is_row)").alias("letters"),
        F.expr("bit_xor(xxhash64(partition, offset))").alias("digest"),
    )
    return {r["partition"]: _Found(r["rows"], r["letters"], r["digest"]) for r in counts.collect()}


def _agrees(counted: Mapping[int, _Found], drains: Sequence[LedgerEntry]) -> bool:
    rows: Counter[int] = Counter()
    letters: Counter[int] = Counter()
    for r in (r for e in drains for r in e.ranges):
        rows[r.range.topic_partition.partition] += r.rows
        letters[r.range.topic_partition.partition] += r.dead_letters
    recorded = reduce(xor, (e.digest ^ e.tombstone_digest for e in drains), 0)
    return (
        {p: c.rows for p, c in counted.items() if c.rows} == +rows
        and {p: c.letters for p, c in counted.items() if c.letters} == +letters
        and reduce(xor, (c.digest for c in counted.values()), 0) == recorded
    )


def _standing(entries: Sequence[LedgerEntry]) -> tuple[list[LedgerEntry], list[str], list[str]]:
    """What the entries still stand for: from where a decision set a position back, those before it count no more.

    Returns:
        The entries, where one does not begin where the one before it ended, and where positions were set back.
    """
    standing: list[LedgerEntry] = []
    torn, set_back = [], []
    at: dict[TopicPartition, int] = {}
    topic_id = ""
    for entry in entries:
        for r in (r.range for r in entry.ranges):
            if at.get(r.topic_partition, 0 if at else r.start) != r.start:
                torn.append(f"v{entry.version} begins {r}, and {at.get(r.topic_partition, 0)} was next")
        if entry.kind == "resolve" and entry.topic_id == topic_id:
            for tp, position in entry.positions.items():
                if position < at.get(tp, position):
                    set_back.append(f"v{entry.version} set {tp} back from {at[tp]} to {position}")
                    standing = [_cut(e, tp, position) if e.topic_id == topic_id else e for e in standing]
        standing.append(entry)
        at, topic_id = {tp: p for tp, p in entry.positions.items() if p != RETIRED}, entry.topic_id
    return standing, torn, set_back


def _cut(entry: LedgerEntry, tp: TopicPartition, end: int) -> LedgerEntry:
    """The entry without what lies behind ``end`` in one topic partition."""

    def below(r: OffsetRange) -> OffsetRange:
        return replace(r, end=max(r.start, min(r.end, end))) if r.topic_partition == tp else r

    return replace(
        entry,
        ranges=tuple(replace(r, range=below(r.range)) for r in entry.ranges if below(r.range).offset_count),
        gaps=tuple(below(g) for g in entry.gaps if below(g).offset_count),
        declared_losses=tuple(below(r) for r in entry.declared_losses if below(r).offset_count),
    )


def _faults(
    spark: SparkSession, found: DataFrame, drains: Sequence[LedgerEntry]
) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    """Offsets that are missing or there too often, as ranges.

    A tombstone leaves no trace, so in a range that had some, the missing offsets include them.
    """
    from pyspark.sql import functions as F

    covered = spark.createDataFrame(
        [(r.range.topic_partition.partition, r.range.start, r.range.end) for e in drains for r in e.ranges],
        "partition int, start bigint, end bigint",
    )
    gaps = spark.createDataFrame(
        [(g.topic_partition.partition, g.start, g.end) for e in drains for g in e.gaps],
        "partition int, start bigint, end bigint",
    )
    offset = F.expr("explode(sequence(start, end - 1))").alias("offset")
    expected = covered.select("partition", offset, F.lit(1).alias("n"))
    expected = expected.unionByName(gaps.select("partition", offset, F.lit(-1).alias("n")))
    present = found.select("partition", "offset", F.lit(-1).alias("n"))
    off = expected.unionByName(present).groupBy("partition", "offset").agg(F.sum("n").alias("n")).where("n <> 0")
    topic = drains[0].topic if drains else ""
    return _ranges(off.where("n > 0"), topic), _ranges(off.where("n < 0"), topic)


def _ranges(offsets: DataFrame, topic: str) -> tuple[OffsetRange, ...]:
    """Neighbouring offsets as ranges, the first ``SHOWN`` of them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rank = F.row_number().over(Window.partitionBy("partition").orderBy("offset"))
    islands = (
        offsets.withColumn("island", F.col("offset") - rank)
        .groupBy("partition", "island")
        .agg(F.min("offset").alias("start"), (F.max("offset") + 1).alias("end"))
        .orderBy("partition", "start")
        .limit(SHOWN)
    )
    return tuple(OffsetRange(TopicPartition(topic, r["partition"]), r["start"], r["end"]) for r in islands.collect())


def _losses(entries: Iterable[LedgerEntry]) -> int:
    return sum(r.offset_count for e in entries for r in e.declared_losses)


def _notes(history: LiveHistory) -> list[str]:
    notes = [f"v{c.version} {c.operation} may have removed rows" for c in history.removing]
    if history.entries[0].kind == "takeover":
        notes.insert(0, f"audited from the takeover at v{history.entries[0].version} on")
    elif history.entries[0].kind != "start":
        notes.insert(0, f"audited from v{history.entries[0].version} on, the log is readable from v{history.since} on")
    return notes
