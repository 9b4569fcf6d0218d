"""The collector: a picture as the samples of a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kdi_assets.drain.state import State
from kdi_assets.ledger.table_facts import SHARES
from kdi_assets.metrics import names
from kdi_assets.metrics.names import Metric
from kdi_assets.metrics.picture import Camera, LookAt, Picture, StreamPicture
from kdi_assets.metrics.shared import Shared
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector

PATIENCE_SECONDS = 8.0
"""Prometheus waits ten seconds for a scrape, unless it is told otherwise."""

Sample = tuple[Sequence[str], float]


def stream_collector(
    streams: Sequence[Stream], lake: str, *, look: LookAt | None = None, patience_seconds: float = PATIENCE_SECONDS
) -> Collector:
    """A collector for a ``prometheus_client`` registry, computed per scrape.

    Scrapes at the same time share one look. One that takes longer than ``patience_seconds`` is told as ``kdi_look_up``
    0, alone; the look goes on, and no other begins meanwhile.
    """
    from prometheus_client.registry import Collector

    picture: Callable[[], Picture | None] = Shared(Camera(streams, lake, look=look), patience_seconds=patience_seconds)

    class Streams(Collector):
        def collect(self) -> Iterator[Family]:
            return _families(picture())

        def describe(self) -> Iterator[Family]:
            """Names alone: a registry asks for them when it takes a collector on."""
            return _families(None)

    return Streams()


def _families(picture: Picture | None) -> Iterator[Family]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    samples = {} if picture is None else dict(_samples(picture))
    samples[names.LOOK_UP] = [((), float(picture is not None))]
    for metrics, family in ((names.GAUGES, GaugeMetricFamily), (names.TOTALS, CounterMetricFamily)):
        for metric in metrics:
            told = family(metric.name, metric.meaning, labels=metric.labels)
            for labels, value in samples.get(metric, ()):
                told.add_metric(labels, value)
            yield told


def _samples(picture: Picture) -> Iterator[tuple[Metric, list[Sample]]]:
    """The samples of every metric but ``LOOK_UP``."""
    states = [seen.state for seen in picture.streams]
    yield names.LOOK_SECONDS, [((), picture.seconds)]
    yield names.STREAMS, [((state.value,), float(states.count(state))) for state in State]
    yield names.UP, [(_labels(seen), float(seen.up)) for seen in picture.streams]
    yield (
        names.STATE,
        [((*_labels(seen), state.value), float(state == seen.state)) for seen in picture.streams for state in State],
    )
    yield from _gauges(picture.streams)
    yield from _totals(picture.streams)


def _gauges(streams: Iterable[StreamPicture]) -> Iterator[tuple[Metric, list[Sample]]]:
    streams = list(streams)
    partitions = [
        ((*_labels(seen), str(tp.partition)), held)
        for seen in streams
        for tp, held in sorted(seen.backlog.topic_partitions.items())
    ]
    for metric, of_partition in names.PARTITION_GAUGES:
        yield metric, [(labels, of_partition(held)) for labels, held in partitions]
    for metric, of_stream in names.BACKLOG_GAUGES:
        yield metric, [(_labels(seen), of_stream(seen)) for seen in streams if seen.backlog.known]
    tables = [(_labels(seen), seen.table) for seen in streams if seen.table is not None]
    for metric, of_table in names.TABLE_GAUGES:
        yield metric, [(labels, of_table(table)) for labels, table in tables]
    yield (
        names.FRESHNESS,
        [
            ((*labels, f"{share:g}"), table.freshness.get(share, float("nan")))
            for labels, table in tables
            for share in SHARES
        ],
    )


def _totals(streams: Iterable[StreamPicture]) -> Iterator[tuple[Metric, list[Sample]]]:
    counted = [(_labels(seen), seen.totals) for seen in streams if seen.totals is not None]
    for metric, total in names.COUNTERS:
        yield metric, [(labels, total(totals)) for labels, totals in counted]
    yield (
        names.STAGE_SECONDS,
        [
            ((*labels, stage), seconds)
            for labels, totals in counted
            for stage, seconds in sorted(totals.stage_seconds.items())
        ],
    )


def _labels(seen: StreamPicture) -> tuple[str, str]:
    return seen.stream.name, seen.stream.topic
