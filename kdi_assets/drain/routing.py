"""Routing: whose a message is, of a topic that several tables share; Spark SQL that the verdict and its reasons share.

What a table makes of a message follows from the message, the table's document and the conditions of its route group
alone. So each table can be drained by itself, at any time, with the same outcome as in a pass for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kdi_assets.drain.shape import conditions, result
from kdi_assets.formats.rules import Rule, name
from kdi_assets.message_rules import ROUTE
from kdi_assets.stream import Stream


@dataclass(frozen=True, slots=True)
class RouteSql:
    """What a stream's route says of messages, over what ``shape.evaluate`` gives.

    Attributes:
        rules: What condemns a decoded message before anything else is asked; of the stream that has the rest alone.
        elsewhere: Whether it is not this stream's: filtered here, and a row or dead letter of another; empty: never.
    """

    rules: tuple[Rule, ...] = ()
    elsewhere: str = ""


def route_sql(stream: Stream) -> RouteSql:
    """The route of a stream in Spark SQL; nothing is asked where it has none."""
    route = stream.route
    if route is None:
        return RouteSql()
    own = _holds(ROUTE) if route.when else "false"
    if route.rest is None:
        # What is not decoded has no result, and what raises has none: of both the stream with the rest takes care.
        return RouteSql(elsewhere=f"NOT {own}")
    others = " OR ".join(_holds(field) for field in conditions(stream) if field != ROUTE) or "false"
    # A condition that raises may have meant any table: there nobody lets it pass, so that it is kept here.
    raised = [Rule("expression_failed", f"{name(result(field))} IS NULL", field) for field in conditions(stream)]
    unrouted = [Rule("unrouted", f"NOT {own} AND NOT ({others})")] if route.rest == "dead_letters" else []
    sound = " AND ".join(f"{name(result(field))} IS NOT NULL" for field in conditions(stream)) or "true"
    return RouteSql((*raised, *unrouted), f"({sound} AND NOT {own} AND ({others}))")


def _holds(field: str) -> str:
    """Whether a condition is true: neither false, nor null, nor raised."""
    return f"coalesce({name(result(field))}.v, false)"
