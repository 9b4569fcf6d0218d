"""`kdi resolve`: decide what a drain refuses to decide; shown first, done with --yes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kdi_assets.cli.options import (
    AsJson,
    Defs,
    StreamName,
    moment_meant,
    stream_meant,
    streams_meant,
    topic_partition_meant,
    whoami,
)
from kdi_assets.cli.output import UNCHANGED, answer, columns, counted, json_line
from kdi_assets.cli.session import session_over
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.ledger.entry import LedgerEntry
    from kdi_assets.recovery.accept_routes import RouteDecision
    from kdi_assets.recovery.resolve import Decision
    from kdi_assets.stream.stream import Stream


ActionOption = Literal["accept-loss", "new-topic", "rewind", "adopt", "adopt-dead-letters", "accept-routes"]

TARGETS = ("--to", "--to-timestamp", "--to-version")
FITTING: Mapping[str, Sequence[str]] = {
    "accept-loss": ("--topic-partition", "--from", "--until"),
    "rewind": ("--topic-partition", *TARGETS),
}
"""Options by the action that looks at them; the others look at none of them."""

NEEDED = {"--from": "--until", "--until": "--topic-partition", "--to": "--topic-partition"}


def resolve(
    stream: StreamName,
    action: Annotated[ActionOption, typer.Argument(metavar="ACTION", help="What is decided, see above.")],
    topic_partition: Annotated[
        str | None, typer.Option(metavar="TOPIC/NUMBER", help="Only this one (accept-loss, rewind); default: all.")
    ] = None,
    start: Annotated[
        int | None,
        typer.Option("--from", metavar="OFFSET", min=0, help="accept-loss: the first offset given up: the position."),
    ] = None,
    until: Annotated[
        int | None, typer.Option(metavar="OFFSET", min=0, help="accept-loss: give up everything before this offset.")
    ] = None,
    to: Annotated[int | None, typer.Option(metavar="OFFSET", min=0, help="rewind: the next offset to read.")] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="rewind: to the first message of then or later, e.g. 2026-01-31T06:00:00Z."),
    ] = None,
    to_version: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="rewind: to where positions stood at version N of the table.")
    ] = None,
    because: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; the ledger keeps it, and who. accept-routes needs it.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this the decision is only shown.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Decide what a drain refuses to decide; the decision goes into the table's ledger.

    accept-loss gives up offsets that are gone, or that no drain can take.

    new-topic begins at the start of a topic that was made anew.

    rewind sets positions back, to an offset, a timestamp or a version of the
    table; without any, behind the table's rows. Rows behind the new positions
    are removed in the same commit, and their messages are drained again.

    adopt takes a table that lies in the old one's place, or that another
    writer wrote: positions behind its rows.

    adopt-dead-letters takes dead letters that lie in the old ones' place.

    accept-routes lets changed route conditions hold, in all tables of the
    topic at once; they must stand at the same offsets. It needs --because.

    Exit codes: 0 shown, or done with --yes; 1 it does not apply; 75 a retry helps.
    """
    from kdi_assets.recovery.resolve import carry_out_decision, decide

    chosen, lake = stream_meant(stream, defs), Settings.from_environment().lake
    options = {"--topic-partition": topic_partition, "--from": start, "--until": until}
    options |= {"--to": to, "--to-timestamp": to_timestamp, "--to-version": to_version}
    _refuse_misfits(action, [option for option, value in options.items() if value is not None], because)
    if action == "accept-routes":
        _accept_routes(chosen, streams_meant((), defs), lake, because=because, yes=yes, as_json=as_json)
        return
    moment = None if to_timestamp is None else moment_meant(to_timestamp, "--to-timestamp")
    only = topic_partition_meant(topic_partition, chosen)
    with session_over(chosen, "resolve", as_json=as_json) as session:
        decision = decide(
            chosen,
            lake,
            action,
            topic_partition=only,
            start=start,
            until=until,
            to=to,
            to_timestamp=moment,
            to_version=to_version,
            session=session,
        )
        told = {"decided_by": whoami(), "because": because}
        entry = carry_out_decision(session(), decision, chosen, lake, **told) if yes else None
    done = f"Done: committed as v{entry.version}." if entry else UNCHANGED
    answer(f"{_text(chosen, decision)}\n{done}", _fields(chosen, decision, entry), as_json=as_json)


def _refuse_misfits(action: ActionOption, options: Sequence[str], because: str) -> None:
    """Refuse options that the action would not look at: they were meant to restrict it."""
    for option in options:
        if option not in FITTING.get(action, ()):
            actions = " and ".join(one for one, fitting in FITTING.items() if option in fitting)
            raise typer.BadParameter(f"it belongs to {actions}, not to {action}", param_hint=option)
        if (needed := NEEDED.get(option)) and needed not in options:
            raise typer.BadParameter(f"it needs {needed}", param_hint=option)
    if action == "accept-routes" and not because.strip():
        raise typer.BadParameter("it needs --because, which the ledger keeps", param_hint=action)
    targets = [option for option in options if option in TARGETS]
    if len(targets) > 1:
        raise typer.BadParameter(f"{' and '.join(targets)} exclude each other", param_hint=action)
    if action == "rewind" and options and not targets:
        raise typer.BadParameter(f"it needs one of {', '.join(TARGETS)}", param_hint="--topic-partition")


def _text(stream: Stream, decision: Decision) -> str:
    from kdi_assets.ledger.positions import RETIRED

    before = decision.before
    after = {tp: "none: vanished" if at == RETIRED else at for tp, at in decision.after.items()}
    rows = [(tp, before.get(tp), after.get(tp)) for tp in sorted(before.keys() | after.keys())]
    table = columns(("TOPIC PARTITION", "POSITION", "NEW POSITION"), rows, align="<>>")
    losses = [f"declared loss: {r}, {counted(r.offset_count, 'offset')}" for r in decision.declared_losses]
    return "\n".join([f"{stream.name}: {decision.action}: {decision.reason}", table, *losses, *_beyond(decision)])


def _beyond(decision: Decision) -> list[str]:
    """What lies behind positions that are set back, and what becomes of it."""
    beyond, told = decision.beyond, []
    if beyond.rows:
        of = f"{counted(beyond.row_count, 'row')} of {counted(beyond.messages, 'message')} behind the new positions"
        told.append(f"{of} are removed, to be drained again")
    if beyond.only_copies:
        told.append(
            f"{counted(beyond.only_copies, 'row')} of these the broker cannot give again: kept in {beyond.kept_in}"
        )
    if beyond.letters:
        told.append(f"{counted(beyond.letters, 'open dead letter')} there: drained again as well")
    return told


def _fields(stream: Stream, decision: Decision, entry: LedgerEntry | None) -> dict[str, object]:
    from kdi_assets.ledger.positions import RETIRED

    return {
        "stream": stream.name,
        "action": decision.action,
        "reason": decision.reason,
        "positions_before": decision.before,
        "positions_after": {tp: None if at == RETIRED else at for tp, at in decision.after.items()},
        "declared_losses": decision.declared_losses,
        "rows_beyond": decision.beyond.row_count,
        "messages_beyond": decision.beyond.messages,
        "rows_kept_aside": decision.beyond.only_copies,
        "open_dead_letters_beyond": decision.beyond.letters,
        "table_version_before": decision.table_version,
        "done": entry is not None,
        "table_version": entry.version if entry else None,
    }


def _accept_routes(
    stream: Stream, streams: Sequence[Stream], lake: str, *, because: str, yes: bool, as_json: bool
) -> None:
    """Let all tables of the route group change over to the conditions of the documents; an object per table."""
    from kdi_assets.recovery.accept_routes import commit_routes, decide_routes

    with session_over(stream, "resolve", as_json=as_json) as session:
        decision = decide_routes(stream, streams, lake)
        done = commit_routes(session(), decision, decided_by=whoami(), because=because) if yes else {}
    if as_json:
        for name in decision.members:
            json_line(_routes_fields(name, decision, done.get(name)))
    else:
        versions = ", ".join(f"{name} v{entry.version}" for name, entry in done.items())
        typer.echo(_routes_text(decision))
        typer.echo(f"Done: committed as {versions}." if done else UNCHANGED)


def _routes_text(decision: RouteDecision) -> str:
    from kdi_assets.drain.route_change import in_words, positions_in_words

    rows = [
        (name, positions_in_words(table.positions), in_words(table.recorded, table.wanted) or "as in the documents")
        for name, table in sorted((name, one.table) for name, one in decision.members.items())
    ]
    lines = [columns(("TABLE", "POSITIONS", "DRAINED BY SO FAR"), rows, align="<<<")]
    lines.append("From these positions on, the route conditions of the documents hold.")
    if apart := decision.accepted.apart:
        lines.append(f"Messages between these offsets may then be in two tables, or in none: {apart}.")
    return "\n".join(lines)


def _routes_fields(name: str, decision: RouteDecision, entry: LedgerEntry | None) -> dict[str, object]:
    table = decision.members[name].table
    return {
        "stream": name,
        "action": "accept-routes",
        "positions": table.positions,
        "changes": table.changes,
        "apart": bool(decision.accepted.apart),
        "done": entry is not None,
        "table_version": entry.version if entry else None,
        "error": None,
    }
