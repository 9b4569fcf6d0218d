"""Scenarios and adapters are files: every mistake in one has its line, and the suite's own files have none."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kdi_assets.tools.conformance.adapter import PLACEHOLDERS, adapter_names, filled, load_adapter
from kdi_assets.tools.conformance.errors import FileMistakes, UnknownName
from kdi_assets.tools.conformance.layout import Layout
from kdi_assets.tools.conformance.scenario import STEPS, Kill, Produce, load_scenario, scenario_names
from kdi_assets.tools.conformance.yaml_file import validated

SCENARIO = "title: t\npurpose: p\nsteps:\n  - produce: {messages: 3}\n  - run\n"
ADAPTER = "title: t\nruns: until caught up\nstart: [writer]\nstop: [stop]\ntable: [where]\n"


def written(folder: Path, text: str, name: str = "file.yaml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_every_kind_of_step_is_played_by_a_scenario_of_the_suite() -> None:
    scenarios = [load_scenario(name) for name in scenario_names()]

    assert len(scenarios) == 12
    assert {step.step for scenario in scenarios for step in scenario.steps} == {*STEPS}


def test_a_step_is_a_name_or_a_name_with_its_fields(tmp_path: Path) -> None:
    steps = "  - run\n  - kill: {times: 2, service: true}\n  - produce: {values: [null, text, {hex: ff00}]}\n  - run\n"

    _, kill, produce, _ = load_scenario(written(tmp_path, f"title: t\npurpose: p\nsteps:\n{steps}")).steps

    assert isinstance(kill, Kill) and (kill.times, kill.service) == (2, True)
    assert isinstance(produce, Produce) and produce.values[:2] == (None, "text")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("title: t\n", "", r"file.yaml:1 title: Field required"),
        ("title: t", "titel: t", r"file.yaml:1 titel: Extra inputs"),
        ("- run", "- runn", r"file.yaml:3 steps: step 2: there is no step 'runn'; did you mean run\?"),
        ("  - run\n", "", r"the last step must be run"),
        ("{messages: 3}", "{messages: -3}", r"file.yaml:4 steps.0.produce.messages: .*greater than or equal to 0"),
        ("{messages: 3}", "{mesages: 3}", r"file.yaml:4 steps.0.produce.mesages: Extra inputs"),
        ("{messages: 3}", "{values: [{hex: f}]}", r"file.yaml:4 steps.0.produce.values.0"),
        ("{messages: 3}", "3", r"file.yaml:3 steps: step 1: the fields of produce must be a mapping"),
        ("  - run\n", "  - restore\n  - run\n", r"restore needs mark before it"),
        ("  - run\n", "  - begin\n  - run\n", r"begin needs finish after it"),
        ("  - run\n", "  - compact\n  - run\n", r"compact needs `compacted: true`"),
        ("  - run\n", "  - run: [\n", r"file.yaml:\d is not YAML"),
    ],
)
def test_a_mistake_in_a_scenario_has_its_line(tmp_path: Path, was: str, now: str, said: str) -> None:
    assert was in SCENARIO

    with pytest.raises(FileMistakes, match=said):
        load_scenario(written(tmp_path, SCENARIO.replace(was, now)))


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("start: [writer]", "start: []", r"file.yaml:3 start: .*at least 1 item"),
        ("until caught up", "for ever", r"file.yaml:2 runs: Input should be 'until caught up' or 'until stopped'"),
        ("[where]", "['{tabel}']", r"file.yaml:5 table: '{tabel}': 'tabel' is not a word for braces.*table"),
        ("[where]", "['{\"rows\": 1}']", r"file.yaml:5 table: .* write {{ and }} for braces themselves"),
    ],
)
def test_a_mistake_in_an_adapter_has_its_line(tmp_path: Path, was: str, now: str, said: str) -> None:
    assert was in ADAPTER

    with pytest.raises(FileMistakes, match=said):
        load_adapter(written(tmp_path, ADAPTER.replace(was, now)))


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="'our'") as adapter:
        load_adapter("our")
    with pytest.raises(UnknownName, match="'kill'") as scenario:
        load_scenario("kill")
    with pytest.raises(UnknownName):
        load_adapter(str(tmp_path / "missing.yaml"))

    assert all(name in str(adapter.value) for name in adapter_names())
    assert all(name in str(scenario.value) for name in scenario_names())


def test_the_commands_of_every_adapter_become_command_lines() -> None:
    words = {word: f"the {word}" for word in PLACEHOLDERS}
    adapters = {name: load_adapter(name) for name in adapter_names()}

    starts = {name: filled(adapter.start, words) for name, adapter in adapters.items()}

    assert {*starts} == {"ours", "structured-streaming", "kafka-delta-ingest"}
    for start in starts.values():
        assert "the topic" in " ".join(start) and "the table" in " ".join(start)
        assert "{" not in " ".join(start)


@pytest.mark.parametrize("name", ["structured-streaming", "kafka-delta-ingest"])
def test_what_an_adapter_prints_about_its_tables_is_a_layout(name: str) -> None:
    command, text = filled(load_adapter(name).table, {"table": "/lake/orders"})

    layout = validated(json.loads(text), Layout, place="table")

    assert (command, layout.rows.uri) == ("echo", "/lake/orders")


def test_the_script_gives_up_lost_data_only_if_its_error_proposes_it(tmp_path: Path) -> None:
    work = tmp_path / "with a space"
    work.mkdir()
    decide = load_adapter("structured-streaming").decide or ()
    words = {"work": work, "output": work / "start-1.log"}

    codes = []
    for error in ("CAST_INVALID_INPUT", "set the source option failOnDataLoss to false"):
        (work / "start-1.log").write_text(error)
        codes.append(subprocess.run(filled(decide, words), check=False).returncode)

    assert codes == [1, 0]
    assert (work / "checkpoint.loss-accepted").exists()


def test_a_layout_with_half_of_the_coordinates_is_refused() -> None:
    letters = {"uri": "u", "partition": "p", "value": [{"column": "v"}]}
    said = {"rows": {"uri": "u", "partition": "p", "offset": "o"}, "dead_letters": letters}

    with pytest.raises(FileMistakes, match="both partition and offset"):
        validated(said, Layout, place="table")
