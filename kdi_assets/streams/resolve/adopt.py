"""Adopt: continue with a table, or with dead letters, that replaced those of the ledger."""

from __future__ import annotations

from collections.abc import Iterator

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import coordinates_at, keeps_timestamps
from kdi_assets.messages.of_stream import source_of
from kdi_assets.streams.drain.dead_letters import check_letters_intact
from kdi_assets.streams.drain.errors import DeadLettersReplaced
from kdi_assets.streams.ledger.entry import DeadLettersAt
from kdi_assets.streams.ledger.erased import count_not_named
from kdi_assets.streams.ledger.errors import another_table
from kdi_assets.streams.ledger.history import history_of
from kdi_assets.streams.ledger.letters import count_letters_not_named
from kdi_assets.streams.ledger.rewrite import MESSAGE
from kdi_assets.streams.resolve.context import ProposedPositions, ResolveContext
from kdi_assets.wording import counted


def adopt(context: ResolveContext) -> ProposedPositions:
    """Propose positions for a table that replaced the one of the ledger.

    Raises:
        NothingToResolve: There is nothing to adopt, or the rows do not show where the table ends.
    """
    ledger = context.ledger
    if ledger.table_id_matches:
        raise context.refusal("the ledger knows the table and its positions")
    if ledger.ledger_version is None and ledger.positions:
        app_id = context.stream.app_id
        raise context.refusal(f"another writer left its positions under app_id {app_id!r}; a drain takes them over")
    after = context.positions_after_rows()
    if ledger.ledger_version is None:  # no ledger ever recorded the topic's id
        refuse_another_topic(context)
    reason = f"table {ledger.table_id} becomes the stream's; each position is the highest offset in its rows plus one"
    return ProposedPositions(after, reason, notes=tuple(_not_named(context.stream, context.lake)))


def _not_named(stream: Stream, lake: str) -> Iterator[str]:
    """What lies beside the table, and counts no more, because only entries of another log or app_id name it."""
    history = history_of(stream, lake)
    entries = history.entries if history else ()
    if letters := count_letters_not_named(stream.dead_letters_uri(lake), entries):
        effect = "no list, replay or alert shows them any more"
        yield f"{counted(letters, 'dead letter')}: no entry of the table's log names them, so {effect}"
    if offsets := count_not_named(stream.erased_uri(lake), entries):
        effect = "a rewind below them is not refused, and brings their messages back"
        yield f"{counted(offsets, 'erased offset')}: no entry of the table's log names them, so {effect}"


def adopt_dead_letters(context: ResolveContext) -> ProposedPositions:
    """Propose to accept the dead letters that replaced those of the ledger; positions stay.

    Raises:
        NothingToResolve: The dead letters were not replaced.
    """
    context.refuse_gap()
    try:
        check_letters_intact(context.stream, context.lake, context.ledger.dead_letters_at)
    except DeadLettersReplaced as replaced:
        letters = TableLog.open(replaced.uri)
        present = DeadLettersAt(letters.table_id, letters.version) if letters else None
        reason = f"the dead letters were {replaced.change}; the present ones are accepted"
        return ProposedPositions({}, reason, {"dead_letters_at": present})
    raise context.refusal("the dead letters are those that the ledger counts on")


def refuse_another_topic(context: ResolveContext) -> None:
    """Refuse if the topic was recreated since the rows were written, even if it has as many messages again.

    Compares the newest row of every topic partition with the message at its offset, if both have a timestamp.

    Raises:
        NothingToResolve: The timestamps differ, or the topic ends before the row.
    """
    from pyspark.sql import functions as F

    stream, partitions, spark = context.stream, context.topic.partitions, context.session()
    rows = coordinates_at(spark, stream, context.log.uri, version=context.log.version)
    has_timestamps = keeps_timestamps(context.log.schema, stream)
    dated = rows.where("offset IS NOT NULL" + (" AND timestamp IS NOT NULL" if has_timestamps else ""))
    newest = dated.groupBy("partition").agg(F.max("offset").alias("offset"), F.expr("max_by(timestamp, offset) AS row"))
    at = {TopicPartition(stream.topic, r["partition"]): r["offset"] for r in newest.collect()}
    why = "the topic was recreated since, or its rows do not keep Kafka's timestamps (set them null, then try again)"
    for tp in sorted(at.keys() & partitions.keys()):
        if at[tp] >= partitions[tp].high_watermark:
            odd = f"there is a row of offset {at[tp]}, and {tp} ends at {partitions[tp].high_watermark}"
            raise context.refusal(f"{odd}: {why}", then=another_table(stream.name))
    readable = [
        OffsetRange(tp, offset, offset + 1)
        for tp, offset in at.items()
        if tp in partitions and partitions[tp].earliest <= offset < partitions[tp].end
    ]
    if not readable:
        return
    messages = source_of(stream).read(spark, readable).select(*MESSAGE)
    both = newest.join(messages, ["partition", "offset"]).where("timestamp <> row")
    for r in both.select("partition", "offset", F.expr("date_format(row, 'yyyy-MM-dd HH:mm:ss') AS row")).take(1):
        odd = f"the row at offset {r['offset']} of {stream.topic}/{r['partition']} is of {r['row']}, the message is not"
        raise context.refusal(f"{odd}: {why}", then=another_table(stream.name))
