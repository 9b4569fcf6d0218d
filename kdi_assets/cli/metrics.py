"""`kdi metrics`: what streams do, for Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer

from kdi_assets.cli.options import Defs, streams_meant
from kdi_assets.cli.output import counted, progress
from kdi_assets.settings import Settings

app = typer.Typer(no_args_is_help=True, help="What streams do, for Prometheus.")


@app.callback()
def metrics() -> None:
    """What streams do, for Prometheus."""


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 9464,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one of the machine.")] = "127.0.0.1",
    defs: Defs = None,
) -> None:
    """Serve metrics at /metrics until Ctrl-C; computed when scraped, without Spark.

    Every name is in docs/metrics.md. Whoever reaches the port can read them:
    names of streams, and figures. New or changed documents need a restart.

    Exit codes: 1 the documents are wrong; 2 the address cannot be listened on;
    130 after Ctrl-C.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    from kdi_assets.monitoring.metrics.collector import stream_collector

    streams = streams_meant((), defs)
    registry = CollectorRegistry()
    registry.register(stream_collector(streams, Settings.from_environment().lake))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as refused:
        raise typer.BadParameter(f"cannot listen on {host}:{port}: {refused.strerror or refused}") from refused
    progress(f"metrics of {counted(len(streams), 'stream')}: http://{host}:{server.server_port}/metrics")
    thread.join()
