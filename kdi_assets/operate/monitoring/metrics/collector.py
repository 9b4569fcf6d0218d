"""The collector: turns snapshots into the samples of a scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.backlog import State
from kdi_assets.operate.monitoring.backlog_reader import ReadBacklogs, by_cluster
from kdi_assets.operate.monitoring.freshness import QUANTILES
from kdi_assets.operate.monitoring.metrics import names
from kdi_assets.operate.monitoring.metrics.downstream import DownstreamReader, downstream_samples
from kdi_assets.operate.monitoring.metrics.names import Metric
from kdi_assets.operate.monitoring.metrics.snapshot import (
    PATIENCE_SECONDS,
    MetricsSnapshot,
    SnapshotReader,
    StreamSnapshot,
    unknown_snapshot,
)
from kdi_assets.settings import Prices

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector

MetricSample = tuple[Sequence[str], float]


def stream_collector(
    streams: Sequence[Stream],
    lake: str,
    *,
    look: ReadBacklogs | None = None,
    downstream: DownstreamReader | None = None,
    prices: Prices | None = None,
) -> Collector:
    """A collector for a ``prometheus_client`` registry; every scrape takes new snapshots.

    Clusters are read in parallel, and simultaneous scrapes share one snapshot of each. If a snapshot takes longer than
    ``PATIENCE_SECONDS``, the scrape has no facts about the cluster's streams; the next scrape gets that snapshot.
    The tables of ``downstream`` are read beside them. Only with ``prices`` are there costs.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

    readers = {cluster: SnapshotReader(own, lake, look=look) for cluster, own in by_cluster(streams).items()}

    class Streams(Collector):
        def collect(self) -> Iterator[Family]:
            requested = {cluster: reader.request() for cluster, reader in readers.items()}
            tables = downstream.request() if downstream else None
            awaited: list[Future[Any]] = [*requested.values(), *([tables] if tables else [])]
            wait(awaited, timeout=PATIENCE_SECONDS)
            snapshots = {cluster: one.result() if one.done() else None for cluster, one in requested.items()}
            of_tables = downstream_samples(downstream.tables, downstream.last) if downstream else ()
            for metric, samples in (*_samples(streams, snapshots, prices), *of_tables):
                kind = CounterMetricFamily if metric.name.endswith("_total") else GaugeMetricFamily
                family = kind(metric.name, metric.meaning, labels=metric.labels)
                for labels, value in samples:
                    family.add_metric(labels, value)
                yield family

    return Streams()


def _samples(
    streams: Sequence[Stream], snapshots: Mapping[str, MetricsSnapshot | None], prices: Prices | None
) -> Iterator[tuple[Metric, list[MetricSample]]]:
    by_name = {one.stream.name: one for snapshot in snapshots.values() if snapshot for one in snapshot.streams}
    seen = [by_name.get(stream.name) or unknown_snapshot(stream) for stream in streams]
    states = [one.state for one in seen]
    yield names.LOOK_UP, [((cluster,), float(snapshot is not None)) for cluster, snapshot in snapshots.items()]
    yield names.LOOK_SECONDS, [((cluster,), snapshot.seconds) for cluster, snapshot in snapshots.items() if snapshot]
    yield names.STREAMS, [((state.value,), float(states.count(state))) for state in State]
    yield names.UP, [(_labels(one), float(one.up)) for one in seen]
    yield names.STATE, [((*_labels(one), state.value), float(state == one.state)) for one in seen for state in State]
    yield names.DEAD_LETTER_LIMIT, [(_labels(one), one.stream.checks.dead_letter_rate) for one in seen]
    yield names.CPU_BUDGET, [(_labels(one), b) for one in seen if (b := one.stream.checks.cpu_seconds_a_day)]
    yield names.FRESHNESS_LIMIT, list(_freshness_limits(seen))
    yield from _gauges(seen)
    yield from _totals(seen)
    if prices:
        yield names.COST, [(_labels(one), one.totals.usage.cost(prices)) for one in seen if one.totals is not None]


def _freshness_limits(streams: Iterable[StreamSnapshot]) -> Iterator[MetricSample]:
    for seen in streams:
        if limits := seen.stream.freshness:
            yield (*_labels(seen), "warn"), limits.warn_seconds
            yield (*_labels(seen), "fail"), limits.fail_seconds


def _gauges(streams: Sequence[StreamSnapshot]) -> Iterator[tuple[Metric, list[MetricSample]]]:
    partitions = [
        ((*_labels(seen), str(tp.partition)), held)
        for seen in streams
        for tp, held in sorted(seen.backlog.topic_partitions.items())
    ]
    for metric, of_partition in names.PARTITION_GAUGES.items():
        yield metric, [(labels, of_partition(held)) for labels, held in partitions]
    for metric, of_backlog in names.BACKLOG_GAUGES.items():
        yield metric, [(_labels(seen), of_backlog(seen.backlog)) for seen in streams if seen.backlog.known]
    tables = [(_labels(seen), seen.table) for seen in streams if seen.table is not None]
    for metric, of_table in names.TABLE_GAUGES.items():
        yield metric, [(labels, of_table(table)) for labels, table in tables]
    quantiles = (
        ((*labels, f"{share:g}"), table.freshness.get(share, float("nan")))
        for labels, table in tables
        for share in QUANTILES
    )
    yield names.FRESHNESS, list(quantiles)


def _totals(streams: Iterable[StreamSnapshot]) -> Iterator[tuple[Metric, list[MetricSample]]]:
    counted = [(_labels(seen), seen.totals) for seen in streams if seen.totals is not None]
    for metric in (*names.LEDGER_COUNTERS, *names.DRAIN_COUNTERS):
        yield metric, [(labels, totals.counts[metric.name]) for labels, totals in counted]
    stages = (((*labels, s), spent) for labels, totals in counted for s, spent in sorted(totals.stage_seconds.items()))
    yield names.STAGE_SECONDS, list(stages)


def _labels(seen: StreamSnapshot) -> tuple[str, str]:
    return seen.stream.name, seen.stream.topic
