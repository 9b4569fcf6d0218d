"""`kdi resolve`: decide what a drain refuses to decide; shown first, done with --yes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kdi_assets.cli.options import (
    AsJson,
    Defs,
    StreamName,
    Yes,
    parse_timestamp,
    parse_topic_partition,
    selected_stream,
    selected_streams,
)
from kdi_assets.cli.output import UNCHANGED, print_json, print_result, table_text
from kdi_assets.cli.session import stream_session
from kdi_assets.runtime.environment import whoami
from kdi_assets.settings import Settings
from kdi_assets.wording import arrived_between, counted

if TYPE_CHECKING:
    from kdi_assets.documents.model.stream import Stream
    from kdi_assets.streams.ledger.entry import LedgerEntry
    from kdi_assets.streams.resolve.accept_routes import RouteDecision
    from kdi_assets.streams.resolve.resolve import Decision

ResolveAction = Literal["accept-loss", "new-topic", "rewind", "adopt", "adopt-dead-letters", "accept-routes"]

TARGETS = ("--to", "--to-timestamp", "--to-version")
TAKEN_BY: Mapping[str, Sequence[str]] = {
    "accept-loss": ("--topic-partition", "--from", "--until"),
    "rewind": ("--topic-partition", *TARGETS),
}
"""The options that an action takes; the other actions take none of them."""
NEEDED = {"--from": "--until", "--until": "--topic-partition", "--to": "--topic-partition"}

ActionName = Annotated[ResolveAction, typer.Argument(metavar="ACTION", help="The decision, see above.")]
TopicPartitionOption = Annotated[
    str | None,
    typer.Option("--topic-partition", metavar="TOPIC/NUMBER", help="accept-loss, rewind: only this one; default: all."),
]
From = Annotated[
    int | None,
    typer.Option(
        "--from", metavar="OFFSET", min=0, help="accept-loss: the first offset to give up; must be the position."
    ),
]
Until = Annotated[
    int | None, typer.Option("--until", metavar="OFFSET", min=0, help="accept-loss: give up offsets before this one.")
]
To = Annotated[int | None, typer.Option("--to", metavar="OFFSET", min=0, help="rewind: the next offset to read.")]
ToTimestamp = Annotated[
    str | None,
    typer.Option(
        "--to-timestamp", metavar="TIME", help="rewind: to the first message since TIME, e.g. 2026-01-31T06:00:00Z."
    ),
]
ToVersion = Annotated[
    int | None,
    typer.Option("--to-version", metavar="N", min=0, help="rewind: to the positions at version N of the table."),
]
Because = Annotated[
    str, typer.Option("--because", metavar="TEXT", help="The reason, for the ledger. accept-routes needs it.")
]

HELP = """Decide what a drain refuses to decide; the table's ledger records the decision.

accept-loss gives up offsets that are lost, or that no drain can take. Of a
stream of Kinesis, one offset of a shard stands for all records that are lost.

new-topic starts at the beginning of a topic that was deleted and created again.

rewind sets positions back: to an offset, a timestamp, or a version of the
table; by default, to the end of the table's rows. The same commit removes the
rows at and after the new positions; their messages are drained again.

adopt accepts a table that replaced the stream's table, or that another writer
filled: positions are set to the end of its rows.

adopt-dead-letters accepts a replaced dead-letter table.

accept-routes accepts changed route conditions, in all tables of the topic at
once. These tables must have the same positions. It needs --because.

Exit codes: 0 shown, or done with --yes; 1 it does not apply; 75 a retry helps.
"""


def resolve(
    stream: StreamName,
    action: ActionName,
    topic_partition: TopicPartitionOption = None,
    start: From = None,
    until: Until = None,
    to: To = None,
    to_timestamp: ToTimestamp = None,
    to_version: ToVersion = None,
    because: Because = "",
    yes: Yes = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Check the options, work out the decision, and commit it with ``--yes``; the help is ``HELP``."""
    from kdi_assets.streams.resolve.resolve import commit_decision, decide

    chosen, lake = selected_stream(stream, defs), Settings.from_environment().lake
    options = {"--topic-partition": topic_partition, "--from": start, "--until": until}
    options |= {"--to": to, "--to-timestamp": to_timestamp, "--to-version": to_version}
    _refuse_other_options(action, [option for option, value in options.items() if value is not None], because)
    if action == "accept-routes":
        _accept_routes(chosen, selected_streams((), defs), lake, because=because, yes=yes, as_json=as_json)
        return
    numbers = {"start": start, "until": until, "to": to, "to_version": to_version}
    timestamp = None if to_timestamp is None else parse_timestamp(to_timestamp, "--to-timestamp")
    only = parse_topic_partition(topic_partition, chosen)
    with stream_session(chosen, "resolve", as_json=as_json) as session:
        decision = decide(
            chosen, lake, action, topic_partition=only, to_timestamp=timestamp, **numbers, session=session
        )
        why = {"decided_by": whoami(), "because": because}
        entry = commit_decision(session(), decision, chosen, lake, **why) if yes else None
    done = f"Done: committed as v{entry.version}." if entry else UNCHANGED
    print_result(f"{_text(chosen, decision)}\n{done}", _fields(chosen, decision, entry), as_json=as_json)


def _refuse_other_options(action: ResolveAction, options: Sequence[str], because: str) -> None:
    """Refuse options that the action would ignore: it would then do more than the user wants."""
    for option in options:
        if option not in TAKEN_BY.get(action, ()):
            actions = " and ".join(one for one, taken in TAKEN_BY.items() if option in taken)
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
    from kdi_assets.streams.ledger.positions import RETIRED

    before = decision.before
    after = {tp: "none: vanished" if at == RETIRED else at for tp, at in decision.after.items()}
    rows = [(tp, before.get(tp), after.get(tp)) for tp in sorted(before.keys() | after.keys())]
    table = table_text(("TOPIC PARTITION", "POSITION", "NEW POSITION"), rows, align="<>>")
    lines = [f"{stream.name}: {decision.action}: {decision.reason}", table]
    for r in decision.declared_losses:
        between = decision.lost_between.get(r.topic_partition)
        stands_for = f": {arrived_between(*between)}" if between else ""
        lines.append(f"declared loss: {r}, {counted(r.offset_count, 'offset')}{stands_for}")
    return "\n".join([*lines, *_past_position(decision), *decision.notes])


def _past_position(decision: Decision) -> list[str]:
    """What a rewind does with rows and dead letters at and after the new positions."""
    past, lines = decision.past_position, []
    if past.rows:
        rows = f"{counted(past.row_count, 'row')} of {counted(past.messages, 'message')}"
        lines.append(f"{rows} at and after the new positions are removed, and drained again")
    if past.only_copies:
        copies = counted(past.only_copies, "row")
        lines.append(f"of these, {copies} may be the only copies of their messages: kept in {past.kept_in}")
    if past.letters:
        lines.append(f"{counted(past.letters, 'open dead letter')} there: drained again as well")
    return lines


def _fields(stream: Stream, decision: Decision, entry: LedgerEntry | None) -> dict[str, object]:
    from kdi_assets.streams.ledger.positions import RETIRED

    return {
        "stream": stream.name,
        "action": decision.action,
        "reason": decision.reason,
        "positions_before": decision.before,
        "positions_after": {tp: None if at == RETIRED else at for tp, at in decision.after.items()},
        "declared_losses": decision.declared_losses,
        "lost_between": decision.lost_between,
        "rows_beyond": decision.past_position.row_count,
        "messages_beyond": decision.past_position.messages,
        "rows_kept_aside": decision.past_position.only_copies,
        "open_dead_letters_beyond": decision.past_position.letters,
        "notes": decision.notes,
        "table_version_before": decision.table_version,
        "done": entry is not None,
        "table_version": entry.version if entry else None,
    }


def _accept_routes(
    stream: Stream, streams: Sequence[Stream], lake: str, *, because: str, yes: bool, as_json: bool
) -> None:
    """Accept the documents' route conditions in all tables of the route group; in JSON, an object per table."""
    from kdi_assets.streams.resolve.accept_routes import commit_routes, decide_routes

    with stream_session(stream, "resolve", as_json=as_json) as session:
        decision = decide_routes(stream, streams, lake)
        done = commit_routes(session(), decision, decided_by=whoami(), because=because) if yes else {}
    if as_json:
        for name in decision.members:
            print_json(_routes_fields(name, decision, done.get(name)))
    else:
        versions = ", ".join(f"{name} v{entry.version}" for name, entry in done.items())
        typer.echo(_routes_text(decision))
        typer.echo(f"Done: committed as {versions}." if done else UNCHANGED)


def _routes_text(decision: RouteDecision) -> str:
    from kdi_assets.streams.drain.route_change import in_words, positions_in_words

    rows = [
        (name, positions_in_words(table.positions), in_words(table.recorded, table.wanted) or "as in the documents")
        for name, table in sorted((name, one.table) for name, one in decision.members.items())
    ]
    lines = [table_text(("TABLE", "POSITIONS", "DRAINED BY SO FAR"), rows, align="<<<")]
    lines.append("From these positions on, the route conditions of the documents apply.")
    if apart := decision.accepted.differing_offsets:
        lines.append(f"Messages between these offsets may then be in two tables, or in none: {apart}.")
    return "\n".join(lines)


def _routes_fields(name: str, decision: RouteDecision, entry: LedgerEntry | None) -> dict[str, object]:
    table = decision.members[name].table
    return {
        "stream": name,
        "action": "accept-routes",
        "positions": table.positions,
        "changes": table.changes,
        "apart": bool(decision.accepted.differing_offsets),
        "done": entry is not None,
        "table_version": entry.version if entry else None,
        "error": None,
    }
