"""A table may lie below a root of its own; whatever reads or keeps it finds it there, and nothing starts over."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from kdi_assets import downstream
from kdi_assets.delta.errors import TableNotMoved
from kdi_assets.documents.loading.errors import Mistakes
from kdi_assets.documents.loading.loader import LoadedFolder, load_folder
from kdi_assets.documents.model.stream import Cluster, Stream, TopicPartition
from kdi_assets.follow.refine import consumer
from kdi_assets.follow.refine.plan import plan_refinement
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.operate.erase.downstream import downstream_of
from kdi_assets.operate.upkeep.document_upkeep import kept_tables
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.snapshot import fresh_ledger
from tests.conftest import CHECKOUT
from tests.documents import CLUSTER, TOPIC_TABLES, mistakes_of, refined, stream, written
from tests.refined import refined_table

HERE, THERE = "/srv/lake", "s3://other/lake"
SERVED = (
    "type: kdi_assets.components.ServedTable\n"
    "attributes: {table: silver/letters, keys: [id], into: {duckdb: {file: /srv/x.duckdb, table: t}}}\n"
)
TOPIC = TopicState("t", "topic-id", {TopicPartition("t", 0): BrokerOffsets(0, 3, 3)})


@pytest.fixture(autouse=True)
def _bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_LAKE", HERE)
    monkeypatch.setenv("KDI_S3_BUCKETS", "other")


def over_two_roots(folder: Path) -> LoadedFolder:
    """A stream below a root of its own, one below KDI_LAKE, and what is made of both."""
    return load_folder(
        written(
            folder,
            a=CLUSTER + "---\n" + stream("bronze/far", more=f', lake: "{THERE}"'),
            b=stream("bronze/near"),
            c=refined("silver/both", upstream="[bronze/far, bronze/near]", more=", mode: replace_dates"),
            d=refined("silver/letters", upstream="bronze/far_dead_letters", more=", lake: /srv/third"),
            e=SERVED,
        )
    )


def test_every_table_of_a_stream_lies_below_the_root_that_its_document_names(tmp_path: Path) -> None:
    loaded = over_two_roots(tmp_path)
    far, near = loaded.streams["bronze/far"], loaded.streams["bronze/near"]

    assert far.table_uri(HERE) == f"{THERE}/bronze/far"
    assert set(far.beside_uris(HERE)) == {
        f"{THERE}/bronze/far_{name}" for name in ("dead_letters", "ledger", "removed", "erased")
    }
    assert near.table_uri(HERE) == f"{HERE}/bronze/near"
    assert {table.name for table in kept_tables(far, HERE)} == {
        "bronze/far",
        *(f"bronze/far_{name}" for name in ("dead_letters", "ledger", "removed", "erased")),
    }


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("file:///srv/la%20ke", "file:///srv/la ke"),
        ("s3://other/%C3%A4", "s3://other/ä"),
        ("/srv/läke", "/srv/läke"),
        ("lake", "{here}/lake"),
    ],
)
def test_a_root_is_the_same_folder_for_spark_and_for_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, root: str
) -> None:
    """Purpose: Hadoop does not decode a URI, and a warm driver has another working folder: its commits would be in a
    folder where nobody looks, and each drain would create the table once more.
    """
    monkeypatch.chdir(tmp_path)

    assert Settings.from_environment({"KDI_LAKE": given}).lake == root.format(here=tmp_path)
    if given != "lake":  # a document takes no path from here
        documents = written(tmp_path, a=CLUSTER + "---\n" + stream("bronze/far", more=f', lake: "{given}"'))
        assert load_folder(documents).streams["bronze/far"].table_uri(HERE) == f"{root}/bronze/far"


@pytest.mark.parametrize("given", ["file:///srv/a%23b", "file:///srv/a%2520b", "s3://lake/a%3Fb"])
def test_a_root_whose_name_others_would_read_as_another_one_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(ValueError, match="nor its escape"):
        Settings.from_environment({"KDI_LAKE": given})
    documents = written(tmp_path, a=CLUSTER + "---\n" + stream("bronze/far", more=f', lake: "{given}"'))
    with pytest.raises(Mistakes, match="nor its escape"):
        load_folder(documents)


def test_what_follows_a_table_reads_it_where_its_own_document_says(tmp_path: Path) -> None:
    loaded = over_two_roots(tmp_path)
    both, letters = loaded.refined["silver/both"], loaded.refined["silver/letters"]
    (served,) = loaded.served.values()

    assert both.table_uri(HERE) == f"{HERE}/silver/both"
    assert [u.table_uri(HERE) for u in both.upstreams] == [f"{THERE}/bronze/far", f"{HERE}/bronze/near"]
    assert letters.table_uri(HERE) == "/srv/third/silver/letters"
    assert [u.table_uri(HERE) for u in letters.upstreams] == [f"{THERE}/bronze/far_dead_letters"]
    assert served.table_uri(HERE) == "/srv/third/silver/letters"


def test_an_asset_of_your_own_reads_what_is_new_where_the_document_says_and_writes_below_kdi_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over_two_roots(tmp_path)
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(
        consumer, "new_rows", lambda spark, upstream, output, consumer: asked.append((upstream, output))
    )

    for table in ("bronze/far", "bronze/near", "of/nobody"):
        downstream.new_rows(cast("Any", None), table, into="mine", folder=tmp_path)

    roots = (THERE, HERE, HERE)
    tables = ("bronze/far", "bronze/near", "of/nobody")
    assert asked == [(f"{root}/{table}", f"{HERE}/mine") for root, table in zip(roots, tables, strict=True)]


def test_an_erasure_reaches_what_is_made_of_the_tables_below_another_root(tmp_path: Path) -> None:
    loaded = over_two_roots(tmp_path)

    found = downstream_of(loaded.streams["bronze/far"], loaded.refined.values(), loaded.served.values(), lake=HERE)

    assert found.names == ("silver/both", "silver/letters", "duckdb/t")


def test_a_root_comes_from_a_variable_the_defaults_of_a_folder_or_the_document_of_many_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_T_LAKE", THERE)
    many = f"{TOPIC_TABLES}\nattributes: {{name: shop, topics: [x, y], table: 'many/{{topic}}', schema: 'id bigint', "
    written(
        tmp_path,
        a=CLUSTER + "---\n" + stream("a", more=', lake: "{{ env.KDI_T_LAKE }}"'),
        b=stream("b", more=""", lake: "{{ env('KDI_T_UNSET', '') }}\""""),
        below__c=stream("c"),
        below__d=stream("d", more=", lake: /srv/own"),
        many=f"{many}date: current_date(), lake: /srv/many, exceptions: {{y: {{lake: /srv/y}}}}}}\n",
    )
    (tmp_path / "below" / "defaults.yaml").write_text("lake: /srv/below\n")

    roots = {name: table.root(HERE) for name, table in load_folder(tmp_path).streams.items()}

    expected = {"a": THERE, "b": HERE, "c": "/srv/below", "d": "/srv/own", "many/x": "/srv/many", "many/y": "/srv/y"}
    assert roots == expected


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ("lake", "'lake' is not the root of a lake"),
        ("s3://bucket/lake/", "is not the root of a lake"),
        ("oss://bucket/lake", "on oss:// two drivers could commit the same version"),
    ],
)
def test_a_root_that_differs_by_machine_or_is_not_safe_is_a_mistake(tmp_path: Path, root: str, said: str) -> None:
    (mistake,) = mistakes_of(written(tmp_path, a=CLUSTER + "---\n" + stream("a", more=f', lake: "{root}"')))

    assert mistake.startswith("a/defs.yaml:5 lake: ")
    assert said in mistake


def test_a_root_on_s3_is_a_mistake_where_spark_starts_without_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KDI_S3_BUCKETS")
    far = written(tmp_path, a=CLUSTER + "---\n" + stream("a", more=f', lake: "{THERE}"'))

    (mistake,) = mistakes_of(far)
    monkeypatch.setenv("KDI_LAKE", "s3://mine/lake")

    assert mistake.startswith("a/defs.yaml:5 lake: s3://other/lake is on S3")
    assert "KDI_S3_BUCKETS=other" in mistake
    assert load_folder(far).streams


def test_a_root_without_a_scheme_is_a_mistake_beside_a_lake_on_hdfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: there Spark may take it for a path of HDFS, and everything else takes it for one of this disk."""
    monkeypatch.setenv("KDI_LAKE", "hdfs://name:8020/lake")
    beside = [
        written(tmp_path / str(n), a=CLUSTER + "---\n" + stream("a", more=f', lake: "{root}"'))
        for n, root in enumerate(("/mnt/lake", "file:///mnt/lake"))
    ]

    (mistake,) = mistakes_of(beside[0])

    assert mistake.startswith("a/defs.yaml:5 lake: /mnt/lake has no scheme, and with KDI_LAKE=hdfs://name:8020/lake")
    assert "file:///mnt/lake for a folder" in mistake and "hdfs://HOST:PORT/mnt/lake" in mistake
    assert load_folder(beside[1]).streams


def a_table(place: Path, *transactions: str) -> None:
    """A Delta table with a row, and with these transaction ids in its log."""
    marks = CommitProperties(app_transactions=[Transaction(name, 0) for name in transactions])
    write_deltalake(place, pa.table({"id": [1]}), commit_properties=marks)


@pytest.mark.parametrize(
    ("lake", "other_lakes"),
    [("{new}", ()), ("", ("{old}",)), ("{new}", ("{new}", "{old}"))],
    ids=["from KDI_LAKE", "to KDI_LAKE", "between roots of documents"],
)
def test_a_stream_whose_root_changed_is_refused_until_its_tables_are_moved(
    tmp_path: Path, lake: str, other_lakes: tuple[str, ...]
) -> None:
    """Purpose: a table at a new place would begin at `start`, and lose or repeat what the former one has.
    Procedure: a table with dead letters below the old root; the document names the new one; run the commands.
    Pass: refused until all are moved, the table last; then its positions are read at the new place.
    """
    old, new = tmp_path / "old", tmp_path / "new"
    default = str(new if not lake else old if not other_lakes else tmp_path / "third")
    roots = [root.format(old=old, new=new) for root in (lake, *other_lakes)]
    moved = Stream(
        "t", "bronze/t", "a int", "x", Cluster("main", "nowhere:1"), lake=roots[0], other_lakes=(*roots[1:],)
    )
    a_table(old / "bronze/t", "t-0")
    a_table(old / "bronze/t_dead_letters")

    with pytest.raises(TableNotMoved) as refused:
        fresh_ledger(moved, default, TOPIC)
    for command in refused.value.message_parts()[2].split("; then "):
        subprocess.run(shlex.split(command), check=True)

    assert {path.name for path in (new / "bronze").iterdir()} == {"t", "t_dead_letters"}
    assert fresh_ledger(moved, default, TOPIC) is not None


def test_a_refined_table_whose_root_changed_is_refused_unless_it_is_to_be_computed_again(tmp_path: Path) -> None:
    made = refined_table(**{"table": "silver/made", "from": "bronze/t", "lake": str(tmp_path / "new")})
    a_table(tmp_path / "old/silver/made", "silver/made/version")
    a_table(tmp_path / "old/bronze/t", "t-0")

    with pytest.raises(TableNotMoved, match=f"is still at {tmp_path}/old/silver/made"):
        plan_refinement(made, str(tmp_path / "old"))

    assert plan_refinement(made, str(tmp_path / "old"), rebuild=True).kind == "rebuild"


def test_a_table_of_somebody_else_at_the_same_path_below_another_root_is_not_taken_for_ours(tmp_path: Path) -> None:
    """The commands of the refusal would move it away from its owner."""
    here, there = str(tmp_path / "new"), str(tmp_path / "old")
    a_table(tmp_path / "old/bronze/t", "somebody-0")
    a_table(tmp_path / "old/silver/made", "somebody/version")
    a_table(tmp_path / "new/bronze/up", "up-0")
    new = Stream("t", "bronze/t", "a int", "x", Cluster("main", "nowhere:1"), other_lakes=(there,))
    made = replace(refined_table(**{"table": "silver/made", "from": "bronze/up"}), other_lakes=(there,))

    assert fresh_ledger(new, here, TOPIC) is None
    assert plan_refinement(made, here).why == "the table is new"


def test_other_files_at_the_same_path_below_another_root_are_no_table(tmp_path: Path) -> None:
    (tmp_path / "bronze/t").mkdir(parents=True)
    (tmp_path / "bronze/t/notes.txt").write_text("mine")
    new = Stream("t", "bronze/t", "a int", "x", Cluster("main", "nowhere:1"), lake=str(tmp_path / "new"))

    assert fresh_ledger(new, str(tmp_path), TOPIC) is None


def test_only_one_place_joins_a_root_and_the_path_of_a_table() -> None:
    """The others ask the document's table, which may have a root of its own."""
    joins = re.compile(r"""lake\.rstrip|\{(self\.)?(settings\.)?_?lake\}/|lake \+|Path\((\w+\.)*lake,""")
    allowed = {"documents/model/in_lake.py", "tools/predecessor/table.py", "operate/doctor/storage.py"}

    found = {
        str(path.relative_to(CHECKOUT)).removeprefix("kdi_assets/")
        for folder in ("kdi_assets", "sensors", "resources")
        for path in (CHECKOUT / folder).rglob("*.py")
        if joins.search(path.read_text())
    }

    assert found <= allowed
