"""A document of many topics: a stream for each, and mistakes that name file, line, field and topic."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest

from kdi_assets.documents.loading.errors import NAMED_TOPICS
from kdi_assets.documents.loading.loader import load_folder, load_streams, read_streams
from kdi_assets.documents.loading.pinned_topics import add_pins
from kdi_assets.documents.loading.topic_tables import topic_tables_schema
from kdi_assets.documents.model.stream import DrainWhen
from tests.documents import CLUSTER, TOPIC_TABLES, mistakes_of, stream, written

EXAMPLE = Path(__file__).parents[3] / "examples" / "many_topics"
HEAD = f"{TOPIC_TABLES}\nattributes:\n"
LIST = f"""{HEAD}  name: shop
  topics: [orders, users, _audit]
  table: bronze/{{topic}}
  schema: id bigint
  date: current_date()
  drain_when: {{lag_seconds: 300}}
  owners: [team:shop]
"""
PATTERN = LIST.replace("[orders, users, _audit]", r"{pattern: 'shop\.(?P<what>.*)'}").replace("{topic}", "{what}")


def folder_with(tmp_path: Path, document: str, *, pins: str | None = None, **others: str) -> Path:
    folder = written(tmp_path, kafka=CLUSTER, shop=document, **others)
    if pins is not None:
        (folder / "shop" / "shop.topics").write_text(pins)
    return folder


def test_each_topic_of_a_list_is_a_stream_like_one_with_a_document_of_its_own(tmp_path: Path) -> None:
    streams = load_streams(folder_with(tmp_path, LIST))

    alone = stream("bronze/orders", more=", drain_when: {lag_seconds: 300}, owners: ['team:shop']")
    expected = load_streams(written(tmp_path / "alone", kafka=CLUSTER, o=alone.replace("topic: t", "topic: orders")))
    assert streams["bronze/orders"] == expected["bronze/orders"]
    assert {name: (s.topic, s.app_id) for name, s in streams.items()} == {
        "bronze/orders": ("orders", "orders"),
        "bronze/users": ("users", "users"),
        "bronze/audit": ("_audit", "_audit"),  # no part of a path begins with _
    }


def test_an_exception_replaces_shared_fields_of_its_topic_and_skip_leaves_the_topic_out(tmp_path: Path) -> None:
    exceptions = "  exceptions:\n    orders: {table: made/orders, date: to_date(at), owners: ['team:money']}\n"

    streams = load_streams(folder_with(tmp_path, LIST + exceptions + "    users: skip\n"))

    assert streams.keys() == {"made/orders", "bronze/audit"}
    orders, audit = streams["made/orders"], streams["bronze/audit"]
    assert (orders.date_expression, orders.owners, orders.drain_when) == (
        "to_date(at)",
        ("team:money",),
        DrainWhen(lag_seconds=300),
    )
    assert (audit.date_expression, audit.owners) == ("current_date()", ("team:shop",))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "  schema: id bigint\n",
            "  tabel: x\n  schema: id bigint\n",
            "6 tabel: no such field (topics orders, users, _audit); did you mean table?",
        ),
        (
            "lag_seconds: 300",
            "lag: 300",
            "8 drain_when.lag: no such field (topics orders, users, _audit); did you mean",
        ),
        ("  date: current_date()\n", "", "2 date: is missing (topics orders, users, _audit); e.g. date: to_date(at)"),
        ("{topic}", "x", "5 table: 'bronze/x' is the same path for every topic; e.g. bronze/{topic}"),
        ("{topic}", "{topik}", "5 table: no part of the topic is called {topik}; did you mean topic?"),
        ("{topic}", "{topic}/", "5 table: 'bronze/orders/' is not a path below the lake's root (topic orders); e.g."),
        ("users,", "orders,", "4 topics.1: orders is written twice; keep one of the two"),
        ("users,", '"a b",', "4 topics.1: 'a b' is not a name that Kafka takes; letters, digits, '.', '_' and '-'"),
        ("[orders, users, _audit]", "orders", "4 topics: 'orders' is neither a list of topics nor a pattern; e.g."),
        ("[orders, users, _audit]", "{pattern: '('}", "4 topics.pattern: '(' is not a regular expression: missing"),
        ("[orders, users, _audit]", "{pattern: ''}", "4 topics.pattern: '' matches no topic; e.g. shop"),
        ("name: shop", "name: a/b", "3 name: 'a/b' is not a document's name; letters, digits, '_' and '-', e.g. main"),
        ("  name: shop\n", "", "2 name: is missing; e.g. name: shop"),
        (
            "name: shop",
            "name: shop\n  app_id: x",
            "4 app_id: belongs to one table, and cannot be shared; in exceptions",
        ),
        ("name: shop", "name: shop\n  topic: x", "4 topic: belongs to one table, and cannot be shared; topics: [a, b]"),
        (
            "name: shop",
            "name: shop\n  new_topics: add",
            "4 new_topics: belongs to a pattern, and the topics are a list",
        ),
    ],
)
def test_a_mistake_names_line_field_and_the_topics_that_have_it(tmp_path: Path, old: str, new: str, said: str) -> None:
    (mistake, *others) = mistakes_of(folder_with(tmp_path, LIST.replace(old, new, 1)))

    assert mistake.startswith(f"shop/defs.yaml:{said}")
    assert all("{topic}/" in new for _ in others)  # there each topic has a message of its own


@pytest.mark.parametrize(
    ("exception", "said"),
    [
        ("orders: {dat: x}", "11 exceptions.orders.dat: no such field (topic orders); did you mean date?"),
        ("orders: {owners: [x]}", "11 exceptions.orders.owners.0: 'x' is neither a team nor an address (topic orders)"),
        ("orders: {table: bronze/users}", "5 table: bronze/users is already the table of"),
        ("orders: {topic: users}", "11 exceptions.orders.topic: is the topic's own name; remove the line"),
        ("orders: {app_id: users}", "11 exceptions.orders.app_id: 'users' is the app_id of topic users (topic orders)"),
        ("order: skip", "11 exceptions.order: is not one of the topics; did you mean orders?"),
        ("orders: drop", "11 exceptions.orders: 'drop' is neither skip nor fields of a table; e.g. skip, or {date"),
    ],
)
def test_a_mistake_in_an_exception_is_at_its_line_and_names_its_topic(
    tmp_path: Path, exception: str, said: str
) -> None:
    (mistake,) = mistakes_of(folder_with(tmp_path, f"{LIST}  exceptions:\n    {exception}\n"))

    assert mistake.startswith(f"shop/defs.yaml:{said}")


def test_two_topics_with_one_table_are_refused_and_both_are_named(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, LIST.replace("_audit", "_users"))

    (mistake,) = mistakes_of(folder)
    assert mistake.startswith("shop/defs.yaml:5 table: bronze/users is already the table of ")
    assert mistake.endswith("shop/defs.yaml:5 (topic users) (topic _users); a path that no other table uses")


def test_a_mistake_that_many_topics_have_is_one_and_names_the_first(tmp_path: Path) -> None:
    topics = ", ".join(f"t{number}" for number in range(300))
    wrong = LIST.replace("orders, users, _audit", topics).replace("team:shop", "shop")

    loaded = read_streams(folder_with(tmp_path, wrong))
    (text,) = mistakes_of(tmp_path)

    assert len(loaded.mistakes) == 300
    assert f"(topics t0, t1, t2 and {300 - NAMED_TOPICS} more)" in text


def test_a_pattern_has_the_topics_of_its_file_and_no_broker_is_asked(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, PATTERN, pins="# ours\nshop.orders\n\nshop.users # since March\n")

    streams = load_streams(folder)

    assert {s.topic: s.table for s in streams.values()} == {
        "shop.orders": "bronze/orders",
        "shop.users": "bronze/users",
    }


def test_a_pattern_without_its_file_has_no_table_yet_and_its_shared_fields_are_checked(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, PATTERN)
    assert load_folder(folder).streams == {}

    (mistake,) = mistakes_of(folder_with(tmp_path, PATTERN.replace("team:shop", "shop")))
    assert mistake.startswith("shop/defs.yaml:9 owners.0: 'shop' is neither a team nor an address; e.g.")


@pytest.mark.parametrize(
    ("pins", "said"),
    [
        ("shop.orders\nother.orders\n", "2 topics: other.orders does not match the pattern shop"),
        ("shop.orders\nshop.orders\n", "2 topics: shop.orders is in line 1 already; keep one of the two"),
        ("shop.orders\nshop orders\n", "2 topics: 'shop orders' is not a name that Kafka takes; letters"),
    ],
)
def test_a_mistake_in_the_file_of_topics_names_the_file_and_its_line(tmp_path: Path, pins: str, said: str) -> None:
    (mistake,) = mistakes_of(folder_with(tmp_path, PATTERN, pins=pins))

    assert mistake.startswith(f"shop/shop.topics:{said}")


def test_topics_are_added_to_the_file_in_their_order_and_its_comments_stay(tmp_path: Path) -> None:
    file = tmp_path / "shop.topics"
    file.write_text("# ours\nshop.b\nshop.d # since March\n")

    add_pins(file, "shop", ["shop.c", "shop.e", "shop.d", "shop.a"])

    assert file.read_text() == "# ours\nshop.a\nshop.b\nshop.c\nshop.d # since March\nshop.e\n"
    assert [path.name for path in tmp_path.iterdir()] == ["shop.topics"]


def test_a_file_of_topics_that_notepad_saved_is_read(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, PATTERN)
    (folder / "shop" / "shop.topics").write_bytes(b"\xef\xbb\xbf# ours\r\nshop.orders\r\n")

    assert load_streams(folder).keys() == {"bronze/orders"}


def test_new_topics_match_the_whole_pattern_are_not_in_the_file_and_not_skipped(tmp_path: Path) -> None:
    document = PATTERN + "  exceptions: {shop.tests: skip}\n"
    loaded = load_folder(folder_with(tmp_path, document, pins="shop.orders\nshop.gone\n"))

    shop = loaded.topic_tables["shop"]
    seen = ["shop.orders", "shop.users", "shop.tests", "the.shop.x", "shop"]
    assert shop.spec.new(seen, pinned=shop.topics) == ("shop.users",)
    assert [s.topic for s in loaded.streams_of("shop")] == ["shop.orders", "shop.gone"]


def test_two_documents_of_many_topics_have_two_names(tmp_path: Path) -> None:
    more = LIST.replace("orders, users, _audit", "a, b")

    (mistake,) = mistakes_of(folder_with(tmp_path, LIST, more=more))

    assert mistake.startswith("shop/defs.yaml:3 name: 'shop' is the document at ")


def test_the_schema_takes_both_forms_and_has_no_field_of_one_table() -> None:
    schema = topic_tables_schema()
    validator = jsonschema_rs.validator_for(schema)

    shared = {"table": "bronze/{topic}", "schema": "id bigint", "date": "current_date()", "name": "shop"}
    for topics in (["orders"], {"pattern": "shop.*"}):
        validator.validate({**shared, "topics": topics, "exceptions": {"orders": "skip"}})
    assert not validator.is_valid({**shared, "topics": ["orders"], "tabel": "x"})
    assert {"drain_when", "format", "mask"} < schema["properties"].keys()
    assert not {"topic", "app_id", "route", "announce", "renamed_from"} & schema["properties"].keys()
    assert json.dumps(schema)


def test_the_example_has_the_tables_that_its_page_says() -> None:
    loaded = load_folder(EXAMPLE)

    assert {s.topic: name for name, s in loaded.streams.items()} == {
        "shop.customers.v2": "bronze/shop/customers",
        "shop.orders.v1": "bronze/shop/orders",
        "shop.payments.v1": "bronze/shop/payments",
        "web_errors": "bronze/web_errors",
        "web_logins": "bronze/web_logins",
        "web_requests": "bronze/web_requests",
    }
    waits = {name: s.drain_when.lag_seconds for name, s in loaded.streams.items() if name.startswith("bronze/shop")}
    assert waits == {"bronze/shop/customers": 300, "bronze/shop/orders": 60, "bronze/shop/payments": 300}
    seen = ["shop.tests.v1", "shop.tests.v2", "shop.orders.v1", "shop.orders", "web_new"]
    assert loaded.topic_tables["shop"].spec.new(seen, pinned=loaded.topic_tables["shop"].topics) == ("shop.tests.v2",)


def test_an_exception_may_name_a_variable_where_the_field_of_a_stream_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAG", "7")
    allowed = "  exceptions:\n    orders: {drain_when: {lag_seconds: '{{ env.LAG }}'}}\n"

    streams = load_streams(folder_with(tmp_path / "allowed", LIST + allowed))
    refused = mistakes_of(folder_with(tmp_path / "refused", LIST + "  exceptions: {orders: {date: '{{ env.LAG }}'}}\n"))

    assert streams["bronze/orders"].drain_when.lag_seconds == 7
    assert ["takes no variable" in mistake for mistake in refused] == [True]
