"""Given up: offsets that nobody will drain any more, and what was kept of their messages."""

from __future__ import annotations

from collections.abc import Mapping

from kdi_assets.drain.case import Case, Proposal
from kdi_assets.ledger.history import live_history
from kdi_assets.ledger.letters import standing_letters
from kdi_assets.ledger.offsets import inside
from kdi_assets.stream import OffsetRange, TopicPartition


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
    letters = _open_letters(case, after)
    kept = f"; open dead letters of them: {letters:,}, which stay open, to be replayed or discarded" if letters else ""
    return Proposal(after, f"{count:,} offsets are given up and recorded as lost{besides}{kept}", letters=letters)


def losses(case: Case, after: Mapping[TopicPartition, int]) -> tuple[OffsetRange, ...]:
    """The offsets that positions pass without a drain."""
    starts = {tp: case.before.get(tp, 0) for tp in after}
    return tuple(OffsetRange(tp, starts[tp], end) for tp, end in after.items() if starts[tp] < end)


def _open_letters(case: Case, after: Mapping[TopicPartition, int]) -> int:
    """Dead letters that an earlier drain made of messages which none will read again."""
    steps = ((tp, case.before.get(tp, 0), at) for tp, at in after.items())
    skipped = {tp: OffsetRange(tp, start, end) for tp, start, end in steps if start < end}
    stream, topic_id = case.stream, case.topic.topic_id
    history = live_history(case.log.uri, stream.app_id, archive_uri=stream.archive_uri(case.lake))
    ranges = (r.range for entry in (history.entries if history else ()) for r in entry.ranges)
    # Positions were never set back over most losses: then no drain has been there, and Spark is not needed.
    if history is None or not any(
        r.start < out.end and out.start < r.end for r in ranges if (out := skipped.get(r.topic_partition))
    ):
        return 0
    letters = standing_letters(case.session(), stream, case.lake, history, with_messages=False)
    return letters.where(f"state = 'open' AND topic_id = '{topic_id}'").where(inside(skipped)).count()
