"""Secrets that documents take from AWS Secrets Manager, by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.connections import aws_secrets
from kdi_assets.documents.model.connections.aws_secrets import SecretUnanswered, SecretUnreadable
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.tools.local.s3_server import start_s3_server

DOCUMENT = """
type: kdi_assets.components.KafkaCluster
attributes:
  name: cloud
  bootstrap_servers: broker-1:9092
  properties: {{sasl.username: kdi, sasl.password: {password}}}
---
type: kdi_assets.components.TopicTable
attributes: {{topic: t, table: bronze/t, schema: id bigint, date: current_date(), cluster: cloud}}
"""


@pytest.fixture(scope="module", autouse=True)
def _manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Secrets Manager on the loopback, with one secret of two values and one of a text."""
    server = start_s3_server(tmp_path_factory.mktemp("secrets"), services=("secretsmanager",))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment().items():
            patch.setenv(name, value)
        manager = boto3.client("secretsmanager", region_name=server.environment()["AWS_REGION"])
        values = {"username": "kdi", "password": "hush of two", "none": None, "both": ["hush"], "port": 9092}
        manager.create_secret(Name="prod/kafka", SecretString=json.dumps(values))
        manager.create_secret(Name="prod/text", SecretString="hush of text")
        yield
    server.stop()


def cluster(folder: Path, password: str) -> Cluster:
    """The cluster of a document whose password is written so."""
    (folder / "defs.yaml").write_text(DOCUMENT.format(password=password))
    return load_streams(folder)["bronze/t"].kafka


@pytest.mark.parametrize(
    ("written", "password"),
    [
        ("{aws_secret: prod/kafka, key: password}", "hush of two"),
        ("{aws_secret: prod/kafka, key: port}", "9092"),
        ("{aws_secret: prod/text}", "hush of text"),
    ],
)
def test_a_secret_is_read_when_it_is_used_and_not_shown(tmp_path: Path, written: str, password: str) -> None:
    found = cluster(tmp_path, written)

    assert dict(found.properties) == {"sasl.username": "kdi", "sasl.password": password}
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{aws_secret: prod/none}", "the secret prod/none of AWS Secrets Manager cannot be read: .*ResourceNotFound"),
        ("{aws_secret: prod/kafka, key: passwort}", "it has no key 'passwort' as JSON"),
        ("{aws_secret: prod/kafka, key: none}", "it has no key 'none' as JSON, with a text or a number"),
        ("{aws_secret: prod/kafka, key: both}", "it has no key 'both' as JSON, with a text or a number"),
        ("{aws_secret: prod/text, key: password}", "it has no key 'password' as JSON"),
    ],
)
def test_a_secret_that_cannot_be_read_is_named_and_shows_nothing(tmp_path: Path, written: str, said: str) -> None:
    found = cluster(tmp_path, written)

    with pytest.raises(SecretUnreadable, match=said) as refused:
        dict(found.properties)

    assert "hush" not in str(refused.value)
    assert refused.value.__cause__ is None or "hush" not in str(refused.value.__cause__)


def test_while_the_service_does_not_answer_the_value_read_before_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cluster(tmp_path, "{aws_secret: prod/text}")
    before = found.properties["sasl.password"]
    monkeypatch.setattr(aws_secrets, "_kept", {"prod/text": (0.0, before)})  # more than five minutes ago
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")

    assert found.properties["sasl.password"] == "hush of text"
    with pytest.raises(SecretUnanswered, match="does not give the secret prod/kafka now"):
        dict(cluster(tmp_path, "{aws_secret: prod/kafka}").properties)
