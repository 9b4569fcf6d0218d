"""The documentation names what exists: files, tests, links, metrics, checks, commands."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command

from kdi_assets.cli.main import app
from kdi_assets.monitoring.metrics import names
from kdi_assets.stream.stream import CheckName
from tests.conftest import CHECKOUT

PAGES = [
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((CHECKOUT / "docs").glob("*.md")),
]
PATH = re.compile(
    r"`((?:kdi_assets|resources|sensors|tests|docs|deploy|demo|examples|benchmarks|supply_chain|\.ci|\.github)/[\w./-]*)`"
)
TEST = re.compile(r"\b(test_\w+\.py)(?:::(test_\w+))?")
LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def text_of(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """File and anchor of every link within the repository."""
    for found in LINK.finditer(text_of(page)):
        target = found[1] or found[2]
        if "://" not in target:
            name, _, anchor = target.partition("#")
            yield (page.parent / name if name else page), anchor


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    missing = [path for path in PATH.findall(text_of(page)) if not (CHECKOUT / path).exists()]

    assert missing == []


@every_page
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    modules: dict[str, str] = defaultdict(str)  # several folders have modules of the same name
    for path in (CHECKOUT / "tests").rglob("test_*.py"):
        modules[path.name] += path.read_text()

    named = TEST.findall(text_of(page))

    assert [module for module, _ in named if module not in modules] == []
    assert [f"{module}::{test}" for module, test in named if test and f"def {test}" not in modules[module]] == []


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = [f"{file.name}#{anchor}" for file, anchor in links(page) if not file.exists()]
    lost = [f"{file.name}#{anchor}" for file, anchor in links(page) if anchor and anchor not in anchors(file)]

    assert (broken, lost) == ([], [])


def test_the_index_has_every_page() -> None:
    listed = {file.resolve() for file, _ in links(CHECKOUT / "docs" / "README.md")}

    assert {page for page in PAGES if page.name != "README.md"} <= listed


def test_every_metric_and_every_check_has_its_line() -> None:
    metrics = {metric.name for metric in vars(names).values() if isinstance(metric, names.Metric)}
    for table in (names.PARTITION_GAUGES, names.BACKLOG_GAUGES, names.TABLE_GAUGES):
        metrics |= {metric.name for metric in table}
    metrics |= {metric.name for metric in (*names.LEDGER_COUNTERS, *names.DRAIN_COUNTERS, *names.DOWNSTREAM_GAUGES)}
    lines = r"^\| `(\w+)`"

    assert set(re.findall(lines, (CHECKOUT / "docs" / "metrics.md").read_text(), re.MULTILINE)) == metrics
    checks = re.findall(lines, (CHECKOUT / "docs" / "checks.md").read_text(), re.MULTILINE)
    assert set(checks) == set(get_args(CheckName))


def test_the_list_of_commands_is_complete() -> None:
    command: Any = get_command(app)
    listed = re.findall(r"\bkdi ([a-z-]+)", (CHECKOUT / "README.md").read_text().partition("## On the command line")[2])

    assert set(listed) == set(command.commands)


def test_the_example_is_the_file_that_is_tested() -> None:
    file = (CHECKOUT / "examples" / "downstream" / "failed_requests.py").read_text()
    page = (CHECKOUT / "docs" / "downstream.md").read_text()

    assert file.partition('"""\n\n')[2] in page


def _glossary() -> list[list[tuple[str, str, str]]]:
    """Word, meaning and the file of its link, of each table of the glossary."""
    tables = (CHECKOUT / "docs" / "glossary.md").read_text().split("| --- | --- |\n")[1:]
    return [re.findall(r"^\| ([^|]+) \| (.+) \[[^]]+\]\(([^)#]+)[^)]*\) \|$", table, re.MULTILINE) for table in tables]


def test_the_glossary_is_in_alphabetical_order_and_has_each_word_once() -> None:
    tables = [[word.lower() for word, _, _ in table] for table in _glossary()]
    words = [word for table in tables for word in table]
    lines = re.findall(r"^\| (?!---|word )", (CHECKOUT / "docs" / "glossary.md").read_text(), re.MULTILINE)

    assert tables == [sorted(table) for table in tables]
    assert len(words) == len(set(words)) == len(lines), "each line is a word, a meaning and a link"


def test_every_word_of_the_glossary_is_used_by_the_page_that_explains_it() -> None:
    def used(word: str, page: str) -> bool:
        text = re.sub(r"\s+|_", " ", (CHECKOUT / "docs" / page).read_text()).lower()
        return word.lower() in text

    assert [(word, page) for table in _glossary() for word, _, page in table if not used(word, page)] == []


def test_every_limit_of_the_page_is_that_of_the_code() -> None:
    units = {"": 1, "s": 1, "MiB": 2**20, "GiB": 2**30}
    page = (CHECKOUT / "docs" / "limits.md").read_text()
    rows = re.findall(r"^\| ([\d,]+) ?(\w*) \| [^|]+ \| `([\w/]+)\.(py|java)`: `(\w+)` \|$", page, re.MULTILINE)

    def constant(path: str, kind: str, name: str) -> float:
        if kind == "java":
            source = (CHECKOUT / f"{path}.java").read_text()
            return int(re.findall(rf"static final int {name} = ([\d_]+);", source)[0])
        value: float = getattr(import_module(path.replace("/", ".")), name)
        return value / 1000 if name.endswith(("_MS", "_MILLISECONDS")) else value

    said = {(path, name): int(number.replace(",", "")) * units[unit] for number, unit, path, _, name in rows}
    assert said == {(path, name): constant(path, kind, name) for _, _, path, kind, name in rows}
    assert len(rows) == len(re.findall(r"^\| \d", page, re.MULTILINE)), "each line has a number and its constant"
