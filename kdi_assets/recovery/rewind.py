"""Rewind: positions set back, to an offset, a moment, a version of the table, or behind the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kdi_assets.ledger.errors import CommitUnreadable, LedgerGap
from kdi_assets.recovery.adopt import refuse_another_topic
from kdi_assets.recovery.context import ProposedPositions, ResolveContext, told
from kdi_assets.sources.kafka.messages import oldest_timestamps
from kdi_assets.sources.kafka.topic import offsets_at
from kdi_assets.stream.stream import TopicPartition


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


def rewind(case: ResolveContext, target: Target) -> ProposedPositions:
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
    return ProposedPositions(lower, f"what is {where} is drained again: {_steps(case, lower)}")


def _behind_rows(case: ResolveContext) -> ProposedPositions:
    behind = case.behind_rows()
    if case.gap or case.ledger.ledger_version is None:
        refuse_another_topic(case)  # its rows may lie higher than those of the topic that is there now
    else:  # rows of others may lie ahead: what is before them was not drained
        behind = {tp: min(at, case.before.get(tp, at)) for tp, at in behind.items()}
    reason = "positions lie behind the highest offset in the rows; dead letters behind it are drained again"
    return ProposedPositions(behind, reason)


def _to_offset(case: ResolveContext, only: TopicPartition | None, offset: int) -> ProposedPositions:
    if only is None:
        raise case.no("--to needs --topic-partition, to which it belongs")
    position, held = case.before.get(only, 0), case.topic.partitions[only]
    if not held.earliest <= offset <= min(position, held.end):
        top = min(position, held.end)
        raise case.no(f"{only} can be set to [{held.earliest}, {top}]; going forward would lose messages")
    return ProposedPositions({only: offset}, f"[{offset}, {position}) of {only} is drained again")


def _at_moment(
    case: ResolveContext, chosen: Mapping[TopicPartition, int], moment: datetime
) -> Mapping[TopicPartition, int]:
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


def _at_version(
    case: ResolveContext, chosen: Mapping[TopicPartition, int], version: int
) -> Mapping[TopicPartition, int]:
    if version > case.ledger.version:
        raise case.no(f"there is no version {version}; the newest is {case.ledger.version}")
    try:
        then = case.ledger_at(version)
    except (CommitUnreadable, LedgerGap) as unreadable:
        why = f"version {version} of the table cannot be read any more (commit {unreadable.version} {unreadable.why})"
        raise case.no(why) from unreadable
    if then is None or then.ledger_version is None:
        raise case.no(f"version {version} is from before the stream's first ledger commit")
    if not then.topic_id_matches:
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


def _steps(case: ResolveContext, lower: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"[{at}, {case.before.get(tp, 0)}) of {tp}" for tp, at in sorted(lower.items()))
