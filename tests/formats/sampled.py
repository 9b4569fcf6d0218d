"""Samples of topics that no broker holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from kdi_assets.documents.loading.loader import LoadedFolder, read_streams
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kafka.sample import SampledMessage, TopicSample
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.tools.scaffold.document import document
from kdi_assets.tools.scaffold.propose import Proposal, propose
from kdi_assets.tools.scaffold.recognise_format import Ask
from tests.documents import CLUSTER, REGISTRY, written

NOW = datetime.now(UTC).replace(microsecond=0)


def proposed(values: Sequence[bytes | None], *, keys: Sequence[bytes | None] = (), ask: Ask | None = None) -> Proposal:
    """The proposal for a topic of one topic partition with one message a second, the last one now."""
    tp, count = TopicPartition("orders", 0), len(values)
    times = [NOW - timedelta(seconds=count - 1 - n) for n in range(count)]
    keyed = keys or [None] * count
    messages = [SampledMessage(tp, n, times[n], value, keyed[n]) for n, value in enumerate(values)]
    return propose(
        TopicSample(TopicState("orders", "id", {tp: BrokerOffsets(0, count, count)}), messages), now=NOW, ask=ask
    )


def text_of(proposal: Proposal) -> str:
    """Its document."""
    return document(proposal, table="bronze/orders", cluster="main", now=NOW)


def attributes_of(proposal: Proposal) -> dict[str, Any]:
    """The stream's document without comments."""
    content: dict[str, Any] = next(yaml.safe_load_all(text_of(proposal)))["attributes"]
    return content


def read_back(folder: Path, text: str) -> LoadedFolder:
    """A document as the loader reads it, beside those of cluster and registry."""
    return read_streams(written(folder, kafka=CLUSTER, registry=REGISTRY, orders=text))


def objects(count: int = 100, **fields: Any) -> list[bytes | None]:
    """JSON objects with an id; a field that is a function gets the message's number."""
    made = [{"id": n, **{k: v(n) if callable(v) else v for k, v in fields.items()}} for n in range(count)]
    return [json.dumps(one).encode() for one in made]
