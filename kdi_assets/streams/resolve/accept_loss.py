"""Accept-loss: give up offsets, or records of shards, that the source no longer has."""

from __future__ import annotations

from collections.abc import Mapping

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.of_stream import source_of
from kdi_assets.streams.resolve.context import NUMBERS, ProposedPositions, ResolveContext


def accepted_loss(
    context: ResolveContext, only: TopicPartition | None, start: int | None, until: int | None
) -> ProposedPositions:
    """The offsets that are given up, or the records of shards."""
    if context.topic.as_of:
        return accept_loss_of_records(context, only, {"--from": start, "--until": until})
    return accept_loss(context, only, until, start=start)


def accept_loss(
    context: ResolveContext, only: TopicPartition | None, until: int | None, *, start: int | None = None
) -> ProposedPositions:
    """Give up the offsets that the broker no longer has, or exactly the named offsets.

    Args:
        only: One topic partition; ``None``: all of them.
        until: The first offset of it that is not given up.
        start: The first offset that is given up; it must be the position.

    Raises:
        NothingToResolve: There is nothing to give up, or the named offsets do not fit.
    """
    context.refuse_gap()
    partitions = context.topic.partitions
    positions = {**dict.fromkeys(partitions, 0), **context.positions}
    after = dict(positions)
    if only is not None and start is not None and start != positions[only]:
        where = f"the position of {only} is {positions[only]}, not {start}"
        if start < positions[only]:
            raise context.refusal(f"{where}: offsets before the position cannot be given up")
        # A drain stops at the offset that it cannot take. So no undrained offset before it is ever given up.
        raise context.refusal(f"{where}: drain the offsets between them first", then=f"kdi drain {context.stream.name}")
    for tp, offsets in partitions.items():
        if only in (None, tp):
            target = offsets.earliest if until is None or only is None else until
            if target > offsets.end:
                raise context.refusal(f"{tp} ends at {offsets.end}, so nothing up to {target} can be given up")
            after[tp] = max(positions[tp], target)
    if after == positions:
        raise context.refusal("the broker still has every offset from the positions on")
    lost = losses(context, after)
    count = sum(r.offset_count for r in lost)
    readable = sum(max(0, r.end - max(r.start, partitions[r.topic_partition].earliest)) for r in lost)
    held = f"; the broker still holds up to {readable:,} of them" if readable else ""
    return ProposedPositions(after, f"{count:,} offsets are given up and recorded as lost{held}")


def accept_loss_of_records(
    context: ResolveContext, only: TopicPartition | None, named: Mapping[str, int | None]
) -> ProposedPositions:
    """Give up the records that retention took unread: one offset of each shard stands for all of them.

    Args:
        only: One shard; ``None``: all that a drain refuses.
        named: Options that name offsets.

    Raises:
        NothingToResolve: No record is known to be lost, or offsets are named.
    """
    context.refuse_gap()
    if offsets := [option for option, at in named.items() if at is not None]:
        raise context.refusal(f"{' and '.join(offsets)}: {NUMBERS}")
    found = source_of(context.stream).losses(context.topic, context.ledger)
    lost = {tp: loss for tp, loss in found.items() if only in (None, tp)}
    if not lost:
        raise context.refusal(f"no record of {only or context.topic.topic} is known to be lost")
    fields = {
        "bookmarks": {tp: loss.bookmark for tp, loss in lost.items()},
        "lost_between": {tp: (loss.since, loss.until) for tp, loss in lost.items()},
    }
    shards = "1 shard" if len(lost) == 1 else f"{len(lost):,} shards"
    reason = f"records of {shards} may be missing; one offset of each is recorded as lost, and stands for all of them"
    return ProposedPositions({tp: context.positions.get(tp, 0) + 1 for tp in lost}, reason, fields)


def losses(context: ResolveContext, after: Mapping[TopicPartition, int]) -> tuple[OffsetRange, ...]:
    """The offsets that the new positions skip without a drain."""
    starts = {tp: context.positions.get(tp, 0) for tp in after}
    return tuple(OffsetRange(tp, starts[tp], end) for tp, end in after.items() if starts[tp] < end)
