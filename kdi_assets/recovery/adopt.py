"""Adopt: a table, or dead letters, in the place of those that the ledger knows."""

from __future__ import annotations

from kdi_assets.drain.dead_letters import refuse_replaced
from kdi_assets.drain.errors import DeadLettersReplaced
from kdi_assets.ledger.coordinates import rows_at
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.entry import DeadLettersAt
from kdi_assets.ledger.rewrite import MESSAGE
from kdi_assets.recovery.context import ProposedPositions, ResolveContext, another_table
from kdi_assets.sources.kafka.reader import read_ranges
from kdi_assets.stream.stream import OffsetRange, TopicPartition


def adopt(case: ResolveContext) -> ProposedPositions:
    """The positions of a table that lies in the place of the one that the ledger knows.

    Raises:
        NothingToResolve: There is nothing to adopt, or nothing tells where the table ends.
    """
    ledger = case.ledger
    if ledger.table_id_matches:
        raise case.no("the ledger knows the table and its positions")
    if ledger.ledger_version is None and ledger.positions:
        raise case.no(f"another writer left its positions under app_id {case.stream.app_id!r}; a drain takes them over")
    behind = case.behind_rows()
    if ledger.ledger_version is None:  # no ledger ever knew the topic's id
        refuse_another_topic(case)
    reason = f"table {ledger.table_id} is the stream's; positions lie behind the highest offset in its rows"
    return ProposedPositions(behind, reason)


def adopt_dead_letters(case: ResolveContext) -> ProposedPositions:
    """The dead letters that lie in the place of those that the ledger counts on; positions stay.

    Raises:
        NothingToResolve: They are those that the ledger counts on.
    """
    case.refuse_gap()
    recorded = case.ledger.dead_letters_at
    try:
        refuse_replaced(case.stream, case.lake, recorded)
    except DeadLettersReplaced as replaced:
        letters = TableLog.open(replaced.uri)
        there = DeadLettersAt(letters.table_id, letters.version) if letters else None
        reason = f"the dead letters were {replaced.happened}; those that are there now are accepted"
        return ProposedPositions({}, reason, {"dead_letters_at": there})
    raise case.no("the dead letters are those that the ledger counts on")


def refuse_another_topic(case: ResolveContext) -> None:
    """Refuse rows of a topic that was made again since, though it may have as many messages by now.

    The newest row of every topic partition is compared with the message at its offset, where both have a timestamp.

    Raises:
        NothingToResolve: They have different timestamps, or the topic ends before the row.
    """
    from pyspark.sql import functions as F

    stream, held, spark = case.stream, case.topic.partitions, case.session()
    rows = rows_at(spark, stream, case.log.uri, version=case.log.version)
    dated = rows.where("timestamp IS NOT NULL AND offset IS NOT NULL")
    newest = dated.groupBy("partition").agg(F.max("offset").alias("offset"), F.expr("max_by(timestamp, offset) AS row"))
    at = {TopicPartition(stream.topic, r["partition"]): r["offset"] for r in newest.collect()}
    why = "the topic was made again since, or its rows do not keep Kafka's timestamps (set them null, then try again)"
    for tp in sorted(at.keys() & held.keys()):
        if at[tp] >= held[tp].high_watermark:
            odd = f"there is a row of offset {at[tp]}, and {tp} ends at {held[tp].high_watermark}"
            raise case.no(f"{odd}: {why}", then=another_table(stream))
    there = [OffsetRange(tp, o, o + 1) for tp, o in at.items() if tp in held and held[tp].earliest <= o < held[tp].end]
    if not there:
        return
    messages = read_ranges(spark, stream.cluster, there).select(*MESSAGE)
    both = newest.join(messages, ["partition", "offset"]).where("timestamp <> row")
    for r in both.select("partition", "offset", F.expr("date_format(row, 'yyyy-MM-dd HH:mm:ss') AS row")).take(1):
        odd = f"the row at offset {r['offset']} of {stream.topic}/{r['partition']} is of {r['row']}, the message is not"
        raise case.no(f"{odd}: {why}", then=another_table(stream))
