"""What a StatsD server receives, over handwritten logs and a real UDP socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kdi_assets.documents.model.stream import FreshnessLimits
from kdi_assets.operate.monitoring.backlog import PartitionBacklog, State
from kdi_assets.operate.monitoring.metrics.collector import stream_collector
from kdi_assets.operate.monitoring.metrics.statsd import LINES, PACKET_BYTES, PREFIXES, StatsdNames, StatsdSender
from tests.table_by_hand import TableByHand, orders
from tests.unit.monitoring.scripted_look import Seen

NOW = datetime.now(UTC)


class Server:
    """A StatsD server that keeps the packets."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(5)

    @property
    def endpoint(self) -> tuple[str, int]:
        return "127.0.0.1", int(self._socket.getsockname()[1])

    def packets(self) -> list[str]:
        """What has arrived; waits for the first packet."""
        received = [self._socket.recv(65536).decode()]
        self._socket.setblocking(False)
        while True:
            try:
                received.append(self._socket.recv(65536).decode())
            except BlockingIOError:
                self._socket.settimeout(5)
                return received

    def lines(self) -> Mapping[str, str]:
        """The value and letter of every name that has arrived."""
        return dict(line.split(":", 1) for packet in self.packets() for line in packet.splitlines())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def table(tmp_path: Path) -> TableByHand:
    return TableByHand(tmp_path, now=NOW)


def collector(lake: Path, seen: Seen | None = None) -> Collector:
    stream = replace(orders(), freshness=FreshnessLimits(300, 1800))
    return stream_collector((stream,), str(lake), look=seen or Seen())


def sender(
    samples: Collector, to: tuple[str, int], *, names: StatsdNames = "kdi", failures: list[str] | None = None
) -> StatsdSender:
    reported = failures if failures is not None else []
    return StatsdSender(samples, to, prefix=PREFIXES[names], lines=LINES[names], on_failure=reported.append)


def test_all_samples_are_sent_with_stream_and_labels_in_the_name(
    server: Server, table: TableByHand, tmp_path: Path
) -> None:
    table.drain(100, ago=timedelta(minutes=1), seconds={"read and write": 2.0})
    held = PartitionBacklog(90, 100, 5, 7, lag_seconds=12.5, arrival_rate=0.8, word=State.STALL)

    sender(collector(tmp_path, Seen({"bronze/orders": held})), server.endpoint).send()

    received = server.lines()
    sent = {
        "backlog_offsets.0": "10|g",
        "lag_seconds.0": "12.5|g",
        "stream_state.STALL": "1|g",
        "stream_state.OK": "0|g",
        "freshness_limit_seconds.warn": "300|g",
        "table_version": "1|g",
    }
    assert {name: received[f"kdi.bronze_orders.{name}"] for name in sent} == sent
    assert received["kdi.streams.STALL"] == received["kdi.look_up.main"] == "1|g"
    assert received["kdi.bronze_orders.stage_seconds_total.read_and_write"] == "0|c"
    assert "kdi.bronze_orders.backlog_bytes" not in received, "it is not a number here"
    assert not any(value.startswith(("nan", "inf", "-")) for value in received.values())


def test_a_counter_is_sent_as_what_came_since_the_last_packet(
    server: Server, table: TableByHand, tmp_path: Path
) -> None:
    table.drain(100, ago=timedelta(minutes=2), dead_letters=4)
    sending = sender(collector(tmp_path), server.endpoint)

    received = []
    for _ in range(2):
        sending.send()
        received.append(server.lines())
        table.drain(10, ago=timedelta(minutes=1), dead_letters=1)
    sending.send()
    received.append(server.lines())

    rows, letters = "kdi.bronze_orders.rows_total", "kdi.bronze_orders.dead_letters_total"
    assert [lines[rows] for lines in received] == ["0|c", "9|c", "9|c"], "the first sum is older than this process"
    assert [lines[letters] for lines in received] == ["0|c", "1|c", "1|c"]


def test_the_predecessors_names_have_the_figures_of_the_drains_since_the_last_packet(
    server: Server, table: TableByHand, tmp_path: Path
) -> None:
    held = PartitionBacklog(90, 100, 5, 7, lag_seconds=12.5)
    sending = sender(collector(tmp_path, Seen({"bronze/orders": held})), server.endpoint, names="kafka-delta-ingest")
    sending.send()
    server.packets()

    for _ in range(2):
        table.drain(
            100,
            ago=timedelta(minutes=1),
            dead_letters=4,
            message_bytes=5000,
            bytes=900,
            conflicts=1,
            seconds={"read and write": 2.0, "account": 0.5},
        )
    sending.send()

    prefix = "kafka_delta_ingest.bronze_orders."
    assert {name.removeprefix(prefix): value for name, value in server.lines().items() if name.startswith(prefix)} == {
        "messages.deserialization.completed": "192|c",
        "messages.deserialization.failed": "8|c",
        "messages.transform.completed": "192|c",
        "messages.size": "50|g",
        "recordbatch.write_duration": "2000|ms",
        "delta.write.started": "4|c",
        "delta.write.completed": "2|c",
        "delta.write.failed": "2|c",
        "delta.write.duration": "2500|ms",
        "delta.add.size": "900|g",
        "delta.write.lag.num_partitions": "1|g",
        "delta.write.lag.total": "10|g",
        "delta.write.lag.max": "10|g",
        "delta.write.lag.min": "10|g",
    }


def test_packets_hold_whole_lines_and_fit_a_network(server: Server, table: TableByHand, tmp_path: Path) -> None:
    table.drain(100, ago=timedelta(minutes=1))
    of = collector(tmp_path)

    sender(of, server.endpoint).send()

    packets = server.packets()
    assert len(packets) > 1
    assert all(len(packet) <= PACKET_BYTES and packet.endswith("\n") for packet in packets)


@pytest.mark.parametrize("host", ["statsd.invalid", "a..b"])
def test_an_unknown_host_is_reported_once_and_does_not_end_the_process(tmp_path: Path, host: str) -> None:
    failures: list[str] = []
    sending = sender(collector(tmp_path), (host, 8125), failures=failures)

    sending.send()
    sending.send()

    assert len(failures) == 1


def test_a_collector_that_fails_is_reported_and_does_not_end_the_process(server: Server) -> None:
    class Failing(Collector):
        def collect(self) -> Iterator[Metric]:
            raise RuntimeError("no credentials")

    failures: list[str] = []

    sender(Failing(), server.endpoint, failures=failures).send()

    assert failures == ["no credentials"]


def test_what_counters_grew_by_while_nothing_was_sent_goes_with_the_next_packet(server: Server) -> None:
    class Counting(Collector):
        total = 0.0

        def collect(self) -> Iterator[Metric]:
            yield CounterMetricFamily("kdi_drains", "Drains.", value=self.total)

    counting, failures = Counting(), list[str]()
    sending = sender(counting, server.endpoint, failures=failures)
    sending.send()
    server.packets()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sending, "_endpoint", ("statsd.invalid", 8125))
        counting.total = 3
        sending.send()
    counting.total = 5
    sending.send()

    assert len(failures) == 1
    assert server.lines()["kdi.drains_total"] == "5|c"
