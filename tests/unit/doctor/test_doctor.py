"""`kdi doctor` as a whole: examinations do not affect each other; its output and exit code."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from kdi_assets.messages.kafka import probe
from kdi_assets.operate.doctor.doctor import Examination, side_by_side
from kdi_assets.operate.doctor.finding import Finding, Trouble, Unanswered, Verdict, fine
from kdi_assets.runtime.errors import JarMissing
from tests.conftest import CHECKOUT
from tests.documents import REGISTRY, stream
from tests.formats.fake_registry import ask_at_once
from tests.typed import Answer, Kdi, typed


def cluster(name: str, *, more: str = "") -> str:
    """The document of a cluster that does not answer."""
    fields = f'name: {name}, bootstrap_servers: "127.0.0.1:1"{more}'
    return f"type: kdi_assets.components.KafkaCluster\nattributes: {{{fields}}}\n---\n"


def of_cluster(table: str, name: str, record: str = "schema: id bigint") -> str:
    return stream(f"bronze/{table}", record=record, more=f", cluster: {name}") + "---\n"


def says(*found: str) -> Callable[[], Iterator[Finding]]:
    return lambda: iter([fine("storage", "lake", text) for text in found])


def raises(failure: Exception) -> Callable[[], Iterator[Finding]]:
    def look() -> Iterator[Finding]:
        raise failure

    return look


def test_what_hangs_costs_its_time_and_its_own_finding_alone() -> None:
    ended, began = Event(), time.monotonic()

    def hangs() -> Iterator[Finding]:
        ended.wait(30)
        yield fine("disk", "lake", "too late")

    hung, other = side_by_side(
        [Examination("disk", "lake", hangs), Examination("storage", "lake", says("fine"))], seconds=0.3
    )

    ended.set()
    assert time.monotonic() - began < 10
    assert isinstance(hung.trouble, Unanswered)
    assert hung.verdict is Verdict.WRONG
    assert other.found == "fine"


HANGING = """
from threading import Event
from kdi_assets.operate.doctor.doctor import Examination, side_by_side
from kdi_assets.operate.doctor.storage import examined

class Hanging:
    def create(self, name, content):
        Event().wait()

(finding,) = side_by_side([Examination("storage", "lake", lambda: examined(Hanging(), "lake"))], seconds=0.2)
print(finding.found)
"""


def test_a_storage_that_hangs_does_not_keep_the_command_from_ending() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, check=True, timeout=30)

    assert ended.stdout == "no answer in time\n"


def test_what_fails_is_its_own_finding_whether_typed_or_not(tmp_path: Path) -> None:
    missing = JarMissing(group="spark", paths=(tmp_path / "thing.jar",))

    typed, untyped, other = side_by_side(
        [
            Examination("jars", "spark", raises(missing)),
            Examination("disk", "home", raises(ZeroDivisionError("division by zero"))),
            Examination("storage", "lake", says("fine")),
        ],
        seconds=10,
    )

    assert typed.trouble is missing
    assert isinstance(untyped.trouble, Trouble)
    assert "ZeroDivisionError: division by zero" in str(untyped.trouble)
    assert other.verdict is Verdict.OK


def findings(answer: Answer) -> dict[str, dict[str, Any]]:
    """The JSON objects, by examination; of several with one name the worst."""
    found: dict[str, dict[str, Any]] = {}
    for finding in answer.objects:
        if found.get(finding["examination"], {}).get("verdict") != "wrong":
            found[finding["examination"]] = finding
    return found


@pytest.fixture
def kdi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, defs: Path) -> Kdi:
    """Runs `kdi doctor` in this process, with the checkout's jars and the test's lake."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "jars").symlink_to((CHECKOUT / ".kdi" / "jars").resolve())
    for name, value in {"KDI_HOME": home, "KDI_LAKE": tmp_path / "lake", "KDI_DEFS": defs}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(probe, "ANSWER_SECONDS", 0.3)
    return typed(monkeypatch, capsys, "doctor")


def test_without_a_stream_the_machine_is_examined_and_warnings_alone_are_no_failure(kdi: Kdi) -> None:
    answer = kdi("--json")

    assert answer.code == 0
    verdicts = {name: finding["verdict"] for name, finding in findings(answer).items()}
    assert verdicts.pop("documents") == "warning"
    assert verdicts.keys() == {"packages", "java", "jars", "storage", "clock", "disk"}
    assert "wrong" not in verdicts.values()


def test_dead_clusters_cost_a_line_each_and_are_only_worth_a_retry(kdi: Kdi, defs: Path) -> None:
    names = ("one", "other", "third")
    documents = "".join(cluster(n) + of_cluster(f"orders_{n}", n) for n in names)
    (defs / "defs.yaml").write_text(documents.rstrip("-\n"))

    answer = kdi()

    assert answer.code == 75
    lines = [line for line in answer.out.splitlines() if line.startswith("brokers")]
    assert [line.split()[1:] for line in lines] == [[name, "wrong", "broker", "unreachable"] for name in names]
    assert "Kafka cluster other: no answer from 127.0.0.1:1" in answer.out
    assert "\nrights" not in answer.out


def test_each_root_of_tables_is_examined(kdi: Kdi, defs: Path, tmp_path: Path) -> None:
    own = of_cluster("orders", "one", f"schema: id bigint, lake: {tmp_path}/own")
    (defs / "defs.yaml").write_text((cluster("one") + own).rstrip("-\n"))

    answer = kdi("--json")

    of_storage = {f["of"]: f["verdict"] for f in answer.objects if f["examination"] == "storage"}
    assert of_storage == {f"{tmp_path}/lake": "ok", f"{tmp_path}/own": "ok"}
    (disk,) = (f["of"] for f in answer.objects if f["examination"] == "disk")
    assert f"lake {tmp_path}/own" in disk


def test_a_wrong_document_is_named_and_the_others_are_examined(kdi: Kdi, defs: Path) -> None:
    right = cluster("one") + of_cluster("orders", "one")
    (defs / "defs.yaml").write_text(right + of_cluster("shops", "two").rstrip("-\n"))

    answer = kdi("--json")

    found = findings(answer)
    assert answer.code == 1
    assert "no KafkaCluster document is named 'two'" in found["documents"]["error"]["happened"]
    assert found["brokers"]["of"] == "one"


def test_a_property_that_the_client_does_not_take_is_named(kdi: Kdi, defs: Path) -> None:
    misspelt = cluster("one", more=", properties: {secruity.protocol: ssl}")
    (defs / "defs.yaml").write_text(misspelt + of_cluster("orders", "one").rstrip("-\n"))

    answer = kdi("--json")

    assert answer.code == 1
    assert findings(answer)["brokers"]["error"]["type"] == "PropertyRefused"
    assert "secruity.protocol" in findings(answer)["brokers"]["error"]["happened"]


def test_each_registry_of_a_stream_is_looked_at_once(kdi: Kdi, defs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_at_once(monkeypatch)
    named = "".join(of_cluster(table, "one", "format: {avro: {registry: used}}") for table in ("a", "b"))
    at = REGISTRY.replace("https://registry:8081", "http://127.0.0.1:1") + "---\n"
    documents = cluster("one") + at.replace("main", "used") + at.replace("main", "unused") + named
    (defs / "defs.yaml").write_text(documents.rstrip("-\n"))

    answer = kdi("--json")

    looked = [finding for finding in answer.objects if finding["examination"] == "registry"]
    assert answer.code == 75
    assert [(f["of"], f["verdict"], f["found"]) for f in looked] == [
        ("used", "wrong", "registry unavailable; 0 schemas known")
    ]
