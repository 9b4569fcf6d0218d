"""Accept loss: offsets that are given up, and recorded as lost."""

from __future__ import annotations

from collections.abc import Mapping

from kdi_assets.recovery.context import ProposedPositions, ResolveContext
from kdi_assets.stream.stream import OffsetRange, TopicPartition


def accept_loss(
    case: ResolveContext, only: TopicPartition | None, until: int | None, *, start: int | None = None
) -> ProposedPositions:
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
    return ProposedPositions(after, f"{count:,} offsets are given up and recorded as lost{besides}")


def losses(case: ResolveContext, after: Mapping[TopicPartition, int]) -> tuple[OffsetRange, ...]:
    """The offsets that positions pass without a drain."""
    starts = {tp: case.before.get(tp, 0) for tp in after}
    return tuple(OffsetRange(tp, starts[tp], end) for tp, end in after.items() if starts[tp] < end)
