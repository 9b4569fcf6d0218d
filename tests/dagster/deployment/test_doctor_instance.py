"""What `kdi doctor` reports about Dagster: the instance opens, its daemon is alive."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from dagster import DagsterInstance
from dagster._daemon.types import DaemonHeartbeat

from kdi_assets.operate.doctor.finding import Unanswered, Verdict
from kdi_assets.operate.doctor.instance import daemon, dagster


def beat(instance: DagsterInstance, *, ago_seconds: float, without: str = "") -> None:
    """Give every daemon that the instance needs a heartbeat."""
    for kind in instance.get_required_daemon_types():
        if kind != without:
            instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - ago_seconds, kind, "one", []))


def test_a_daemon_that_was_just_heard_of_is_fine(tmp_path: Path, instance: DagsterInstance) -> None:
    beat(instance, ago_seconds=3)

    finding = daemon(instance, "home")
    (opened,) = dagster(str(tmp_path / "dagster"))

    assert finding.verdict is opened.verdict is Verdict.OK, opened.trouble
    assert 2 < float(str(finding.facts["oldest_heartbeat_seconds"])) < 60


@pytest.mark.parametrize("automation", ["on", "off"])
def test_whether_sensors_are_on_is_part_of_what_is_found(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, automation: str
) -> None:
    monkeypatch.setenv("KDI_AUTOMATION", automation)
    beat(instance, ago_seconds=3)

    finding = daemon(instance, "home")

    assert finding.facts["automation"] is (automation == "on")
    assert ("KDI_AUTOMATION is off here" in finding.found) == (automation == "off")


@pytest.mark.parametrize("ago_seconds", [3600, 3], ids=["all of it", "one part"])
def test_a_daemon_that_went_silent_is_named_with_its_last_heartbeat(
    instance: DagsterInstance, ago_seconds: float
) -> None:
    beat(instance, ago_seconds=ago_seconds, without="SENSOR")

    finding = daemon(instance, "home")

    silent = finding.facts["silent"]
    assert finding.found == "daemon silent" and isinstance(silent, list) and "SENSOR" in silent
    assert (silent == ["SENSOR"]) == (ago_seconds == 3)
    assert ago_seconds == 3 or "last heartbeat: 2" in str(finding.trouble)


def test_an_instance_without_a_daemon_says_that_none_was_ever_heard_of(instance: DagsterInstance) -> None:
    finding = daemon(instance, "home")

    assert finding.verdict is Verdict.WRONG
    assert "last heartbeat: never" in str(finding.trouble)


@pytest.mark.parametrize(
    "config", ["run_coordinator: 7", "run_coordinator: {module: no.such.module, class: None}", "a: [", None]
)
def test_an_instance_that_does_not_open_is_wrong_says_why_and_is_not_made(tmp_path: Path, config: str | None) -> None:
    home = tmp_path / "home"
    if config is not None:
        home.mkdir()
        (home / "dagster.yaml").write_text(config)

    (finding,) = dagster(str(home))

    assert finding.verdict is Verdict.WRONG
    assert finding.found == "instance closed"
    assert config is None or re.search(r"does not open: \S", str(finding.trouble))
    assert home.exists() == (config is not None)


def test_a_database_that_does_not_answer_is_worth_a_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # Dagster's own retries
    url = "postgresql+psycopg2://nobody@127.0.0.1:1/none"
    (tmp_path / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_url: '{url}'}}}}")

    (finding,) = dagster(str(tmp_path))

    assert isinstance(finding.trouble, Unanswered)
    assert "does not answer" in finding.trouble.happened and "127.0.0.1" in finding.trouble.happened
