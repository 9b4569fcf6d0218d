"""The Java client's configuration, from the properties that librdkafka is given."""

from __future__ import annotations

from kdi_assets.sources.kafka_frame import java_client_config
from kdi_assets.stream import KafkaCluster


def test_nobody_waits_behind_the_end_of_a_range_unless_the_document_says_so() -> None:
    usual = java_client_config(KafkaCluster("main", "nowhere:1"))
    patient = java_client_config(KafkaCluster("main", "nowhere:1", {"fetch.max.wait.ms": "250"}))

    assert int(usual["fetch.max.wait.ms"]) <= 10
    assert patient["fetch.max.wait.ms"] == "250"


def test_a_document_cannot_let_a_drain_read_what_was_never_committed() -> None:
    config = java_client_config(KafkaCluster("main", "nowhere:1", {"isolation.level": "read_uncommitted"}))

    assert config["isolation.level"] == "read_committed"


def test_a_password_with_quotes_reaches_the_java_client_whole() -> None:
    properties = {"sasl.mechanisms": "PLAIN", "sasl.username": "kdi", "sasl.password": 'a"b', "ssl.ca.location": "/ca"}
    config = java_client_config(KafkaCluster("main", "nowhere:1", properties))

    assert config["sasl.mechanism"] == "PLAIN"
    assert config["sasl.jaas.config"].endswith('required username="kdi" password="a\\"b";')
    assert (config["ssl.truststore.type"], config["ssl.truststore.location"]) == ("PEM", "/ca")
    assert not config.keys() & properties.keys()
