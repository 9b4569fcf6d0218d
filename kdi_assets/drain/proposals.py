"""Proposals: positions that each action comes to which decides about a stream, and what the entry says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kdi_assets.drain.case import Case, Proposal, another_table, told
from kdi_assets.drain.dead_letters import refuse_replaced
from kdi_assets.drain.refusals import DeadLettersReplaced
from kdi_assets.ledger.entry import DeadLettersAt
from kdi_assets.ledger.log import CommitUnreadable, TableLog
from kdi_assets.ledger.offsets import rows_at
from kdi_assets.ledger.rewrite import MESSAGE
from kdi_assets.ledger.state import LedgerGap
from kdi_assets.sources.kafka import offsets_at
from kdi_assets.sources.kafka_frame import read_ranges
from kdi_assets.sources.kafka_messages import oldest_timestamps
from kdi_assets.stream import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class Target:
    """Where positions are to be set back to; by default behind the highest offset in the rows.

    Attributes:
        only: One topic partition; ``None``: all of them.
        offset: The next offset to read, of one topic partition.
        moment: The first message whose timestamp is this or later, with a zone.
        version: Where the positions stood at this version of the table.
    """

    only: TopicPartition | None = None
    offset: int | None = None
    moment: datetime | None = None
    version: int | None = None


def rewound(case: Case, target: Target) -> Proposal:
    """The positions that a rewind sets; none lies behind the one that stands.

    Raises:
        NothingToResolve: The broker does not hold what is to be drained again, or the target names nothing.
    """
    given = [value for value in (target.offset, target.moment, target.version) if value is not None]
    if len(given) > 1:
        raise case.no("an offset, a timestamp and a version exclude each other")
    if not given:
        if target.only is not None:
            raise case.no("--topic-partition needs --to, --to-timestamp or --to-version")
        return _behind_rows(case)
    case.refuse_gap()
    if target.offset is not None:
        return _to_offset(case, target.only, target.offset)
    chosen = case.before if target.only is None else {target.only: case.before.get(target.only, 0)}
    chosen = {tp: at for tp, at in chosen.items() if tp in case.topic.partitions}
    if target.moment is not None:
        after, where = _at_moment(case, chosen, target.moment), f"{told(target.moment)} or later"
    else:
        after, where = _at_version(case, chosen, target.version or 0), f"not in the table at version {target.version}"
    lower = {tp: at for tp, at in after.items() if at < chosen[tp]}
    if not lower:
        raise case.no(f"nothing below the positions is {where}")
    return Proposal(lower, f"what is {where} is drained again: {_steps(case, lower)}")


def _behind_rows(case: Case) -> Proposal:
    behind = case.behind_rows()
    if case.gap or case.ledger.ledger_version is None:
        refuse_another_topic(case)  # its rows may lie higher than those of the topic that is there now
    else:  # rows of others may lie ahead: what is before them was not drained
        behind = {tp: min(at, case.before.get(tp, at)) for tp, at in behind.items()}
    reason = "positions lie behind the highest offset in the rows; dead letters behind it are drained again"
    return Proposal(behind, reason)


def _to_offset(case: Case, only: TopicPartition | None, offset: int) -> Proposal:
    if only is None:
        raise case.no("--to needs --topic-partition, to which it belongs")
    position, held = case.before.get(only, 0), case.topic.partitions[only]
    if not held.earliest <= offset <= min(position, held.end):
        top = min(position, held.end)
        raise case.no(f"{only} can be set to [{held.earliest}, {top}]; going forward would lose messages")
    return Proposal({only: offset}, f"[{offset}, {position}) of {only} is drained again")


def _at_moment(case: Case, chosen: Mapping[TopicPartition, int], moment: datetime) -> Mapping[TopicPartition, int]:
    if moment.tzinfo is None:
        raise case.no(f"timestamp {moment.isoformat()} has no zone")
    held = case.topic.partitions
    topic = replace(case.topic, partitions={tp: held[tp] for tp in chosen})
    found = offsets_at(case.stream.cluster, topic, moment)
    # What was before the earliest is gone, and nobody can say of when it was; older than the moment was the rest of it
    # only if the oldest that is left is no younger.
    doubtful = {tp: at for tp, at in found.items() if 0 < at == held[tp].earliest < chosen[tp]}
    oldest = oldest_timestamps(case.stream.cluster, doubtful)
    for tp, at in doubtful.items():
        since = oldest.get(tp)
        if since is None or since > moment:
            left = f", the oldest message is of {told(since)}" if since else ""
            raise case.no(
                f"of {tp} the broker has nothing before offset {at} any more{left}: "
                f"what else was {told(moment)} or later may be gone"
            )
    return found


def _at_version(case: Case, chosen: Mapping[TopicPartition, int], version: int) -> Mapping[TopicPartition, int]:
    if version > case.ledger.version:
        raise case.no(f"there is no version {version}; the newest is {case.ledger.version}")
    try:
        then = case.ledger_at(version)
    except (CommitUnreadable, LedgerGap) as unreadable:
        why = f"version {version} of the table cannot be read any more (commit {unreadable.version} {unreadable.why})"
        raise case.no(why) from unreadable
    if then is None or then.ledger_version is None:
        raise case.no(f"version {version} is from before the stream's first ledger commit")
    if not then.knows_topic:
        raise case.no(f"at version {version} the positions were those of another topic of this name")
    # One that appeared later had position 0, as after a RESTORE.
    after = {tp: then.positions.get(tp, 0) for tp in chosen}
    for tp, at in after.items():
        if at < min(case.topic.partitions[tp].earliest, chosen[tp]):
            earliest = case.topic.partitions[tp].earliest
            raise case.no(
                f"at version {version} the position of {tp} was {at}, and the broker holds it from {earliest} on"
            )
    return after


def _steps(case: Case, lower: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"[{at}, {case.before.get(tp, 0)}) of {tp}" for tp, at in sorted(lower.items()))


def adopted(case: Case) -> Proposal:
    """The positions of a table that lies in the place of the one that the ledger knows.

    Raises:
        NothingToResolve: There is nothing to adopt, or nothing tells where the table ends.
    """
    ledger = case.ledger
    if ledger.knows_table:
        raise case.no("the ledger knows the table and its positions")
    if ledger.ledger_version is None and ledger.positions:
        raise case.no(f"another writer left its positions under app_id {case.stream.app_id!r}; a drain takes them over")
    behind = case.behind_rows()
    if ledger.ledger_version is None:  # no ledger ever knew the topic's id
        refuse_another_topic(case)
    reason = f"table {ledger.table_id} is the stream's; positions lie behind the highest offset in its rows"
    return Proposal(behind, reason)


def letters_adopted(case: Case) -> Proposal:
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
        return Proposal({}, reason, {"dead_letters_at": there})
    raise case.no("the dead letters are those that the ledger counts on")


def refuse_another_topic(case: Case) -> None:
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


def given_up(case: Case, only: TopicPartition | None, until: int | None, *, start: int | None = None) -> Proposal:
    """The positions behind what is given up; no more is than is gone, unless offsets are named.

    Args:
        only: One topic partition; ``None``: all of them.
        until: The first offset of it that is not given up.
        start: The first that is: its position must be there.

    Raises:
        NothingToResolve: Nothing is to be given up, or what is does not exist.
    """
    case.refuse_gap()
    held = case.topic.partitions
    positions = {**dict.fromkeys(held, 0), **case.before}
    after = dict(positions)
    if only is not None and start is not None and start != positions[only]:
        where = f"{only} stands at {positions[only]}, and not at {start}"
        if start < positions[only]:
            raise case.no(f"{where}: what lies before the position is not given up")
        # A drain goes up to what it cannot take. So nothing is ever given up beyond what is not drained.
        raise case.no(f"{where}: what lies between is to be drained first", then=f"kdi drain {case.stream.name}")
    for tp, offsets in held.items():
        if only in (None, tp):
            target = offsets.earliest if until is None or only is None else until
            if target > offsets.end:
                raise case.no(f"{tp} ends at {offsets.end}, so nothing up to {target} can be given up")
            after[tp] = max(positions[tp], target)
    if after == positions:
        raise case.no("no offset behind the positions is missing at the broker")
    lost = losses(case, after)
    count = sum(r.offset_count for r in lost)
    readable = sum(max(0, r.end - max(r.start, held[r.topic_partition].earliest)) for r in lost)
    besides = f"; the broker still holds up to {readable:,} of them" if readable else ""
    return Proposal(after, f"{count:,} offsets are given up and recorded as lost{besides}")


def losses(case: Case, after: Mapping[TopicPartition, int]) -> tuple[OffsetRange, ...]:
    """The offsets that positions pass without a drain."""
    starts = {tp: case.before.get(tp, 0) for tp in after}
    return tuple(OffsetRange(tp, starts[tp], end) for tp, end in after.items() if starts[tp] < end)
