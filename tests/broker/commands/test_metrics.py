"""Status and metrics of a stream over a real broker and a real table: watched, and scraped over HTTP."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kdi_assets.settings import Settings
from tests.broker.commands.until_interrupted import kdi, read_until, served_at
from tests.conftest import DrivenFactory, also_on_s3
from tests.documents import written
from tests.driven import DrivenStream

DOCUMENT = """
type: kdi_assets.components.TopicTable
attributes: {{topic: {topic}, table: {table}, schema: "uuid string", date: current_date()}}
"""


@pytest.fixture
def web(driven: DrivenFactory, environment: Settings, defs: Path) -> DrivenStream:
    """A stream of two topic partitions with a few messages, and its document."""
    web = driven(partitions=2)
    web.produce(20)
    web.produce(3, bad=1.0, seed=1)
    written(defs, web=DOCUMENT.format(topic=web.stream.topic, table=web.stream.table))
    return web


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(url: str) -> Samples:
    with urlopen(url, timeout=20) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@also_on_s3
@pytest.mark.core
def test_a_scrape_tells_of_broker_and_table_and_of_what_came_since_the_last(web: DrivenStream) -> None:
    web.drain()
    of_stream = {("stream", web.stream.name), ("topic", web.stream.topic)}

    statsd = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    statsd.bind(("127.0.0.1", 0))
    statsd.settimeout(30)
    to_statsd = "--statsd", f"127.0.0.1:{statsd.getsockname()[1]}", "--statsd-prefix", "lake"
    with statsd, kdi("metrics", "serve", "--port", "0", *to_statsd) as server:
        assert server.stderr is not None
        url = served_at(server.stderr)
        packet = statsd.recv(65536).decode()
        first = scrape(url)
        web.produce(7, seed=2)
        waiting = scrape(url)
        web.drain()
        drained = scrape(url)
        server.send_signal(signal.SIGINT)
        code = server.wait(10)

    assert f"lake.{web.stream.name.replace('/', '_')}.stream_state.OK:1|g" in packet

    def told(scraped: Samples, name: str) -> float:
        return sum(value for (n, labels), value in scraped.items() if n == name and of_stream <= labels)

    assert [told(s, "kdi_backlog_offsets") for s in (first, waiting, drained)] == [0, 7, 0]
    assert [told(s, "kdi_rows_total") for s in (first, waiting, drained)] == [20, 20, 27]
    assert [told(s, "kdi_dead_letters_total") for s in (first, waiting, drained)] == [3, 3, 3]
    assert told(waiting, "kdi_end_offset") == told(drained, "kdi_position_offset") == 30
    assert told(drained, "kdi_table_version") == told(first, "kdi_table_version") + 1
    assert told(drained, "kdi_message_bytes_total") > told(first, "kdi_message_bytes_total") > 0
    assert 0 < told(waiting, "kdi_lag_seconds") < 120
    assert code == 130


def test_a_watch_draws_in_the_place_of_the_last_look_until_ctrl_c(web: DrivenStream) -> None:
    terminal, side = pty.openpty()

    with kdi("status", "--watch", stdout=side) as watch:
        os.close(side)
        drawn = read_until(terminal, lambda told: told.count("STREAM") >= 2)
        watch.send_signal(signal.SIGINT)
        code = watch.wait(10)
    os.close(terminal)

    first, _, second = drawn.partition("\x1b[2J")
    assert web.stream.name[:20] in first and "STREAM" in second
    assert code == 130


def test_a_watch_prints_again_without_a_terminal(web: DrivenStream) -> None:
    with kdi("status", "--watch", "--json") as watch:
        assert watch.stdout is not None
        told = read_until(watch.stdout.fileno(), lambda told: told.count("\n") >= 2)
        watch.send_signal(signal.SIGINT)
        code = watch.wait(10)

    objects = [json.loads(line) for line in told.splitlines()[:2]]
    assert {o["state"] for o in objects} == {"OK"}
    assert {o["backlog_offsets"] for o in objects} == {23}
    assert all(0 < o["lag_seconds"] < 120 for o in objects)
    assert code == 130
