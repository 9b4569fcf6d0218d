"""`kdi check --accept` and `kdi status` of documents with a pattern; no broker, no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.cli.documents import check
from kdi_assets.cli.documents.spark_findings import SparkFindings
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from tests.documents import CLUSTER, TOPIC_TABLES, stream, written
from tests.typed import Kdi

SHOP = f"""{TOPIC_TABLES}
attributes: {{name: shop, topics: {{pattern: 's-(.*)'}}, table: 'shop/{{1}}', schema: id bigint, date: current_date()}}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kdi: Kdi) -> Kdi:
    """Commands over a folder with one pattern, whose cluster has three topics."""
    folder = written(tmp_path / "documents", kafka=CLUSTER, shop=SHOP)
    monkeypatch.setenv("KDI_DEFS", str(folder))
    monkeypatch.delenv("KDI_KAFKA")
    monkeypatch.setattr(check, "check_with_spark", lambda loaded, *, as_json: SparkFindings())
    monkeypatch.setattr("kdi_assets.messages.kafka.topic.topics_of", lambda cluster: ("other", "s-a", "s-b"))
    return kdi


def pins(tmp_path: Path) -> Path:
    return tmp_path / "documents" / "shop" / "shop.topics"


def test_accept_adds_new_topics_to_the_file_and_checks_their_tables(shop: Kdi, tmp_path: Path) -> None:
    answer = shop("check", "--accept")

    assert answer.out.splitlines() == [
        f"shop: added to {pins(tmp_path)}: s-a, s-b",
        "streams: 2, mistakes: 0",
    ]
    assert pins(tmp_path).read_text().splitlines()[1:] == ["s-a", "s-b"]
    assert shop("check", "--accept").out.splitlines()[0] == "shop: no new topic"


def test_a_topic_that_is_gone_is_said_and_its_line_stays(shop: Kdi, tmp_path: Path) -> None:
    pins(tmp_path).write_text("s-a\ns-gone\n")

    answer = shop("check", "--accept", "--json")

    (found,) = answer.objects
    (accepted,) = found["accepted"]
    assert accepted == {
        "document": "shop",
        "file": str(pins(tmp_path)),
        "added": ["s-b"],
        "left": [],
        "gone": ["s-gone"],
    }
    assert [one["stream"] for one in found["streams"]] == ["shop/a", "shop/b", "shop/gone"]
    assert pins(tmp_path).read_text() == "s-a\ns-b\ns-gone\n"


def test_a_topic_whose_table_another_document_has_is_a_mistake_and_stays_out(shop: Kdi, tmp_path: Path) -> None:
    written(tmp_path / "documents", other=stream("shop/a"))

    answer = shop("check", "--accept")

    assert answer.code == 1
    assert "shop/a is already the table of" in answer.out and "(topic s-a)" in answer.out
    assert f"shop: added to {pins(tmp_path)}: s-b" in answer.out
    assert shop("check").code == 0


def test_a_broker_that_does_not_answer_changes_nothing(
    shop: Kdi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(cluster: object) -> None:
        raise BrokerUnreachable(cluster="main", bootstrap_servers="localhost:9092", detail="nobody listens")

    pins(tmp_path).write_text("s-a\n")
    monkeypatch.setattr("kdi_assets.messages.kafka.topic.topics_of", refuse)

    answer = shop("check", "--accept")

    assert answer.code == 75
    assert "nobody listens" in answer.err
    assert pins(tmp_path).read_text() == "s-a\n"
    assert shop("check").code == 0  # without --accept no broker is asked


def test_status_names_topics_without_a_table_after_the_tables(shop: Kdi, tmp_path: Path) -> None:
    answer = shop("status")
    assert answer.out.splitlines()[-1] == ("shop: 2 topics match and have no table: s-a, s-b. Run: kdi check --accept")

    pins(tmp_path).write_text("s-a\ns-b\n")
    assert "no table" not in shop("status").out


def test_a_pattern_without_a_topic_says_how_to_begin(shop: Kdi) -> None:
    assert shop("check").out.splitlines() == [
        "shop: no topic has a table yet. Run: kdi check --accept",
        "streams: 0, mistakes: 0",
    ]
