"""The documents of a folder: what is read, and what is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.components.documents import parse
from kdi_assets.components.folder import DefsFolderMissing
from kdi_assets.components.load import defs_folder, load_streams
from kdi_assets.components.mistakes import Mistakes
from tests.documents import CLUSTER, OF_REGISTRY, REGISTRY, mistakes_of, stream, written


def test_the_packages_own_documents_are_right() -> None:
    streams = load_streams()

    assert streams["bronze/web_requests"].columns == {"host": "parse_url(url, 'HOST')"}
    assert streams["bronze/web_requests"].cluster.name == "main"


def test_documents_of_one_file_and_of_nested_folders_are_read(tmp_path: Path) -> None:
    written(tmp_path, kafka=CLUSTER, web__eu=stream("web/eu"), shop=stream("shop/a") + "---\n" + stream("shop/b"))

    assert list(load_streams(tmp_path)) == ["shop/a", "shop/b", "web/eu"]


def test_the_environment_names_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_DEFS", str(written(tmp_path, a=CLUSTER + "---\n" + stream("a"))))

    assert (defs_folder(), list(load_streams())) == (tmp_path, ["a"])


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefsFolderMissing, match="nowhere is not a folder"):
        load_streams(tmp_path / "nowhere")


def test_all_mistakes_of_all_documents_are_reported_at_once(tmp_path: Path) -> None:
    one = CLUSTER + "---\n" + stream("a", more=", strat: earliest, max_records: 0")
    written(tmp_path, one=one, two=stream("b", more=", owners: [web]"), three=stream("c"))

    assert mistakes_of(tmp_path) == [
        "one/defs.yaml:5 max_records: 0 is too small; at least 1",
        "one/defs.yaml:5 strat: no such field; did you mean start?",
        "two/defs.yaml:2 owners.0: 'web' is neither a team nor an address; e.g. team:web or someone@example.com",
    ]


def test_the_message_says_what_is_safe_and_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(Mistakes) as refused:
        load_streams(written(tmp_path, a=stream("a")))

    assert str(refused.value).splitlines()[1:] == [
        "  Safe: nothing was started; no topic and no table was touched.",
        "  Run:  kdi check",
    ]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("bronze/x", "bronze/x", "bronze/x clashes with bronze/x, the table of {folder}/a/defs.yaml:5; a path that is"),
        ("bronze/x", "bronze/x/y", "bronze/x/y clashes with bronze/x, the table of "),
        ("bronze/x/y", "bronze/x", "bronze/x clashes with bronze/x/y, the table of "),
        (
            "bronze/x",
            "bronze/x_dead_letters",
            "bronze/x_dead_letters clashes with bronze/x_dead_letters, kept for the ",
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


def test_the_environment_goes_ahead_of_the_servers_of_main_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = CLUSTER.replace("main", "cloud").replace("localhost", "cloud")
    written(tmp_path, a=CLUSTER, b=other, c=stream("x"), d=stream("y", more=", cluster: cloud"))
    monkeypatch.setenv("KDI_KAFKA", "elsewhere:19092")

    servers = {name: s.cluster.bootstrap_servers for name, s in load_streams(tmp_path).items()}

    assert servers == {"x": "elsewhere:19092", "y": "cloud:9092"}


def test_the_environment_stands_in_for_a_document_of_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_KAFKA", "elsewhere:19092")

    (only,) = load_streams(written(tmp_path, a=stream("x"))).values()

    assert (only.cluster.name, only.cluster.bootstrap_servers) == ("main", "elsewhere:19092")


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
        (CLUSTER + "x\tx\x01: y\n", "1 document: is not YAML: "),
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


def test_lines_are_those_of_the_keys() -> None:
    (document,) = parse("# a comment\ntype: x.Y\nattributes:\n  a:\n    b.c:\n      - 1\n      - 2\n", "f").documents

    lines = {path: document.line_of(path) for path in ("a", "a.b.c", "a.b.c.1", "a.b.c.1.deeper", "missing")}
    assert lines == {"a": 4, "a.b.c": 5, "a.b.c.1": 7, "a.b.c.1.deeper": 7, "missing": 3}
