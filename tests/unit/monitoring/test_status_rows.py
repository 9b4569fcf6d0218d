"""`kdi status` and other looks over tables of every kind: one row each, with the same fields, found by its name."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from shutil import rmtree

import duckdb
import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from kdi_assets.delta.log import TableLog
from kdi_assets.follow.refine.upstream_bookmarks import bookmark_transactions
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.operate.monitoring.stream_row import StreamRow
from tests.documents import SERVED, refined, stream, written
from tests.typed import Kdi

OF_ALL_KINDS = {"kind", "state", "behind", "waiting_seconds", "fresh", "next_command", "error"}


def test_every_table_has_a_line_and_the_command_that_brings_it_up_to_date(every_kind: Kdi) -> None:
    answer = every_kind("status")

    streams, followers = (part.splitlines() for part in answer.out.split("\n\n"))
    assert answer.code == 0
    assert [line.split()[0] for line in streams] == ["STREAM", "bronze/orders", "bronze/told"]
    assert followers[0].split()[:4] == ["TABLE", "KIND", "BEHIND", "WAITS"]
    lines = {line.split()[0]: line for line in followers[1:]}
    assert lines["silver/daily"].split()[1:5] == ["refined", "1", "?", "-"]
    assert lines["silver/daily"].endswith("behind: rebuild                      kdi refine silver/daily")
    assert lines["duckdb/elsewhere_now"].endswith("behind: its rows are not served yet  kdi serve duckdb/elsewhere_now")
    assert lines["bronze/told"].split()[1:3] == ["announced", "2"]
    assert lines["bronze/told"].endswith("kdi drain bronze/told")


def test_programs_get_the_fields_of_the_kind_and_those_of_all_kinds(every_kind: Kdi) -> None:
    found = every_kind("status", "--json").objects

    assert [one["kind"] for one in found] == ["stream", "stream", "refined", "served", "announced"]
    assert all(one.keys() >= OF_ALL_KINDS for one in found)
    orders, _, daily, copy, told = found
    assert (orders["stream"], orders["state"], orders["backlog_offsets"], orders["behind"]) == (
        "bronze/orders",
        "retired",
        None,
        None,
    )
    assert {"topic_partitions", "lag_seconds", "drained_at", "table_version", "dead_letters_24h"} <= orders.keys()
    assert (daily["table"], daily["state"], daily["refined"], daily["next_command"]) == (
        "silver/daily",
        "behind",
        "rebuild",
        "kdi refine silver/daily",
    )
    assert daily["upstreams"] == [{"table": "made/elsewhere", "since": None, "version": 0}]
    assert (copy["served"], copy["table"], copy["consumed_version"], copy["newest_version"]) == (
        "duckdb/elsewhere_now",
        "made/elsewhere",
        None,
        0,
    )
    assert (copy["versions_behind"], copy["fresh"]) == (1, None)
    assert (told["announced"], told["topic"], told["announced_version"], told["fresh"]) == (
        "bronze/told",
        "files",
        3,
        False,
    )


def test_freshness_says_how_long_rows_wait_for_tables_that_follow(every_kind: Kdi, lake: str) -> None:
    write_deltalake(f"{lake}/silver/daily", pa.table({"id": [1]}))  # another writer's table: refused

    shown, programs = every_kind("freshness"), every_kind("freshness", "silver/daily", "elsewhere_now", "--json")

    head, daily, copy = shown.out.split("\n\n")[1].splitlines()
    assert head.split() == ["TABLE", "KIND", "WAITS", "LIMITS", "FRESH"]
    assert daily.split(maxsplit=3)[:3] == ["silver/daily", "refined", "?"]
    assert daily.endswith("warn 1 h, fail 6 h  -")
    assert copy.split() == ["duckdb/elsewhere_now", "served", "?", "-", "-"]
    assert (shown.code, programs.code) == (1, 1)
    assert [(o["table"], o["kind"], o["fresh"], o["warn_seconds"]) for o in programs.objects] == [
        ("silver/daily", "refined", None, 3600.0),
        ("duckdb/elsewhere_now", "served", None, None),
    ]
    assert programs.objects[0]["error"]["happened"] in shown.err


@pytest.mark.parametrize("names", [(), ("elsewhere_now",)])
def test_no_look_starts_the_embedded_server(every_kind: Kdi, tmp_path: Path, names: tuple[str, ...]) -> None:
    """Also if the file of a server that was killed is left, and its number is another process's."""
    written(tmp_path, copy=SERVED.replace("duckdb: {file: x.duckdb, table", "postgres: {table"))
    left = tmp_path / "postgres" / "postmaster.pid"
    left.parent.mkdir()
    left.write_text(f"{os.getpid()}\n")

    freshness, shown = every_kind("freshness", *names), every_kind("status", *names)
    found = every_kind("status", *names, "--json").objects

    (line,) = [line for line in shown.out.splitlines() if line.startswith("postgres/public/elsewhere_now")]
    assert line.split()[1:5] == ["served", "?", "?", "?"]
    assert " ".join(line.split()).endswith("- not running kdi serve postgres/public/elsewhere_now")
    (row,) = [one for one in found if one["kind"] == "served"]
    assert (row["state"], row["behind"], row["error"]) == ("not running", None, None)
    assert "not asked: postgres/public/elsewhere_now" in freshness.err
    assert "postgres/public/elsewhere_now  served" in freshness.out
    assert list(left.parent.iterdir()) == [left]


def test_a_table_that_went_back_is_behind_and_not_fresh(every_kind: Kdi, lake: str) -> None:
    """Procedure: serve version 1; the table is replaced by its version 0, as an older copy of the folder."""
    rows = {"id": [2], "date": pa.array([date(2026, 1, 1)], pa.date32())}
    write_deltalake(f"{lake}/made/elsewhere", pa.table(rows), mode="append")
    assert every_kind("serve", "elsewhere_now").code == 0
    Path(lake, "made/elsewhere/_delta_log/00000000000000000001.json").unlink()

    (found,) = every_kind("status", "elsewhere_now", "--json").objects
    (examined,) = [o for o in every_kind("doctor", "elsewhere_now", "--json").objects if o["examination"] == "served"]

    assert (found["state"], found["behind"], found["waiting_seconds"]) == ("behind", 0, None)
    assert examined["found"] == "behind: new rows"


def test_a_table_that_somebody_dropped_from_the_database_is_behind(every_kind: Kdi, tmp_path: Path) -> None:
    """Procedure: serve; drop the table; look; serve again."""
    assert every_kind("serve", "elsewhere_now").code == 0
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute("DROP TABLE elsewhere_now")

    (found,) = every_kind("status", "elsewhere_now", "--json").objects
    planned = every_kind("plan", "elsewhere_now").out
    assert every_kind("serve", "elsewhere_now").code == 0
    (again,) = every_kind("status", "elsewhere_now", "--json").objects

    assert (found["state"], found["behind"], found["consumed_version"]) == ("behind", 1, None)
    assert 0 < found["waiting_seconds"] < 600, "since its last rows came, so that it can be late"
    assert found["next_command"] == "kdi serve duckdb/elsewhere_now"
    assert planned.endswith("made/elsewhere v0: its table is no longer in the database\n")
    assert (again["state"], again["behind"]) == ("OK", 0)


def test_a_table_with_rows_whose_upstream_table_is_gone_is_refused_and_a_new_one_has_not_begun(
    every_kind: Kdi, lake: str, tmp_path: Path
) -> None:
    """Procedure: serve; a refined table with the bookmark of a refinement; drop the table that both are made of."""
    assert every_kind("serve", "elsewhere_now").code == 0
    upstream_id = TableLog.existing(f"{lake}/made/elsewhere").table_id
    ids = bookmark_transactions("silver/daily", {upstream_id: 0}, 0)
    marks = CommitProperties(app_transactions=[Transaction(name, version) for name, version in ids.items()])
    write_deltalake(f"{lake}/silver/daily", pa.table({"id": [1]}), commit_properties=marks)
    written(
        tmp_path,
        new=refined("silver/new", upstream="made/elsewhere"),
        later=SERVED.replace("elsewhere_now", "later"),
    )
    rmtree(f"{lake}/made/elsewhere")

    asked = ("silver/daily", "elsewhere_now", "silver/new", "duckdb/later")
    found = {one.get("served") or one["table"]: one for one in every_kind("status", *asked, "--json").objects}
    fresh = every_kind("freshness", *asked, "--json")
    (unserved,) = every_kind("serve", "elsewhere_now", "--json").objects
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute("DROP TABLE elsewhere_now")
    (dropped,) = every_kind("status", "elsewhere_now", "--json").objects

    states = {of: (one["state"], (one["error"] or {}).get("type")) for of, one in found.items()}
    assert states == {
        "silver/daily": ("refused", "UpstreamGone"),
        "duckdb/elsewhere_now": ("refused", "SourceGone"),
        "silver/new": ("not begun", "UpstreamMissing"),
        "duckdb/later": ("not begun", "SourceMissing"),
    }
    assert fresh.code == 1
    assert dropped["error"]["type"] == "SourceGone"
    assert unserved["error"]["type"] == "SourceGone"


def test_a_refusal_has_the_name_under_the_key_of_the_kind(every_kind: Kdi, lake: str) -> None:
    Path(lake, "made/elsewhere/_delta_log/00000000000000000000.json").write_text("{ this is no commit")

    (refused,) = every_kind("plan", "silver/daily", "--json").objects

    assert (refused["table"], refused.get("stream"), bool(refused["error"])) == ("silver/daily", None, True)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("silver/daily", ["refined"]),
        ("elsewhere_now", ["served"]),
        ("duckdb/elsewhere_now", ["served"]),
        ("bronze/told", ["stream", "announced"]),
        ("orders", ["stream"]),
        ("silver/orders", ["refined"]),
    ],
)
def test_a_name_selects_a_table_of_any_kind(every_kind: Kdi, name: str, found: list[str], tmp_path: Path) -> None:
    """Of tables with the same last part, the stream's: commands took only streams once."""
    written(tmp_path, like_the_stream=refined("silver/orders", upstream="made/elsewhere"))

    assert [one["kind"] for one in every_kind("status", name, "--json").objects] == found


def test_a_name_that_no_table_has_is_refused_with_the_names_of_all_kinds(every_kind: Kdi) -> None:
    answer = every_kind("status", "duckdb/elsewhere_then")

    assert answer.code == 2
    assert "no table is called duckdb/elsewhere_then: did you mean duckdb/elsewhere_now?" in answer.err


def test_one_refined_table_that_cannot_be_read_leaves_the_others_their_rows(
    every_kind: Kdi, lake: str, tmp_path: Path
) -> None:
    """A commit that is there and is no JSON: the time since which it waits cannot be told."""
    write_deltalake(f"{lake}/made/elsewhere", pa.table({"id": [2], "date": [date(2026, 1, 2)]}), mode="append")
    assert every_kind("serve", "elsewhere_now").code == 0
    write_deltalake(f"{lake}/made/elsewhere", pa.table({"id": [3], "date": [date(2026, 1, 2)]}), mode="append")
    Path(lake, "made/elsewhere/_delta_log/00000000000000000002.json").write_text("{ this is no commit")
    written(tmp_path, sound=refined("silver/sound", upstream="made/sound"))
    write_deltalake(f"{lake}/made/sound", pa.table({"id": [1], "date": [date(2026, 1, 2)]}))

    found = every_kind("status", "--json").objects

    assert {one["kind"] for one in found if one["error"]} == {"refined", "served"}
    (sound,) = [one for one in found if one.get("table") == "silver/sound"]
    assert (sound["state"], sound["behind"], sound["error"]) == ("behind", 1, None)


def test_brokers_that_did_not_answer_for_streams_are_not_asked_for_announcements(
    kdi: Kdi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = BrokerUnreachable(cluster="main", bootstrap_servers="b:1", detail="timed out")
    monkeypatch.setenv("KDI_HOME", str(tmp_path))
    written(tmp_path, orders=stream("bronze/orders", more=", announce: {topic: files}"))
    monkeypatch.setattr(
        "kdi_assets.cli.operate.status.stream_row_reader",
        lambda streams, lake: lambda: [StreamRow(s, Backlog(s.name, {}, 0, None, silent, 0), None) for s in streams],
    )
    asked: list[str] = []
    monkeypatch.setattr(
        "kdi_assets.streams.announce.status.read_topics", lambda cluster, topics: asked.append(cluster.name)
    )

    found = kdi("status", "--json").objects

    assert [one["kind"] for one in found if one["error"]["type"] == "BrokerUnreachable"] == ["stream", "announced"]
    assert asked == []
