"""The configuration of Kafka's clients by our properties, time limits, and the generator's messages."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.errors import Transient
from kdi_assets.messages.kafka import client
from kdi_assets.messages.kafka.reader import java_client_config
from kdi_assets.messages.kafka.topic import read_topics
from kdi_assets.tools.local.generator import Traffic, WebRequests
from kdi_assets.tools.local.publisher import BATCH, batch_sizes


def test_a_client_registers_no_beans_unless_its_document_says_so() -> None:
    usual = java_client_config(Cluster("main", "nowhere:1"))
    watched = java_client_config(Cluster("main", "nowhere:1", {"auto.include.jmx.reporter": "true"}))

    assert usual["auto.include.jmx.reporter"] == "false"
    assert watched["auto.include.jmx.reporter"] == "true"


def test_nobody_waits_behind_the_end_of_a_range_unless_the_document_says_so() -> None:
    usual = java_client_config(Cluster("main", "nowhere:1"))
    patient = java_client_config(Cluster("main", "nowhere:1", {"fetch.max.wait.ms": "250"}))

    assert int(usual["fetch.max.wait.ms"]) <= 10
    assert patient["fetch.max.wait.ms"] == "250"


def test_polls_are_few_unless_the_document_says_otherwise() -> None:
    """After each poll, Spark waits for two answers of the broker."""
    usual = java_client_config(Cluster("main", "nowhere:1"))
    careful = java_client_config(Cluster("main", "nowhere:1", {"max.poll.records": "100"}))

    assert int(usual["max.poll.records"]) >= 5_000
    assert careful["max.poll.records"] == "100"


def test_a_document_cannot_let_a_drain_read_what_was_never_committed() -> None:
    config = java_client_config(Cluster("main", "nowhere:1", {"isolation.level": "read_uncommitted"}))

    assert config["isolation.level"] == "read_committed"


def test_reads_share_no_consumer_group_since_executors_keep_by_group_what_they_fetched() -> None:
    assert "group.id" not in java_client_config(Cluster("main", "nowhere:1", {"group.id": "mine"}))


def test_a_password_with_quotes_reaches_the_java_client_whole() -> None:
    properties = {"sasl.mechanisms": "PLAIN", "sasl.username": "kdi", "sasl.password": 'a"b'}
    config = java_client_config(Cluster("main", "nowhere:1", properties))

    assert config["sasl.mechanism"] == "PLAIN"
    assert config["sasl.jaas.config"].endswith('required username="kdi" password="a\\"b";')
    assert not config.keys() & properties.keys()


def test_executors_get_certificates_and_keys_and_not_the_path_of_a_file_of_the_driver(tmp_path: Path) -> None:
    key = "-----BEGIN PRIVATE KEY-----"
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    properties = {"ssl.ca.location": str(tmp_path / "ca.pem"), "ssl.certificate.pem": "chain", "ssl.key.pem": key}
    config = java_client_config(Cluster("main", "nowhere:1", properties))

    assert (config["ssl.truststore.type"], config["ssl.keystore.type"]) == ("PEM", "PEM")
    assert config["ssl.truststore.certificates"] == "-----BEGIN CERTIFICATE-----"
    assert (config["ssl.keystore.certificate.chain"], config["ssl.keystore.key"]) == ("chain", key)
    assert str(tmp_path) not in str(config)
    assert not config.keys() & properties.keys()


def test_an_answer_that_the_client_loses_is_given_up_and_a_retry_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Future[Any]] = {"answered": Future(), "lost": Future()}
    asked["answered"].set_result(None)

    def describe_topics(self: AdminClient, topics: TopicCollection, **options: Any) -> dict[str, Future[Any]]:
        return asked

    monkeypatch.setattr(AdminClient, "describe_topics", describe_topics)
    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.05)
    monkeypatch.setattr(client, "LATE_SECONDS", 0.1)

    with pytest.raises(Transient, match=r"no answer from nobody:1 \(1 of 2 requests not answered within 0\.2 s\)"):
        read_topics(Cluster(name="main", bootstrap_servers="nobody:1"), ["answered", "lost"])


def test_an_admin_client_is_closed_at_the_end_of_its_block_even_with_a_request_that_was_given_up() -> None:
    """Purpose: left to the garbage collector, its own thread can collect it, and librdkafka ends the process."""
    with client.Admin(Cluster(name="main", bootstrap_servers="127.0.0.1:1")) as admin:
        admin.client.describe_topics(TopicCollection(["requests"]), request_timeout=20)

    with pytest.raises(RuntimeError, match="closed"):
        admin.client.list_topics(timeout=1)


NOON = datetime(2026, 3, 24, 12, 0, tzinfo=UTC)


def test_a_seed_gives_the_same_messages_whatever_the_size_of_the_batches() -> None:
    traffic = Traffic(bad=0.05, tombstones=0.05, seed=7)
    at_once = WebRequests(traffic).batch(300, now=NOON)
    in_parts = WebRequests(traffic)

    assert [value for size in (1, 199, 100) for value in in_parts.batch(size, now=NOON)] == at_once
    assert WebRequests(Traffic(bad=0.05, tombstones=0.05, seed=8)).batch(300, now=NOON) != at_once


@pytest.mark.parametrize(
    ("count", "rate", "sizes"),
    [(1, None, {1}), (2 * BATCH + 1, None, {BATCH, 1}), (95, 100, {10, 5}), (1000, 500, {50}), (3, 0.5, {1})],
)
def test_batches_add_up_and_keep_a_rate_in_tenths_of_a_second(count: int, rate: float | None, sizes: set[int]) -> None:
    found = list(batch_sizes(count, rate))

    assert (sum(found), set(found)) == (count, sizes)


def test_dates_have_the_same_share_and_impossible_traffic_is_refused() -> None:
    values = WebRequests(Traffic(dates=4)).batch(4_000, now=NOON)

    dates = Counter(json.loads(value or b"")["meta"]["producer"]["timestamp"][:10] for value in values)
    assert dates == {f"2026-03-{day}": pytest.approx(1_000, rel=0.01) for day in (21, 22, 23, 24)}
    for dates_, bad in ((0, 0.0), (1, -0.1), (1, 1.1)):
        with pytest.raises(ValueError, match="at least one date"):
            Traffic(dates=dates_, bad=bad)
