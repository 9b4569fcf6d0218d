"""Route change: a table is drained by the conditions that its ledger has; other documents are refused.

Every offset has one set of conditions, the same in all tables of a route group. A process may still have the documents
of before a change, so it is not the documents that decide: the ledgers do, and ``accept-routes`` alone changes them.
"""

from __future__ import annotations

from dataclasses import replace

from kdi_assets.errors import Terminal
from kdi_assets.ledger.positions import LedgerState
from kdi_assets.ledger.routes import Positions, Routes
from kdi_assets.stream.stream import Stream


class RoutesChanged(Terminal):
    """The documents have other route conditions than the table's ledger, or nobody decided yet which ones hold."""

    stream: str
    why: str

    what_happened = "{stream}: {why}."
    what_is_safe = "nothing was read; positions stay as they are."
    what_to_run = "kdi resolve {stream} accept-routes --because '…'   (for all tables of its group; shown first)"


def routes_to_drain_by(stream: Stream, ledger: LedgerState, positions: Positions) -> Routes | None:
    """The conditions that the stream's documents and its ledger have; ``None`` without a route group.

    Raises:
        RoutesChanged: They have others, or the table lies before the offsets at which it changed over to them.
    """
    said, recorded = Routes.of(stream), recorded_routes(stream, ledger)
    if why := why_not(said, recorded, positions):
        raise RoutesChanged(stream=stream.name, why=why)
    routes = replace(said, since=recorded.since)
    return None if routes == Routes() else routes


def recorded_routes(stream: Stream, ledger: LedgerState) -> Routes:
    """What the table's ledger has; what the documents say where its entry was cleaned up."""
    if ledger.entry is None:
        return Routes.of(stream)
    return ledger.routes or Routes()


def why_not(said: Routes, recorded: Routes, positions: Positions) -> str:
    """Why a table that has recorded these conditions is not drained by what the documents say; empty: it is."""
    if recorded.stopped:
        return "a change of its route conditions was begun and not finished, or its newest ledger entry cannot be read"
    if not said.same_as(recorded):
        return f"its route conditions were changed; its ledger has {in_words(recorded, said)}"
    if lies_before(positions, recorded.since):
        at = positions_in_words(recorded.since or {})
        return f"its positions lie before {at}, where it changed over to the route conditions that it has"
    return ""


def lies_before(positions: Positions, since: Positions | None) -> bool:
    """Whether a table lies, in any topic partition, before the offsets at which it changed over."""
    return any(positions.get(tp, 0) < at for tp, at in (since or {}).items())


def in_words(routes: Routes, other: Routes) -> str:
    """The conditions, of the streams that have another one there."""
    texts = {name: (_text(routes, name), _text(other, name)) for name in {*routes.conditions, *other.conditions}}
    return "; ".join(f"{name}: {one or 'no route'}" for name, (one, another) in sorted(texts.items()) if one != another)


def positions_in_words(positions: Positions) -> str:
    """The next offset of every topic partition."""
    return ", ".join(f"{tp} {at:,}" for tp, at in sorted(positions.items()))


def _text(routes: Routes, name: str) -> str:
    """The `route:` of a stream, as a document has it."""
    if name not in routes.conditions:
        return ""
    when, rest = routes.conditions[name].strip(), "the rest" if routes.rest == name else ""
    return " and ".join(filter(None, (f"`route.when` `{when}`" if when else "", rest)))
