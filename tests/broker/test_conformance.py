"""The conformance suite judges writers: a right one is right, each wrong one is found, ours keeps its promise."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kdi_assets.settings import Settings
from kdi_assets.tools.conformance.adapter import load_adapter
from kdi_assets.tools.conformance.scenario import load_scenario
from kdi_assets.tools.conformance.suite import ScenarioResult, Suite
from kdi_assets.tools.local.broker import Broker
from tests.conftest import CHECKOUT

Judge = Callable[..., ScenarioResult]
WITHOUT_SPARK = ("poison", "tombstones", "transactions", "schema-added", "late-dates", "compaction", "rebalance")
QUICK = """
title: a few messages, one of them bad
purpose: the shortest way through all parts of the suite
steps:
  - produce: {messages: 20, values: ['{"id": 1']}
  - run
"""
KILLED = """
title: killed once
purpose: a member that dies keeps its topic partitions
steps:
  - kill: {times: 1, messages: 20}
  - produce: {messages: 20}
  - run
"""


def small_writer(way: str, folder: Path, **fields: object) -> Path:
    """An adapter's file for the tests' small writer."""
    layout = {
        "rows": {"uri": "TABLE", "partition": "kafka_partition", "offset": "kafka_offset", "rest": "rest"},
        "dead_letters": {
            "uri": "TABLE_dead_letters",
            "partition": "kafka_partition",
            "offset": "kafka_offset",
            "value": [{"column": "value"}],
        },
    }
    said = json.dumps(layout).replace("{", "{{").replace("}", "}}").replace("TABLE", "{table}")
    adapter = {
        "title": way,
        "runs": "until caught up",
        "start": ["{python}", "-m", "tests.predecessor.small_writer", way, "{kafka}", "{topic}", "{table}"],
        "stop": ["sh", "-c", "kill -TERM {pid}"],
        "table": ["echo", said],
        "environment": {"PYTHONPATH": str(CHECKOUT)},
        "start_seconds": 60,
        **fields,
    }
    path = folder / f"{way.replace(' ', '-')}.yaml"
    path.write_text(yaml.safe_dump(adapter))
    return path


@pytest.fixture
def judge(broker: Broker, settings: Settings, tmp_path: Path, pytestconfig: pytest.Config) -> Judge:
    """Plays a scenario with an adapter over the broker of the test process."""

    def play(adapter: str | Path, scenario: str | Path, *, seed: int = 0) -> ScenarioResult:
        seed = seed or pytestconfig.getoption("--seed")
        suite = Suite(broker.bootstrap_servers, tmp_path / "work" / Path(scenario).stem, settings.home, seed, print)
        (result,) = suite.run([load_adapter(str(adapter))], [load_scenario(str(scenario))])
        return result

    return play


@pytest.mark.core
def test_our_drain_is_right_in_the_quickest_scenario(judge: Judge, tmp_path: Path) -> None:
    scenario = tmp_path / "quick.yaml"
    scenario.write_text(QUICK)

    verdict = judge("ours", scenario).verdict

    assert verdict.words == ("right",), verdict
    assert verdict.counts == {"messages": 21, "kept": 21}


@pytest.mark.parametrize("scenario", WITHOUT_SPARK)
def test_a_right_writer_is_right(judge: Judge, tmp_path: Path, scenario: str) -> None:
    verdict = judge(small_writer("right", tmp_path), scenario).verdict

    assert verdict.words == ("right",), verdict
    assert verdict.counts["messages"] > 50


def test_a_right_writer_survives_kills_that_hit_it(judge: Judge, tmp_path: Path) -> None:
    verdict = judge(small_writer("right", tmp_path), "kills").verdict

    assert (verdict.words, verdict.kills) == (("right",), 6), verdict


def test_a_writer_that_runs_until_it_is_stopped_is_judged_like_the_others(judge: Judge, tmp_path: Path) -> None:
    adapter = small_writer("daemon", tmp_path, runs="until stopped")

    poison, restored = judge(adapter, "poison").verdict, judge(adapter, "restore").verdict

    assert poison.words == ("right",), poison
    assert restored.words == ("silent loss",), restored


def test_a_writer_that_waits_for_its_topic_partitions_is_not_called_wrong(judge: Judge, tmp_path: Path) -> None:
    """Procedure: a right writer, a member of a consumer group with a session timeout of 15 s; it is killed, and for so
    long its next start is given nothing. The suite waits for 5 s of silence.
    Pass: right, because the adapter names the group.
    """
    times = {"quiet_seconds": 5, "start_seconds": 25}
    adapter = small_writer("member", tmp_path, runs="until stopped", consumer_group="{topic}", **times)
    scenario = tmp_path / "killed.yaml"
    scenario.write_text(KILLED)

    verdict = judge(adapter, scenario).verdict

    assert verdict.words == ("right",), verdict


def test_a_writer_that_still_works_is_not_judged(judge: Judge, tmp_path: Path) -> None:
    adapter = small_writer(
        "none",
        tmp_path,
        runs="until stopped",
        start=["sh", "-c", "while true; do echo working; sleep 0.2; done"],
        start_seconds=4,
        quiet_seconds=2,
    )

    verdict = judge(adapter, "tombstones").verdict

    assert (verdict.words, verdict.passed) == (("not judged",), False)


@pytest.mark.parametrize(
    ("way", "scenario", "words"),
    [
        ("offsets first", "kills", ("silent loss",)),
        ("rows first", "kills", ("doubled",)),
        ("drops bad", "poison", ("silent loss",)),
        ("reads uncommitted", "transactions", ("invented",)),
        ("right", "restore", ("silent loss",)),
        ("right", "recreated-topic", ("silent loss",)),
    ],
)
def test_a_wrong_writer_is_found(judge: Judge, tmp_path: Path, way: str, scenario: str, words: tuple[str, ...]) -> None:
    verdict = judge(small_writer(way, tmp_path), scenario).verdict

    assert (verdict.words, verdict.passed) == (words, False), verdict
    assert verdict.first != ()


def test_a_writer_that_ends_with_an_error_at_every_start_is_stopped(judge: Judge, tmp_path: Path) -> None:
    adapter = small_writer("none", tmp_path, start=["sh", "-c", "echo no such thing; exit 3"], error="(no .*)")

    verdict = judge(adapter, "tombstones").verdict

    assert (verdict.words, verdict.passed) == (("stopped",), False)
    assert (verdict.errors, verdict.counts["waiting"]) == (("no such thing",), 80)


def test_the_command_prints_saves_and_writes_the_table(broker: Broker, settings: Settings, tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text("before\n<!-- what the suite measured -->\nold\n<!-- by hand -->\nafter\n")
    options = ["--kafka", broker.bootstrap_servers, "--scenario", "tombstones"]
    options += ["--results", str(results), "--write", str(page)]

    done = [
        subprocess.run(
            [
                sys.executable,
                "-m",
                "kdi_assets.tools.conformance",
                *options,
                "--adapter",
                str(small_writer(way, tmp_path)),
            ],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        for way in ("right", "drops bad")
    ]

    assert [each.returncode for each in done] == [0, 0], [each.stderr for each in done]
    assert "right  tombstones  right: 80 of 80 kept" in done[0].stdout
    assert {r["adapter"] for r in json.loads(results.read_text())} == {"right", "drops-bad"}
    text = page.read_text()
    assert "| tombstones | right: 80 of 80 kept | right: 80 of 80 kept |" in text
    assert (text.startswith("before\n"), text.endswith("after\n"), "old" in text) == (True, True, False)
