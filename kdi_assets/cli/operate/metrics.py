"""`kdi metrics`: metrics of the streams, for Prometheus and StatsD."""

from __future__ import annotations

from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kdi_assets.cli.options import Defs
from kdi_assets.cli.output import print_progress
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from kdi_assets.documents.loading.loader import LoadedFolder
    from kdi_assets.operate.monitoring.metrics.statsd import StatsdNames

app = typer.Typer(no_args_is_help=True, help="Metrics of the streams, for Prometheus and StatsD.")


@app.callback()
def metrics() -> None:
    """Metrics of the streams, for Prometheus and StatsD."""


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 9464,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all of the machine.")] = "127.0.0.1",
    statsd: Annotated[
        str, typer.Option(metavar="HOST:PORT", envvar="STATSD_ENDPOINT", help="Also send to this StatsD server.")
    ] = "",
    statsd_names: Annotated[
        Literal["kdi", "kafka-delta-ingest"], typer.Option(help="Whose names StatsD gets.")
    ] = "kdi",
    statsd_prefix: Annotated[str, typer.Option(envvar="KDI_METRICS_PREFIX", help="First part of StatsD's names.")] = "",
    defs: Defs = None,
) -> None:
    """Serve metrics at /metrics until Ctrl-C. They are computed at each scrape, without Spark.

    docs/metrics.md lists them. Everyone who reaches the port can read the names
    and figures of the streams. New and changed documents are read at the next
    scrape. With --statsd they are also sent every ten seconds, by UDP.

    Exit codes: 1 the documents are wrong; 2 the address cannot be used; 130
    after Ctrl-C.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    from kdi_assets.documents.loading.loader import defs_folder
    from kdi_assets.operate.monitoring.metrics.reloading import reloading_collector

    endpoint, settings = _host_and_port(statsd) if statsd else None, Settings.from_environment()
    collector = reloading_collector(
        defs or defs_folder(), partial(_collectors, settings=settings), report=print_progress
    )
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as refused:
        raise typer.BadParameter(f"cannot listen on {host}:{port}: {refused.strerror or refused}") from refused
    print_progress(f"metrics: http://{host}:{server.server_port}/metrics")
    if endpoint:
        _send_to_statsd(endpoint, collector, names=statsd_names, prefix=statsd_prefix, while_alive=thread)
    thread.join()


def _collectors(documents: LoadedFolder, settings: Settings) -> list[Collector]:
    """What a scrape collects from: every stream and follower, and the clusters whose new topics a pattern may match."""
    from kdi_assets.operate.monitoring.follower_rows import watched_tables
    from kdi_assets.operate.monitoring.metrics.collector import stream_collector
    from kdi_assets.operate.monitoring.metrics.downstream import DownstreamReader
    from kdi_assets.operate.monitoring.metrics.new_topics import new_topics_collector

    streams = list(documents.streams.values())
    tables = watched_tables(documents.refined.values(), documents.served.values(), streams)
    downstream = DownstreamReader(tables, settings.lake, settings.home)
    of_tables = stream_collector(streams, settings.lake, downstream=downstream, prices=settings.prices)
    has_patterns = any(document.pins for document in documents.topic_tables.values())
    return [of_tables, *([new_topics_collector(documents)] if has_patterns else [])]


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"{text!r} is not host:port, e.g. localhost:8125", param_hint="--statsd")
    return host.strip("[]"), int(port)


def _send_to_statsd(
    endpoint: tuple[str, int], collector: Collector, *, names: StatsdNames, prefix: str, while_alive: Thread
) -> None:
    from kdi_assets.operate.monitoring.metrics.statsd import LINES, PREFIXES, SEND_SECONDS, StatsdSender

    sender = StatsdSender(
        collector,
        endpoint,
        prefix=prefix or PREFIXES[names],
        lines=LINES[names],
        on_failure=lambda reason: print_progress(f"StatsD at {endpoint[0]}:{endpoint[1]} gets no metrics: {reason}"),
    )
    while while_alive.is_alive():
        sender.send()
        while_alive.join(SEND_SECONDS)
