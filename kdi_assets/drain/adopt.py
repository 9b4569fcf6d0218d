"""Adopt: a table that the ledger does not know becomes the stream's; where it ends is what must be found out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kdi_assets.drain.beyond import RowsBeyond, from_positions
from kdi_assets.drain.case import Case, Proposal, another_table
from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.entry import DeadLettersAt
from kdi_assets.ledger.history import SAME_ROWS, takes_table
from kdi_assets.ledger.log import CommitUnreadable, TableLog
from kdi_assets.ledger.offsets import inside, rows_at
from kdi_assets.ledger.rewrite import MESSAGE
from kdi_assets.ledger.state import version_id
from kdi_assets.sources.checkpoint import Checkpoint, CheckpointUnfit
from kdi_assets.sources.kafka_frame import read_ranges
from kdi_assets.stream import OffsetRange, TopicPartition

_TYPES = {"partition": {"integer", "long"}, "offset": {"integer", "long"}, "timestamp": {"timestamp"}}


def adopted(case: Case, checkpoint: str = "") -> Proposal:
    """The positions of a table, or of dead letters, that lie in the place of those that the ledger knows.

    Args:
        checkpoint: Of the Structured Streaming query that wrote the table; empty: none did.

    Raises:
        NothingToResolve: There is nothing to adopt, or nothing tells where the table ends.
    """
    ledger = case.ledger
    if ledger is not None and ledger.knows_table:
        if checkpoint:
            raise case.no("the ledger knows the table and its positions; a checkpoint has no say in them")
        if ledger.entry is None or ledger.entry.dead_letters_at == letters_there(case):
            raise case.no("the table and its dead letters are those that the ledger knows")
        return Proposal(case.before, "the dead letters that are there now are accepted")
    if checkpoint:
        return _of_query(case, checkpoint)
    if ledger is not None and ledger.ledger_version is None and ledger.positions:
        raise case.no(f"another writer left its positions under app_id {case.stream.app_id!r}; a drain takes them over")
    table = f"table {case.log.table_id} is the stream's"
    if ledger is not None and ledger.ledger_version is not None and not ledger.knows_topic:
        reason = f"{table}; its topic is another one too, drained from offset 0"
        return Proposal(dict.fromkeys(case.topic.partitions, 0), reason)
    return _behind_rows(case, table)


def _behind_rows(case: Case, table: str) -> Proposal:
    """Of a table without anybody's positions."""
    behind = case.behind_rows()
    if case.log.transaction(version_id(case.stream.app_id)) is None:  # no ledger ever knew the topic's id
        refuse_another_topic(case, behind)
    return Proposal(behind, f"{table}; positions lie behind the highest offset in its rows")


def letters_there(case: Case) -> DeadLettersAt | None:
    """The dead letters that lie in the stream's place now."""
    letters = TableLog.open(case.stream.dead_letters_uri(case.lake))
    return DeadLettersAt(letters.table_id, letters.version) if letters else None


def _of_query(case: Case, uri: str) -> Proposal:
    """Positions behind the last batch that a Structured Streaming query brought into the table."""
    try:
        checkpoint = Checkpoint.read(uri)
        landed = case.log.transaction(checkpoint.query_id)
        batch = _last_batch(case, checkpoint, landed)
        offsets = checkpoint.offsets_behind(batch)
    except CheckpointUnfit as unfit:
        raise case.no(str(unfit)) from unfit
    _refuse_other_offsets(case, uri, offsets)
    refuse_another_topic(case, offsets)
    _refuse_rows_beyond(case, offsets)
    reason = (
        f"table {case.log.table_id} is the stream's; positions lie behind batch {batch} of query "
        f"{checkpoint.query_id}, which must never run again{_unproven(case, checkpoint.query_id, landed)}"
    )
    # A query that goes on would bring the same messages: its next batch sets this id, and the commit refuses.
    return Proposal(offsets, reason, {checkpoint.query_id: -1 if landed is None else landed})


def refuse_another_topic(case: Case, positions: Mapping[TopicPartition, int]) -> None:
    """Refuse positions of a topic that was made again since, though it may have as many messages by now.

    The newest row of every topic partition is compared with the message at its offset, where both have a timestamp.

    Raises:
        NothingToResolve: They have different timestamps.
    """
    from pyspark.sql import functions as F

    if not _has_coordinates(case):
        return
    stream, held = case.stream, case.topic.partitions
    spark = case.session()
    rows = rows_at(spark, stream, case.log.uri, version=case.log.version)
    below = rows.where(f"timestamp IS NOT NULL AND offset IS NOT NULL AND NOT ({inside(from_positions(positions))})")
    newest = below.groupBy("partition").agg(F.max("offset").alias("offset"), F.expr("max_by(timestamp, offset) AS row"))
    at = {TopicPartition(stream.topic, r["partition"]): r["offset"] for r in newest.collect()}
    there = [OffsetRange(tp, o, o + 1) for tp, o in at.items() if tp in held and held[tp].earliest <= o < held[tp].end]
    if not there:
        return
    messages = read_ranges(spark, stream.cluster, there, headers=False).select(*MESSAGE)
    both = newest.join(messages, ["partition", "offset"]).where("timestamp <> row")
    for r in both.select("partition", "offset", F.expr("date_format(row, 'yyyy-MM-dd HH:mm:ss') AS row")).take(1):
        why = "the topic was made again since, or its rows do not keep Kafka's timestamps (set them null, then adopt)"
        # A table that has a ledger, though not of this table's id: that one knows the topic's id, and decides by it.
        ours = case.log.transaction(version_id(stream.app_id)) is not None
        again = f"kdi resolve {stream.name} adopt   (if the topic was made again: from its start)"
        odd = f"the row at offset {r['offset']} of {stream.topic}/{r['partition']} is of {r['row']}, the message is not"
        raise case.no(f"{odd}: {why}", then=again if ours else another_table(stream))


def _has_coordinates(case: Case) -> bool:
    """Whether the table has the columns that say where the message of a row stood; a row may lack them still."""
    fields: Any = case.log.schema["fields"]
    for step in case.stream.coordinates.lower().split("."):
        inner = next((f["type"] for f in fields if f["name"].lower() == step), None)
        fields = inner["fields"] if isinstance(inner, dict) and inner.get("type") == "struct" else []
    types = {f["name"].lower(): f["type"] for f in fields if isinstance(f["type"], str)}
    return all(types.get(name) in known for name, known in _TYPES.items())


def _refuse_rows_beyond(case: Case, positions: Mapping[TopicPartition, int]) -> None:
    """A drain would bring the messages of rows at or behind the positions a second time.

    Raises:
        NothingToResolve: There are such rows.
    """
    if not _has_coordinates(case):
        return
    within = from_positions(positions)
    beyond = RowsBeyond(case.session(), case.stream, case.lake, case.log.version, case.topic, within).look()
    if beyond.row_count or beyond.untold:
        lie = f"{beyond.row_count or beyond.untold:,} rows lie at or behind these offsets, of another writer"
        behind = f"kdi resolve {case.stream.name} adopt   (without --checkpoint: positions behind the rows)"
        raise case.no(f"{lie} or a later query; delete them first", then=behind)


def _unproven(case: Case, query_id: str, landed: int | None) -> str:
    """What nobody can say of rows without coordinates: whether some lie behind the last batch already."""
    if _has_coordinates(case):
        rows = rows_at(case.session(), case.stream, case.log.uri, version=case.log.version)
        if not rows.where("partition IS NULL OR offset IS NULL").take(1):
            return ""
    # Who is known to have written nothing since needs no asking.
    if landed is not None and next(_written_since(case.log, query_id), None) is None:
        return ""
    return "; rows do not say where their message stood: what another writer brought behind these offsets comes twice"


def _written_since(log: TableLog, query_id: str) -> Iterator[CommitInfo]:
    """Commits behind the query's last that may have added rows, the newest first."""
    for version in range(log.version, -1, -1):
        commit = log.commit(version)
        if query_id in commit.transactions:
            return
        if not commit.operation.startswith((*SAME_ROWS, "DELETE", "UPDATE", "UPGRADE ")):
            yield commit


def _last_batch(case: Case, checkpoint: Checkpoint, landed: int | None) -> int:
    """The newest batch whose rows are in the table: the table itself knows better than the checkpoint.

    Args:
        landed: The newest one that Delta's sink recorded in the table; ``None`` if it was never written by that sink.
    """
    planned, committed, query = checkpoint.planned, checkpoint.committed, checkpoint.query_id
    if landed is None:
        # Someone else's sink, `foreachBatch` for one: only what the query calls done is known to be.
        if planned != committed:
            raise CheckpointUnfit(
                f"whether batch {planned} of query {query} reached the table, neither the checkpoint nor the table "
                "says; let the query run once more until it has no batch open"
            )
        return committed
    if not committed <= landed <= planned:
        raise CheckpointUnfit(
            f"the table has batches of query {query} up to {landed}, the checkpoint's are done up to {committed} and "
            f"planned up to {planned}: they are not of one table at one time"
        )
    _refuse_restored(case, query)
    return landed


def _refuse_restored(case: Case, query_id: str) -> None:
    """A RESTORE leaves the query's id in the table and takes its rows."""
    for version in range(case.log.version, -1, -1):
        try:
            commit = case.log.commit(version)
        except CommitUnreadable as unreadable:
            why = f"commit {version} of the table {unreadable.why}, so nobody can say whether it was restored since"
            raise CheckpointUnfit(f"{why} the last batch") from unreadable
        if takes_table(commit):
            raise CheckpointUnfit(
                f"commit {version} of the table ({commit.operation}) put other rows in the place of the query's"
            )
        if query_id in commit.transactions:
            return


def _refuse_other_offsets(case: Case, uri: str, offsets: dict[TopicPartition, int]) -> None:
    topics = sorted({tp.topic for tp in offsets})
    if topics != [case.stream.topic]:
        raise case.no(f"the query of {uri} read topic {', '.join(topics) or 'none'}, not {case.stream.topic}")
    held = case.topic.partitions
    for at_odds, said in (
        (offsets.keys() - held.keys(), "the broker has none of that number"),
        (held.keys() - offsets.keys(), "the checkpoint has no offset of it, so the query never read it"),
    ):
        if at_odds:
            raise case.no(f"{', '.join(map(str, sorted(at_odds)))}: {said}")
    for tp, at in sorted(offsets.items()):
        if at > held[tp].high_watermark:
            end = held[tp].high_watermark
            raise case.no(f"the query read {tp} up to offset {at}, and it ends at {end}: it is another topic by now")
