"""Rewind: set positions back to an offset, a moment, a version of the table, or the end of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.coordinates import keeps_timestamps
from kdi_assets.messages.of_stream import source_failures, source_of
from kdi_assets.messages.source import oldest_timestamps
from kdi_assets.messages.topic_state import LastRead
from kdi_assets.streams.audit.audit import audited_history
from kdi_assets.streams.audit.coverage import coverage
from kdi_assets.streams.audit.source_comparison import compare
from kdi_assets.streams.ledger.entry import unmoved_last_read
from kdi_assets.streams.ledger.erased import highest_erased
from kdi_assets.streams.ledger.errors import LedgerGap
from kdi_assets.streams.ledger.history import history_of
from kdi_assets.streams.resolve.adopt import refuse_another_topic
from kdi_assets.streams.resolve.context import ProposedPositions, ResolveContext, in_utc
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.rows_past_position import (
    LOOKBACK_OFFSETS,
    PastPositionCounts,
    RowsPastPosition,
    from_positions,
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where positions are set back to; by default to the highest offset in the rows, plus one.

    Attributes:
        only: One topic partition; ``None``: all of them.
        offset: The next offset to read of one topic partition.
        moment: The first message with this timestamp or a later one; it has a time zone.
        version: The positions at this version of the table.
    """

    only: TopicPartition | None = None
    offset: int | None = None
    moment: datetime | None = None
    version: int | None = None


def rewind(context: ResolveContext, target: Target) -> ProposedPositions:
    """Propose lower positions; a rewind never moves a known position forward.

    Raises:
        NothingToResolve: The broker no longer has the messages to drain again, or nothing would change.
    """
    refuse_odd_target(context, target)
    if target == Target():
        return _to_end_of_rows(context)
    context.refuse_gap()
    if target.offset is not None and target.only is not None:
        return _to_offset(context, target.only, target.offset)
    known = context.positions
    chosen = known if target.only is None else {target.only: known.get(target.only, 0)}
    chosen = {tp: at for tp, at in chosen.items() if tp in context.topic.partitions}
    if target.moment is not None:
        after, where = _at_moment(context, chosen, target.moment), f"{in_utc(target.moment)} or later"
    else:
        after, where = (
            at_version(context, chosen, target.version or 0),
            f"not in the table at version {target.version}",
        )
    lower = {tp: at for tp, at in after.items() if at < chosen[tp]}
    if not lower:
        raise context.refusal(f"nothing below the positions is {where}")
    steps = ", ".join(f"[{at}, {known.get(tp, 0)}) of {tp}" for tp, at in sorted(lower.items()))
    return ProposedPositions(lower, f"what is {where} is drained again: {steps}")


def refuse_odd_target(context: ResolveContext, target: Target) -> None:
    """Refuse a target that does not say where positions are set back to.

    Raises:
        NothingToResolve: It says too much or too little.
    """
    targets = [value for value in (target.offset, target.moment, target.version) if value is not None]
    if len(targets) > 1:
        raise context.refusal("an offset, a timestamp and a version exclude each other")
    if not targets and target.only is not None:
        raise context.refusal("--topic-partition needs --to, --to-timestamp or --to-version")
    if target.offset is not None and target.only is None:
        raise context.refusal("--to needs --topic-partition")
    if target.moment is not None and target.moment.tzinfo is None:
        raise context.refusal(f"timestamp {target.moment.isoformat()} has no zone")


def refuse_over_erased(context: ResolveContext, after: Mapping[TopicPartition, int]) -> None:
    """Refuse positions below erased messages: a drain would bring them back from Kafka.

    Raises:
        NothingToResolve: Kafka may still hold them, or nobody knows their offsets.
    """
    stream, lake = context.stream, context.lake
    history = history_of(stream, lake)
    entries = history.entries if history else ()
    uri, replay = stream.erased_uri(lake), f"kdi replay {stream.name} --from DATE --to DATE --yes"
    highest = highest_erased(uri, entries, topic_id=context.topic.topic_id)
    if highest is None:
        raise context.refusal(
            f"messages were erased, and {uri}, which has their offsets, is not there",
            then=f"{replay}   (leaves erased messages out), or move {uri} back from where the table was before",
        )
    for tp, at in sorted(after.items()):
        if (erased := highest.get(tp.partition, -1)) >= at:
            # Of Kinesis, the offset after it is set back to the edge before it, if it is none itself.
            later = "" if context.topic.as_of else f", or a rewind of {tp} to {erased + 1} or later"
            raise context.refusal(
                f"offset {erased} of {tp} was erased, and after a rewind to {at} a drain would bring it back",
                then=f"{replay}   (leaves erased messages out){later}",
            )


def _to_end_of_rows(context: ResolveContext) -> ProposedPositions:
    after = context.positions_after_rows()
    if context.gap or context.ledger.ledger_version is None:
        refuse_another_topic(context)  # rows of an earlier topic may have higher offsets than the present one
    else:  # other writers' rows may lie past the position: the offsets between were not drained
        after = {tp: min(at, context.positions.get(tp, at)) for tp, at in after.items()}
    reason = "each position is the highest offset in the rows plus one; dead letters after it are drained again"
    return ProposedPositions(after, reason)


def _to_offset(context: ResolveContext, only: TopicPartition, offset: int) -> ProposedPositions:
    position, offsets = context.positions.get(only, 0), context.topic.partitions[only]
    highest = min(position, offsets.end)
    if not offsets.earliest <= offset <= highest:
        raise context.refusal(
            f"{only} can be set to [{offsets.earliest}, {highest}]; going forward would lose messages"
        )
    return ProposedPositions({only: offset}, f"[{offset}, {position}) of {only} is drained again")


def _at_moment(
    context: ResolveContext, chosen: Mapping[TopicPartition, int], moment: datetime
) -> Mapping[TopicPartition, int]:
    partitions, source = context.topic.partitions, source_of(context.stream)
    topic = replace(context.topic, partitions={tp: partitions[tp] for tp in chosen})
    found = source.offsets_at(topic, moment)
    # Messages below the earliest offset are gone, and so are their timestamps. They were all older than the moment only
    # if the oldest message that is left is not younger than the moment.
    uncertain = {tp: at for tp, at in found.items() if 0 < at == partitions[tp].earliest < chosen[tp]}
    oldest = oldest_timestamps(source, uncertain)
    for tp, at in uncertain.items():
        since = oldest.get(tp)
        if since is None or since > moment:
            left = f", the oldest message is of {in_utc(since)}" if since else ""
            raise context.refusal(
                f"of {tp} the broker has nothing before offset {at} any more{left}: "
                f"other messages of {in_utc(moment)} or later may be gone"
            )
    return found


def at_version(
    context: ResolveContext, chosen: Mapping[TopicPartition, int], version: int
) -> Mapping[TopicPartition, int]:
    """The positions of some topic partitions at a version of the table.

    Raises:
        NothingToResolve: They are unknown, are those of another topic, or the broker does not hold their messages.
    """
    if version > context.ledger.version:
        raise context.refusal(f"there is no version {version}; the newest is {context.ledger.version}")
    try:
        then = context.ledger_at(version)
    except (CommitUnreadable, LedgerGap) as unreadable:
        why = f"version {version} of the table cannot be read any more (commit {unreadable.version} {unreadable.why})"
        raise context.refusal(why) from unreadable
    if then is None or then.ledger_version is None:
        raise context.refusal(f"version {version} is from before the stream's first ledger commit")
    if not then.topic_id_matches:
        raise context.refusal(f"at version {version} the positions were those of another topic of this name")
    # A topic partition that appeared later had position 0, as after a RESTORE.
    after = {tp: then.positions.get(tp, 0) for tp in chosen}
    for tp, at in after.items():
        earliest = context.topic.partitions[tp].earliest if tp in context.topic.partitions else 0
        if at < min(earliest, chosen[tp]):
            raise context.refusal(
                f"at version {version} the position of {tp} was {at}, and the broker holds it from {earliest} on"
            )
    return after


def check_rows_to_remove(
    context: ResolveContext, after: Mapping[TopicPartition, int]
) -> tuple[PastPositionCounts, Mapping[str, Any]]:
    """Count the rows and letters past the new positions; and the entry's field with the messages before these.

    Raises:
        NothingToResolve: It is unclear to which topic some rows belong, or letters are the only copies of messages.
    """
    lower = {tp: at for tp, at in after.items() if at < context.positions.get(tp, 0)}
    if not lower:
        return PastPositionCounts(), {}
    stream, session, has_bookmarks = context.stream, context.session(), context.topic.as_of is not None
    if not has_bookmarks and not keeps_timestamps(context.log.schema, stream):
        _refuse_other_messages_before(context, lower)
    rows = RowsPastPosition(
        session, stream, context.lake, context.ledger.version, context.topic, from_positions(lower), context.positions
    )
    before = {} if has_bookmarks else _last_before(context, rows)
    last_read = {**unmoved_last_read(context.ledger.entry, after), **before}
    with source_failures(stream):
        counts = rows.count()
    if counts.without_timestamp:
        raise context.refusal(
            f"{counts.without_timestamp:,} rows past the new positions have no timestamp among their coordinates, and "
            "rows of an earlier topic lie there too; delete them, or rewind to an offset after them"
        )
    if counts.replaced_letters:
        raise context.refusal(
            f"{counts.replaced_letters:,} open dead letters there are the only copies of their messages, whose offsets "
            "the broker gives to others",
            then=f"kdi dead-letters replay {stream.name} --yes   (or discard; then the same command again)",
        )
    return counts, {"last_read": last_read}


def _last_before(context: ResolveContext, rows: RowsPastPosition) -> dict[TopicPartition, LastRead]:
    """The last message before each new position that has a row, as the broker has it.

    The rewind removes the rows that could prove a truncation. Without this check, a rewind to an offset above the
    truncation would let the drain skip the messages in between.

    Raises:
        NothingToResolve: The broker has another message there.
    """
    before = rows.last_rows_before()
    ranges = [OffsetRange(tp, offset, offset + 1) for tp, (offset, _) in before.items()]
    readable = [r for r in ranges if r.start >= context.topic.partitions[r.topic_partition].earliest]
    found = source_of(context.stream).last_messages(readable)
    for tp, message in found.items():
        if message.timestamp != before[tp][1]:
            raise _other_message(context, tp, message.offset)
    return found


def _refuse_other_messages_before(context: ResolveContext, lower: Mapping[TopicPartition, int]) -> None:
    """Refuse the same where rows have no timestamps: if the log was truncated, the rows themselves are compared.

    Only then: rows of an older document differ too. Rows from before the takeover cannot be compared.

    Raises:
        NothingToResolve: The broker has another message at the offset of a row before a new position.
    """
    if not (truncated := _truncated(context) & lower.keys()):
        return
    begin = coverage(audited_history(context.stream, context.lake).entries).begin
    starts = {tp: max(begin.get(tp, 0), lower[tp] - LOOKBACK_OFFSETS, 0) for tp in truncated}
    before = {tp: OffsetRange(tp, start, lower[tp]) for tp, start in starts.items() if start < lower[tp]}
    if before:
        found = compare(context.stream, lake=context.lake, session=context.session, bounds=before)
        for hole in found.changed_at:
            raise _other_message(context, hole.range.topic_partition, hole.range.start)


def _truncated(context: ResolveContext) -> set[TopicPartition]:
    """Topic partitions that end below their position, or that have another message at the offset that was read last."""
    partitions, entry = context.topic.partitions, context.ledger.entry
    shorter = {tp for tp, at in context.positions.items() if tp in partitions and partitions[tp].end < at}
    read = entry.last_read if entry else {}
    held = {tp: r for tp, r in read.items() if tp in partitions and r.offset >= partitions[tp].earliest}
    found = source_of(context.stream).last_messages([OffsetRange(tp, r.offset, r.offset + 1) for tp, r in held.items()])
    return shorter | {tp for tp, message in found.items() if message != held[tp]}


def _other_message(context: ResolveContext, tp: TopicPartition, offset: int) -> NothingToResolve:
    audit = f"kdi audit {context.stream.name} --against-source"
    return context.refusal(
        f"offset {offset} of {tp} holds another message than its row: the log was truncated below the new position",
        then=f"{audit}   (names the first offset that differs: rewind to that)",
    )
