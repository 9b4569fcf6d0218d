"""Defaults of a folder: documents below have them, override them, and a mistake is at its own file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.documents.loading.loader import load_streams
from tests.documents import CLUSTER, TOPIC_TABLES, mistakes_of, written

ORDERS = "type: kdi_assets.components.TopicTable\nattributes: {topic: orders, table: shop/orders, schema: id bigint}\n"
DEFAULTS = """# of all documents below
date: current_date()
owners: [team:data]
drain_when: {lag_seconds: 300}
freshness: {warn: 1 hour, fail: 2 hours}
"""


def folder_of(tmp_path: Path, **documents: str) -> Path:
    folder = written(tmp_path, kafka=CLUSTER, **documents)
    (folder / "defaults.yaml").write_text(DEFAULTS)
    return folder


def test_a_document_has_the_defaults_of_its_folder_and_of_those_above_and_its_own_fields_first(tmp_path: Path) -> None:
    own = ORDERS.replace("schema:", "freshness: {warn: 1 minute, fail: 2 minutes}, schema:")
    folder = folder_of(tmp_path, shop__orders=own, web=ORDERS.replace("orders", "web"))
    (folder / "shop" / "defaults.yaml").write_text("owners: [team:shop]\n")

    streams = load_streams(folder)

    orders, web = streams["shop/orders"], streams["shop/web"]
    assert (orders.owners, web.owners) == (("team:shop",), ("team:data",))
    assert orders.drain_when.lag_seconds == web.drain_when.lag_seconds == 300
    assert (orders.freshness and orders.freshness.warn_seconds, web.freshness and web.freshness.warn_seconds) == (
        60,
        3600,
    )
    assert orders.date_expression == "current_date()"


def test_many_topics_take_them_too_and_an_exception_replaces_them(tmp_path: Path) -> None:
    fields = "name: m, topics: [a, b], table: 'm/{topic}', schema: id bigint, exceptions: {b: {owners: ['team:b']}}"

    streams = load_streams(folder_of(tmp_path, many=f"{TOPIC_TABLES}\nattributes: {{{fields}}}\n"))

    assert {name: s.owners for name, s in streams.items()} == {"m/a": ("team:data",), "m/b": ("team:b",)}
    assert {s.drain_when.lag_seconds for s in streams.values()} == {300}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("team:data", "data", "defaults.yaml:3 owners.0: 'data' is neither a team nor an address; e.g."),
        ("owners", "owner", "defaults.yaml:3 owner: no such field; did you mean owners?"),
        ("lag_seconds", "lag", "defaults.yaml:4 drain_when.lag: no such field; did you mean lag_seconds?"),
        ("owners: [team:data]", "table: x", "defaults.yaml:3 table: belongs to one document, and is no default of a"),
        (DEFAULTS, "- owners\n", "defaults.yaml:1 document: is not one mapping; fields alone, e.g. owners: [team:web]"),
        ("owners: [", "owners: {", "defaults.yaml:3 document: is not YAML"),
    ],
)
def test_a_mistake_is_at_the_file_and_line_of_the_defaults_once_for_all_documents(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    dated = ORDERS.replace("schema:", "date: current_date(), schema:")
    folder = folder_of(tmp_path, a=dated, b=dated.replace("orders", "web"))
    (folder / "defaults.yaml").write_text(DEFAULTS.replace(old, new))

    (mistake,) = mistakes_of(folder)

    assert mistake.startswith(said)


def test_connections_and_followers_have_no_defaults(tmp_path: Path) -> None:
    refined = "type: kdi_assets.components.RefinedTable\nattributes: {table: silver/orders, from: shop/orders}\n"

    assert load_streams(folder_of(tmp_path, orders=ORDERS, silver=refined)).keys() == {"shop/orders"}
