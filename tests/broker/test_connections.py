"""Every way to connect to Kafka, from the document on: drain, status and doctor; and every mistake, by its own error.

The broker is real, with a listener for each way. Amazon MSK is this broker with a verifier of MSK's tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.messages.kafka import client
from kdi_assets.messages.kafka.errors import (
    AccessRefused,
    CertificateNotTrusted,
    ClientCertificateMissing,
    ClientCertificateRefused,
    HostNameDiffers,
    MechanismNotEnabled,
    PasswordRefused,
    SecurityProtocolDiffers,
    TokenRefused,
)
from kdi_assets.messages.kafka.topic import read_topics
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import Broker, free_port
from tests.conftest import DrivenFactory
from tests.documents import stream, written
from tests.driven import web_requests_document
from tests.kafka.doors import SECRETS, Doors, broker_with_doors
from tests.typed import Kdi

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = {
    "plain text": ("plaintext", "tls: false"),
    "TLS": ("tls", "tls: {ca: <CA>}"),
    "mTLS, files": (
        "mtls",
        "tls: {ca: <CA>, certificate: <CERTIFICATE>, key: <KEY>, key_password: {env: KDI_T_KEY_PASSWORD}}",
    ),
    "mTLS, variables": (
        "mtls",
        "tls: {ca: <CA>, certificate: {env: KDI_T_CERTIFICATE}, key: {env: KDI_T_KEY},"
        " key_password: {env: KDI_T_KEY_PASSWORD}}",
    ),
    **{
        mechanism: (
            "login",
            f"tls: {{ca: <CA>}}, sasl: {{mechanism: {mechanism}, username: kdi, password: {{env: KDI_T_PASSWORD}}}}",
        )
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    },
    "Event Hubs": (
        "login",
        "tls: {ca: <CA>}, sasl: {mechanism: PLAIN, connection_string: {env: KDI_T_CONNECTION_STRING}}",
    ),
    "OAUTHBEARER": (
        "login",
        "tls: {ca: <CA>}, sasl: {mechanism: OAUTHBEARER, token_endpoint: <ENDPOINT>, token_endpoint_ca: <CA>,"
        " client_id: kdi, client_secret: {env: KDI_T_CLIENT_SECRET}, scope: kafka}",
    ),
    "MSK IAM": ("msk", "tls: {ca: <CA>}, sasl: {mechanism: AWS_MSK_IAM, region: eu-central-1}"),
}
CORE = "OAUTHBEARER"


@pytest.fixture(scope="module")
def doors(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with broker_with_doors(tmp_path_factory.mktemp("doors"), settings) as doors:
        yield doors


@pytest.fixture(scope="module")
def broker(doors: Doors) -> Broker:
    """The topics and producers of these tests are the broker's with the doors."""
    return doors.broker


@pytest.fixture(autouse=True)
def _secrets(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in doors.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def jvm_log(spark: SparkSession) -> Iterator[Any]:
    """Everything that Kafka's Java client and Spark's source log during the test, down to INFO."""
    jvm: Any = spark._jvm
    core, level = jvm.org.apache.logging.log4j.core, jvm.org.apache.logging.log4j.Level.INFO
    context, text = jvm.org.apache.logging.log4j.LogManager.getContext(False), jvm.java.io.StringWriter()
    layout = core.layout.PatternLayout.createDefaultLayout()
    appender = core.appender.WriterAppender.createAppender(layout, None, text, "test", False, True)
    appender.start()
    names = ("org.apache.kafka", "org.apache.spark.sql.kafka010", "kdi")
    for name in names:
        logger = core.config.LoggerConfig(name, level, False)
        logger.addAppender(appender, level, None)
        context.getConfiguration().addLogger(name, logger)
    context.updateLoggers()
    yield text
    for name in names:
        context.getConfiguration().removeLogger(name)
    context.updateLoggers()


def cluster_document(doors: Doors, door: str, fields: str) -> str:
    """The document of a cluster with these fields."""
    attributes = f'{{name: doors, bootstrap_servers: "<{door}>", {fields}}}'
    return doors.written(f"type: kdi_assets.components.KafkaCluster\nattributes: {attributes}\n")


def connected(folder: Path, document: str) -> Cluster:
    """The cluster of a document."""
    written(folder, kafka=document, s=stream("bronze/s", more=", cluster: doors"))
    return load_streams(folder)["bronze/s"].kafka


def secrets_in(text: str) -> list[str]:
    """The names of the secrets in a text."""
    hidden = {**SECRETS, "a private key": "PRIVATE KEY-----"}
    return [name for name, value in hidden.items() if value in text and name != "AWS_ACCESS_KEY_ID"]


@pytest.mark.parametrize("way", [pytest.param(w, marks=[pytest.mark.core] if w == CORE else []) for w in WAYS])
def test_it_drains_and_status_and_doctor_are_content(
    doors: Doors, way: str, driven: DrivenFactory, defs: Path, kdi: Kdi, jvm_log: Any
) -> None:
    web = driven()
    written(
        defs,
        kafka=cluster_document(doors, *WAYS[way]),
        web=web_requests_document(web.stream.topic, cluster="doors"),
    )
    produced = web.produce(20, bad=0.2)

    waiting, examined = kdi("status", "--json"), kdi("doctor", web.stream.topic, "--json")
    drained, after = kdi("drain", web.stream.topic, "--json"), kdi("status", "--json")

    assert [s["backlog_offsets"] for s in (*waiting.objects, *after.objects)] == [20, 0]
    found = {finding["examination"]: finding["verdict"] for finding in examined.objects}
    assert (found["brokers"], found["rights"], found["stream"]) == ("ok", "ok", "ok"), examined.out
    assert drained.code == 0, drained.err
    replace(web, stream=load_streams(defs)[web.stream.name]).assert_each_offset_once(produced)
    log = jvm_log.toString()
    assert "ConsumerConfig values" in log
    assert secrets_in(log) == []
    assert secrets_in("".join(answer.out + answer.err for answer in (waiting, examined, drained, after))) == []


LOGIN = "tls: {ca: <CA>}, sasl: {mechanism: %s, username: kdi, password: {env: KDI_T_PASSWORD}}"
TOKEN = WAYS["OAUTHBEARER"][1]
MISTAKES = {
    "another authority": ("tls", "tls: true", CertificateNotTrusted, "tls.ca"),
    "another host": ("tls by number", "tls: {ca: <CA>}", HostNameDiffers, "127.0.0.1"),
    "no client certificate": ("mtls", "tls: {ca: <CA>}", ClientCertificateMissing, "tls.certificate"),
    "a client certificate of nobody": (
        "mtls",
        "tls: {ca: <CA>, certificate: <STRANGER>}",
        ClientCertificateRefused,
        "tls.certificate",
    ),
    "another password": (
        "login",
        (LOGIN % "SCRAM-SHA-512").replace("KDI_T_PASSWORD", "KDI_T_CLIENT_SECRET"),
        PasswordRefused,
        "sasl.password",
    ),
    "a mechanism that is not offered": ("msk", LOGIN % "PLAIN", MechanismNotEnabled, "sasl.mechanism"),
    "a secret that the token endpoint refuses": (
        "login",
        TOKEN.replace("KDI_T_CLIENT_SECRET", "KDI_T_PASSWORD"),
        TokenRefused,
        "token endpoint",
    ),
    "a token endpoint that is down": ("login", TOKEN.replace("<ENDPOINT>", "<DOWN>"), TokenRefused, "token endpoint"),
    "a token for others": ("login", TOKEN, TokenRefused, "accepts"),
    "keys that AWS does not know": ("msk", WAYS["MSK IAM"][1], TokenRefused, "AWS"),
    "plain text to TLS": ("tls", "tls: false", SecurityProtocolDiffers, "speaks TLS"),
    "TLS to plain text": ("plaintext", "tls: {ca: <CA>}", SecurityProtocolDiffers, "speaks plain text"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_its_own_error_without_a_secret(
    doors: Doors, mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, fields, error, said = MISTAKES[mistake]
    monkeypatch.setattr(client, "REQUEST_SECONDS", 2.0)
    monkeypatch.setattr(doors.endpoint, "audience", "others" if mistake == "a token for others" else "kafka")
    if mistake == "keys that AWS does not know":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush of others")
    document = cluster_document(doors, door.split()[0], fields)
    document = document.replace("<DOWN>", f"http://127.0.0.1:{free_port()}/token")
    cluster = connected(tmp_path, document.replace("localhost", "127.0.0.1") if "number" in door else document)

    with pytest.raises(AccessRefused) as refused:
        read_topics(cluster, ["t"])

    assert type(refused.value) is error
    assert said in str(refused.value)
    assert secrets_in(f"{refused.value} {vars(refused.value)!r} {cluster!r}") == []
    assert "hush" not in str(refused.value)
