"""`kdi dead-letters`: list, show, replay and discard the messages that could not become rows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kdi_assets.cli.options import (
    AsJson,
    Defs,
    StreamName,
    Yes,
    day,
    parse_topic_partition,
    refuse_reversed_dates,
    selected_stream,
)
from kdi_assets.cli.output import (
    UTC_SQL,
    print_result,
    refusal_in_json,
)
from kdi_assets.cli.session import stream_session
from kdi_assets.cli.streams.dead_letters_output import groups_text, letter_fields, letter_text
from kdi_assets.cli.streams.replay_output import print_replay
from kdi_assets.documents.model.stream import OffsetRange, Stream
from kdi_assets.runtime.environment import whoami
from kdi_assets.settings import Settings
from kdi_assets.wording import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from kdi_assets.streams.replay.dead_letter_filter import DeadLetterFilter

app = typer.Typer(no_args_is_help=True, help="Messages that could not become rows: list, show, replay, discard, view.")

First = Annotated[
    datetime | None,
    typer.Option("--from", metavar="DATE", parser=day, help="The first date of the messages' timestamps, UTC."),
]
Last = Annotated[datetime | None, typer.Option("--to", metavar="DATE", parser=day, help="The last date, inclusive.")]
ReasonOption = Annotated[str, typer.Option(help="Only dead letters with this reason, as `list` shows it.")]
FieldOption = Annotated[str, typer.Option(help="Only dead letters that failed at this field.")]
OnlyTopicPartition = Annotated[
    str | None, typer.Option("--topic-partition", metavar="TOPIC/NUMBER", help="Only this topic partition.")
]
OffsetOption = Annotated[int | None, typer.Option("--offset", min=0, help="Only this offset; needs --topic-partition.")]
StateOption = Annotated[
    Literal["open", "resolved", "discarded", "all"], typer.Option("--state", help="open, resolved, discarded or all.")
]


@app.command("list")
def list_(
    stream: StreamName,
    state: StateOption = "all",
    first: First = None,
    last: Last = None,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by state and reason, with an example of each.

    A dead letter is open until a replay makes rows of its message (resolved) or
    someone gives it up (discarded).

    Exit codes: 0 listed; 1 someone must decide; 75 a retry helps.
    """
    from kdi_assets.streams.replay.dead_letter_filter import groups

    chosen = selected_stream(stream, defs)
    which = _filter(chosen, first, last)
    with stream_session(chosen, "dead-letters list", as_json=as_json) as session:
        letters = _letters(session(), chosen, state, which)
        found = () if letters is None else groups(letters, chosen.topic)
    fields = {"stream": chosen.name, "groups": [g._asdict() for g in found]}
    print_result(groups_text(chosen, found), fields, as_json=as_json)


@app.command()
def show(
    stream: StreamName,
    count: Annotated[int, typer.Option(min=1, max=1000, help="Show at most this many dead letters.")] = 5,
    state: StateOption = "open",
    first: First = None,
    last: Last = None,
    reason: ReasonOption = "",
    field: FieldOption = "",
    topic_partition: OnlyTopicPartition = None,
    offset: OffsetOption = None,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Show single dead letters with their messages.

    Exit codes: 0 shown; 1 someone must decide; 75 a retry helps.
    """
    chosen = selected_stream(stream, defs)
    which = _filter(chosen, first, last, reason, field, topic_partition, offset)
    with stream_session(chosen, "dead-letters show", as_json=as_json) as session:
        letters = _letters(session(), chosen, state, which)
        found = [] if letters is None else _first_letters(letters, chosen, count)
        if reason and not found:
            _refuse_unknown(reason, _letters(session(), chosen, "all", _filter(chosen, None, None)))
    more = tuple(chosen.source_struct.more)
    text = "\n".join(letter_text(r, more) for r in found) or f"{chosen.name}: no such dead letter"
    fields = {"stream": chosen.name, "dead_letters": [letter_fields(r, more) for r in found]}
    print_result(text, fields, as_json=as_json)


@app.command()
def replay(
    stream: StreamName,
    first: First = None,
    last: Last = None,
    reason: ReasonOption = "",
    field: FieldOption = "",
    topic_partition: OnlyTopicPartition = None,
    offset: OffsetOption = None,
    yes: Yes = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Judge open dead letters again by the stream's current document.

    A message that is good now becomes rows, exactly once, on the rows' own
    dates. Others stay open and keep their new reason. Positions do not move,
    and drains may run meanwhile.

    Exit codes: 0 shown, or done with --yes; 1 someone must decide; 75 a retry
    helps.
    """
    from kdi_assets.streams.replay.replay_letters import replay_letters

    chosen, lake = selected_stream(stream, defs), Settings.from_environment().lake
    which = _filter(chosen, first, last, reason, field, topic_partition, offset)
    with stream_session(chosen, "dead-letters replay", as_json=as_json) as session:
        done = replay_letters(chosen, lake=lake, session=session, letter_filter=which, dry_run=not yes)
    print_replay(done, as_json=as_json, dry_run=not yes)


@app.command()
def discard(
    stream: StreamName,
    because: Annotated[str, typer.Option(metavar="TEXT", help="The reason; the table's ledger keeps it.")],
    first: First = None,
    last: Last = None,
    reason: ReasonOption = "",
    field: FieldOption = "",
    topic_partition: OnlyTopicPartition = None,
    offset: OffsetOption = None,
    yes: Yes = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Give up open dead letters: later replays skip them.

    They stay in their table. The ledger keeps who gave them up, and why.

    Exit codes: 0 shown, or done with --yes; 1 someone must decide; 75 a
    retry helps.
    """
    from kdi_assets.streams.replay.replay_letters import discard_letters

    if not because.strip():
        raise typer.BadParameter("say why: someone will look for these messages", param_hint="--because")
    chosen, lake = selected_stream(stream, defs), Settings.from_environment().lake
    which = _filter(chosen, first, last, reason, field, topic_partition, offset)
    with stream_session(chosen, "dead-letters discard", as_json=as_json) as session:
        done = discard_letters(
            chosen,
            lake=lake,
            session=session,
            letter_filter=which,
            decided_by=whoami(),
            because=because,
            dry_run=not yes,
        )
    print_replay(done, as_json=as_json, dry_run=not yes)


@app.command()
def view(
    stream: StreamName,
    name: Annotated[
        str, typer.Option(help="Name of the view; with a schema (audit.letters) it stays. Default: TABLE_dead_letters.")
    ] = "",
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Print a Spark SQL statement that creates a view of the dead letters.

    Its columns are those of kafka-delta-ingest's dead letter tables:
    base64_bytes, json_string, error and timestamp. It shows every dead letter
    that counts at the table's newest version; for those of later drains, create
    it again. Needs neither Spark nor a broker.

    Exit codes: 0 printed; 1 the log cannot be read; 75 a retry helps.
    """
    from kdi_assets.streams.ledger.history import history_of
    from kdi_assets.streams.ledger.letters_view import entries_with_dead_letters, select_sql, view_sql

    chosen, lake = selected_stream(stream, defs), Settings.from_environment().lake
    with refusal_in_json(stream=chosen.name, as_json=as_json):
        history = history_of(chosen, lake)
        commits = entries_with_dead_letters(history) if history else ()
        statement = view_sql(
            name or f"{chosen.table.rpartition('/')[2]}_dead_letters", select_sql(chosen, lake, commits)
        )
    version = f"at version {history.version} of its table" if history else "before the first version of its table"
    text = f"-- {chosen.name}: the dead letters that count {version}\n{statement};"
    fields = {
        "stream": chosen.name,
        "table_version": history.version if history else None,
        "dead_letters_table": chosen.dead_letters_uri(lake),
        "condemned_by": [{"attempt_id": c.attempt_id, "version": c.version, "at": c.planned_at} for c in commits],
        "statement": statement,
    }
    print_result(text, fields, as_json=as_json)


def _filter(
    stream: Stream,
    first: datetime | None,
    last: datetime | None,
    reason: str = "",
    field: str = "",
    topic_partition: str | None = None,
    offset: int | None = None,
) -> DeadLetterFilter:
    from kdi_assets.streams.replay.dead_letter_filter import DeadLetterFilter

    refuse_reversed_dates(first, last)
    only = parse_topic_partition(topic_partition, stream)
    if offset is not None and only is None:
        raise typer.BadParameter("it needs --topic-partition", param_hint="--offset")
    offsets = None
    if only is not None:
        offsets = OffsetRange(only, 0, 2**63 - 1) if offset is None else OffsetRange(only, offset, offset + 1)
    return DeadLetterFilter(first and first.date(), last and last.date(), reason, field, offsets)


def _letters(spark: SparkSession, stream: Stream, state: str, chosen: DeadLetterFilter) -> DataFrame | None:
    """The selected dead letters, without their messages; ``None`` if the stream has no table."""
    from kdi_assets.streams.ledger.history import history_of
    from kdi_assets.streams.ledger.letters import dead_letters_with_state

    lake = Settings.from_environment().lake
    history = history_of(stream, lake)
    if history is None:
        return None
    letters = dead_letters_with_state(spark, stream, lake, history).where(chosen.sql())
    return letters if state == "all" else letters.where(f"state = '{state}'")


def _refuse_unknown(reason: str, letters: DataFrame | None) -> None:
    """Refuse a reason that no dead letter of the stream has."""
    known = [] if letters is None else [row["reason"] for row in letters.select("reason").distinct().collect()]
    if known and reason not in known:
        detail = f"no dead letter has the reason {reason!r}; {did_you_mean(reason, known)}"
        raise typer.BadParameter(detail, param_hint="--reason")


def _first_letters(letters: DataFrame, stream: Stream, count: int) -> list[Row]:
    """The first letters, with their messages; their timestamps are text."""
    from pyspark.sql import functions as F

    from kdi_assets.streams.ledger.letters import read_few_at_once, with_messages

    spark, order = letters.sparkSession, ("partition", "offset")
    first = F.broadcast(letters.orderBy(*order).limit(count))
    held = with_messages(spark, stream, Settings.from_environment().lake, first).orderBy(*order)
    with read_few_at_once(spark):
        return held.withColumn("timestamp", F.expr(UTC_SQL.format("timestamp"))).drop("date").collect()
