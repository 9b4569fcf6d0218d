"""`kdi kinesis`: the consumers that drains registered, a Kinesis server on this machine, and generated records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, LocalPort, Yes, selected_streams
from kdi_assets.cli.output import print_json, print_result, short_duration, table_text
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from kdi_assets.documents.model.connections.kinesis import KinesisRegion
    from kdi_assets.documents.model.kinesis_stream import KinesisStream
    from kdi_assets.messages.kinesis.consumers import RegisteredConsumer

    _UsedConsumer = tuple[KinesisRegion, RegisteredConsumer, list[str]]
    """With its connection, and the tables that use it."""

app = typer.Typer(
    no_args_is_help=True,
    help="Consumers of Kinesis that drains registered; a Kinesis server for tests, and records for a stream.",
)


@app.command()
def consumers(
    deregister: Annotated[
        str, typer.Option(metavar="NAME", help="Deregister this consumer: its name, or its ARN.")
    ] = "",
    yes: Yes = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """List the consumers that drains registered for enhanced fan-out, and what they cost.

    They are the consumers whose names begin with kdi_, of the streams that the
    documents name. One that no table uses is shown with a dash: AWS charges it
    all the same, at the list price of us-east-1 for each open shard, whether it
    reads or not. The records that it reads cost extra.

    Exit codes: 0 shown, or done with --yes; 1 someone must decide; 75 a retry helps.
    """
    from kdi_assets.documents.model.kinesis_stream import KinesisStream
    from kdi_assets.messages.kinesis.consumers import deregister as end_consumer

    tables = [stream for stream in selected_streams((), defs) if isinstance(stream, KinesisStream)]
    found = _consumers_of(tables)
    if deregister:
        found = [_only_one(found, deregister)]
    if deregister and yes:
        ((connection, consumer, _),) = found
        end_consumer(connection, consumer.arn.partition("/consumer/")[0], consumer.name)
    if as_json:
        for connection, consumer, users in found:
            done = {"deregistered": yes} if deregister else {}
            print_json({"connection": connection.name, **asdict(consumer), "tables": users, **done})
        return
    typer.echo(_text(found))
    if deregister:
        typer.echo("deregistered" if yes else "nothing was done; --yes deregisters it")


def _text(found: Sequence[_UsedConsumer]) -> str:
    if not found:
        return "no drain has registered a consumer"
    rows = [
        (c.stream, c.name, c.status, short_duration(c.age_seconds), f"{c.dollars_a_month:,.2f}", ", ".join(of) or None)
        for _, c, of in found
    ]
    head = ("STREAM", "CONSUMER", "STATUS", "AGE", "$ A MONTH", "TABLES")
    return table_text(head, rows, align="<<<>><")


def _only_one(found: Sequence[_UsedConsumer], name: str) -> _UsedConsumer:
    """The consumer with this name or ARN."""
    named = [each for each in found if name in (each[1].name, each[1].arn)]
    if len(named) != 1:
        arns = "; give one of " + ", ".join(consumer.arn for _, consumer, _ in named) if named else ""
        said = f"{counted(len(named), 'consumer')} of the documents' streams is {name!r}{arns}"
        raise typer.BadParameter(said, param_hint="--deregister")
    return named[0]


def _consumers_of(tables: Sequence[KinesisStream]) -> list[_UsedConsumer]:
    """The consumers of the tables' streams, each once, although several connections may lead to a stream."""
    from kdi_assets.messages.kinesis.consumers import our_consumers
    from kdi_assets.messages.kinesis.errors import NoSuchKinesisStream

    found: dict[str, _UsedConsumer] = {}
    ordered = sorted(tables, key=lambda table: (table.cluster.name, table.topic))
    for _, group in groupby(ordered, key=lambda table: (table.cluster.name, table.topic)):
        same = list(group)
        try:
            listed = our_consumers(same[0].kinesis, same[0].topic)
        except NoSuchKinesisStream as missing:
            typer.echo(missing.message_parts()[0], err=True)
            continue
        for consumer in listed:
            names = {consumer.name, consumer.arn}
            _, _, users = found.setdefault(consumer.arn, (same[0].kinesis, consumer, []))
            users += (table.name for table in same if table.fan_out and table.fan_out.consumer in names)
    return list(found.values())


@app.command()
def run(
    port: LocalPort = None,
) -> None:
    """Run a Kinesis server on localhost until Ctrl-C; its streams are only in memory.

    It prints the variables with which the AWS CLI, boto3 and other SDKs use it.
    It is for tests: docs/kinesis.md says what it does as AWS does, and what not.
    """
    from kdi_assets.tools.local.kinesis.server import USUAL_PORT, run_kinesis

    run_kinesis(port=port or USUAL_PORT, report=typer.echo)


@app.command()
def put(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")],
    records: Annotated[int, typer.Option(min=1, help="Number of messages.")],
    aggregate: Annotated[
        bool, typer.Option("--aggregate", help="Several messages in one record, as the Kinesis Producer Library does.")
    ] = False,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Create the stream with this many shards, if it is missing.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put realistic web_requests messages into a stream, and wait until each is acknowledged.

    Endpoint, region and credentials are those of boto3's environment:
    AWS_ENDPOINT_URL_KINESIS, AWS_DEFAULT_REGION, AWS_PROFILE and others.

    Exit codes: 1 the stream is missing, or Kinesis refuses; 75 a retry helps.
    """
    import random

    from kdi_assets.tools.local.generator import Traffic
    from kdi_assets.tools.local.kinesis.producer import put_web_requests

    traffic = Traffic(seed=random.randrange(1 << 32))  # noqa: S311
    done = put_web_requests(stream, traffic, count=records, aggregate=aggregate, shards=shards)
    inside = f" in {counted(done.records, 'aggregate')}" if aggregate else ""
    text = f"{stream}: {counted(done.user_records, 'message')} put{inside}, in {done.seconds:.1f} s"
    print_result(text, asdict(done), as_json=as_json)
