"""Which streams a command means."""

from __future__ import annotations

import pytest

from kdi_assets.components.load import AmbiguousStream, UnknownStream, select_streams
from kdi_assets.stream import KafkaCluster, Stream


def streams(**topics_by_table: str) -> dict[str, Stream]:
    cluster = KafkaCluster("main", "localhost:9092")
    tables = {table.replace("__", "/"): topic for table, topic in topics_by_table.items()}
    return {table: Stream(topic, table, "id bigint", "current_date()", cluster) for table, topic in tables.items()}


@pytest.mark.parametrize("name", ["bronze/web_requests", "web_requests", "web.requests"])
def test_a_stream_is_meant_by_its_table_the_tables_last_part_or_its_topic(name: str) -> None:
    known = streams(bronze__web_requests="web.requests", bronze__orders="orders")

    assert [s.name for s in select_streams(known, [name])] == ["bronze/web_requests"]


def test_streams_come_in_the_order_of_the_names_and_once() -> None:
    known = streams(a="ta", b="tb")

    assert [s.name for s in select_streams(known, ["b", "a", "tb"])] == ["b", "a"]


def test_a_name_that_fits_several_streams_is_refused_with_all_of_them() -> None:
    known = streams(bronze__orders="orders", raw__orders="orders")

    with pytest.raises(AmbiguousStream, match="orders may be any of bronze/orders, raw/orders"):
        select_streams(known, ["orders"])


def test_the_whole_path_is_never_ambiguous() -> None:
    known = streams(orders="x", bronze__orders="orders")

    assert [s.name for s in select_streams(known, ["orders"])] == ["orders"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bronze/web_request", "did you mean bronze/web_requests?"),
        ("requests", "did you mean bronze/web_requests?"),  # a part of a name is not a name
        ("raw/ordres", "did you mean bronze/orders?"),
        ("xyz", ""),
    ],
)
def test_an_unknown_name_is_answered_with_the_closest_and_all_there_are(name: str, meant: str) -> None:
    with pytest.raises(UnknownStream, match=f"no stream is called {name}") as refused:
        select_streams(streams(bronze__web_requests="w", bronze__orders="o"), [name])

    said = str(refused.value)
    assert meant in said and ("did you mean" in said) == bool(meant)
    assert "one of: bronze/orders, bronze/web_requests" in said
