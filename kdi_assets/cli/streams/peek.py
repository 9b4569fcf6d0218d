"""`kdi peek`: decode a few messages by the stream's document: their rows, or the reason why not. Read-only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, StreamName, parse_topic_partition, selected_stream
from kdi_assets.cli.output import UTC_SQL, print_result, text_excerpt, value_excerpt, value_text
from kdi_assets.cli.session import LazySession, stream_session
from kdi_assets.cli.streams.peeked_ranges import WINDOW, Searched, Wanted, searched
from kdi_assets.documents.model.message_rules import TombstonePolicy
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.plan_errors import StreamRetired

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from kdi_assets.messages.formats.stream_decoder import StreamDecoder

SHOWN_ROWS, ROW_CHARACTERS = 10, 10_000  # of one message, and of a row as text
TITLES = {"next": "the next to be drained", "newest": "the newest", "from offset": "from the offset"}
PartitionOffset = tuple[int, int]
"""Number of a topic partition, and an offset."""


def peek(
    stream: StreamName,
    count: Annotated[int, typer.Option(min=1, max=WINDOW, help="Number of messages, over all topic partitions.")] = 5,
    topic_partition: Annotated[
        str | None, typer.Option(metavar="TOPIC/NUMBER", help="Only this one; default: all.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="Begin here; needs one topic partition. Of Kinesis, what was drained.")
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="The newest messages, also with a backlog; of Kinesis, drained ones.")
    ] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Decode a few messages by the stream's document: row, or reason and field. Nothing is written.

    Without --offset and --last, shows the next messages that a drain would
    read; without a backlog, or without positions, the newest messages.

    Exit codes: 0 shown, dead letters too; 1 someone must decide; 75 a retry helps.
    """
    chosen = selected_stream(stream, defs)
    only = parse_topic_partition(topic_partition, chosen)
    if last and offset is not None:
        raise typer.BadParameter("not with --offset", param_hint="--last")
    if chosen.status == "retired":
        raise StreamRetired(stream=chosen.name)
    with stream_session(chosen, "peek", as_json=as_json) as session:
        with searched(chosen, session, Wanted(count, only, offset, last)) as there:
            messages = _messages(session, chosen, there, count=count)
    which = there.which
    title = f"{chosen.name}: {TITLES[which] if messages else 'no message there'}"
    text = "\n".join([title, *(message.text() for message in messages)])
    fields = {"stream": chosen.name, "which": which, "messages": [m.fields() for m in messages]}
    print_result(text, fields, as_json=as_json)


def _messages(session: LazySession, stream: Stream, there: Searched, *, count: int) -> list[PeekedMessage]:
    try:
        return peek_at(session(), stream, there, count=count) if there.windows else []
    except Exception as failed:
        if "overflow" in str(failed):
            from kdi_assets.streams.drain.accounting import refuse_large_timestamps

            refuse_large_timestamps(stream, there.windows)
        raise


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message and its verdict.

    Attributes:
        rows: The first of its rows, as JSON.
        count: The number of its rows.
        reason: Why it is a dead letter.
        value: The value as the dead letter would hold it.
    """

    topic_partition: TopicPartition
    offset: int
    timestamp: str
    has_value: bool = True
    tombstones: TombstonePolicy = "skip"
    rows: Sequence[str] = ()
    count: int = 0
    reason: str | None = None
    field: str | None = None
    value: bytes | None = None

    @property
    def verdict(self) -> str:
        """The verdict in the ledger's words."""
        if self.rows:
            return "row"
        if self.reason is not None:
            return "dead letter"
        return "filtered" if self.has_value or self.tombstones != "skip" else "tombstone"

    def text(self) -> str:
        """Its lines: coordinates and verdict, then rows or value."""
        at = f"{self.topic_partition} offset {self.offset}, {self.timestamp}: {self.verdict}"
        if self.rows:
            rows = f": {self.count:,} rows" if self.count > 1 else ""
            more = [f"(and {self.count - len(self.rows):,} more)"] if self.count > len(self.rows) else []
            return "\n  ".join([f"{at}{rows}", *(text_excerpt(row, ROW_CHARACTERS) for row in self.rows), *more])
        if self.reason is None:
            return at
        field = f" in {self.field}" if self.field else ""
        value = "(its value is withheld)" if self.value is None else value_excerpt(self.value)
        return f"{at}: {self.reason}{field}" + (f"\n  {value}" if self.has_value else "")

    def fields(self) -> dict[str, object]:
        """Its fields for ``--json``."""
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
            "value": None if self.value is None else value_text(self.value),
        }


def peek_at(spark: SparkSession, stream: Stream, there: Searched, *, count: int) -> list[PeekedMessage]:
    """The first or last messages of the windows, evenly from each, with their verdicts.

    Raises:
        ShapeMistake: Spark does not understand the stream's document.
    """
    from kdi_assets.streams.drain.schema_evolution import evolved
    from kdi_assets.streams.drain.stage import with_files_of
    from kdi_assets.streams.rules.records import stream_decoder, with_schemas_of

    stream = evolved(stream, Settings.from_environment().lake, spark)
    decoder = stream_decoder(stream)
    picked = _pick(there.read(there.windows), there.windows, count=count, newest=there.which == "newest")
    if not picked:
        return []
    exact = _ranges(stream.topic, picked)
    messages = there.read(exact)
    decoder = with_files_of(messages, with_schemas_of(messages, decoder) or decoder, now=datetime.now(UTC))
    rows, letters = _judged(messages, decoder)
    rows_at: dict[PartitionOffset, list[Row]] = {}
    for row in sorted(rows, key=lambda r: int(r["index"])):
        rows_at.setdefault((row["partition"], row["offset"]), []).append(row)
    letter_at = {(r["partition"], r["offset"]): r for r in letters}
    return [_peeked(stream, m, rows_at.get(place, []), letter_at.get(place)) for place, m in sorted(picked.items())]


def _peeked(stream: Stream, message: Row, rows: Sequence[Row], letter: Row | None) -> PeekedMessage:
    return PeekedMessage(
        TopicPartition(stream.topic, message["partition"]),
        message["offset"],
        message["timestamp"],
        message["has_value"],
        stream.tombstones,
        [str(row["row"]) for row in rows],
        int(rows[0]["count"]) if rows else 0,
        **{name: letter[name] for name in ("reason", "field", "value")} if letter else {},
    )


def _pick(
    messages: DataFrame, windows: Sequence[OffsetRange], *, count: int, newest: bool
) -> Mapping[PartitionOffset, Row]:
    """The coordinates of the messages to show: the first or last ones of each window."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = F.col("offset").desc() if newest else F.col("offset").asc()
    rank = F.row_number().over(Window.partitionBy("partition").orderBy(order))
    has_value = F.col("value").isNotNull().alias("has_value")
    at = F.expr(UTC_SQL.format("timestamp")).alias("timestamp")
    ranked = messages.select("partition", "offset", at, has_value, rank.alias("rank"))
    first = ranked.where(F.col("rank") <= -(-count // len(windows))).orderBy("rank", "partition").limit(count)
    return {(r["partition"], r["offset"]): r for r in first.collect()}


def _ranges(topic: str, picked: Iterable[PartitionOffset]) -> list[OffsetRange]:
    """The ranges of these messages; they hold no other message."""
    offsets: dict[int, list[int]] = {}
    for partition, offset in picked:
        offsets.setdefault(partition, []).append(offset)
    return [OffsetRange(TopicPartition(topic, p), min(at), max(at) + 1) for p, at in sorted(offsets.items())]


def _judged(messages: DataFrame, decoder: StreamDecoder) -> tuple[list[Row], list[Row]]:
    """The first rows of each message as JSON, and the dead letters, as a drain would judge now; with coordinates."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    from kdi_assets.messages.coordinates import coordinates
    from kdi_assets.streams.rules.judge import judge, letters_of
    from kdi_assets.streams.rules.shape import analyse
    from kdi_assets.streams.rules.tally import PassTally

    stream, now = decoder.stream, datetime.now(UTC)
    tally = PassTally(messages.sparkSession, stream, now)
    try:
        rows = judge(messages, decoder, now=now, tally=tally)
    except AnalysisException:
        analyse(stream, messages.sparkSession)  # raises an error that names the document's field
        raise
    as_json = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row")
    shown = rows.select(*coordinates(rows, stream), as_json).where(F.col("index") < SHOWN_ROWS)
    # Without the timestamps: Kafka's may have years that Python does not.
    found = shown.drop("timestamp").collect()
    return found, letters_of(messages, decoder, tally.counts(stream), now=now).drop("timestamp").collect()
