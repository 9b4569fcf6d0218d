"""A broker that asks for client certificates: librdkafka and Spark's Java client read it with the same properties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from kdi_assets.dev.broker import free_port
from kdi_assets.settings import Settings
from kdi_assets.sources.kafka.reader import read_ranges
from kdi_assets.sources.kafka.topic import read_topic
from kdi_assets.stream.connections import EnvironmentProperties, FromEnvironment
from kdi_assets.stream.stream import Cluster, OffsetRange, TopicPartition
from tests.certificates import KEY_PASSWORD, Certificates, make_certificates
from tests.conftest import quick_broker
from tests.kafka_log import Publisher


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_servers(
    settings: Settings, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The TLS listener of a broker with a topic of one partition and three messages."""
    plain, tls, controller = free_port(), free_port(), free_port()
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://localhost:{tls}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.auth": "required",
    }
    broker = quick_broker(tmp_path_factory.mktemp("tls"), settings, port=plain, properties=properties)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("t", 1)])["t"].result(10)
    publisher = Publisher(broker.bootstrap_servers)
    for value in (b"1", b"2", b"3"):
        publisher.produce("t", value)
    publisher.flush()
    yield f"localhost:{tls}"
    broker.stop()


def in_files(made: Certificates) -> Mapping[str, str]:
    return {
        "ssl.ca.location": str(made.ca), "ssl.certificate.location": str(made.client),
        "ssl.key.location": str(made.client_key),
    }  # fmt: skip


def in_environment(made: Certificates) -> Mapping[str, str]:
    names = {"ssl.ca.pem": "CA", "ssl.certificate.pem": "CERT", "ssl.key.pem": "KEY"}
    written = {p: FromEnvironment(f"KAFKA_DELTA_INGEST_{name}") for p, name in names.items()}
    return EnvironmentProperties("cluster main", written)


@pytest.mark.parametrize("of", [in_files, in_environment], ids=["files", "environment"])
def test_both_clients_read_with_a_client_certificate(
    of: Callable[[Certificates], Mapping[str, str]],
    tls_servers: str,
    certificates: Certificates,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, path in {"CA": certificates.ca, "CERT": certificates.client, "KEY": certificates.client_key}.items():
        monkeypatch.setenv(f"KAFKA_DELTA_INGEST_{name}", Path(path).read_text())
    properties = {"security.protocol": "SSL", "ssl.key.password": KEY_PASSWORD, **of(certificates)}
    cluster = Cluster("main", tls_servers, properties)

    ends = read_topic(cluster, "t").partitions
    rows = read_ranges(spark, cluster, [OffsetRange(TopicPartition("t", 0), 0, 3)]).collect()

    assert ends[TopicPartition("t", 0)].end == 3
    assert [bytes(row["value"]) for row in rows] == [b"1", b"2", b"3"]
