"""StatsD: the samples of a scrape as UDP packets, with our names or those of kafka-delta-ingest."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kdi_assets.operate.monitoring.metrics import names

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

SEND_SECONDS = 10.0
"""The interval after which StatsD servers pass their figures on, by default."""
PACKET_BYTES = 1432
"""A packet that an Ethernet takes whole.

Source: StatsD, "Metric types", on packets with several metrics.
"""

StatsdNames = Literal["kdi", "kafka-delta-ingest"]
PREFIXES: Mapping[StatsdNames, str] = {"kdi": "kdi", "kafka-delta-ingest": "kafka_delta_ingest"}

Labels = tuple[str, ...]
Counters = dict[tuple[str, str, Labels], float]
"""The values of counters by stream, metric and labels."""
Letter = Literal["c", "g", "ms"]
"""StatsD's letter for counter, gauge or timer."""
Line = tuple[str, float, Letter]
"""A metric's name after prefix and stream, its value, and its letter."""


@dataclass(slots=True)
class StreamSamples:
    """The samples of one stream by metric and labels; those without a stream have a ``StreamSamples`` of their own.

    Attributes:
        gauges: Their values; unknown and infinite ones are missing, because StatsD cannot hold them.
        counts: By how much counters grew since the last packet.
    """

    gauges: dict[str, dict[Labels, float]] = field(default_factory=dict)
    counts: dict[str, dict[Labels, float]] = field(default_factory=dict)

    def grown(self, metric: str) -> float:
        """By how much a counter grew, over all labels."""
        return sum(self.counts.get(metric, {}).values())


class StatsdSender:
    """Sends what a collector has to a StatsD server.

    Args:
        endpoint: Host and port.
        lines: ``our_lines`` or ``predecessor_lines``.
        on_failure: Gets the reason when a send fails after one that did not.
    """

    def __init__(
        self,
        collector: Collector,
        endpoint: tuple[str, int],
        *,
        prefix: str,
        lines: Callable[[StreamSamples], Iterable[Line]],
        on_failure: Callable[[str], None],
    ) -> None:
        self._collector, self._endpoint, self._prefix, self._lines = collector, endpoint, prefix, lines
        self._on_failure, self._failing = on_failure, False
        self._before: Counters = {}

    def send(self) -> None:
        """Send all samples; a failure is reported once, and what was not sent goes with the next call."""
        try:
            by_stream, counters = self._samples()
            self._send([text for stream, samples in by_stream.items() for text in self._texts(stream, samples)])
            self._before, self._failing = counters, False
        except Exception as failure:  # noqa: BLE001 - metrics for Prometheus are served on
            if not self._failing:
                self._on_failure(str(failure) or type(failure).__name__)
            self._failing = True

    def _samples(self) -> tuple[Mapping[str, StreamSamples], Counters]:
        """The samples by stream, and the counters that they end at."""
        by_stream: dict[str, StreamSamples] = {}
        counters = dict(self._before)
        counted = {stream for stream, _, _ in self._before}
        for metric in self._collector.collect():
            for sample in metric.samples:
                stream = sample.labels.get("stream", "")
                labels = tuple(value for name, value in sample.labels.items() if name not in names.OF_STREAM)
                samples = by_stream.setdefault(stream, StreamSamples())
                if metric.type == "counter":
                    # A stream's first values are sums over its log, and not work that was done since the last packet.
                    first = 0.0 if stream in counted else sample.value
                    before = self._before.get((stream, sample.name, labels), first)
                    counters[stream, sample.name, labels] = sample.value
                    samples.counts.setdefault(sample.name, {})[labels] = max(0.0, sample.value - before)
                elif math.isfinite(sample.value):
                    samples.gauges.setdefault(sample.name, {})[labels] = sample.value
        return by_stream, counters

    def _texts(self, stream: str, samples: StreamSamples) -> Iterator[str]:
        prefix = ".".join([self._prefix, *([_part(stream)] if stream else [])])
        for name, value, letter in self._lines(samples):
            yield f"{prefix}.{name}:{int(value) if value == int(value) else value}|{letter}"

    def _send(self, texts: Iterable[str]) -> None:
        family, kind, protocol, _, address = socket.getaddrinfo(*self._endpoint, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as udp:
            packet = ""
            for text in texts:
                if len(packet) + len(text) >= PACKET_BYTES:
                    udp.sendto(packet.encode(), address)
                    packet = ""
                packet += f"{text}\n"
            udp.sendto(packet.encode(), address)


def our_lines(samples: StreamSamples) -> Iterator[Line]:
    """The metrics of ``names``: without ``kdi_``, then the values of the labels other than stream and topic."""
    yield from _labelled(samples.gauges, "g")
    yield from _labelled(samples.counts, "c")


def _labelled(values: Mapping[str, Mapping[Labels, float]], letter: Letter) -> Iterator[Line]:
    for metric, by_labels in values.items():
        for labels, value in by_labels.items():
            yield ".".join([metric.removeprefix("kdi_"), *map(_part, labels)]), value, letter


def predecessor_lines(samples: StreamSamples) -> Iterator[Line]:
    """The metrics of kafka-delta-ingest that exist here, of the drains since the last packet; timers in milliseconds.

    Source: kafka-delta-ingest, ``src/metrics.rs``.
    """
    if backlogs := list(samples.gauges.get("kdi_backlog_offsets", {}).values()):
        yield "delta.write.lag.num_partitions", float(len(backlogs)), "g"
        yield "delta.write.lag.total", sum(backlogs), "g"
        yield "delta.write.lag.max", max(backlogs), "g"
        yield "delta.write.lag.min", min(backlogs), "g"
    if not samples.counts:
        return
    drains, messages = samples.grown("kdi_drains_total"), samples.grown("kdi_messages_total")
    conflicts, failed = samples.grown("kdi_conflicts_total"), samples.grown("kdi_dead_letters_total")
    rowless = failed + samples.grown("kdi_tombstones_total") + samples.grown("kdi_filtered_total")
    yield "messages.deserialization.completed", messages - failed, "c"
    yield "messages.deserialization.failed", failed, "c"
    yield "messages.transform.completed", messages - rowless, "c"
    yield "delta.write.started", drains + conflicts, "c"
    yield "delta.write.completed", drains, "c"
    yield "delta.write.failed", conflicts, "c"
    if messages:
        yield "messages.size", round(samples.grown("kdi_message_bytes_total") / messages, 1), "g"
    if drains:
        stages = samples.counts.get("kdi_stage_seconds_total", {})
        yield "recordbatch.write_duration", round(stages.get(("read and write",), 0.0) * 1000 / drains, 1), "ms"
        yield "delta.write.duration", round(sum(stages.values()) * 1000 / drains, 1), "ms"
        yield "delta.add.size", round(samples.grown("kdi_file_bytes_total") / drains, 1), "g"


LINES: Mapping[StatsdNames, Callable[[StreamSamples], Iterable[Line]]] = {
    "kdi": our_lines,
    "kafka-delta-ingest": predecessor_lines,
}


def _part(text: str) -> str:
    """Text as one part of a name: dots separate parts, and servers refuse most other characters."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)
