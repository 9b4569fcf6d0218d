"""Runs inherit the definitions of the documents as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CHECKOUT
from tests.documents import CLUSTER, stream, written

FORKING = """
import json, os, sys, threading
from pathlib import Path
import dagster as dg
from kdi_assets import definitions, inherited_definitions
from kdi_assets.components import names
from kdi_assets.inherited_definitions import make_for_forks

folder, forking = Path(os.environ["KDI_DEFS"]), os.getpid()
meanwhile, own = folder.parent / "meanwhile.yaml", dg.Definitions(assets=[dg.AssetSpec("own")])
made, make, oldest_date = [], definitions._of_documents, names.oldest_date

def counted(folder):
    made.append(folder)
    if os.getpid() == forking and meanwhile.exists():
        meanwhile.rename(folder / "orders" / "defs.yaml")
    return make(folder)

def read_by_a_client_with_a_thread(uri):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return oldest_date(uri)

definitions._of_documents, names.oldest_date = counted, read_by_a_client_with_a_thread
make_for_forks(definitions.folder_definitions)

def what_a_run_has():
    made.clear()
    try:
        location = definitions.definitions_for(folder)
        has_repository = location.has_resolved_repository_def()
        graph = location.resolve_asset_graph()
        of_own = definitions.definitions_for(folder, own).resolve_asset_graph()
    except Exception as failed:
        return {"failed": str(failed)}
    keys = [k for k in graph.materializable_asset_keys if k.path[-1] in ("orders", "clicks")]
    starts = {k.to_user_string(): str(graph.get(k).partitions_def.start.date()) for k in keys}
    beside = of_own.get_all_asset_keys() - graph.get_all_asset_keys()
    own_keys = [k.path for k in beside]
    return {"starts": starts, "made_by_run": len(made), "has_repository": has_repository, "own": own_keys}

for line in sys.stdin:
    if not (child := os.fork()):
        if line.strip():
            inherited_definitions._inherited = None
        print(json.dumps(what_a_run_has()), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(json.dumps({"made_by_forking": len(made), "threads": len(os.listdir("/proc/self/task"))}), flush=True)
"""
AUTO = ", date_window: {start: auto}"
ORDERS = stream("shop/orders", more=AUTO)
DECODED = stream("shop/orders", record="format: {avro: {schema_file: ../../orders.avsc}}")
AVRO = '{"type": "record", "name": "orders", "fields": [{"name": "id", "type": "long"}]}'
SCRIPT = """type: dagster.PythonScriptComponent
attributes: {execution: {path: ../../elsewhere.py}, assets: [{key: mine}]}
"""
VALUES = "import dagster as dg\n\n@dg.template_var\ndef name():\n    return 'mine'\n"
PYTHON = "import dagster as dg\n\nmine = dg.AssetSpec('mine')\n"


@dataclass(frozen=True)
class Forking:
    """A process that makes the definitions that its forks ask for."""

    process: subprocess.Popen[str]
    folder: Path
    lake: Path

    def run(self, *, asks_anyway: bool = False) -> dict[str, Any]:
        """What a run has that it forks off, and what the process itself had to do for it.

        Args:
            asks_anyway: Like a run that was forked off before the process made the definitions.
        """
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("asks\n" if asks_anyway else "\n")
        self.process.stdin.flush()
        return {**json.loads(self.process.stdout.readline()), **json.loads(self.process.stdout.readline())}


@contextmanager
def forking(folder: Path, lake: Path) -> Iterator[Forking]:
    own = {"KDI_DEFS": str(folder), "KDI_LAKE": str(lake), "PYTHONPATH": f"{CHECKOUT}:{folder.parent}"}
    own["KDI_KAFKA"] = ""  # a developer may have one
    command, pipe = [sys.executable, "-c", FORKING], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **own}) as process:
        try:
            yield Forking(process, folder, lake)
        finally:
            process.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Forking]:
    with forking(written(tmp_path / "documents", kafka=CLUSTER, orders=ORDERS), tmp_path / "lake") as site:
        yield site


def a_new_stream(site: Forking) -> None:
    written(site.folder, clicks=stream("shop/clicks"))


def another_start(site: Forking) -> None:
    written(site.folder, orders=stream("shop/orders", more=", date_window: {start: 2024-05-06}"))


def older_rows(site: Forking) -> None:
    (site.lake / "shop" / "orders" / "date=2024-05-06").mkdir(parents=True)


@pytest.mark.parametrize(
    ("change", "starts"),
    [
        (a_new_stream, {"shop/clicks": "2020-01-01"}),
        (another_start, {"shop/orders": "2024-05-06"}),
        (older_rows, {"shop/orders": "2024-05-06"}),
    ],
)
def test_a_run_makes_definitions_after_a_change_and_those_after_it_inherit_them(
    change: Callable[[Forking], None], starts: dict[str, str], site: Forking
) -> None:
    """Procedure: three runs; something changes; two more runs. Each run takes the definitions alone, and beside those
    of a code location of its own. Reading a table's oldest date starts a thread that stays.
    Pass: the first run after the start and after the change makes them, each time it takes them; the others make
    nothing; the process made them once for each; every run has what is there; the process has no other thread.
    """
    first, second, third = site.run(), site.run(), site.run()
    change(site)
    fourth, fifth = site.run(), site.run()

    runs = (first, second, third, fourth, fifth)
    assert [run["made_by_run"] for run in runs] == [2, 0, 0, 2, 0]
    assert [run["made_by_forking"] for run in runs] == [0, 1, 1, 1, 2]
    assert [run["has_repository"] for run in runs] == [False, True, True, False, True]
    assert {run["threads"] for run in runs} == {1}
    assert all(run["own"] == [["own"]] for run in runs)
    assert first["starts"] == third["starts"] != fourth["starts"] == fifth["starts"]
    assert fourth["starts"].items() >= starts.items()


def test_a_schema_file_beside_the_folder_is_one_of_the_documents(tmp_path: Path) -> None:
    schema = tmp_path / "orders.avsc"
    schema.write_text(AVRO)
    with forking(written(tmp_path / "documents", kafka=CLUSTER, orders=DECODED), tmp_path / "lake") as site:
        before = [site.run(), site.run()]
        schema.write_text(AVRO.replace("long", "string"))
        after = [site.run(), site.run()]

    assert [run["made_by_run"] for run in (*before, *after)] == [2, 0, 2, 0]


def test_a_mistake_fails_the_runs_until_it_is_mended(site: Forking) -> None:
    site.run()
    site.run()
    written(site.folder, clicks="tabel: shop/clicks\n" + stream("shop/clicks"))
    wrong = [site.run(), site.run()]
    a_new_stream(site)
    mended = [site.run(), site.run()]

    assert all("tabel" in run["failed"] for run in wrong)
    assert [run["made_by_run"] for run in mended] == [2, 0]
    assert all("shop/clicks" in run["starts"] for run in mended)


def another_table(site: Forking, name: str) -> None:
    """One more table whose oldest date nobody has read."""
    (site.folder.parent / name).write_text(f"{ORDERS}---\n{stream('shop/clicks', more=AUTO)}")


def a_mistake(site: Forking, name: str) -> None:
    (site.folder.parent / name).write_text(f"tabel: shop/clicks\n{ORDERS}")


@pytest.mark.parametrize("change", [another_table, a_mistake])
@pytest.mark.parametrize("when", ["documents/orders/defs.yaml", "meanwhile.yaml"], ids=["before it makes", "meanwhile"])
def test_documents_that_change_after_the_request_are_in_no_inherited_definitions(
    change: Callable[[Forking, str], None], when: str, site: Forking
) -> None:
    """Procedure: a run asks for definitions; the documents change before the process makes them, or while it does.
    Pass: the next run makes its own, or says what is wrong; with the first documents again, a later run inherits; the
    process asked no storage for the table that it did not know.
    """
    site.run()
    change(site, when)
    changed = site.run()
    written(site.folder, orders=ORDERS)
    runs = [site.run(), site.run()]

    assert "tabel" in changed["failed"] if change is a_mistake else changed["made_by_run"] == 2
    assert runs[-1]["made_by_run"] == 0
    assert [run["threads"] for run in (changed, *runs)] == [1, 1, 1]
    assert set(runs[-1]["starts"]) == {"shop/orders"}


def test_what_another_run_has_asked_for_is_not_made_again(site: Forking) -> None:
    """Procedure: two runs make their own definitions, one of them after the process has made the same."""
    first = site.run()
    late = site.run(asks_anyway=True)
    third = site.run()

    assert [run["made_by_forking"] for run in (first, late, third)] == [0, 1, 1]
    assert third["made_by_run"] == 0


def test_a_folder_without_tables_is_made_for_the_runs_too(tmp_path: Path) -> None:
    with forking(written(tmp_path / "documents", kafka=CLUSTER), tmp_path / "lake") as site:
        runs = [site.run(), site.run()]

    assert [run["made_by_run"] for run in runs] == [2, 0]


@pytest.mark.parametrize(
    "beside",
    [
        {"mine/assets.py": PYTHON},
        {"mine/defs.yaml": "type: dagster.DefsFolderComponent\ntemplate_vars_module: values\n"},
        {"mine/defs.yaml": SCRIPT},
    ],
    ids=["a module", "variables of a module", "a component of another package"],
)
def test_with_parts_that_change_unseen_each_run_makes_definitions_of_what_is_there(
    beside: dict[str, str], site: Forking
) -> None:
    (site.folder.parent / "values.py").write_text(VALUES)
    site.run()
    site.run()
    for name, text in beside.items():
        (site.folder / name).parent.mkdir(exist_ok=True)
        (site.folder / name).write_text(text)
    runs = [site.run(), site.run()]
    a_new_stream(site)
    runs += [site.run(), site.run()]

    made = [run.get("made_by_run", run.get("failed")) for run in runs]
    assert made == [2, 2, 2, 2], made
    assert "shop/clicks" in runs[-1]["starts"]
