"""`kdi generate`: publish ``web_requests`` messages, a number of them or until Ctrl-C."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs
from kdi_assets.cli.output import print_progress, print_result

if TYPE_CHECKING:
    from kdi_assets.documents.model.stream import Cluster
    from kdi_assets.tools.local.generator import Traffic
    from kdi_assets.tools.local.publisher import Published

PROGRESS_SECONDS = 2.0


def generate(
    count: Annotated[int | None, typer.Option(min=1, help="Number of messages; default: until Ctrl-C.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Messages per second; default: full speed.")] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Topic partitions of a topic that is created.")] = 4,
    bad: Annotated[float, typer.Option(min=0, max=1, help="Share of messages that cannot become rows.")] = 0.0,
    tombstones: Annotated[float, typer.Option(min=0, max=1, help="Share of messages without a value.")] = 0.0,
    dates: Annotated[int, typer.Option(min=1, help="Number of event dates: today and the days before.")] = 3,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same messages; default: random.")] = None,
    topic: Annotated[str, typer.Option(help="The topic; it is created if it is missing.")] = "web_requests",
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Publish realistic web_requests messages, and wait until the broker has acknowledged each of them."""
    import random

    from kdi_assets.tools.local.generator import Traffic

    if count is None and rate is None:
        raise typer.BadParameter("give --count, or --rate to publish until Ctrl-C: endless full speed fills the disk")
    if bad + tombstones > 1:
        raise typer.BadParameter("--bad and --tombstones together are more than all messages")
    seed = random.randrange(1 << 32) if seed is None else seed  # noqa: S311
    traffic = Traffic(dates=dates, bad=bad, tombstones=tombstones, seed=seed)
    cluster = _cluster_of(topic, defs)
    published = _publish(traffic, cluster, topic, count=count, rate=rate, partitions=partitions)
    _print_published(published, seed=seed, as_json=as_json)


def _publish(
    traffic: Traffic, cluster: Cluster, topic: str, *, count: int | None, rate: float | None, partitions: int
) -> Published:
    """Publish, with a progress line every two seconds; SIGINT and SIGTERM end it after the acknowledgements."""
    import signal
    from threading import Event

    from kdi_assets.tools.local.publisher import publish

    stop, next_line = Event(), time.monotonic() + PROGRESS_SECONDS
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def report(sent: int) -> None:
        nonlocal next_line
        if time.monotonic() >= next_line:
            next_line = time.monotonic() + PROGRESS_SECONDS
            print_progress(f"{topic}: {sent:,} messages so far")

    return publish(
        cluster, topic, traffic, count=count, rate=rate, partitions=partitions, stopped=stop.is_set, report=report
    )


def _cluster_of(topic: str, defs: Path | None) -> Cluster:
    """The cluster of the stream that drains the topic, else the cluster ``main``."""
    from kdi_assets.documents.loading.loader import defs_folder, read_streams
    from kdi_assets.documents.model.stream import Cluster

    loaded = read_streams(defs or defs_folder())  # mistakes in documents do not prevent publishing
    draining = (stream.cluster for stream in loaded.streams.values() if stream.topic == topic)
    cluster = next((c for c in draining if isinstance(c, Cluster)), loaded.clusters.get("main"))
    if cluster is None:
        raise typer.BadParameter("no document describes the cluster main; set KDI_KAFKA to its bootstrap servers")
    return cluster


def _print_published(published: Published, *, seed: int, as_json: bool) -> None:
    from dataclasses import asdict

    kinds = ", ".join(f"{count:,} {kind}" for kind, count in published.counts.items())
    speed = published.acknowledged / published.seconds if published.seconds else 0.0
    text = (
        f"{published.topic}: {published.acknowledged:,} messages acknowledged in {published.seconds:.1f} s"
        f" ({speed:,.0f} per second), seed {seed}: {kinds or 'none'}"
    )
    print_result(text, {**asdict(published), "seed": seed}, as_json=as_json)
