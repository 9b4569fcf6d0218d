"""The fault matrix: which tests force which fault, and the table that their run writes."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.faults.scenarios import SCENARIOS

BEGIN, END = "<!-- the matrix: written by make faults -->", "<!-- end of the matrix -->"
_Case = tuple[str, str, str, int]  # fault, test, procedure, seed
_HEAD = "| fault | test | procedure | result | seed |\n| --- | --- | --- | --- | --- |\n"


def mark_up(items: Sequence[pytest.Item], *, seed: int) -> None:
    """Note on every test which faults it forces, so that its report carries this from a worker to the controller."""
    for item in items:
        for scenario in (name for marker in item.iter_markers("scenario") for name in marker.args):
            if scenario not in SCENARIOS:
                raise pytest.UsageError(f"{item.nodeid}: {scenario!r} is none of tests/faults/scenarios.py")
            item.user_properties.append(("scenario", (scenario, _name(item), _procedure(item), seed)))


class Matrix:
    """Collects the reports of a run, and writes the table between two comments of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._results: dict[_Case, list[bool]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            for key, value in report.user_properties:
                if key == "scenario":
                    scenario, name, procedure, seed = cast("_Case", value)
                    self._results[scenario, name, procedure, seed].append(report.passed)

    def pytest_sessionfinish(self) -> None:
        text = self._path.read_text()
        before, rest = text.split(BEGIN)
        _, after = rest.split(END)
        self._path.write_text(f"{before}{BEGIN}\n\n{self.table()}\n{END}{after}")

    def table(self) -> str:
        """The table, in the order of the scenarios; a scenario without a test says so."""
        lines = []
        for scenario in SCENARIOS:
            found = sorted((k, v) for k, v in self._results.items() if k[0] == scenario)
            lines += [
                f"| {scenario if not i else ''} | `{name}` | {procedure} | {_result(passed)} | {seed} |"
                for i, ((_, name, procedure, seed), passed) in enumerate(found)
            ] or [f"| {scenario} | – | – | **no test ran** | – |"]
        return _HEAD + "\n".join(lines) + "\n"


def _result(passed: Sequence[bool]) -> str:
    of = f" ({len(passed)} cases)" if len(passed) > 1 else ""
    return f"passed{of}" if all(passed) else f"**failed {passed.count(False)} of {len(passed)}**"


def _name(item: pytest.Item) -> str:
    """The test with the module that defines it, which others may import."""
    return f"{Path(item.location[0]).name}::{item.name.partition('[')[0]}"


def _procedure(item: pytest.Item) -> str:
    """The part of the docstring after "Procedure:"; without one, all of it."""
    text = inspect.cleandoc(getattr(item, "obj", None).__doc__ or "")
    told = re.search(r"[Pp]rocedure: (.*?)(?:\n\s*Pass:|\Z)", text, re.DOTALL)
    return " ".join((told.group(1) if told else text).split()).replace("|", "\\|")
