"""What decides a message's verdict, as Spark SQL.

What a table makes of a message follows from the message, the table's document and the conditions of its route group
alone. So each table can be drained by itself, at any time, with the same outcome as in a pass for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kdi_assets.drain.rules.explode import empty_rules, of_any
from kdi_assets.drain.rules.records import DEAD_LETTER as DEAD_LETTER
from kdi_assets.drain.rules.records import FILTERED as FILTERED
from kdi_assets.drain.rules.records import ROW as ROW
from kdi_assets.drain.rules.records import TOMBSTONE as TOMBSTONE
from kdi_assets.drain.rules.shape import DATE, FILTER, conditions, expressions, result
from kdi_assets.formats.decoder import DECODED, VALUE
from kdi_assets.formats.rules import Rule, any_of, name
from kdi_assets.stream.message_rules import ROUTE
from kdi_assets.stream.stream import Stream

VERDICTS = ("row", "tombstone", "dead_letter", "filtered")
"""By name, at their numbers."""
ELSEWHERE = "elsewhere"
"""What is filtered because its route leads to another table, told apart from what the stream's filter leaves out."""
TOMBSTONE_RULE = Rule("tombstone", f"{VALUE} IS NULL")


def verdict_sql(stream: Stream, now: datetime) -> str:
    """Spark SQL over what ``evaluate`` gives: the number of a message's verdict."""
    undecoded, filtered, route = f"NOT {DECODED}", "", route_sql(stream)
    if stream.filter:
        # Ahead of what condemns a row: what a filter leaves out need not have a date, nor suit any expression.
        undecoded += f" OR {name(result(FILTER))} IS NULL"
        filtered = f"WHEN {undecoded} THEN {DEAD_LETTER} WHEN {_is_filtered(stream)} THEN {FILTERED} "
    dead = f"{undecoded} OR {any_of(row_rules(stream, now))}"
    # As a dead letter it is one like any other that is not decoded, as a row one that is.
    passed = f"WHEN {VALUE} IS NULL THEN {TOMBSTONE} " if stream.tombstones == "skip" else ""
    return f"CASE {passed}{_routed(route)}{filtered}WHEN {dead} THEN {DEAD_LETTER} ELSE {ROW} END"


def row_rules(stream: Stream, now: datetime) -> list[Rule]:
    """What condemns a record that was decoded."""
    window = stream.date_window
    date = f"{name(result('date'))}.v"
    failed = [Rule("expression_failed", f"{name(result(f))} IS NULL", f) for f in expressions(stream)]
    allowed = f"DATE'{window.start}' AND DATE'{window.last(now)}'"
    dates = [
        Rule("no_date", of_any(date, "IS NULL", stream), DATE),
        Rule("date_outside_window", of_any(date, f"NOT BETWEEN {allowed}", stream), DATE),
    ]
    return [*empty_rules(stream), *failed, *dates]


def leaves_no_trace(stream: Stream) -> str:
    """Spark SQL over what ``evaluate`` gives: whether a message is neither row nor dead letter by its definition."""
    tombstone = f"{VALUE} IS NULL" if stream.tombstones == "skip" else "false"
    return f"{tombstone} OR {route_sql(stream).elsewhere or 'false'} OR {_is_filtered(stream)}"


def _routed(route: RouteSql) -> str:
    """The branches of the verdict that say whose a message is, ahead of all that the stream asks of its own."""
    dead = f"WHEN NOT {DECODED} OR {any_of(route.rules)} THEN {DEAD_LETTER} " if route.rules else ""
    return f"{dead}WHEN {route.elsewhere} THEN {FILTERED} " if route.elsewhere else ""


def _is_filtered(stream: Stream) -> str:
    """Spark SQL over what ``evaluate`` gives: whether the filter was evaluated and leaves the message out."""
    kept = name(result(FILTER))
    return f"({kept} IS NOT NULL AND NOT coalesce({kept}.v, false))" if stream.filter else "false"


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
