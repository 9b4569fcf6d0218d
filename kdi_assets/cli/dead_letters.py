"""`kdi dead-letters`: messages that could not become rows: look at them, judge them again, or give them up."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kdi_assets.cli.dead_letters_output import letter_fields, letter_text, listed
from kdi_assets.cli.options import (
    DATE,
    AsJson,
    Defs,
    StreamName,
    refuse_empty_span,
    stream_meant,
    topic_partition_meant,
    whoami,
)
from kdi_assets.cli.output import answer, refusal_in_json
from kdi_assets.cli.replay_output import tell
from kdi_assets.cli.session import session_over
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import OffsetRange, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kdi_assets.replay.dead_letter_filter import DeadLetterFilter

app = typer.Typer(no_args_is_help=True, help="Messages that could not become rows: list, show, replay, discard, view.")


First = Annotated[
    datetime | None, typer.Option("--from", metavar="DATE", formats=[DATE], help="Of the messages' timestamps, UTC.")
]
Last = Annotated[
    datetime | None, typer.Option("--to", metavar="DATE", formats=[DATE], help="The last date, inclusive.")
]
ReasonOption = Annotated[str, typer.Option(help="Only those with this reason, as `list` shows it.")]
FieldOption = Annotated[str, typer.Option(help="Only those that failed at this field.")]
AtOption = Annotated[str | None, typer.Option(metavar="TOPIC/NUMBER", help="Only this topic partition.")]
Offset = Annotated[int | None, typer.Option(min=0, help="Only this offset; needs one topic partition.")]
WhichState = Annotated[
    Literal["open", "resolved", "discarded", "all"], typer.Option("--state", help="open, resolved, discarded or all.")
]


@app.command("list")
def list_(
    stream: StreamName,
    state: WhichState = "all",
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
    from kdi_assets.replay.dead_letter_filter import groups

    chosen = stream_meant(stream, defs)
    which = _chosen(chosen, first, last)
    with session_over(chosen, "dead-letters list", as_json=as_json) as session:
        letters = _letters(session(), chosen, state, which, with_messages=False)
        found = () if letters is None else groups(letters, chosen.topic)
    fields = {"stream": chosen.name, "groups": [g._asdict() for g in found]}
    answer(listed(chosen, found), fields, as_json=as_json)


@app.command()
def show(
    stream: StreamName,
    count: Annotated[int, typer.Option(min=1, max=1000, help="Letters at most.")] = 5,
    state: WhichState = "open",
    first: First = None,
    last: Last = None,
    reason: ReasonOption = "",
    field: FieldOption = "",
    topic_partition: AtOption = None,
    offset: Offset = None,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Single dead letters, with what they hold of their message.

    Exit codes: 0 shown; 1 someone must decide; 75 a retry helps.
    """
    chosen = stream_meant(stream, defs)
    which = _chosen(chosen, first, last, reason, field, topic_partition, offset)
    with session_over(chosen, "dead-letters show", as_json=as_json) as session:
        letters = _letters(session(), chosen, state, which, with_messages=True)
        found = [] if letters is None else letters.orderBy("partition", "offset").limit(count).collect()
    text = "\n".join(map(letter_text, found)) or f"{chosen.name}: no such dead letter"
    fields = {"stream": chosen.name, "dead_letters": [letter_fields(r) for r in found]}
    answer(text, fields, as_json=as_json)


@app.command()
def replay(
    stream: StreamName,
    first: First = None,
    last: Last = None,
    reason: ReasonOption = "",
    field: FieldOption = "",
    topic_partition: AtOption = None,
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
    from kdi_assets.replay.replay_letters import replay_letters

    chosen, lake = stream_meant(stream, defs), Settings.from_environment().lake
    which = _chosen(chosen, first, last, reason, field, topic_partition, offset)
    with session_over(chosen, "dead-letters replay", as_json=as_json) as session:
        done = replay_letters(chosen, lake=lake, session=session, chosen=which, dry=dry_run)
    tell(done, as_json=as_json, looked=dry_run)


@app.command()
def discard(
    stream: StreamName,
    because: Annotated[str, typer.Option(metavar="TEXT", help="Why; it stays in the table's ledger.")],
    first: First = None,
    last: Last = None,
    reason: ReasonOption = "",
    field: FieldOption = "",
    topic_partition: AtOption = None,
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
    with session_over(chosen, "dead-letters discard", as_json=as_json) as session:
        done = discard_letters(
            chosen, lake=lake, session=session, chosen=which, decided_by=whoami(), because=because, dry=not yes
        )
    tell(done, as_json=as_json, looked=not yes, to_do_it="the same command with --yes does it")


@app.command()
def view(
    stream: StreamName,
    name: Annotated[
        str, typer.Option(help="Of the view; in a schema (audit.letters) it stays. Default: TABLE_dead_letters.")
    ] = "",
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """A statement for Spark that makes a view of four columns.

    base64_bytes, json_string, error and timestamp, as kafka-delta-ingest's
    dead letter tables have them. It shows every dead letter that counts by
    the table's newest version, and those of later drains when it is made
    anew. Needs neither Spark nor a broker.

    Exit codes: 0 printed; 1 the log cannot be read; 75 a retry helps.
    """
    from kdi_assets.ledger.history import live_history
    from kdi_assets.ledger.letters_view import entries_with_dead_letters, select_sql, view_sql

    chosen, lake = stream_meant(stream, defs), Settings.from_environment().lake
    with refusal_in_json(chosen.name, as_json=as_json):
        history = live_history(chosen.table_uri(lake), chosen.app_id, archive_uri=chosen.archive_uri(lake))
        commits = entries_with_dead_letters(history) if history else ()
        statement = view_sql(
            name or f"{chosen.table.rpartition('/')[2]}_dead_letters", select_sql(chosen, lake, commits)
        )
    version = f"version {history.version}" if history else "no version yet"
    text = f"-- {chosen.name}: the dead letters that count by {version} of its table\n{statement};"
    fields = {
        "stream": chosen.name,
        "table_version": history.version if history else None,
        "dead_letters_table": chosen.dead_letters_uri(lake),
        "condemned_by": [{"attempt_id": c.attempt_id, "version": c.version, "at": c.planned_at} for c in commits],
        "statement": statement,
    }
    answer(text, fields, as_json=as_json)


def _chosen(
    stream: Stream,
    first: datetime | None,
    last: datetime | None,
    reason: str = "",
    field: str = "",
    topic_partition: str | None = None,
    offset: int | None = None,
) -> DeadLetterFilter:
    from kdi_assets.replay.dead_letter_filter import DeadLetterFilter

    refuse_empty_span(first, last)
    only = topic_partition_meant(topic_partition, stream)
    if offset is not None and only is None:
        raise typer.BadParameter("it needs --topic-partition", param_hint="--offset")
    offsets = None
    if only is not None:
        offsets = OffsetRange(only, 0, 2**63 - 1) if offset is None else OffsetRange(only, offset, offset + 1)
    return DeadLetterFilter(first and first.date(), last and last.date(), reason, field, offsets)


def _letters(
    spark: SparkSession, stream: Stream, state: str, chosen: DeadLetterFilter, *, with_messages: bool
) -> DataFrame | None:
    """The letters that are meant; ``None`` where there is no table."""
    from kdi_assets.ledger.history import live_history
    from kdi_assets.ledger.letters import dead_letters_with_state

    lake = Settings.from_environment().lake
    history = live_history(stream.table_uri(lake), stream.app_id, archive_uri=stream.archive_uri(lake))
    if history is None:
        return None
    letters = dead_letters_with_state(spark, stream, lake, history, with_messages=with_messages).where(chosen.sql())
    return letters if state == "all" else letters.where(f"state = '{state}'")
