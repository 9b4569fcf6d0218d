"""`kdi generate`: publish ``web_requests`` messages, so many or without end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson
from kdi_assets.cli.output import answer, progress

if TYPE_CHECKING:
    from kdi_assets.dev.generator import Traffic
    from kdi_assets.dev.publisher import Published
    from kdi_assets.stream.stream import Cluster

PROGRESS_SECONDS = 2.0


def generate(
    count: Annotated[int | None, typer.Option(min=1, help="Messages; without it, until Ctrl-C.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Messages a second; default: all at once.")] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Topic partitions, if the topic is missing.")] = 4,
    bad: Annotated[float, typer.Option(min=0, max=1, help="Share that cannot become a row.")] = 0.0,
    tombstones: Annotated[float, typer.Option(min=0, max=1, help="Share without a value.")] = 0.0,
    dates: Annotated[int, typer.Option(min=1, help="Event dates: today and those before.")] = 3,
    seed: Annotated[int | None, typer.Option(help="The same seed, the same messages; default: a new one.")] = None,
    topic: Annotated[str, typer.Option(help="Created if it is missing.")] = "web_requests",
    as_json: AsJson = False,
) -> None:
    """Publish realistic web_requests messages, and wait until every one is acknowledged."""
    import random

    from kdi_assets.dev.generator import Traffic

    if count is None and rate is None:
        raise typer.BadParameter("give --count, or --rate to go on until Ctrl-C: full speed without end fills the disk")
    if bad + tombstones > 1:
        raise typer.BadParameter("--bad and --tombstones together are more than all messages")
    seed = random.randrange(1 << 32) if seed is None else seed  # noqa: S311
    traffic = Traffic(dates=dates, bad=bad, tombstones=tombstones, seed=seed)
    published = publish_until_stopped(traffic, topic, count=count, rate=rate, partitions=partitions)
    show(published, seed=seed, as_json=as_json)


def publish_until_stopped(
    traffic: Traffic, topic: str, *, count: int | None, rate: float | None, partitions: int
) -> Published:
    """Publish with a progress line now and then; SIGINT and SIGTERM end it after the acknowledgements."""
    import signal
    from threading import Event

    from kdi_assets.dev.publisher import publish

    stop, next_line = Event(), time.monotonic() + PROGRESS_SECONDS
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def report(sent: int) -> None:
        nonlocal next_line
        if time.monotonic() >= next_line:
            next_line = time.monotonic() + PROGRESS_SECONDS
            progress(f"{topic}: {sent:,} messages so far")

    return publish(
        cluster_of(topic),
        topic,
        traffic,
        count=count,
        rate=rate,
        partitions=partitions,
        stopped=stop.is_set,
        report=report,
    )


def cluster_of(topic: str) -> Cluster:
    """The cluster of the stream that drains the topic, else the cluster ``main``."""
    from kdi_assets.config.loader import defs_folder, read_streams

    loaded = read_streams(defs_folder())  # with mistakes in some document, messages can be published all the same
    draining = (stream.cluster for stream in loaded.streams.values() if stream.topic == topic)
    cluster = next(draining, loaded.clusters.get("main"))
    if cluster is None:
        raise typer.BadParameter("no document describes the cluster main; set KDI_KAFKA to its bootstrap servers")
    return cluster


def show(published: Published, *, seed: int, as_json: bool) -> None:
    """Print what is in the topic now."""
    from dataclasses import asdict

    kinds = ", ".join(f"{count:,} {kind}" for kind, count in published.counts.items())
    speed = published.acknowledged / published.seconds if published.seconds else 0.0
    text = (
        f"{published.topic}: {published.acknowledged:,} messages acknowledged in {published.seconds:.1f} s"
        f" ({speed:,.0f} a second), seed {seed}: {kinds or 'none'}"
    )
    answer(text, {**asdict(published), "seed": seed}, as_json=as_json)
