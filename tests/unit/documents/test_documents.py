"""The documents of a folder: which are read, which streams a command selects, and which mistakes are reported."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kdi_assets.cli.documents.check import check
from kdi_assets.documents.loading.errors import AmbiguousStream, Mistakes, UnknownStream
from kdi_assets.documents.loading.loader import load_streams, select_streams
from kdi_assets.documents.loading.yaml_documents import parse
from kdi_assets.documents.model.stream import Cluster, Stream
from tests.documents import CLUSTER, OF_REGISTRY, REGISTRY, mistakes_of, stream, written


def test_documents_of_one_file_and_of_nested_folders_are_read(tmp_path: Path) -> None:
    written(tmp_path, kafka=CLUSTER, web__eu=stream("web/eu"), shop=stream("shop/a") + "---\n" + stream("shop/b"))

    assert list(load_streams(tmp_path)) == ["shop/a", "shop/b", "web/eu"]


def test_all_mistakes_of_all_documents_are_reported_at_once(tmp_path: Path) -> None:
    one = CLUSTER + "---\n" + stream("a", more=", strat: earliest, max_records: 0")
    written(tmp_path, one=one, two=stream("b", more=", owners: [web]"), three=stream("c"))

    with pytest.raises(
        Mistakes, match="Safe: nothing was started; no topic and no table was touched.\n  Run:  kdi check"
    ):
        load_streams(tmp_path)
    assert mistakes_of(tmp_path) == [
        "one/defs.yaml:5 max_records: 0 is too small; at least 1",
        "one/defs.yaml:5 strat: no such field; did you mean start?",
        "two/defs.yaml:2 owners.0: 'web' is neither a team nor an address; e.g. team:web or someone@example.com",
    ]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("bronze/x", "bronze/x", "bronze/x is already the table of {folder}/a/defs.yaml:5; a path that no"),
        ("bronze/x", "bronze/x/y", "bronze/x/y clashes with bronze/x, the table of "),
        ("bronze/x/y", "bronze/x", "bronze/x clashes with bronze/x/y, the table of "),
        (
            "bronze/x",
            "bronze/x_dead_letters",
            "bronze/x_dead_letters is already kept for the ",
        ),
        ("bronze/x_ledger/y", "bronze/x", "bronze/x_ledger clashes with bronze/x_ledger/y, the table of "),
    ],
)
def test_no_table_lies_in_anothers_way(tmp_path: Path, first: str, second: str, said: str) -> None:
    written(tmp_path, a=CLUSTER + "---\n" + stream(first), b=stream(second))

    (mistake,) = mistakes_of(tmp_path)
    assert mistake.startswith(f"b/defs.yaml:2 table: {said.format(folder=tmp_path)}")


@pytest.mark.parametrize(("kind", "document"), [("kafka", CLUSTER), ("registry", REGISTRY)])
def test_of_two_documents_of_one_name_the_second_is_reported(tmp_path: Path, kind: str, document: str) -> None:
    written(tmp_path, **{kind: document, f"{kind}2": document})

    (mistake,) = mistakes_of(tmp_path)
    assert mistake.startswith(f"{kind}2/defs.yaml:2 name: 'main' is described at ")


@pytest.mark.parametrize("right", [CLUSTER.replace("main", "cloud"), REGISTRY.replace("main", "cloud")])
def test_a_name_that_no_document_has_is_reported_with_those_there_are(tmp_path: Path, right: str) -> None:
    others = {CLUSTER: REGISTRY, REGISTRY: CLUSTER}[right.replace("cloud", "main")]
    written(tmp_path, a=right, b=others, c=stream("x", record=OF_REGISTRY))

    (mistake,) = mistakes_of(tmp_path)
    assert mistake.endswith(" document is named 'main'; known: cloud")


@pytest.mark.parametrize("wrong", [CLUSTER.replace("localhost:9092", "localhost"), REGISTRY.replace("https://", "")])
def test_a_stream_that_names_a_wrong_document_is_not_reported_too(tmp_path: Path, wrong: str) -> None:
    others = REGISTRY if "KafkaCluster" in wrong else CLUSTER
    written(tmp_path, a=wrong, b=others, c=stream("x", record=OF_REGISTRY))

    (mistake,) = mistakes_of(tmp_path)
    assert mistake.startswith("a/defs.yaml:2 ")


def test_the_environment_replaces_the_servers_of_main_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = CLUSTER.replace("main", "cloud").replace("localhost", "cloud")
    written(tmp_path, a=CLUSTER, b=other, c=stream("x"), d=stream("y", more=", cluster: cloud"))
    monkeypatch.setenv("KDI_KAFKA", "elsewhere:19092")

    servers = {name: s.kafka.bootstrap_servers for name, s in load_streams(tmp_path).items()}

    assert servers == {"x": "elsewhere:19092", "y": "cloud:9092"}


def test_the_environment_stands_in_for_a_document_of_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_KAFKA", "elsewhere:19092")

    (only,) = load_streams(written(tmp_path, a=stream("x"))).values()

    assert (only.kafka.name, only.kafka.bootstrap_servers) == ("main", "elsewhere:19092")


def test_a_file_that_nothing_loads_is_reported(tmp_path: Path) -> None:
    written(tmp_path, a=CLUSTER)
    (tmp_path / "orders.yml").write_text(stream("orders"), encoding="utf-8")

    assert mistakes_of(tmp_path) == [
        f"orders.yml:1 document: nothing loads this file: Dagster reads defs.yaml only;"
        f" move it to {tmp_path}/orders/defs.yaml"
    ]


def test_a_file_below_a_folder_whose_document_hides_it_is_reported(tmp_path: Path) -> None:
    written(tmp_path, a=CLUSTER, a__deep__er=stream("x"))

    (mistake,) = mistakes_of(tmp_path)
    assert mistake.startswith("a/deep/er/defs.yaml:1 document: nothing loads this file: ")


def test_yaml_that_belongs_to_another_component_is_left_to_it(tmp_path: Path) -> None:
    written(tmp_path, dbt="type: dagster_dbt.DbtProjectComponent\n", dbt__models="version: 2\n", a=CLUSTER)
    (tmp_path / "dbt" / "profiles.yml").write_text("x: 1\n", encoding="utf-8")

    assert load_streams(tmp_path) == {}


def test_the_search_goes_on_below_a_folder_component(tmp_path: Path) -> None:
    written(tmp_path, all="type: dagster.DefsFolderComponent\n", all__kafka=CLUSTER, all__x=stream("x"))

    assert list(load_streams(tmp_path)) == ["x"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1 document: the file is empty"),
        ("- a\n", "1 document: is not a mapping"),
        ("attributes: {}\n", "1 type: is missing; e.g. type: kdi_assets.components.TopicTable"),
        ("type: kdi_assets.components.TopicTabel\n", "1 type: there is no kdi_assets.components.TopicTabel; did you"),
        (CLUSTER + "attribute: {}\n", "3 attribute: no such key; did you mean attributes?"),
        (CLUSTER + "---\na: b: c\n", "4 document: is not YAML: mapping values are not allowed in this context"),
        (CLUSTER.replace("{", "{name: main, "), "2 name: is written twice; keep one of the two"),
        ("type: x\nattributes:\n\ttopic: x\n", "3 document: is not YAML: a tab stands where YAML takes spaces only"),
        ("type: x\nattributes:\ntopic: x\n", "2 attributes: has nothing below it, and topic beside it; indent"),
        (CLUSTER + "x\tx\x01: y\n", "1 document: is not YAML: "),
        ("type: [", "2 document: is not YAML: "),
        (CLUSTER.replace("{name: main", "{name: main, {{ x }}: 1"), "2 attributes: has a key that is not text"),
    ],
)
def test_a_document_that_is_none_is_reported_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert any(line.startswith(f"a/defs.yaml:{said}") for line in mistakes_of(written(tmp_path, a=text)))


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    written(tmp_path, a="")
    (tmp_path / "a" / "defs.yaml").write_bytes(b"type: \xff\n")

    (mistake,) = mistakes_of(tmp_path)
    assert mistake.startswith("a/defs.yaml:1 document: is not UTF-8: ")


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    folder = written(tmp_path, a="")
    monkeypatch.setattr(Path, "read_text", refuse)

    (mistake,) = mistakes_of(folder)
    assert mistake.startswith("a/defs.yaml:1 document: cannot be read: Permission denied")


def test_lines_are_those_of_the_keys() -> None:
    (document,) = parse("# a comment\ntype: x.Y\nattributes:\n  a:\n    b.c:\n      - 1\n      - 2\n", "f").documents

    lines = {path: document.where(path)[1] for path in ("a", "a.b.c", "a.b.c.1", "a.b.c.1.deeper", "missing")}
    assert lines == {"a": 4, "a.b.c": 5, "a.b.c.1": 7, "a.b.c.1.deeper": 7, "missing": 3}


WRONG = """type: kdi_assets.components.TopicTable
attributes:
  topic: orders
  tabel: bronze/orders
  schema: id bigint
  date: current_date()
"""


def test_wrong_documents_are_said_line_by_line_and_as_json(tmp_path: Path) -> None:
    (tmp_path / "defs.yaml").write_text(WRONG, encoding="utf-8")
    app = typer.Typer()
    app.command()(check)

    text, as_json = (CliRunner().invoke(app, ["--defs", str(tmp_path), *more]) for more in ([], ["--json"]))

    assert text.exit_code == as_json.exit_code == 1
    assert text.stdout.splitlines() == [
        f"{tmp_path}/defs.yaml:2 cluster: no KafkaCluster document is named 'main'; add one, or set KDI_KAFKA for main",
        f"{tmp_path}/defs.yaml:2 table: is missing; e.g. table: bronze/web_requests",
        f"{tmp_path}/defs.yaml:4 tabel: no such field; did you mean table?",
        "streams: 0, mistakes: 3",
    ]
    place = {"file": f"{tmp_path}/defs.yaml", "line": 4, "field": "tabel"}
    what = {"message": "no such field", "right": "did you mean table?"}
    assert json.loads(as_json.stdout)["mistakes"][2] == place | what


def streams(**topics_by_table: str) -> dict[str, Stream]:
    cluster = Cluster("main", "localhost:9092")
    tables = {table.replace("__", "/"): topic for table, topic in topics_by_table.items()}
    return {table: Stream(topic, table, "id bigint", "current_date()", cluster) for table, topic in tables.items()}


@pytest.mark.parametrize(
    ("names", "meant"),
    [
        (["bronze/web_requests"], ["bronze/web_requests"]),
        (["web_requests"], ["bronze/web_requests"]),
        (["web.requests"], ["bronze/web_requests"]),  # its topic
        (
            ["web.requests", "orders", "web_requests"],
            ["bronze/web_requests", "orders"],
        ),  # each once, in the order of the command
        (["orders"], ["orders"]),  # a whole path, and the last part of another
    ],
)
def test_a_stream_is_meant_by_its_table_the_tables_last_part_or_its_topic(names: list[str], meant: list[str]) -> None:
    known = streams(bronze__web_requests="web.requests", orders="x", bronze__orders="y")

    assert [s.name for s in select_streams(known, names)] == meant


def test_a_name_that_fits_several_streams_is_refused_with_all_of_them() -> None:
    known = streams(bronze__orders="orders", raw__orders="orders")

    with pytest.raises(AmbiguousStream, match="orders may be any of bronze/orders, raw/orders"):
        select_streams(known, ["orders"])


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


def test_a_name_without_any_document_leads_to_the_command_that_writes_one() -> None:
    with pytest.raises(UnknownStream) as refused:
        select_streams({}, ["orders"])

    assert refused.value.message_parts()[2].startswith("kdi new TOPIC ")
