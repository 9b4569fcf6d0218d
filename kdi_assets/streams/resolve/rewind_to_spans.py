"""Rewind of a stream of Kinesis: positions are set back to edges of what drains read, with their bookmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.held import SetBack
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.source import WayBack
from kdi_assets.streams.audit.audit import highest_offsets
from kdi_assets.streams.ledger.errors import another_table
from kdi_assets.streams.ledger.history import history_of
from kdi_assets.streams.resolve.context import ProposedPositions, ResolveContext, in_utc
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.rewind import Target, at_version, refuse_odd_target


def way_back(context: ResolveContext) -> WayBack | None:
    """The edges to which positions can be set back; ``None`` if every offset is one."""
    if context.topic.as_of is None:
        return None
    history = history_of(context.stream, context.lake)
    entries = history.entries[::-1] if history else ()
    return source_of(context.stream).way_back(context.topic, entries)


def rewind_to_spans(context: ResolveContext, way: WayBack, target: Target) -> ProposedPositions:
    """As ``rewind``: what a span has of the target is drained again with the whole span.

    Raises:
        NothingToResolve: Kinesis no longer has the records to drain again, or nothing would change.
        KdiError: As ``WayBack``.
    """
    refuse_odd_target(context, target)
    if context.gap or context.ledger.entry is None:
        raise context.refusal(
            "the log no longer shows which records were read", then=another_table(context.stream.name)
        )
    known = context.positions
    if target.only is not None and target.only not in context.topic.partitions:
        raise _expired(context, [target.only], "of any offset")
    chosen = known if target.only is None else {target.only: known.get(target.only, 0)}
    wanted, where = _wanted(context, way, target, chosen)
    lower = {tp: at for tp, at in wanted.items() if at < chosen[tp]}
    back = way.to(lower) if lower else SetBack({})
    if not back.positions:
        raise context.refusal(f"nothing below the positions is {where}")
    if back.gone:
        raise _gone(context, target, back)
    steps = ", ".join(f"[{at}, {known.get(tp, 0)}) of {tp}" for tp, at in sorted(back.positions.items()))
    reason = "; ".join((f"what is {where} is drained again: {steps}", *back.notes))
    return ProposedPositions(back.positions, reason, {"bookmarks": back.bookmarks})


def _wanted(
    context: ResolveContext, way: WayBack, target: Target, chosen: Mapping[TopicPartition, int]
) -> tuple[Mapping[TopicPartition, int], str]:
    """The offsets to read again from, by topic partition, and what they are in words."""
    listed = {tp: at for tp, at in chosen.items() if tp in context.topic.partitions}
    expired = sorted(chosen.keys() - listed.keys())
    if target.offset is not None and target.only is not None:
        return {target.only: target.offset}, f"at offset {target.offset} of {target.only} or later"
    if target.moment is not None:
        marks, since = context.ledger.entry.bookmarks if context.ledger.entry else {}, target.moment.timestamp() * 1000
        if gone := [tp for tp in expired if tp in marks and marks[tp].arrived >= since]:
            raise _expired(context, gone, f"of {in_utc(target.moment)} or later")
        is_past = context.topic.as_of is None or target.moment < context.topic.as_of
        found = way.offsets_at(target.moment, listed) if is_past else {}
        return found, f"of {in_utc(target.moment)} or later"
    if target.version is not None:
        after = at_version(context, chosen, target.version)
        if gone := [tp for tp in expired if after[tp] < chosen[tp]]:
            raise _expired(context, gone, f"since version {target.version}")
        return {tp: after[tp] for tp in listed}, f"not in the table at version {target.version}"
    highest = highest_offsets(context.session(), context.stream, context.log.uri)
    return {tp: highest.get(tp, -1) + 1 for tp in listed}, "after the last row"


def _expired(context: ResolveContext, gone: Sequence[TopicPartition], which: str) -> NothingToResolve:
    later = f"kdi history {context.stream.name}   (rewind to a later version or time, or another shard)"
    have, their = ("has", "its") if len(gone) == 1 else ("have", "their")
    names = ", ".join(map(str, gone))
    return context.refusal(f"{names} {have} expired, and {their} records {which} are gone", then=later)


def _gone(context: ResolveContext, target: Target, back: SetBack) -> NothingToResolve:
    details, commands, name = list[str](), list[str](), context.stream.name
    for tp, held_from in sorted(back.gone.items()):
        holds = "no record below the position"
        if held_from < context.positions.get(tp, 0):
            holds = f"all records only from offset {held_from} on"
            commands.append(f"kdi resolve {name} rewind --topic-partition {tp} --to {held_from}")
        details.append(f"{tp} would be read again from offset {back.positions[tp]} on, and Kinesis holds {holds}")
    then = "; ".join(commands) or f"kdi history {name}   (the rows so far stay as they are)"
    if target.only is None and back.positions.keys() - back.gone.keys():
        then += "   (the other shards one by one, with --topic-partition)"
    return context.refusal("; ".join(details), then=then)
