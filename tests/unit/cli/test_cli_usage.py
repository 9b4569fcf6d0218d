"""Wrong usage: exit code 2, on stderr, before any broker or table is read. And the imports of `kdi`."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from deltalake import write_deltalake
from typer.models import CommandInfo
from typer.testing import CliRunner

from kdi_assets.cli.app import COMMANDS, app_for
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.streams.audit import audit as audits
from kdi_assets.streams.audit.report import AuditReport, Double, Hole
from tests.documents import stream, written
from tests.typed import Kdi, assert_wrong_usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["drain"], "name streams, or give --all"),
        (["drain", "orders", "--all"], "give --all, or names, not both"),
        (["plan", "orders", "--defs", "nowhere"], "nowhere is not a folder"),
        (["plan", "ordres"], "no table is called ordres"),
        (["peek", "orders", "--topic-partition", "orders"], "'orders' is not a topic partition; write orders/0"),
        (["peek", "orders", "--topic-partition", "payments/0"], "bronze/orders drains topic orders, not payments"),
        (["resolve", "orders", "forget"], "'forget' is not one of 'accept-loss', 'new-topic', 'rewind', 'adopt'"),
        (["resolve", "orders", "adopt", "--topic-partition", "0"], "it belongs to accept-loss and rewind, not to"),
        (["resolve", "orders", "rewind", "--until", "7"], "it belongs to accept-loss, not to rewind"),
        (["resolve", "orders", "rewind", "--to", "7"], "it needs --topic-partition"),
        (["resolve", "orders", "rewind", "--topic-partition", "0"], "it needs one of --to, --to-timestamp"),
        (["resolve", "orders", "rewind", "--to-timestamp", "monday"], "'monday' is not a timestamp; write a date, or"),
        (["resolve", "orders", "rewind", "--to-timestamp", "2026-11-01T06:00"], "'2026-11-01T06:00' has no time zone"),
        (
            ["resolve", "orders", "rewind", "--to-timestamp", "2026-11-01", "--to-version", "3"],
            "--to-timestamp and --to-version exclude each other",
        ),
        (["resolve", "orders", "accept-loss", "--until", "7"], "it needs --topic-partition"),
        (["resolve", "orders", "accept-loss", "--topic-partition", "0", "--from", "7"], "it needs --until"),
        (["resolve", "orders", "accept-routes"], "it needs --because"),
        (
            ["dead-letters", "list", "orders", "--from", "soon"],
            "'soon' is not a date; write year, month and day: 2026-01-31",
        ),
        (
            ["dead-letters", "replay", "orders", "--from", "2026-03-02", "--to", "2026-03-01"],
            "2026-03-02 is later than --to",
        ),
        (["dead-letters", "list", "orders", "--from", "24.11.2026"], "write year, month and day: 2026-11-24"),
        (["replay", "orders", "--from", "2026-03-01"], "Missing option '--to'"),
        (
            ["replay", "orders", "--from", "2026-03-01", "--to", "2026-03-01", "--into", "t", "--leave-missing"],
            "not with --into",
        ),
        (["dead-letters", "show", "orders", "--offset", "7"], "it needs --topic-partition"),
        (["dead-letters", "discard", "orders"], "Missing option '--because'"),
        (["dead-letters", "discard", "orders", "--because", " "], "say why"),
        (["erase", "orders"], "say what to erase: --where"),
        (["erase", "orders", "--again", "--where", "id = 1"], "--again repeats what was erased before; give it alone"),
        (["erase", "orders", "--where", "id = 1", "--yes"], "say why: --because"),
        (["erase", "orders", "--tagged", "pii"], "give both: --tagged pii --value 4711"),
        (["erase", "orders", "--tagged", "pii", "--value", "1", "--where", "id = 1"], "give it without --where"),
        (["new"], "name a topic, or give --all"),
        (["new", "orders", "--cluster", "mian"], "no document describes a cluster named 'mian'; did you mean main?"),
        (["new", "orders", "--registry", "main"], "no document describes a registry named 'main'; there is none"),
        (["new", "orders", "--messages", "0"], "should be greater than or equal to 1"),
    ],
)
def test_what_was_typed_wrong_is_named(kdi: Kdi, arguments: list[str], said: str) -> None:
    assert_wrong_usage(kdi(*arguments), said)


@pytest.mark.parametrize("command", ["status", "check", "freshness"])
def test_without_documents_the_command_that_writes_one_is_named(
    kdi: Kdi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("KDI_DEFS", str(tmp_path / "empty"))

    answer = kdi(command)

    assert (answer.code, answer.out) == (0, "no document describes a table; kdi new TOPIC writes one\n")


@pytest.mark.parametrize("there", ["a table", "other files"])
def test_a_comparison_is_never_written_over_what_is_there(kdi: Kdi, tmp_path: Path, there: str) -> None:
    uri = tmp_path / "lake" / "bronze" / "compared"
    if there == "a table":
        write_deltalake(str(uri), pa.table({"id": [1]}))
    else:
        uri.mkdir(parents=True)
        (uri / "notes.parquet").write_text("someone's")
    before = sorted(uri.rglob("*"))

    answer = kdi("replay", "orders", "--from", "2026-03-01", "--to", "2026-03-01", "--into", "bronze/compared")

    assert answer.code == 2
    said = re.sub(r"[\s│]+", "", answer.err)  # a long path is broken at the end of a line
    assert "bronze/compared exists already; name another table, or drop it".replace(" ", "") in said
    assert sorted(uri.rglob("*")) == before
    assert "starting Spark" not in answer.err


def test_an_address_that_is_taken_is_bad_usage(kdi: Kdi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        answer = kdi("metrics", "serve", "--port", port)

    assert answer.code == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in " ".join(answer.err.split())


@pytest.mark.parametrize("address", ["localhost", ":8125", "localhost:0", "localhost:statsd"])
def test_a_statsd_server_without_host_or_port_is_bad_usage(kdi: Kdi, address: str) -> None:
    answer = kdi("metrics", "serve", "--port", "0", "--statsd", address)

    assert answer.code == 2
    assert f"'{address}' is not host:port" in " ".join(answer.err.split())


def test_a_driver_that_does_not_exist_is_bad_usage(kdi: Kdi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_DRIVER", "borrowed")

    answer = kdi("status")

    assert answer.code == 2
    assert "KDI_DRIVER is 'borrowed'; it takes auto, own or shared" in answer.err


def test_an_automation_that_is_neither_on_nor_off_is_bad_usage(kdi: Kdi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_AUTOMATION", "true")

    answer = kdi("status")

    assert answer.code == 2
    assert "KDI_AUTOMATION is 'true'; it takes on or off" in answer.err


@pytest.mark.parametrize("servers", ["localhost", "a:9092,b", "http://a:9092", "a:b"])
def test_brokers_without_port_are_bad_usage(kdi: Kdi, monkeypatch: pytest.MonkeyPatch, servers: str) -> None:
    monkeypatch.setenv("KDI_KAFKA", servers)

    answer = kdi("plan", "orders")

    assert answer.code == 2
    assert f"KDI_KAFKA is '{servers}'; it takes host:port" in " ".join(answer.err.split())


def test_a_lake_that_nobody_chose_and_that_is_not_there_is_not_made(
    kdi: Kdi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("KDI_HOME", "KDI_LAKE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    for command in (["status"], ["plan", "orders"], ["drain", "orders"], ["audit", "orders"]):
        answer = kdi(*command)
        assert answer.code == 1
        assert f"{tmp_path}/.kdi does not exist, and neither KDI_HOME nor KDI_LAKE is set" in answer.err
    monkeypatch.setattr("sys.argv", ["kdi", "drain", "--help"])
    assert kdi("drain", "--help").code == 0
    monkeypatch.setattr("sys.argv", ["kdi"])
    assert sorted(tmp_path.rglob("*")) == before
    assert kdi("check", "--help").code == 0
    (tmp_path / ".kdi").mkdir()
    assert kdi("history", "orders").code == 0


def test_status_and_plan_say_where_they_look(kdi: Kdi, monkeypatch: pytest.MonkeyPatch, lake: str) -> None:
    monkeypatch.setenv("KDI_HOME", lake)
    folder = os.environ["KDI_DEFS"]
    written(
        Path(folder), orders=stream("bronze/orders", more=", status: retired, lake: /srv/own")
    )  # nobody asks its broker

    by_variables, by_option = kdi("plan", "orders").err, kdi("status", "--defs", folder).err
    monkeypatch.delenv("KDI_LAKE")
    by_home = kdi("status").err
    in_json = kdi("status", "--json").err

    assert by_variables.splitlines()[:4] == [
        f"lake       {lake} (KDI_LAKE)",
        "lake       /srv/own (document)",
        f"documents  {folder} (KDI_DEFS)",
        "brokers    127.0.0.1:1 (main: KDI_KAFKA)",
    ]
    assert f"documents  {folder} (--defs)" in by_option
    assert by_home.splitlines()[0].endswith("/lake (KDI_HOME)")
    assert "documents" not in in_json


def test_without_a_table_there_is_nothing_to_audit_and_spark_is_not_started(kdi: Kdi) -> None:
    answer = kdi("audit", "orders", "--json")

    assert answer.code == 1
    assert json.loads(answer.out)["error"]["type"] == "NothingToAudit"
    assert "starting Spark" not in answer.err


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_gate_that_has_nothing_to_check_does_not_pass(kdi: Kdi, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "orders" / "defs.yaml").unlink()

    answer = kdi("check-assets", *arguments)

    assert answer.code == 1
    assert f"no document in {tmp_path} describes a stream, so nothing was checked" in answer.err


HEAVY = {"confluent_kafka", "dagster", "deltalake", "pandas", "pyarrow", "pyspark"}
AT_ONCE = """
import sys
from kdi_assets.cli.app import app_for
app_for(())
import kdi_assets.cli.documents.new, kdi_assets.tools.scaffold.document
import kdi_assets.tools.scaffold.registry_lookup
from kdi_assets.documents.loading.loader import load_streams
assert load_streams()
"""


def test_help_the_documents_and_new_load_none_of_the_heavy_packages() -> None:
    """They would slow `kdi --help` down beyond half a second."""
    script = f"{AT_ONCE}print({HEAVY} & sys.modules.keys())"

    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert answer.stdout == "set()\n"


@pytest.mark.parametrize("command", [["drain"], ["check-assets"], ["dead-letters", "list"]])
def test_a_command_builds_no_other_and_its_help_is_that_of_the_whole_app(
    kdi: Kdi, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typer reads the signatures of all that it builds, which takes time at the start of each command."""
    built: list[str] = []
    build = typer.main.get_command_from_info

    def counted(command_info: CommandInfo, **options: Any) -> Any:
        one = build(command_info, **options)
        built.append(one.name or "")
        return one

    whole = CliRunner().invoke(app_for(()), [*command, "--help"], prog_name="kdi").output
    monkeypatch.setattr(typer.main, "get_command_from_info", counted)

    assert kdi(*command, "--help").out == whole
    assert set(built) == ({"list", "show", "replay", "discard", "view"} if len(command) > 1 else {*command})


def test_a_command_line_imports_no_other_command() -> None:
    """Their imports would be a tenth of the CPU of a small drain."""
    script = "import sys; from kdi_assets.cli.app import app_for; app_for(['drain', 'orders']); print(*sys.modules)"

    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    modules = {m for m in answer.stdout.split() if m.startswith("kdi_assets.cli.") and m.count(".") == 3}
    assert modules == {"kdi_assets.cli.streams.drain"}


def test_each_command_is_found_by_its_name() -> None:
    for name in COMMANDS:
        alone, whole = (typer.main.get_command(app_for(arguments)) for arguments in ([name], ()))
        assert alone.commands.keys() == {name} < whole.commands.keys() == COMMANDS.keys()  # type: ignore[attr-defined]


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """A folder with documents of other streams than KDI_DEFS."""
    folder = tmp_path.parent / f"{tmp_path.name}_elsewhere"
    return str(written(folder, clicks=stream("bronze/clicks")))


def test_options_of_all_commands_stand_before_or_after_the_command(kdi: Kdi, elsewhere: str) -> None:
    before, after = kdi("--json", "--defs", elsewhere, "freshness"), kdi("freshness", "--json", "--defs", elsewhere)
    nested = kdi("--json", "--defs", elsewhere, "dead-letters", "view", "clicks")

    assert [one["stream"] for one in before.objects] == ["bronze/clicks"]
    assert (before.code, before.out) == (after.code, after.out)
    assert (nested.code, nested.objects[0]["stream"]) == (0, "bronze/clicks")


def test_the_option_after_the_command_counts(kdi: Kdi, elsewhere: str, tmp_path: Path) -> None:
    answer = kdi("--defs", elsewhere, "freshness", "--json", "--defs", str(tmp_path))

    assert [one["stream"] for one in answer.objects] == ["bronze/orders"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--defs", "nowhere", "plan", "orders"], "nowhere is not a folder"), (["--defs", "."], "Missing command")],
)
def test_what_was_typed_wrong_before_the_command_is_named(kdi: Kdi, arguments: list[str], said: str) -> None:
    answer = kdi(*arguments)

    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_help_names_the_exit_codes() -> None:
    answer = CliRunner().invoke(app_for(()), ["--help"])

    assert "0 done, 1 someone must decide, 2 usage, 75 a retry helps" in " ".join(answer.stdout.split())


def test_an_audit_that_is_not_complete_says_what_to_run(kdi: Kdi, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each topic partition, from its first missing offset on; and a replay for all that is there twice."""
    one, two = (TopicPartition("orders", number) for number in (0, 1))
    holes = [Hole(OffsetRange(tp, start, start + 2), 1) for tp, start in ((one, 3), (one, 7), (two, 2))]
    doubles = (Double(OffsetRange(one, 9, 10)),)
    report = AuditReport(False, "bronze/orders", missing=6, twice=1, holes=tuple(holes), doubles=doubles)
    monkeypatch.setattr(audits, "audit", lambda *_, **__: report)

    answer = kdi("audit", "bronze/orders")

    assert answer.code == 1
    assert answer.out.splitlines()[-4:] == [
        "  Run:  kdi resolve bronze/orders rewind --topic-partition orders/0 --to 3; then kdi drain bronze/orders",
        "        kdi resolve bronze/orders rewind --topic-partition orders/1 --to 2; then kdi drain bronze/orders",
        "        kdi replay bronze/orders --from DATE --to DATE --yes   (the dates of the rows that are there twice)",
        '        (other ways, and what they need: docs/operations.md, "An audit that is not complete")',
    ]


def test_an_audit_that_is_refused_does_not_stop_the_others(kdi: Kdi, lake: str) -> None:
    written(Path(os.environ["KDI_DEFS"]), other=stream("bronze/other"))
    log = Path(lake) / "bronze/orders/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no JSON")

    answer = kdi("audit", "bronze/orders", "bronze/other", "--json")

    refused, audited = answer.objects
    assert (refused["stream"], refused["error"]["type"]) == ("bronze/orders", "TableUnreadable")
    assert (audited["stream"], answer.code) == ("bronze/other", 1)
