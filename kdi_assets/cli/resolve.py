"""`kdi resolve`: decide what a drain refuses to decide; shown first, done with --yes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kdi_assets.cli.accept_routes import accept_routes
from kdi_assets.cli.given import (
    AsJson,
    Defs,
    StreamName,
    moment_meant,
    one_session,
    stream_meant,
    topic_partition_meant,
    whoami,
)
from kdi_assets.cli.output import columns, counted, json_line, refusal_in_json
from kdi_assets.cli.spark_failures import spark_failures
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.drain import case
    from kdi_assets.drain.resolve import Decision
    from kdi_assets.ledger.entry import LedgerEntry
    from kdi_assets.stream import Stream


class Action(StrEnum):
    """What can be decided."""

    accept_loss = "accept-loss"
    new_topic = "new-topic"
    rewind = "rewind"
    adopt = "adopt"
    adopt_dead_letters = "adopt-dead-letters"
    accept_routes = "accept-routes"


def resolve(
    stream: StreamName,
    action: Annotated[Action, typer.Argument(metavar="ACTION", help="What is decided, see above.")],
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
    from kdi_assets.drain.resolve import carry_out_decision, decide

    chosen, lake = stream_meant(stream, defs), Settings.from_environment().lake
    targets = {"--to": to, "--to-timestamp": to_timestamp, "--to-version": to_version}
    _refuse_misfits(action, topic_partition, (start, until), targets, because)
    if action is Action.accept_routes:
        accept_routes(chosen, defs, because=because, yes=yes, as_json=as_json)
        return
    moment = None if to_timestamp is None else moment_meant(to_timestamp, "--to-timestamp")
    only = topic_partition_meant(topic_partition, chosen)
    with (
        refusal_in_json(chosen.name, as_json=as_json),
        one_session("resolve") as session,
        session.watched(),
        spark_failures("resolve", chosen),
    ):
        decision = decide(
            chosen,
            lake,
            cast("case.Action", action.value),
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
    _show(chosen, decision, entry, as_json=as_json)


def _refuse_misfits(
    action: Action,
    topic_partition: str | None,
    offsets: tuple[int | None, int | None],
    targets: Mapping[str, int | str | None],
    because: str,
) -> None:
    """Refuse options that the action would not look at: they were meant to restrict it."""
    start, until = offsets
    fitting: dict[str, tuple[object, tuple[Action, ...]]] = {
        "--from": (start, (Action.accept_loss,)),
        "--until": (until, (Action.accept_loss,)),
        **{option: (given, (Action.rewind,)) for option, given in targets.items()},
        "--topic-partition": (topic_partition, (Action.accept_loss, Action.rewind)),
    }
    for option, (given, actions) in fitting.items():
        if given is not None and action not in actions:
            raise typer.BadParameter(f"it belongs to {' and '.join(actions)}, not to {action}", param_hint=option)
    if until is not None and topic_partition is None:
        raise typer.BadParameter("it needs --topic-partition, to which it belongs", param_hint="--until")
    if start is not None and until is None:
        raise typer.BadParameter("it needs --until, the first offset that is not given up", param_hint="--from")
    if action is Action.accept_routes and not because.strip():
        raise typer.BadParameter("it needs --because, which the ledger keeps", param_hint="accept-routes")
    named = [option for option, given in targets.items() if given is not None]
    if len(named) > 1:
        raise typer.BadParameter(f"{' and '.join(named)} exclude each other", param_hint="rewind")
    if action is Action.rewind and topic_partition is None and "--to" in named:
        raise typer.BadParameter("it needs --topic-partition, to which it belongs", param_hint="--to")
    if action is Action.rewind and topic_partition is not None and not named:
        raise typer.BadParameter(f"it needs one of {', '.join(targets)}", param_hint="--topic-partition")


def _show(stream: Stream, decision: Decision, entry: LedgerEntry | None, *, as_json: bool) -> None:
    """What was decided, and the commit that did it, if it was to be done."""
    if as_json:
        json_line(_fields(stream, decision, entry))
        return
    typer.echo(_text(stream, decision))
    done = (
        f"Done: committed as v{entry.version}."
        if entry
        else "Nothing was changed; the same command with --yes does it."
    )
    typer.echo(done)


def _text(stream: Stream, decision: Decision) -> str:
    from kdi_assets.ledger.transaction_ids import RETIRED

    before, after = decision.before, decision.after
    new = {tp: "none: vanished" if at == RETIRED else f"{at:,}" for tp, at in after.items()}
    rows = [
        (str(tp), f"{before[tp]:,}" if tp in before else "-", new.get(tp, "-"))
        for tp in sorted(before.keys() | after.keys())
    ]
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
    from kdi_assets.ledger.transaction_ids import RETIRED

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
        "error": None,
    }
