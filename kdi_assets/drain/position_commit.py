"""Position commits: what the ledger must say before anything is read. Each is a ledger commit of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.drain.errors import RowsWithoutPositions, StartOutOfRange
from kdi_assets.drain.plan import refuse_other_start, refuse_strangers
from kdi_assets.drain.rules.records import stream_decoder
from kdi_assets.drain.rules.shape import DATE, analyse, commented
from kdi_assets.drain.rules.table_schema import PROPERTY
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.formats.rules import name
from kdi_assets.ledger.commit import commit, create_table
from kdi_assets.ledger.delta_transaction import CHECKPOINT_INTERVAL, Staged
from kdi_assets.ledger.entry import Kind, LedgerEntry
from kdi_assets.ledger.next_entry import next_entry
from kdi_assets.ledger.positions import LedgerState
from kdi_assets.ledger.routes import Routes
from kdi_assets.sources.kafka.topic import TopicState, offsets_at
from kdi_assets.stream.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_WITH_STATISTICS = 32


@dataclass(frozen=True, slots=True)
class PositionCommit:
    """Positions to commit before anything is read, and why.

    Attributes:
        positions: Next offset of every topic partition.
    """

    kind: Kind
    positions: Mapping[TopicPartition, int]
    reason: str


def needed_position_commit(stream: Stream, ledger: LedgerState | None, topic: TopicState) -> PositionCommit | None:
    """What must be committed before a plan can be made; ``None`` if nothing.

    A start policy is turned into numbers here, once: "latest" then means the end at this moment, and loses nothing
    that comes between this commit and the first drain.

    Raises:
        TableReplaced, TopicRecreated, TopicPartitionVanished: As ``plan_drain``; a RESTORE is not answered for a
            stranger.
        RowsWithoutPositions: A clone, or a copy: whatever the start policy says, it could double its rows.
        StartOutOfRange: An explicit start offset is not in the topic.
        PositionBelowStart: It lies behind a position that another writer left.
    """
    if ledger is None:
        refuse_other_start(stream, {}, topic)
        reason = f"the table does not exist; start: {_policy(stream)}"
        return PositionCommit("start", begin(stream, topic), reason)
    refuse_strangers(stream, ledger, topic)
    if ledger.restored_to is not None:
        positions = {**dict.fromkeys(topic.partitions, 0), **ledger.positions}
        reason = f"the table was restored to version {ledger.restored_to}"
        return PositionCommit("restore", positions, reason)
    if ledger.unclaimed:
        raise RowsWithoutPositions(stream=stream.name, uri=ledger.uri)
    if ledger.ledger_version is None:
        refuse_other_start(stream, ledger.positions, topic)
        positions = {**begin(stream, topic, known=ledger.positions.keys()), **ledger.positions}
        if ledger.positions:
            reason = "the table has positions of another writer with this app_id"
            return PositionCommit("takeover", positions, reason)
        reason = f"the table has no positions yet; start: {_policy(stream)}"
        return PositionCommit("start", positions, reason)
    return None


def begin(
    stream: Stream, topic: TopicState, *, known: Collection[TopicPartition] = frozenset()
) -> dict[TopicPartition, int]:
    """Where the topic partitions begin that are not ``known``, as numbers.

    Raises:
        StartOutOfRange: An explicit offset is not there.
        KdiError: The brokers do not answer which offset a moment is.
    """
    begin = {tp: offsets for tp, offsets in topic.partitions.items() if tp not in known}
    if not begin:
        return {}
    if isinstance(stream.start, datetime):
        return offsets_at(stream.cluster, replace(topic, partitions=begin), stream.start)
    if stream.start == "latest":
        return {tp: offsets.end for tp, offsets in begin.items()}
    given = stream.start_offsets
    positions = {tp: given.get(tp, offsets.earliest) for tp, offsets in begin.items()}
    for tp, offsets in begin.items():
        # Up to the high watermark: an offset in an open transaction is there, if nobody may read it yet.
        if not offsets.earliest <= positions[tp] <= offsets.high_watermark:
            held = f"[{offsets.earliest}, {offsets.high_watermark})"
            said = f"says {positions[tp]} for {tp}, which holds {held}"
            raise StartOutOfRange(stream=stream.name, topic_partition=tp, said=said)
    return positions


def commit_positions(
    spark: SparkSession,
    settlement: PositionCommit,
    stream: Stream,
    lake: str,
    *,
    ledger: LedgerState | None,
    topic: TopicState,
    run_id: str = "",
) -> LedgerEntry:
    """Commit the settlement.

    Raises:
        OvertakenCommit: Someone else committed first; look again.
    """
    entry = next_entry(
        stream,
        ledger,
        kind=settlement.kind,
        topic_id=topic.topic_id,
        positions=settlement.positions,
        run_id=run_id,
        **_begun(stream, ledger),
    )
    uri = stream.table_uri(lake)
    if ledger is None:
        schema = commented(analyse(stream, spark), stream_decoder(stream).record)
        with spark_failures(stream, "creating the table"):
            return create_table(spark, schema, uri, properties=_properties(stream, schema), entry=entry)
    with spark_failures(stream, "committing positions"):
        return commit(spark, Staged(), uri, behind=ledger.version, entry=entry)


def _begun(stream: Stream, ledger: LedgerState | None) -> dict[str, Any]:
    """What a table has that nobody drained into yet: the conditions of its route group, as the documents say them."""
    begins = ledger is None or ledger.ledger_version is None
    return {"routes": Routes.of(stream)} if begins and stream.route and stream.route.group else {}


def _policy(stream: Stream) -> str:
    return stream.start.isoformat() if isinstance(stream.start, datetime) else str(stream.start)


def _properties(stream: Stream, schema: StructType) -> dict[str, str]:
    """The table's properties: the document's, and ahead of them those that the ledger and the audit rest on.

    The log is kept because it is the ledger.
    """
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableExpiredLogCleanup": "false"}
    if stream.contract.types == "evolve":
        properties[PROPERTY] = "true"
    defaults = {**CHECKPOINT_INTERVAL, **_statistics(stream, schema)}
    return {**defaults, **stream.properties, **properties}


def _statistics(stream: Stream, schema: StructType) -> dict[str, str]:
    """Of which columns Delta keeps the least and the greatest value of each file: not of text, where the document does
    not ask for it. In messages as they come, text lies in no order, so that no file can be passed over by it, and to
    compare it takes a tenth of what a drain does.

    Audits and replays look for offsets: the coordinates come first.
    """
    if not {"delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols"}.isdisjoint(stream.properties):
        return {}
    columns = [".".join(name(step) for step in path) for path in _ordered_paths(schema) if path != (DATE,)]
    prefix = ".".join(name(step) for step in stream.coordinates.split("."))
    first = sorted(columns, key=lambda c: not c.startswith(f"{prefix}."))[:_WITH_STATISTICS]
    return {"delta.dataSkippingStatsColumns": ",".join(first)}


def _ordered_paths(record: StructType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every number, date and time that is not inside an array or a map."""
    from pyspark.sql import types as t

    for field in record.fields:
        here = (*path, field.name)
        match field.dataType:
            case t.StructType():
                yield from _ordered_paths(field.dataType, here)
            case t.NumericType() | t.DateType() | t.TimestampType() | t.TimestampNTZType():
                yield here
