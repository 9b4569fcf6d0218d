"""Route change: whether a table may be drained by the conditions that its route group has now.

A document holds for whoever reads it, and a drain that runs may have read an older one. So the ledgers decide: a table
says in a commit of its own that it goes over to other conditions, at the positions where it stands, and is drained by
them once all others have said the same. A drain by the former conditions that is on its way cannot commit behind that;
and whoever looks at the others does so after its own commit, so that of two tables one at least sees what the other
said. Tables that stand elsewhere would judge what lies between by other conditions: that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from kdi_assets.drain.plan import positions_of
from kdi_assets.drain.route_refusals import RoutesChangedApart, RoutesNotAgreed, in_words
from kdi_assets.errors import KdiError
from kdi_assets.ledger.routes import Positions, Routes, same_positions
from kdi_assets.ledger.state import LedgerState, read_ledger
from kdi_assets.sources.kafka import TopicState
from kdi_assets.stream import Stream


@dataclass(frozen=True, slots=True)
class Standing:
    """Where another table stands.

    Attributes:
        positions: Next offset of every topic partition; ``None`` if they are of another topic, or another table's.
        routes: What its ledger has; ``None`` of one that never recorded any.
    """

    positions: Positions | None
    routes: Routes | None = None


Look = Callable[[str, str], Standing | None]
"""Where the table of a stream stands, by its name and the prefix of its ledger's ids; ``None`` if it has no ledger."""


@dataclass(frozen=True, slots=True)
class RouteStep:
    """What comes before a drain of a routed table.

    Attributes:
        routes: What the next ledger entry has.
        says: Why that must be committed before anything is read; empty: it need not.
        refusal: Why nothing is drained now.
    """

    routes: Routes | None
    says: str = ""
    refusal: KdiError | None = None


def route_step(stream: Stream, lake: str, *, ledger: LedgerState, topic: TopicState) -> RouteStep:
    """What the ledgers of the stream's route group allow; others' are read only where conditions were changed."""

    def look(name: str, app_id: str) -> Standing | None:
        other = replace(stream, table=name, app_id=app_id, route=None, renamed_from="")
        found = read_ledger(other, lake, topic_id=topic.topic_id, topic_partitions=len(topic.partitions))
        if found is None or found.ledger_version is None:
            return None
        known = found.knows_table and found.knows_topic
        return Standing(positions_of(found, topic) if known else None, found.entry.routes if found.entry else None)

    recorded = ledger.entry.routes if ledger.entry else None
    try:
        return decide_routes(stream, recorded, positions_of(ledger, topic), look)
    except KdiError as unread:
        return RouteStep(recorded, refusal=unread)  # another table's ledger; it names it


def decide_routes(stream: Stream, recorded: Routes | None, positions: Positions, look: Look) -> RouteStep:
    """Whether the stream may go on, must say first that it goes over to other conditions, or must wait.

    Args:
        recorded: What the stream's newest ledger entry has.
        positions: Where its table stands.
    """
    said, now = Routes.of(stream), _names_now(stream)
    recorded = recorded.renamed(now) if recorded else None
    if not said.conditions and not (recorded and recorded.conditions):
        return RouteStep(recorded)  # it shares its topic with nobody
    wanted = _wanted(said, recorded, positions)
    behind = any(positions.get(tp, 0) < at for tp, at in (wanted.since or {}).items())
    if recorded and recorded.agreed and said.same_as(recorded) and not behind:
        return RouteStep(wanted)  # nothing was changed, so nobody else is asked
    standing = _standing(stream, said, recorded, look, now)
    if recorded is None and any(_had_others(other.routes, said) for other in standing.values()):
        wanted = replace(wanted, since=positions)
    stands = {
        name: _of_member(name, wanted, other) if name in said.conditions else _of_leaver(wanted, other)
        for name, other in standing.items()
    }
    if behind or _Stand.APART in stands.values():
        apart = {name: standing[name] for name, stand in stands.items() if behind or stand is _Stand.APART}
        return RouteStep(recorded, refusal=_apart(stream, said, recorded, positions, apart))
    if recorded is None or not said.same_as(recorded) or not same_positions(wanted.since, recorded.since):
        return RouteStep(wanted, says=_reason(wanted, recorded))
    if waiting := tuple(name for name, stand in stands.items() if stand is _Stand.CAN):
        return RouteStep(wanted, refusal=RoutesNotAgreed(stream=stream.name, waits_for=waiting))
    return RouteStep(replace(wanted, agreed=True, former=None))


def accepted(stream: Stream, positions: Positions) -> Routes:
    """What a table has for whose conditions somebody vouches, from where it stands."""
    return replace(Routes.of(stream), since=positions, agreed=True)


class _Stand(Enum):
    AGREES = auto()  # it says the same already
    CAN = auto()  # it can say so where it stands, and has not yet
    APART = auto()


def _wanted(said: Routes, recorded: Routes | None, positions: Positions) -> Routes:
    """What the stream's ledger should have, by its documents."""
    if recorded is None:
        return said
    if said.same_as(recorded):
        # A table that went over and was not drained since, but moved by a decision, goes over where it stands now.
        since = recorded.since if recorded.former is None else positions
        return replace(recorded, conditions=said.conditions, app_ids=said.app_ids, since=since)
    base = recorded.former or recorded
    if said.same_as(base):
        return replace(said, since=base.since)  # back, before anything was judged by the others
    if not said.conditions:
        return replace(said, since=positions, agreed=True)  # it takes everything, and waits for nobody
    return replace(said, since=positions, former=base)


def _standing(
    stream: Stream, said: Routes, recorded: Routes | None, look: Look, now: Mapping[str, str]
) -> dict[str, Standing]:
    """The other tables of the group that have a ledger; where it goes over, those that were in it before as well."""
    base = recorded and (recorded.former or recorded)
    asked = {**(base.app_ids if base and not said.same_as(base) else {}), **said.app_ids}
    found = {name: look(name, app_id) for name, app_id in sorted(asked.items()) if name != stream.name}
    return {
        name: replace(other, routes=other.routes.renamed(now)) if other.routes else other
        for name, other in found.items()
        if other
    }


def _had_others(theirs: Routes | None, said: Routes) -> bool:
    """Whether a table has, or had, other conditions than those that the documents say."""
    return theirs is not None and (theirs.since is not None or not theirs.same_as(said))


def _of_member(name: str, wanted: Routes, other: Standing) -> _Stand:
    theirs, here = other.routes, wanted.since is not None and same_positions(other.positions, wanted.since)
    if theirs is None:  # of a release that did not record them, or new to the group: what it had nobody can tell
        return _Stand.AGREES if wanted.since is None else _Stand.CAN if here else _Stand.APART
    before = wanted.former
    # A table that begins with them, wherever, is at one with all; not if there were others while it was in the group.
    begins = wanted.began or (theirs.began and not (before and before.since is not None and name in before.conditions))
    if theirs.same_as(wanted):
        if begins or same_positions(theirs.since, wanted.since):
            return _Stand.AGREES
        return _Stand.CAN if here and theirs.former else _Stand.APART
    before = theirs.former
    back = before is not None and before.same_as(wanted) and same_positions(before.since, wanted.since)
    return _Stand.CAN if here or back or wanted.began else _Stand.APART


def _of_leaver(wanted: Routes, other: Standing) -> _Stand:
    """Nobody waits for a table that is not in the group any more; it must have come as far as this one, no further."""
    since = other.routes.since if other.routes else None
    left_here = since is not None and same_positions(since, wanted.since)
    return _Stand.AGREES if left_here or same_positions(other.positions, wanted.since) else _Stand.APART


def _names_now(stream: Stream) -> dict[str, str]:
    """Names that streams of the group had, to those that they have."""
    group = stream.route.group if stream.route else {}
    return {member.renamed_from: name for name, member in group.items() if member.renamed_from}


def _reason(wanted: Routes, recorded: Routes | None) -> str:
    if recorded is None:
        return "by which conditions of its route group it is drained is recorded from here on"
    return "the conditions of its route group were changed" if wanted.conditions else "it has no route any more"


def _apart(
    stream: Stream, said: Routes, recorded: Routes | None, positions: Positions, apart: Mapping[str, Standing]
) -> RoutesChangedApart:
    base = recorded and (recorded.former or recorded)
    changed = base and not said.same_as(base)
    return RoutesChangedApart(
        stream=stream.name,
        positions=positions,
        others={name: _where(other, said) for name, other in apart.items()},
        former=_differing(base, said) if base and changed else {},
        group=tuple(sorted({stream.name, *said.app_ids, *(base.app_ids if base else ())})),
    )


def _where(other: Standing, said: Routes) -> str:
    if other.positions is None:
        return "has positions of another topic or table, to be decided first"
    theirs, at = other.routes, f"at {in_words(other.positions)}"
    if theirs is None or not theirs.same_as(said):
        return f"{at} by others"
    return f"{at} by these" + (f" from {in_words(theirs.since)} on" if theirs.since is not None else "")


def _differing(base: Routes, said: Routes) -> dict[str, str]:
    """What the documents said, where they say something else now."""
    differ = {
        name: _text(base, name)
        for name in {*base.conditions, *said.conditions}
        if _text(base, name).strip() != _text(said, name).strip()
    }
    return {name: text or "no route" for name, text in differ.items()}


def _text(routes: Routes, name: str) -> str:
    """The `route:` of a stream, as a document has it."""
    if name not in routes.conditions:
        return ""
    when, rest = routes.conditions[name].strip(), "the rest" if routes.rest == name else ""
    return " and ".join(filter(None, (f"`route.when` `{when}`" if when else "", rest)))
