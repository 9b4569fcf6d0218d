"""Answers that the Kafka client owes."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from kdi_assets.errors import Transient
from kdi_assets.sources import kafka, kafka_client
from kdi_assets.sources.kafka import read_topics
from kdi_assets.stream import KafkaCluster


def test_an_answer_that_the_client_loses_is_given_up_and_a_retry_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Future[Any]] = {"answered": Future(), "lost": Future()}
    asked["answered"].set_result(None)

    def describe_topics(self: AdminClient, topics: TopicCollection, **options: Any) -> dict[str, Future[Any]]:
        return asked

    monkeypatch.setattr(AdminClient, "describe_topics", describe_topics)
    monkeypatch.setattr(kafka, "REQUEST_SECONDS", 0.05)
    monkeypatch.setattr(kafka_client, "LATE_SECONDS", 0.1)

    with pytest.raises(Transient, match=r"no answer from nobody:1 \(1 of 2 requests not answered within 0\.2 s\)"):
        read_topics(KafkaCluster(name="main", bootstrap_servers="nobody:1"), ["answered", "lost"])
