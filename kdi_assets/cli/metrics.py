"""`kdi metrics`: metrics of the streams, for Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer

from kdi_assets.cli.options import Defs, selected_streams
from kdi_assets.cli.output import print_progress
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

app = typer.Typer(no_args_is_help=True, help="Metrics of the streams, for Prometheus.")


@app.callback()
def metrics() -> None:
    """Metrics of the streams, for Prometheus."""


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 9464,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all of the machine.")] = "127.0.0.1",
    defs: Defs = None,
) -> None:
    """Serve metrics at /metrics until Ctrl-C. They are computed at each scrape, without Spark.

    docs/metrics.md lists them. Everyone who reaches the port can read the names
    and figures of the streams. New or changed documents need a restart.

    Exit codes: 1 the documents are wrong; 2 the address cannot be used; 130
    after Ctrl-C.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    from kdi_assets.monitoring.metrics.collector import stream_collector

    streams = selected_streams((), defs)
    registry = CollectorRegistry()
    registry.register(stream_collector(streams, Settings.from_environment().lake))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as refused:
        raise typer.BadParameter(f"cannot listen on {host}:{port}: {refused.strerror or refused}") from refused
    print_progress(f"metrics of {counted(len(streams), 'stream')}: http://{host}:{server.server_port}/metrics")
    thread.join()
