"""Route change: a table is drained by the route conditions of its ledger; other conditions in documents are refused.

Every offset has one set of conditions, the same in all tables of a route group. A process may still have old documents,
so the ledgers decide, not the documents; only ``accept-routes`` changes them.
"""

from __future__ import annotations

from dataclasses import replace

from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.drain.errors import RoutesChanged
from kdi_assets.streams.ledger.positions import LedgerState
from kdi_assets.streams.ledger.routes import Positions, Routes


def routes_to_drain_by(stream: Stream, ledger: LedgerState, positions: Positions) -> Routes | None:
    """The conditions that documents and ledger agree on; ``None`` without a route group.

    Raises:
        RoutesChanged: They do not agree, or the table is before the offsets at which its conditions changed.
    """
    declared, recorded = Routes.of(stream), recorded_routes(stream, ledger)
    if why := why_refused(declared, recorded, positions):
        raise RoutesChanged(stream=stream.name, why=why)
    routes = replace(declared, since=recorded.since)
    return None if routes == Routes() else routes


def recorded_routes(stream: Stream, ledger: LedgerState) -> Routes:
    """The conditions of the table's ledger; those of the documents where its entry was cleaned up."""
    if ledger.entry is None:
        return Routes.of(stream)
    return ledger.routes or Routes()


def why_refused(declared: Routes, recorded: Routes, positions: Positions) -> str:
    """Why a table with these recorded conditions is not drained by those of the documents; empty if it is."""
    if recorded.stopped:
        return "a change of its route conditions was begun and not finished, or its newest ledger entry cannot be read"
    if not declared.same_as(recorded):
        return f"its route conditions were changed; its ledger has {in_words(recorded, declared)}"
    if lies_before(positions, recorded.since):
        at = positions_in_words(recorded.since or {})
        return f"its positions lie before {at}, where its route conditions changed"
    return ""


def lies_before(positions: Positions, since: Positions | None) -> bool:
    """Whether a table is, in any topic partition, before the offsets at which its conditions changed."""
    return any(positions.get(tp, 0) < at for tp, at in (since or {}).items())


def in_words(routes: Routes, other: Routes) -> str:
    """The conditions of the streams that have a different one in ``other``."""
    texts = {name: (_text(routes, name), _text(other, name)) for name in {*routes.conditions, *other.conditions}}
    return "; ".join(f"{name}: {one or 'no route'}" for name, (one, another) in sorted(texts.items()) if one != another)


def positions_in_words(positions: Positions) -> str:
    """The next offset of every topic partition."""
    return ", ".join(f"{tp} {at:,}" for tp, at in sorted(positions.items()))


def _text(routes: Routes, name: str) -> str:
    """The `route:` of a stream, in the words of its document."""
    if name not in routes.conditions:
        return ""
    when, rest = routes.conditions[name].strip(), "the rest" if routes.rest == name else ""
    return " and ".join(filter(None, (f"`route.when` `{when}`" if when else "", rest)))
