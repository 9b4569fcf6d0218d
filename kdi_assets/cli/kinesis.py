"""`kdi kinesis`: a Kinesis server on this machine, and generated records for a stream."""

from __future__ import annotations

from typing import Annotated

import typer

from kdi_assets.cli.options import AsJson
from kdi_assets.cli.output import print_result
from kdi_assets.wording import counted

app = typer.Typer(no_args_is_help=True, help="A Kinesis server for tests on this machine, and records for a stream.")


@app.command()
def run(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Preferred port; if it is in use, a free one is taken.")
    ] = None,
) -> None:
    """Run a Kinesis server on localhost until Ctrl-C; its streams are only in memory.

    It prints the variables with which the AWS CLI, boto3 and other SDKs use it.
    It is for tests: docs/kinesis.md says what it does as AWS does, and what not.
    """
    from kdi_assets.dev.kinesis.server import USUAL_PORT, run_kinesis

    run_kinesis(port=port or USUAL_PORT, report=typer.echo)


@app.command()
def put(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")],
    records: Annotated[int, typer.Option(min=1, help="Number of messages.")],
    aggregate: Annotated[
        bool, typer.Option("--aggregate", help="Several messages in one record, as the Kinesis Producer Library does.")
    ] = False,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Create the stream with so many shards, if it is missing.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put realistic web_requests messages into a stream, and wait until each is acknowledged.

    Endpoint, region and credentials are those of boto3's environment:
    AWS_ENDPOINT_URL_KINESIS, AWS_DEFAULT_REGION, AWS_PROFILE and others.

    Exit codes: 1 the stream is missing, or Kinesis refuses; 75 a retry helps.
    """
    import random
    from dataclasses import asdict

    from kdi_assets.dev.generator import Traffic
    from kdi_assets.dev.kinesis.producer import put_web_requests

    traffic = Traffic(seed=random.randrange(1 << 32))  # noqa: S311
    done = put_web_requests(stream, traffic, count=records, aggregate=aggregate, shards=shards)
    inside = f" in {counted(done.records, 'aggregate')}" if aggregate else ""
    text = f"{stream}: {counted(done.user_records, 'message')} put{inside}, in {done.seconds:.1f} s"
    print_result(text, asdict(done), as_json=as_json)
