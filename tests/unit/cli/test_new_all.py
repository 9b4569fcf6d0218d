"""`kdi new --all`: one document for the topics of a cluster, which the loader takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.cli.documents import new
from kdi_assets.documents.loading.loader import load_folder
from kdi_assets.tools.scaffold.errors import NothingProposed
from kdi_assets.tools.scaffold.propose import Proposal
from tests.documents import CLUSTER, stream, written
from tests.formats.sampled import objects, proposed
from tests.typed import Kdi, typed

AT = {"at": "2026-01-02T03:04:05Z"}
SAMPLES: dict[str, list[bytes | None]] = {
    "shop.orders": objects(20, amount=1, **AT),
    "shop.users": objects(30, amount=2, **AT),  # the same fields in another number of messages
    "web.log": [b"GET /\n", b"PUT /x\n"],
    "web.old": objects(10, **AT),
}


@pytest.fixture
def kdi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Kdi:
    """Commands over a cluster with five topics, one of them empty and one with a document."""
    drained = stream("made/drained").replace("topic: t", "topic: drained")
    monkeypatch.setenv("KDI_DEFS", str(written(tmp_path, kafka=CLUSTER, drained=drained)))
    names = ("drained", "empty", *SAMPLES)
    monkeypatch.setattr("kdi_assets.messages.kafka.topic.topics_of", lambda cluster: names)

    def propose(topic: str, **_: object) -> Proposal:
        if topic == "empty":
            raise NothingProposed(topic=topic, why="topic 'empty' has no committed message", run="later")
        return proposed(SAMPLES[topic])

    monkeypatch.setattr(new, "_propose", propose)
    return typed(monkeypatch, capsys, "new")


def test_one_document_describes_all_topics_without_one_and_equal_fields_are_shared(kdi: Kdi, tmp_path: Path) -> None:
    answer = kdi("--all")

    assert answer.code == 0, answer.err
    assert answer.out.splitlines() == [
        f"{tmp_path}/topics_of_main/defs.yaml: 4 topics",
        "left out: empty: topic 'empty' has no committed message",
        "  Run:  kdi check",
    ]
    loaded = load_folder(tmp_path)
    tables = {s.topic: name for name, s in loaded.streams.items()}
    assert tables == {"drained": "made/drained", **{topic: f"bronze/{topic}" for topic in SAMPLES}}
    orders, users, log = (loaded.streams[f"bronze/{t}"] for t in ("shop.orders", "shop.users", "web.log"))
    assert (orders.record_ddl, orders.date_expression) == (users.record_ddl, users.date_expression)
    assert "amount bigint" in orders.record_ddl and "--" not in orders.record_ddl
    assert "amount" not in loaded.streams["bronze/web.old"].record_ddl
    assert type(log.format) is not type(orders.format)
    found = {name: one.topics for name, one in loaded.topic_tables.items()}
    assert found == {"topics_of_main": ("shop.orders", "shop.users", "web.old"), "topics_of_main_2": ("web.log",)}
    assert loaded.topic_tables["topics_of_main"].spec.exceptions.keys() == {"web.old"}


def test_it_can_be_printed_and_says_what_was_seen_of_each_topic(kdi: Kdi, tmp_path: Path) -> None:
    answer = kdi("--all", "--stdout", "--table", "raw/{topic}")

    assert "# shop.orders: " in answer.out and "20 rows" in answer.out
    assert "# Left out: empty: topic 'empty' has no committed message" in answer.out
    assert "  table: raw/{topic}\n" in answer.out
    assert not (tmp_path / "topics_of_main").exists()


def test_where_every_topic_has_a_document_nothing_is_written(
    kdi: Kdi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdi_assets.messages.kafka.topic.topics_of", lambda cluster: ("drained",))

    answer = kdi("--all")

    assert answer.code == 1
    assert "cluster main has no topic to propose a document for: a document drains each of them." in answer.err
    assert not (tmp_path / "topics_of_main").exists()


@pytest.mark.parametrize("words", [(), ("orders", "--all")])
def test_a_topic_or_all_but_not_both(kdi: Kdi, words: tuple[str, ...]) -> None:
    assert kdi(*words).code == 2
