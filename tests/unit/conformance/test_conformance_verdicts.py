"""The verdict: which words what happened gets, and what the table shows of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kdi_assets.tools.conformance.messages import Sent
from kdi_assets.tools.conformance.oracle import WriterAccount
from kdi_assets.tools.conformance.play import Played
from kdi_assets.tools.conformance.report import added_to, as_markdown, cell_text, write_page
from kdi_assets.tools.conformance.scenario import Run, Scenario
from kdi_assets.tools.conformance.suite import ScenarioResult, sources
from kdi_assets.tools.conformance.verdict import WriterVerdict, judge

PLAIN = Scenario(title="t", purpose="p", steps=(Run(),))
UNDECIDABLE = PLAIN.model_copy(update={"may_refuse": True})
GONE, OTHER = (Sent(0, 0, offset, b"{}", "row") for offset in (1, 2))
WHOLE = WriterAccount(10, 10)


def played(account: WriterAccount = WHOLE, **happened: object) -> Played:
    return Played(account=account, starts=3, **happened)  # type: ignore[arg-type]  # fields of Played


@pytest.mark.parametrize(
    ("scenario", "what", "words", "passed"),
    [
        (PLAIN, played(), ("right",), True),
        (PLAIN, played(errors=["busy"]), ("right",), True),
        (PLAIN, played(WriterAccount(10, 9, lost=(OTHER,))), ("silent loss",), False),
        (PLAIN, played(WriterAccount(10, 9, lost=(OTHER,)), errors=["e"]), ("lost",), False),
        (PLAIN, played(WriterAccount(10, 9, lost=(OTHER,)), other_errors=["e"]), ("silent loss",), False),
        (PLAIN, played(WriterAccount(10, 9, lost=(OTHER,)), errors=["e"], stands=True), ("stopped",), False),
        (
            UNDECIDABLE,
            played(WriterAccount(10, 9, lost=(OTHER,)), errors=["e"], stands=True),
            ("refused loudly",),
            True,
        ),
        (UNDECIDABLE, played(errors=["e"], decisions=["d"]), ("refused loudly",), True),
        (PLAIN, played(WriterAccount(10, 9, changed=(OTHER,))), ("silent loss",), False),
        (PLAIN, played(WriterAccount(10, 10, doubled=((0, 1),))), ("doubled",), False),
        (PLAIN, played(WriterAccount(10, 10, invented=(None,))), ("invented",), False),
        (
            PLAIN,
            played(WriterAccount(10, 9, lost=(OTHER,), doubled=((0, 1),), invented=((0, 2),))),
            ("silent loss", "doubled", "invented"),
            False,
        ),
        (
            UNDECIDABLE,
            played(WriterAccount(10, 9, doubled=((0, 1),)), errors=["e"], stands=True),
            ("doubled",),
            False,
        ),
        (
            UNDECIDABLE,
            played(WriterAccount(10, 9, unreachable=(GONE,)), expired=frozenset({GONE})),
            ("silent loss",),
            False,
        ),
        (
            UNDECIDABLE,
            played(
                WriterAccount(10, 9, unreachable=(GONE,)), expired=frozenset({GONE}), errors=["gone"], decisions=["d"]
            ),
            ("refused loudly",),
            True,
        ),
        (
            UNDECIDABLE,
            played(
                WriterAccount(10, 9, unreachable=(GONE,)), expired=frozenset({GONE}), errors=["busy"], errors_before=1
            ),
            ("silent loss",),
            False,
        ),
        (PLAIN, played(WriterAccount(10, 9, unreachable=(GONE,))), ("right",), True),  # removed by compaction
    ],
)
def test_what_happened_has_its_verdict(scenario: Scenario, what: Played, words: tuple[str, ...], passed: bool) -> None:
    verdict = judge(scenario, what)

    assert (verdict.words, verdict.passed) == (words, passed)


def test_a_writer_that_still_worked_is_not_judged_unless_everything_is_there_or_something_is_wrong() -> None:
    missing, complete = WriterAccount(10, 9, lost=(OTHER,)), WriterAccount(10, 10)
    doubled = WriterAccount(10, 9, lost=(OTHER,), doubled=((0, 1),))

    found = [judge(PLAIN, replace(played(account), unfinished=True)).words for account in (missing, complete, doubled)]

    assert found == [("not judged",), ("right",), ("silent loss", "doubled")]


def test_messages_of_a_writer_that_stands_still_are_waiting_and_not_lost() -> None:
    verdict = judge(PLAIN, played(WriterAccount(10, 9, lost=(OTHER,)), errors=["e", "e"], stands=True))

    assert verdict.counts == {"messages": 10, "kept": 9, "waiting": 1}
    assert (cell_text(verdict), verdict.errors) == ("**stopped**: 1 waiting, 9 of 10 kept", ("e",))


def result(adapter: str, scenario: str, verdict: WriterVerdict) -> ScenarioResult:
    title = f"the {adapter}"
    return ScenarioResult(adapter, title, scenario, f"scenario {scenario}", verdict, 1, 2.0, "part 1.0", sources())


def test_the_table_has_a_column_for_each_writer_and_a_line_for_what_is_behind_a_cell(tmp_path: Path) -> None:
    right = WriterVerdict(("right",), True, {"messages": 5, "kept": 5})
    wrong = WriterVerdict(
        ("silent loss",), False, {"messages": 5, "kept": 3, "lost": 2}, first=("partition 0 is lost",)
    )
    results = [result("a", "restore", right), result("b", "restore", wrong), result("a", "kills", right)]
    page = tmp_path / "page.md"
    page.write_text("<!-- what the suite measured -->\n\n<!-- by hand -->\nafter")

    write_page(page, results, command="the command", broker="Kafka 4")

    text = page.read_text()
    assert "| scenario | the a | the b |" in text
    assert "| scenario kills | right: 5 of 5 kept | not run |" in text
    assert "| scenario restore | right: 5 of 5 kept | **silent loss**: 2 lost, 3 of 5 kept |" in text
    assert text.index("scenario kills") < text.index("| scenario restore")
    assert "* scenario restore, the b: first difference: partition 0 is lost." in text
    assert text.endswith("<!-- by hand -->\nafter")


def test_results_are_kept_by_cell_until_the_suite_changes(tmp_path: Path) -> None:
    file, right = tmp_path / "results.json", WriterVerdict(("right",), True, {"messages": 5, "kept": 5})
    wrong = replace(right, words=("doubled",), passed=False)
    added_to(file, [result("a", "kills", wrong), result("a", "restore", right)])
    added_to(file, [replace(result("a", "poison", right), suite="another")])

    kept = added_to(file, [result("a", "kills", right)])

    assert {(r.scenario, r.verdict.words) for r in kept} == {("kills", ("right",)), ("restore", ("right",))}
    assert "doubled" not in as_markdown(kept, command="c", broker="b")
