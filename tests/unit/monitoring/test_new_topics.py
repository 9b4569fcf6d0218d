"""New topics of a pattern: what is found, shown and taken in; and what never is."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kdi_assets.documents.loading.loader import LoadedFolder, load_folder, read_streams
from kdi_assets.documents.loading.take_in import take_in
from kdi_assets.documents.model.connections.connections import Cluster
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.operate.monitoring.metrics.new_topics import new_topics_collector
from kdi_assets.operate.monitoring.new_topics import NewTopics, read_new_topics
from tests.documents import CLUSTER, TOPIC_TABLES, stream, written

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


def test_topics_are_taken_into_the_file_and_loaded_from_it(folder: Path) -> None:
    taken = take_in(folder, load_folder(folder).topic_tables["shop"], ["s-c"])

    assert (taken.topics, taken.mistakes, taken.unwritable) == (("s-c",), (), "")
    assert load_folder(folder).streams.keys() == {"shop/a", "shop/b", "shop/c"}


def test_a_topic_whose_table_another_document_has_stays_out_so_that_all_others_still_load(folder: Path) -> None:
    written(folder, other=stream("shop/c"))

    taken = take_in(folder, load_folder(folder).topic_tables["shop"], ["s-c", "s-d"])

    (mistake,) = taken.mistakes
    assert "shop/c is already the table of" in mistake.text() and "(topic s-c)" in mistake.text()
    assert taken.topics == ("s-d",)
    assert load_folder(folder).streams.keys() == {"shop/a", "shop/b", "shop/c", "shop/d"}


def test_beside_a_mistake_of_another_document_nothing_is_taken_in(folder: Path) -> None:
    written(folder, other=stream("shop/x", more=", tabel: y"))

    taken = take_in(folder, read_streams(folder).topic_tables["shop"], ["s-c"])

    assert (taken.topics, [mistake.field for mistake in taken.mistakes]) == ((), ["tabel"])
    assert pins(folder).read_text() == "s-a\ns-b\n"


def test_a_file_that_cannot_be_written_is_said_and_stays_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("kdi_assets.documents.loading.take_in.add_pins", refuse)

    taken = take_in(folder, load_folder(folder).topic_tables["shop"], ["s-c"])

    assert (taken.topics, taken.unwritable) == ((), "Read-only file system")


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
