"""New topics of a pattern are taken in only if the documents of the folder load with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.documents.loading.loader import load_streams, read_streams
from kdi_assets.documents.loading.take_in import TakenIn, take_in
from tests.documents import CLUSTER, TOPIC_TABLES, refined, written

PATTERN = f"""{TOPIC_TABLES}
attributes:
  name: {{name}}
  topics: {{{{pattern: 'shop\\.(?P<what>.*)'}}}}
  table: bronze/{{{{what}}}}
  schema: id bigint
  date: current_date()
"""
LIST = f"""{TOPIC_TABLES}
attributes: {{name: listed, topics: [orders], table: 'bronze/{{topic}}', schema: id bigint, date: current_date()}}
"""


def taken(folder: Path, name: str, *topics: str) -> TakenIn:
    return take_in(folder, read_streams(folder).topic_tables[name], topics)


@pytest.mark.parametrize("name", ["aaa", "zzz"])  # read before the document that has the table, and after it
def test_a_topic_whose_table_a_document_has_stays_out_and_the_others_come_in(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path, kafka=CLUSTER, middle=LIST, **{name: PATTERN.format(name=name)})

    done = taken(folder, name, "shop.goods", "shop.orders", "shop.users")

    assert done.topics == ("shop.goods", "shop.users")
    assert ["bronze/orders" in mistake.text() for mistake in done.mistakes] == [True]
    assert load_streams(folder).keys() == {"bronze/orders", "bronze/goods", "bronze/users"}


def test_a_topic_whose_table_is_a_refined_one_stays_out_alone(tmp_path: Path) -> None:
    folder = written(
        tmp_path, kafka=CLUSTER, aaa=PATTERN.format(name="aaa"), sums=refined("bronze/sums", upstream="bronze/goods")
    )
    (folder / "aaa" / "aaa.topics").write_text("shop.goods\n")

    done = taken(folder, "aaa", "shop.sums", "shop.users")

    assert done.topics == ("shop.users",)
    assert not read_streams(folder).mistakes


def test_nothing_is_taken_in_while_the_documents_have_a_mistake(tmp_path: Path) -> None:
    folder = written(tmp_path, kafka=CLUSTER, aaa=PATTERN.format(name="aaa"), bad=LIST.replace("date:", "dat:"))

    done = taken(folder, "aaa", "shop.users")

    assert done.topics == ()
    assert {m.text() for m in done.mistakes} == {m.text() for m in read_streams(folder).mistakes} != set()
