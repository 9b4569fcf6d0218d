"""`kdi dead-letters`: messages that could not become rows: look at them, judge them again, or give them up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.dead_letters_told import letter_fields, letter_text, listed
from kdi_assets.cli.dead_letters_view import view
from kdi_assets.cli.given import (
    AsJson,
    Defs,
    OneSession,
    StreamName,
    dates_meant,
    one_session,
    stream_meant,
    topic_partition_meant,
    whoami,
)
from kdi_assets.cli.output import json_line, refusal_in_json
from kdi_assets.cli.replay_told import tell
from kdi_assets.cli.spark_failures import spark_failures
from kdi_assets.settings import Settings
from kdi_assets.stream import OffsetRange, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kdi_assets.replay.chosen import Chosen

app = typer.Typer(no_args_is_help=True, help="Messages that could not become rows: list, show, replay, discard, view.")


class States(StrEnum):
    """Which letters are listed."""

    open = "open"
    resolved = "resolved"
    discarded = "discarded"
    all = "all"


First = Annotated[str | None, typer.Option("--from", metavar="DATE", help="Of the messages' timestamps, UTC.")]
Last = Annotated[str | None, typer.Option("--to", metavar="DATE", help="The last date, inclusive.")]
Reason = Annotated[str, typer.Option(help="Only those with this reason, as `list` shows it.")]
Field = Annotated[str, typer.Option(help="Only those that failed at this field.")]
At = Annotated[str | None, typer.Option(metavar="TOPIC/NUMBER", help="Only this topic partition.")]
Offset = Annotated[int | None, typer.Option(min=0, help="Only this offset; needs one topic partition.")]
WhichStates = Annotated[States, typer.Option("--state", help="open, resolved, discarded or all.")]


@app.callback()
def dead_letters() -> None:
    """Messages that could not become rows: list, show, replay, discard, view."""


@app.command("list")
def list_(
    stream: StreamName,
    state: WhichStates = States.all,
    first: First = None,
    last: Last = None,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Dead letters by state and reason, with an example of each.

    A letter is open until a replay makes a row of its message (resolved), or
    someone gives it up (discarded).

    Exit codes: 0 listed; 1 someone must decide; 75 a retry helps.
    """
    from kdi_assets.replay.chosen import groups

    chosen = stream_meant(stream, defs)
    which = _chosen(chosen, first, last)
    with _looking(chosen, "dead-letters list", as_json=as_json) as session:
        letters = _letters(session(), chosen, state, which, with_messages=False)
        found = () if letters is None else groups(letters, chosen.topic)
    if as_json:
        json_line({"stream": chosen.name, "groups": [g._asdict() for g in found], "error": None})
    else:
        typer.echo(listed(chosen, found))


@app.command()
def show(
    stream: StreamName,
    count: Annotated[int, typer.Option(min=1, max=1000, help="Letters at most.")] = 5,
    state: WhichStates = States.open,
    first: First = None,
    last: Last = None,
    reason: Reason = "",
    field: Field = "",
    topic_partition: At = None,
    offset: Offset = None,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Single dead letters, with what they hold of their message.

    Exit codes: 0 shown; 1 someone must decide; 75 a retry helps.
    """
    chosen = stream_meant(stream, defs)
    which = _chosen(chosen, first, last, reason, field, topic_partition, offset)
    with _looking(chosen, "dead-letters show", as_json=as_json) as session:
        letters = _letters(session(), chosen, state, which, with_messages=True)
        found = [] if letters is None else letters.orderBy("partition", "offset").limit(count).collect()
    if as_json:
        json_line({"stream": chosen.name, "dead_letters": [letter_fields(r) for r in found], "error": None})
    else:
        typer.echo("\n".join(map(letter_text, found)) or f"{chosen.name}: no such dead letter")


@app.command()
def replay(
    stream: StreamName,
    first: First = None,
    last: Last = None,
    reason: Reason = "",
    field: Field = "",
    topic_partition: At = None,
    offset: Offset = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would become of them.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Judge open dead letters again, by the stream's definition of now.

    What is good now becomes a row, exactly once, on the date where it belongs.
    What is not keeps its new reason. Positions do not move, and drains may run
    meanwhile.

    Exit codes: 0 done, whatever became of them; 1 someone must decide; 75 a
    retry helps.
    """
    from kdi_assets.replay.replay_letters import replay_dry, replay_letters

    chosen, lake = stream_meant(stream, defs), Settings.from_environment().lake
    which = _chosen(chosen, first, last, reason, field, topic_partition, offset)
    with _looking(chosen, "dead-letters replay", as_json=as_json) as session:
        act = replay_dry if dry_run else replay_letters
        done = act(chosen, lake=lake, session=session, chosen=which)
    tell(done, as_json=as_json, looked=dry_run)


@app.command()
def discard(
    stream: StreamName,
    because: Annotated[str, typer.Option(metavar="TEXT", help="Why; it stays in the table's ledger.")],
    first: First = None,
    last: Last = None,
    reason: Reason = "",
    field: Field = "",
    topic_partition: At = None,
    offset: Offset = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only counted.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Give open dead letters up: no replay looks at them again.

    They stay in their table. Who did it, and why, stays in the ledger.

    Exit codes: 0 counted, or done with --yes; 1 someone must decide; 75 a
    retry helps.
    """
    from kdi_assets.replay.replay_letters import discard_letters

    if not because.strip():
        raise typer.BadParameter("say why; whoever looks for the messages will ask", param_hint="--because")
    chosen, lake = stream_meant(stream, defs), Settings.from_environment().lake
    which = _chosen(chosen, first, last, reason, field, topic_partition, offset)
    with _looking(chosen, "dead-letters discard", as_json=as_json) as session:
        done = discard_letters(
            chosen, lake=lake, session=session, chosen=which, decided_by=whoami(), because=because, dry=not yes
        )
    tell(done, as_json=as_json, looked=not yes, to_do_it="the same command with --yes does it")


app.command()(view)


@contextmanager
def _looking(stream: Stream, command: str, *, as_json: bool) -> Iterator[OneSession]:
    """A session, and every failure said as a refusal."""
    with (
        refusal_in_json(stream.name, as_json=as_json),
        one_session(command) as session,
        session.watched(),
        spark_failures(command, stream),
    ):
        yield session


def _chosen(
    stream: Stream,
    first: str | None,
    last: str | None,
    reason: str = "",
    field: str = "",
    topic_partition: str | None = None,
    offset: int | None = None,
) -> Chosen:
    from kdi_assets.replay.chosen import Chosen

    begin, end = dates_meant(first, last)
    only = topic_partition_meant(topic_partition, stream)
    if offset is not None and only is None:
        raise typer.BadParameter("it needs --topic-partition", param_hint="--offset")
    offsets = None
    if only is not None:
        offsets = OffsetRange(only, 0, 2**63 - 1) if offset is None else OffsetRange(only, offset, offset + 1)
    return Chosen(begin, end, reason, field, offsets)


def _letters(
    spark: SparkSession, stream: Stream, state: States, chosen: Chosen, *, with_messages: bool
) -> DataFrame | None:
    """The letters that are meant; ``None`` where there is no table."""
    from kdi_assets.ledger.history import live_history
    from kdi_assets.ledger.letters import standing_letters

    lake = Settings.from_environment().lake
    history = live_history(stream.table_uri(lake), stream.app_id, archive_uri=stream.archive_uri(lake))
    if history is None:
        return None
    letters = standing_letters(spark, stream, lake, history, with_messages=with_messages).where(chosen.sql())
    return letters if state is States.all else letters.where(f"state = '{state}'")
