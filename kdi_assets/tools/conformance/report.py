"""Results as JSON and as the table of docs/conformance.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kdi_assets.runtime.whole_files import replace_file
from kdi_assets.tools.conformance.scenario import scenario_names
from kdi_assets.tools.conformance.suite import ScenarioResult, sources
from kdi_assets.tools.conformance.verdict import WriterVerdict

BEGIN, END = "<!-- what the suite measured -->", "<!-- by hand -->"


def added_to(file: Path, results: Iterable[ScenarioResult]) -> list[ScenarioResult]:
    """Put the results in place of the file's for the same cells; all of them.

    Results of another state of the suite are dropped: their scenarios may have been others.
    """
    before = [_result(saved) for saved in json.loads(file.read_text())] if file.exists() else []
    cells = {(r.adapter, r.scenario): r for r in (*before, *results) if r.suite == sources()}
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, (json.dumps([asdict(r) for r in cells.values()], indent=1, ensure_ascii=False) + "\n").encode())
    return [*cells.values()]


def _result(saved: Mapping[str, Any]) -> ScenarioResult:
    verdict: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in saved["verdict"].items()}
    return ScenarioResult(**{**saved, "verdict": WriterVerdict(**verdict)})


def write_page(page: Path, results: Sequence[ScenarioResult], *, command: str, broker: str) -> None:
    """Put the table between the page's marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(
        f"{before}{BEGIN}\n\n{as_markdown(results, command=command, broker=broker)}\n\n{END}{rest.partition(END)[2]}"
    )


def as_markdown(results: Sequence[ScenarioResult], *, command: str, broker: str) -> str:
    """The table, one column for each writer, and what is behind its cells.

    Args:
        command: By which it was measured.
        broker: Which broker it was.
    """
    writers = {r.adapter: r.adapter_title for r in results}
    cells = {(r.scenario, r.adapter): r for r in results}
    order = [*scenario_names(), *sorted({r.scenario for r in results} - {*scenario_names()})]
    rows = [["scenario", *writers.values()], ["---"] * (1 + len(writers))]
    for scenario in order:
        found = [cells.get((scenario, writer)) for writer in writers]
        if any(found):
            title = next(r.scenario_title for r in found if r)
            rows.append([title, *(cell_text(r.verdict) if r else "not run" for r in found)])
    versions = "; ".join(sorted({f"{r.adapter_title}: {r.versions}" for r in results}))
    seeds = ", ".join(sorted({str(r.seed) for r in results}))
    lines = [f"Measured by `{command}`, seed {seeds}, with {broker}. {versions}.", ""]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", *_behind(results, order)])


COUNTS = {
    "lost": "lost",
    "waiting": "waiting",
    "changed": "changed",
    "doubled": "doubled",
    "invented": "invented",
    "expired": "deleted by retention",
    "compacted": "removed by compaction",
}


def cell_text(verdict: WriterVerdict) -> str:
    """A cell: the verdict, and the counts that are not zero."""
    counts = [f"{verdict.counts[name]} {text}" for name, text in COUNTS.items() if name in verdict.counts]
    of = f"{verdict.counts['kept']} of {verdict.counts['messages']} kept"
    words = ", ".join(verdict.words)
    return f"{words if verdict.passed else f'**{words}**'}: {', '.join([*counts, of])}"


def _behind(results: Sequence[ScenarioResult], order: Sequence[str]) -> list[str]:
    """A line for each cell that has errors, decisions or differences."""
    lines = []
    for result in sorted(results, key=lambda r: (order.index(r.scenario), r.adapter)):
        verdict = result.verdict
        said = [f"it ended with “{error}”" for error in verdict.errors[:2]]
        said += [f"decided: `{decision}`" for decision in verdict.decisions[:2]]
        said += [f"first difference: {verdict.first[0]}"] if verdict.first and "waiting" not in verdict.counts else []
        said += [f"{verdict.kills} of {verdict.starts} starts were killed while they ran"] if verdict.kills else []
        if said:
            lines.append(f"* {result.scenario_title}, {result.adapter_title}: {'; '.join(said)}.")
    return lines
