"""The benchmark's tables and the page that holds them: nothing is measured here."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import cluster, lake_on_s3, many_streams
from benchmarks.engines import PREFIXES, STREAMING
from benchmarks.old_figures import MEASURES, old_figures, stated_figures
from benchmarks.page import BEGIN, END, PAGE, Measured, Result, tables, write_section
from benchmarks.run import CASES, parsed
from benchmarks.usage import STAGES, Usage
from benchmarks.worker import HERE, Run

pytestmark = pytest.mark.unit

DRAIN = Run(1_000_000, "warm", "drain", "clean")
REFERENCE = replace(DRAIN, engine=STREAMING)
BEGUN = Measured("2026-11-24", "`abc`", "", 0.5)


def result(run: Run, cpu: float, wall: float = 1.0, **stages: float) -> Result:
    return Result(run, Usage(wall, cpu, 10**9), 10**6, stages)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a page and a module that it measures."""
    for name, text in (
        (PAGE, f"before\n{BEGIN}\nreplaced\n{END}\nafter\n"),
        ("kdi_assets/streams/drain/drain.py", "A = 1\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    committed(tmp_path)
    return tmp_path


def git(root: Path, *command: str) -> str:
    as_someone = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *command]
    return subprocess.run(as_someone, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def committed(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a change")


def test_a_case_stands_for_its_drain_and_the_reference_beside_it() -> None:
    """Purpose: a single case is measured quickly, and always with its reference.
    Procedure: parse one case, one with stages, the default of all.
    Pass: reference and drain; the stages beside them; each run once.
    """
    assert parsed("1m clean warm") == [REFERENCE, DRAIN]
    assert [run.engine for run in parsed("1m clean stages")] == [STREAMING, "drain", *PREFIXES]
    assert len(parsed(f"{CASES}, {CASES}")) == len(set(parsed(CASES)))


def test_a_word_that_is_none_of_a_case_is_refused() -> None:
    with pytest.raises(SystemExit, match="1k lukewarm: a case is"):
        parsed("1k lukewarm")


def test_the_table_says_which_goals_are_met() -> None:
    """Purpose: a goal is compared with the median of the rounds, and a missed one is visible.
    Procedure: three rounds of 5 CPU seconds, one of them disturbed, beside 10; nine tenths of the wall seconds.
    Pass: 0.50 is met, 0.90 is missed.
    """
    rounds = [result(DRAIN, cpu, wall=0.9) for cpu in (5.0, 20.0, 5.0)]

    row = tables([result(REFERENCE, 10.0), *rounds]).splitlines()[-1]

    assert "| 0.50 | 0.90 |" in row and "CPU ≤ 0.50: met, wall ≤ 0.50: **missed**" in row


def test_stages_add_up_to_the_drain() -> None:
    """Purpose: the differences and the drain's own stages add up to the drain, each second once.
    Procedure: plans of 1, 2, 3 and 4 CPU seconds, a drain of one in each stage and 6 in its pass.
    Pass: 1 for each stage, 2 for the write, the three others together.
    """
    prefixes = [result(replace(DRAIN, engine=engine), n) for n, engine in enumerate(PREFIXES, start=1)]
    drain = result(DRAIN, 11.0, **{stage: 6.0 if stage == "pass" else 1.0 for stage in STAGES.values()})

    row = tables([result(REFERENCE, 10.0), drain, *prefixes]).splitlines()[-1]

    assert row.endswith("| 1.00 | 1.00 | 1.00 | 1.00 | 2.00 | 1.00 | 1.00 | 3.00 |")


def test_what_was_measured_in_parts_is_one_page_while_the_code_stays(tmp_path: Path) -> None:
    """Purpose: a case can be measured again without half an hour for all of them, and is never mixed with other code.
    Procedure: keep a warm million, then a thousand, then the million again, then a thousand of other code.
    Pass: both, with the second million and the larger load; for the other code only the thousand.
    """
    file, small = tmp_path / "benchmark.json", replace(DRAIN, messages=1000)
    first = Measured("2026-01-01", "`a`", "code", 0.2, [result(DRAIN, 1.0)])
    first.added_to(file)
    replace(first, load=0.1, results=[result(small, 2.0)]).added_to(file)

    both = replace(first, load=0.1, results=[result(DRAIN, 3.0)]).added_to(file)
    other = replace(first, code="other", results=[result(small, 4.0)]).added_to(file)

    assert ([r.usage.cpu_seconds for r in both.results], both.load) == ([2.0, 3.0], 0.2)
    assert [r.usage.cpu_seconds for r in other.results] == [4.0]


def test_a_page_is_written_between_its_marks(checkout: Path) -> None:
    Measured.beginning(checkout).write_page(checkout)

    page = (checkout / PAGE).read_text()
    assert page.startswith("before\n") and page.endswith(f"{END}\nafter\n") and "replaced" not in page


def test_figures_are_old_once_the_code_that_they_measure_has_changed(checkout: Path) -> None:
    """Purpose: readers of the figures know the code that they are from, in a shallow clone too.
    Procedure: two chapters state figures, of drains and of audits; commit; change the drain; forget the history.
    Pass: nothing is old until the drain changes; then the chapter of drains alone, with its command and by how many
        commits; without the history, both say that they cannot be compared.
    """
    (checkout / "README.md").touch()
    page = checkout / "docs/figures.md"
    stated = "Measured at commit {}: 1 s."
    head = git(checkout, "rev-parse", "HEAD")
    page.write_text(
        f"## Drains\n\n`make bench` measures:\n\n### Many\n\n{stated.format(f'`{head}`')}\n\n"
        f"## Audits\n\n`python -m benchmarks.audit`, at\ncommit `{head[:8]}`: 2 s.\n"
    )
    committed(checkout)
    assert old_figures(checkout) == []

    (checkout / "kdi_assets/streams/drain/drain.py").write_text("A = 2\n")
    committed(checkout)
    assert old_figures(checkout) == ["docs/figures.md has figures of older code: “Many” (1 commit since; make bench)"]

    (checkout / ".git").rename(checkout / "none")
    assert old_figures(checkout)[0].count("a commit that this clone lacks") == 2


def test_all_figures_with_a_commit_name_the_command_that_measures_them() -> None:
    """Purpose: what is old can be measured again by whoever reads that it is old.
    Procedure: all figures of README and documentation.
    Pass: each names a command; what a command measures is there.
    """
    stated = [*stated_figures(HERE)]

    assert len(stated) > 10 and not [figures for figures in stated if not figures.command]
    assert not [folder for folders in MEASURES.values() for folder in folders if not (HERE / folder).exists()]


S3_ROUNDS = {
    lake_on_s3.LOCAL: [lake_on_s3.Cost(1.0, cpu, 0.0) for cpu in (0.5, 0.4, 3.0)],
    lake_on_s3.S3: [lake_on_s3.Cost(1.7, cpu, 0.2) for cpu in (0.6, 0.7, 5.0)],
}
CLUSTER_ROUNDS = {
    cluster.LOCAL: [cluster.Took(wall, 10.0, 2.0, 4.0) for wall in (5.0, 6.0, 20.0)],
    "YARN": [cluster.Took(wall, 15.0, 3.0, 4.0) for wall in (7.0, 7.2, 30.0)],
}


def test_s3_is_compared_with_the_local_lake_by_the_medians() -> None:
    text = lake_on_s3.as_markdown(S3_ROUNDS, BEGUN, messages=1_000, content="clean")

    assert "| local | 1.00 | 0.50 | 0.00 |" in text
    assert "| S3 / local | 1.70 (goal ≤ 1.60: **missed**) | 1.40 (goal ≤ 1.60: met) |  |" in text


def test_a_cluster_is_compared_with_as_many_local_cores_by_the_medians() -> None:
    text = cluster.as_markdown(CLUSTER_ROUNDS, BEGUN, messages=1_000_000)

    assert "| YARN | 7.2 | 15.0 | 3.0 | 4.0 |" in text
    assert "| YARN / local[2] | 1.20 (goal ≤ 1.20: met) | 1.50 | 1.50 | 1.00 |" in text


@pytest.mark.parametrize(
    ("page", "mark"),
    [
        (HERE / PAGE, lake_on_s3.BEGIN),
        (HERE / PAGE, cluster.BEGIN),
        (HERE / many_streams.PAGE, many_streams.BEGIN),
    ],
)
def test_a_benchmark_writes_only_its_own_section(page: Path, mark: str, tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(page.read_text())

    write_section(copy, mark, "new figures")

    (before, old), (kept, new) = (text.read_text().split(mark) for text in (page, copy))
    assert kept == before
    assert new == f"\n\nnew figures\n\n{END}{old.split(END, 1)[1]}"
