"""`kdi peek`: a few messages as the stream's own definition sees them: rows, or the reason why not. Read-only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kdi_assets.cli.options import AsJson, Defs, StreamName, stream_meant, topic_partition_meant
from kdi_assets.cli.output import answer, clock, decoded, printable, progress, shown
from kdi_assets.cli.session import session_over
from kdi_assets.settings import Settings
from kdi_assets.stream.message_rules import TombstonePolicy
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from kdi_assets.formats.stream_decoder import StreamDecoder
    from kdi_assets.monitoring.backlog_reader import Backlog

WINDOW = 1000
"""Offsets of a topic partition looked through for its first or last messages; markers and compacted ones are none."""
SHOWN_ROWS = 10
"""Of one message."""
Which = Literal["next", "newest", "from offset"]
TITLES = {"next": "the next to be drained", "newest": "the newest", "from offset": "as asked"}
At = tuple[int, int]
"""Number of a topic partition, and an offset."""


def peek(
    stream: StreamName,
    count: Annotated[int, typer.Option(min=1, max=WINDOW, help="Messages, over all topic partitions.")] = 5,
    topic_partition: Annotated[
        str | None, typer.Option(metavar="TOPIC/NUMBER", help="Only this one; default: all.")
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Begin at this offset; needs one topic partition.")] = None,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Decode a few messages with the stream's own definition: row, or reason and field. Nothing is written.

    Without --offset: the next that a drain would read, or the newest if none
    is waiting, or where the drain would begin is unknown.

    Exit codes: 0 shown, dead letters too; 1 someone must decide; 75 a retry helps.
    """
    chosen = stream_meant(stream, defs)
    only = topic_partition_meant(topic_partition, chosen)
    with session_over(chosen, "peek", as_json=as_json) as session:
        which, windows = _windows(_looked(chosen), only, offset)
        messages = peek_at(session(), chosen, windows, count=count, which=which) if windows else []
    text = "\n".join(
        [f"{chosen.name}: {TITLES[which] if messages else 'no message there'}", *(m.text() for m in messages)]
    )
    fields = {"stream": chosen.name, "which": which, "messages": [m.fields() for m in messages]}
    answer(text, fields, as_json=as_json)


@dataclass(frozen=True, slots=True)
class Peeked:
    """One message and its verdict: rows as JSON, or a reason; neither for a skipped tombstone and a filtered one.

    Attributes:
        rows: The first of them.
        count: How many it becomes.
        value: Of a dead letter, as far as it would hold it.
    """

    topic_partition: TopicPartition
    offset: int
    timestamp: datetime
    has_value: bool = True
    tombstones: TombstonePolicy = "skip"
    rows: Sequence[str] = ()
    count: int = 0
    reason: str | None = None
    field: str | None = None
    value: bytes | None = None

    @property
    def verdict(self) -> str:
        """In the words of the ledger."""
        if self.rows:
            return "row"
        if self.reason is not None:
            return "dead letter"
        return "filtered" if self.has_value or self.tombstones != "skip" else "tombstone"

    def text(self) -> str:
        """As people read it."""
        at = f"{self.topic_partition} offset {self.offset}, {clock(self.timestamp, date=True)}: {self.verdict}"
        if self.rows:
            of = f": {self.count:,} of them" if self.count > 1 else ""
            more = [f"(and {self.count - len(self.rows):,} more)"] if self.count > len(self.rows) else []
            return "\n  ".join([f"{at}{of}", *map(printable, self.rows), *more])
        if self.reason is None:
            return at
        field = f" in {self.field}" if self.field else ""
        value = "(its value is withheld)" if self.value is None else shown(self.value)
        return f"{at}: {self.reason}{field}" + (f"\n  {value}" if self.has_value else "")

    def fields(self) -> dict[str, object]:
        """As programs read it."""
        return {
            "topic_partition": self.topic_partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "verdict": self.verdict,
            "row": json.loads(self.rows[0]) if self.rows else None,
            "rows": [json.loads(row) for row in self.rows],
            "row_count": self.count,
            "reason": self.reason,
            "field": self.field,
            "value": None if self.value is None else decoded(self.value),
        }


def peek_at(
    spark: SparkSession, stream: Stream, windows: Sequence[OffsetRange], *, count: int, which: Which
) -> list[Peeked]:
    """The first messages of the windows, or the last of them, evenly from each; with their verdicts.

    Raises:
        ShapeMistake: The stream's document does not work.
    """
    from kdi_assets.drain.rules.records import knowing_schemas_of, stream_decoder
    from kdi_assets.drain.rules.schema_evolution import evolved
    from kdi_assets.sources.kafka.reader import read_ranges

    stream = evolved(stream, Settings.from_environment().lake, spark)
    decoder = stream_decoder(stream)
    picked = _pick(read_ranges(spark, stream.cluster, windows), windows, count=count, newest=which == "newest")
    if not picked:
        return []
    exact = _ranges(stream.topic, picked)
    messages = read_ranges(spark, stream.cluster, exact)
    decoder = knowing_schemas_of(messages, decoder) or decoder
    rows, letters = _judged(messages, stream, decoder)
    found_rows: dict[At, list[Row]] = {}
    for row in sorted(rows, key=lambda r: int(r["index"])):
        found_rows.setdefault((row["partition"], row["offset"]), []).append(row)
    found_letters = {(r["partition"], r["offset"]): r for r in letters}
    peeked = []
    for at, said in sorted(picked.items()):
        letter, of_one = found_letters.get(at), found_rows.get(at, [])
        why = {name: letter[name] for name in ("reason", "field", "value")} if letter else {}
        tp, json_rows = TopicPartition(stream.topic, at[0]), [str(r["row"]) for r in of_one]
        count = int(of_one[0]["count"]) if of_one else 0
        peeked.append(
            Peeked(tp, at[1], said["timestamp"], said["has_value"], stream.tombstones, json_rows, count, **why)
        )
    return peeked


def _looked(stream: Stream) -> Backlog:
    """The stream's backlog; what a drain would refuse is said, and does not keep us from looking at messages."""
    from kdi_assets.monitoring.backlog_reader import read_backlog

    backlog = read_backlog(stream, Settings.from_environment().lake)
    if backlog.refusal and not backlog.topic_partitions:
        raise backlog.refusal
    if backlog.refusal:
        progress(f"a drain would be refused:\n{backlog.refusal}")
    return backlog


def _windows(backlog: Backlog, only: TopicPartition | None, offset: int | None) -> tuple[Which, list[OffsetRange]]:
    """Where to look, none of it empty.

    Raises:
        typer.BadParameter: The topic partition or the offset is not there.
    """
    held = {tp: b for tp, b in backlog.topic_partitions.items() if only in (None, tp)}
    if not held:
        there = ", ".join(map(str, sorted(backlog.topic_partitions)))
        raise typer.BadParameter(f"the topic has no {only}; it has {there}", param_hint="--topic-partition")
    if offset is not None:
        if len(held) > 1:
            raise typer.BadParameter("it needs --topic-partition: the topic has several", param_hint="--offset")
        tp, b = next(iter(held.items()))
        if not b.earliest <= offset < b.end:
            raise typer.BadParameter(f"{tp} holds [{b.earliest}, {b.end})", param_hint="--offset")
        return "from offset", [OffsetRange(tp, offset, min(b.end, offset + WINDOW))]
    starts = {tp: max(b.earliest, b.position) for tp, b in held.items() if b.position is not None}
    waiting = [OffsetRange(tp, at, min(held[tp].end, at + WINDOW)) for tp, at in starts.items() if at < held[tp].end]
    if waiting:
        return "next", sorted(waiting)
    newest = [OffsetRange(tp, max(b.earliest, b.end - WINDOW), b.end) for tp, b in held.items() if b.earliest < b.end]
    return "newest", sorted(newest)


def _pick(messages: DataFrame, windows: Sequence[OffsetRange], *, count: int, newest: bool) -> Mapping[At, Row]:
    """The messages to show, without what they hold: neighbours within each topic partition."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = F.col("offset").desc() if newest else F.col("offset").asc()
    rank = F.row_number().over(Window.partitionBy("partition").orderBy(order))
    has_value = F.col("value").isNotNull().alias("has_value")
    ranked = messages.select("partition", "offset", "timestamp", has_value, rank.alias("rank"))
    first = ranked.where(F.col("rank") <= -(-count // len(windows))).orderBy("rank", "partition").limit(count)
    return {(r["partition"], r["offset"]): r for r in first.collect()}


def _ranges(topic: str, picked: Iterable[At]) -> list[OffsetRange]:
    """The ranges that hold what was picked and no other message."""
    offsets: dict[int, list[int]] = {}
    for partition, offset in picked:
        offsets.setdefault(partition, []).append(offset)
    return [OffsetRange(TopicPartition(topic, p), min(at), max(at) + 1) for p, at in sorted(offsets.items())]


def _judged(messages: DataFrame, stream: Stream, decoder: StreamDecoder) -> tuple[list[Row], list[Row]]:
    """The first rows of each message as JSON, and dead letters, with their coordinates; as a drain would judge now."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    from kdi_assets.drain.rules.judge import judge, letters_of
    from kdi_assets.drain.rules.shape import analyse
    from kdi_assets.drain.rules.tally import PassTally
    from kdi_assets.ledger.coordinates import coordinates

    now = datetime.now(UTC)
    tally = PassTally(messages.sparkSession, now)
    try:
        rows = judge(messages, stream, decoder, now=now, tally=tally)
    except AnalysisException:
        analyse(stream, messages.sparkSession)  # says which field of the document it is
        raise
    said = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row")
    found = rows.select(*coordinates(rows, stream), said).where(F.col("index") < SHOWN_ROWS).collect()
    return found, letters_of(messages, stream, decoder, tally.counts(stream), now=now).collect()
