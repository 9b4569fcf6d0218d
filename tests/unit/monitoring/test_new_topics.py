"""New topics of a pattern: what is found, shown and taken in; and what never is."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kdi_assets.documents.loading.loader import LoadedFolder, load_folder
from kdi_assets.documents.model.connections.connections import Cluster
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.operate.monitoring.metrics.new_topics import new_topics_collector
from kdi_assets.operate.monitoring.new_topics import NewTopics, read_new_topics
from tests.documents import CLUSTER, TOPIC_TABLES, written

SHOP = f"""{TOPIC_TABLES}
attributes:
  name: shop
  topics: {{pattern: 's-(.*)'}}
  table: shop/{{1}}
  schema: id bigint
  date: current_date()
  exceptions: {{s-skipped: skip}}
"""
DOWN = BrokerUnreachable(cluster="main", bootstrap_servers="localhost:9092", detail="nobody listens")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written(tmp_path, kafka=CLUSTER, shop=SHOP)
    pins(tmp_path).write_text("s-a\ns-b\n")
    return tmp_path


def pins(folder: Path) -> Path:
    return folder / "shop" / "shop.topics"


def look(loaded: LoadedFolder, *topics: str, refusal: KdiError | None = None) -> NewTopics:
    def ask(cluster: Cluster) -> Collection[str]:
        if refusal:
            raise refusal
        return topics

    (found,) = read_new_topics(loaded.topic_tables.values(), loaded.clusters, ask=ask)
    return found


def test_new_and_gone_topics_are_found_and_a_skipped_one_is_neither(folder: Path) -> None:
    found = look(load_folder(folder), "s-a", "s-c", "s-skipped", "other")

    assert (found.new, found.gone, found.not_loaded) == (("s-c",), ("s-b",), ())
    assert found.texts() == ["shop: 1 topic matches and has no table: s-c. Run: kdi check --accept"]


def test_a_topic_that_was_pinned_after_the_documents_were_loaded_is_not_new_but_not_loaded(folder: Path) -> None:
    loaded = load_folder(folder)
    pins(folder).write_text("s-a\ns-b\ns-c\n")

    found = look(loaded, "s-a", "s-b", "s-c")

    assert (found.new, found.not_loaded) == ((), ("s-c",))
    assert found.texts() == ["shop: pinned, and not loaded: s-c; reload the code location"]


def test_of_a_cluster_that_does_not_answer_no_topic_is_new_or_gone_and_every_stream_stays(folder: Path) -> None:
    loaded = load_folder(folder)

    found = look(loaded, refusal=DOWN)

    assert (found.new, found.gone, found.refusal, found.texts()) == ((), (), DOWN, [])
    assert loaded.streams.keys() == {"shop/a", "shop/b"}


def test_a_scrape_counts_the_topics_without_a_table_and_says_nothing_of_a_cluster_that_is_down(folder: Path) -> None:
    answers: list[Collection[str] | KdiError] = [("s-a", "s-c", "s-d"), DOWN]

    def ask(cluster: Cluster) -> Collection[str]:
        if isinstance(answer := answers.pop(0), KdiError):
            raise answer
        return answer

    registry = CollectorRegistry(auto_describe=False)
    registry.register(new_topics_collector(load_folder(folder), ask=ask))

    scraped = [registry.get_sample_value("kdi_new_topics", {"document": "shop"}) for _ in range(2)]
    assert scraped == [2.0, None]
