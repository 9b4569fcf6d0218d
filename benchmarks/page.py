"""The tables of docs/benchmarks.md: made from measurements, and bound to the code that they were measured with."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contents import CONTENTS
from benchmarks.engines import PREFIXES, STREAMING
from benchmarks.usage import Usage
from benchmarks.worker import HERE, Run

PAGE = "docs/benchmarks.md"
BEGIN, END = "<!-- what `make bench` measured -->", "<!-- by hand -->"
MEASURED = (
    "kdi_assets/messages/formats",
    "kdi_assets/streams/drain",
    "kdi_assets/jvm",
    "kdi_assets/streams/ledger",
    "kdi_assets/delta",
)
"""The code that decides what a drain costs."""
CPU, WALL, TO_CLEAN, MEMORY = "CPU", "wall", "to good JSON", "memory to good JSON"
GOALS: Mapping[tuple[int, str, str], Mapping[str, float]] = {
    (1_000_000, "clean", "warm"): {CPU: 0.50, WALL: 0.50},
    (1_000_000, "clean", "cold"): {CPU: 0.80},
    (1_000_000, "bad", "warm"): {TO_CLEAN: 1.10},
    (1_000_000, "unknown", "warm"): {TO_CLEAN: 1.05},
    (1_000_000, "avro", "warm"): {CPU: 0.55},
    (1_000_000, "protobuf", "warm"): {CPU: 0.60},
    **{(100_000, packed, "warm"): {TO_CLEAN: 1.30} for packed in ("gzip", "zstd")},
    (1_000, "clean", "warm"): {CPU: 0.35},
    (1_000, "clean", "cold"): {CPU: 0.60},
    (1_000, "bad", "warm"): {TO_CLEAN: 1.30},
    **{(200_000, content, "warm"): {TO_CLEAN: 1.60} for content in ("kinesis", "kinesis_efo")},
    **{(200_000, content, "cold"): {MEMORY: 1.20} for content in ("kinesis", "kinesis_efo")},
    **{(1_000, content, "cold"): {TO_CLEAN: 1.20} for content in ("kinesis", "kinesis_efo")},
}
"""Upper limits, by messages, content and kind."""

COLUMNS = (
    "messages",
    "",
    "",
    "rounds",
    "CPU s",
    "wall s",
    "peak RSS, MB",
    "MB read",
    "CPU ratio",
    "wall ratio",
    TO_CLEAN,
    "goal",
)


@dataclass(frozen=True, slots=True)
class Result:
    """A measured round.

    Attributes:
        sent_bytes: Bytes that the broker's process wrote meanwhile, nearly all of them to its clients.
        stages: CPU seconds of a drain by its stages.
    """

    run: Run
    usage: Usage
    sent_bytes: int
    stages: Mapping[str, float]

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> Result:
        """From the output of ``dataclasses.asdict``."""
        return cls(**{**saved, "run": Run(**saved["run"]), "usage": Usage(**saved["usage"])})


@dataclass(frozen=True, slots=True)
class Measured:
    """The content of the page: rounds of one state of the code, of one run of the benchmark or of several.

    Attributes:
        code: The hash of the measured sources.
        load: The machine's load average before the run; with several runs the largest.
    """

    date: str
    commit: str
    code: str
    load: float
    results: Sequence[Result] = ()

    @classmethod
    def beginning(cls, root: Path) -> Measured:
        """An empty measurement of the current code and machine."""
        return cls(f"{datetime.now(UTC):%Y-%m-%d}", commit_of(root), sources(root), round(os.getloadavg()[0], 1))

    def added_to(self, file: Path) -> Measured:
        """Add the file's rounds of the same code, except those measured again by number and kind; the file keeps the
        result.
        """
        before = json.loads(file.read_text()) if file.exists() else {}
        measured, together = {(r.run.messages, r.run.kind) for r in self.results}, self
        if before.get("code") == self.code:
            old = [Result.read(result) for result in before["results"]]
            kept = [r for r in old if (r.run.messages, r.run.kind) not in measured]
            together = replace(self, load=max(self.load, before["load"]), results=[*kept, *self.results])
        file.write_text(json.dumps(asdict(together), indent=1) + "\n")
        return together

    def as_markdown(self) -> str:
        """Which code was measured when and where, and the tables."""
        return (
            f"Measured on {self.date} at commit {self.commit} (sources `{self.code}`): {os.cpu_count()} cores, Python "
            f"{platform.python_version()}, load average {self.load} before.\n\n{tables(self.results)}"
        )

    def where(self) -> str:
        """When, on which commit and where it was measured, as a sentence."""
        return (
            f"Measured on {self.date} at commit {self.commit}: {os.cpu_count()} cores, load average {self.load} before."
        )

    def write_page(self, root: Path) -> None:
        """Put it between the page's two marks."""
        write_section(root / PAGE, BEGIN, self.as_markdown())


def write_section(page: Path, begin: str, text: str) -> None:
    """Put the text between a mark of the page and the next ``END``."""
    before, rest = page.read_text().split(begin)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}")


def with_goal(ratio: float, limit: float) -> str:
    """A ratio, its upper limit, and whether that is met."""
    return f"{ratio:.2f} (goal ≤ {limit:.2f}: {'met' if round(ratio, 2) <= limit else '**missed**'})"


def tables(results: Sequence[Result]) -> str:
    """All measurements, as Markdown: medians of each figure over the rounds."""
    by_run: dict[Run, list[Result]] = {}
    for result in sorted(results, key=lambda result: _place(result.run)):
        by_run.setdefault(result.run, []).append(result)
    middle = {run: _median(run, rounds) for run, rounds in by_run.items()}
    lines = table_lines(
        COLUMNS, [_cells(run, len(by_run[run]), middle) for run in middle if run.engine not in PREFIXES]
    )
    staged = {run: by_stage(run, middle) for run in middle if run.engine == "drain" and _prefix(run, "kafka") in middle}
    if staged:
        names = [*next(iter(staged.values()))]
        rows = [
            (f"{run.messages:,} {_title(run)}", *(f"{cpu:.2f}" for cpu in seconds.values()))
            for run, seconds in staged.items()
        ]
        lines += ["", *table_lines(("CPU s of a warm drain", *names), rows)]
    others = [run for run in middle if run.checkout != str(HERE) and run.engine not in PREFIXES]
    for other in others:
        cpu, cpu_there = (middle[replace(other, checkout=at)].usage.cpu_seconds for at in (str(HERE), other.checkout))
        lines.append(f"\n{cpu / cpu_there:.2f} of the CPU seconds of: {other.messages:,} {other.kind} {_title(other)}")
    return "\n".join(lines)


def _place(run: Run) -> tuple[object, ...]:
    """The order in the tables: the most messages first, warm before cold, the reference before the drains."""
    place = [*CONTENTS].index(run.content)
    return -run.messages, run.kind != "warm", run.engine != STREAMING, place, run.engine, run.checkout != str(HERE)


def _median(run: Run, rounds: Sequence[Result]) -> Result:
    wall, cpu, peak = (median(figure) for figure in zip(*(astuple(r.usage) for r in rounds), strict=True))
    stages = {stage: median(r.stages.get(stage, 0.0) for r in rounds) for stage in rounds[0].stages}
    return Result(run, Usage(wall, cpu, round(peak)), round(median(r.sent_bytes for r in rounds)), stages)


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]


def _title(run: Run) -> str:
    checkout = "" if run.checkout == str(HERE) else f" of {run.checkout}"
    engine = "Structured Streaming" if run.engine == STREAMING else "drain"
    return f"{engine}{checkout}: {CONTENTS[run.content].title}"


def _cells(run: Run, rounds: int, middle: Mapping[Run, Result]) -> list[str]:
    """A row, with ratios to Structured Streaming in the same process or of the same kind, and to good messages."""
    used, ours, ratios = middle[run].usage, run.engine == "drain", dict[str, float]()
    if run.engine != STREAMING:
        reference = middle[replace(run, engine=STREAMING, content="clean")].usage
        ratios = {CPU: used.cpu_seconds / reference.cpu_seconds, WALL: used.wall_seconds / reference.wall_seconds}
    if ours and run.content != "clean" and (clean := middle.get(replace(run, content="clean"))):
        ratios[TO_CLEAN] = used.cpu_seconds / clean.usage.cpu_seconds
        ratios[MEMORY] = used.peak_rss_bytes / clean.usage.peak_rss_bytes
    goals = GOALS.get((run.messages, run.content, run.kind), {}) if ours else {}
    return [
        f"{run.messages:,}",
        run.kind,
        _title(run),
        str(rounds),
        f"{used.cpu_seconds:.2f}",
        f"{used.wall_seconds:.2f}",
        f"{used.peak_rss_bytes / 1e6:,.0f}",
        f"{middle[run].sent_bytes / 1e6:,.1f}",
        *(f"{ratios[figure]:.2f}" if figure in ratios else "" for figure in (CPU, WALL, TO_CLEAN)),
        ", ".join(
            f"{figure} ≤ {limit:.2f}: {'met' if round(ratios[figure], 2) <= limit else '**missed**'}"
            for figure, limit in goals.items()
            if figure in ratios
        ),
    ]


def by_stage(run: Run, middle: Mapping[Run, Result]) -> dict[str, float]:
    """CPU seconds of a drain's stages.

    The first four are differences: a plan that ends there, into nothing, minus the one that ends a stage before. The
    rest of the time until the drain's files were written is the write. The others are the drain's own figures.
    """
    seconds, before = {}, 0.0
    for stage in PREFIXES:
        until = middle[_prefix(run, stage)].usage.cpu_seconds
        seconds[stage], before = until - before, until
    others = dict(middle[run].stages)
    seconds["write"] = others.pop("pass") - before
    for stage in ("letters", "commit"):
        seconds[stage] = others.pop(stage)
    return {**seconds, "the rest": sum(others.values())}


def _prefix(run: Run, stage: str) -> Run:
    return replace(run, engine=stage)


def sources(root: Path) -> str:
    """A hash of the code that decides what a drain costs."""
    files = [file for folder in MEASURED for ending in ("py", "java") for file in (root / folder).rglob(f"*.{ending}")]
    seen = sha256()
    for file in sorted(files):
        seen.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return seen.hexdigest()[:12]


def commit_of(root: Path) -> str:
    """The commit of a checkout, as pages name it, and whether the measured code has other changes."""
    commit = _git(root, "rev-parse", "--short", "HEAD") or "none"
    changed = " and changes that are not committed" if _git(root, "status", "--porcelain", "--", *MEASURED) else ""
    return f"`{commit}`{changed}"


def _git(root: Path, *command: str) -> str:
    """The output of git; empty if it fails."""
    try:
        return subprocess.run(("git", *command), cwd=root, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S607
    except (OSError, subprocess.CalledProcessError):
        return ""
