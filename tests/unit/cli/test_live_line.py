"""The line of progress on a terminal, and what Ctrl-C says."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from kdi_assets.cli.live_line import LiveLine, interrupted_text, watch_of_command
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.step_watch import HowFar, StepWatch

READING = WorkStep(name="bronze/orders", doing="reading messages", total=400_000, done=lambda: 100_000)
HALF_WAY = HowFar(
    doing=READING.doing,
    name=READING.name,
    seconds=4,
    step=READING,
    done=100_000,
    per_second=25_000.0,
    tasks=(1, 4),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(*, width: int = 140) -> tuple[Terminal, LiveLine]:
    file = Terminal()
    return file, LiveLine(Console(file=file, force_terminal=True, width=width, highlight=False, color_system=None))


def test_the_line_has_a_bar_the_count_the_rate_and_the_time_left() -> None:
    file, line = terminal()

    line.show(HALF_WAY)

    shown = file.getvalue()
    assert "bronze/orders: reading messages" in shown
    assert "━━━━━━" in shown
    assert "100,000 of 400,000 offsets, 25,000 a second, about 12 s left, 1 of 4 tasks" in shown
    line.clear()


def test_the_line_is_gone_when_the_step_ends() -> None:
    file, line = terminal()
    line.show(HALF_WAY)
    line.show(HALF_WAY)
    before = len(file.getvalue())

    line.clear()
    line.clear()

    assert file.getvalue()[before:].endswith("\x1b[2K"), "the line is erased, and nothing comes after it"
    assert file.getvalue().count("\x1b[?25l") == file.getvalue().count("\x1b[?25h") == 1, "the cursor is back"


def test_standard_output_stays_that_of_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    _, line = terminal()

    line.show(HALF_WAY)
    print("a result")  # noqa: T201
    line.clear()

    assert capsys.readouterr().out == "a result\n"


def test_a_narrow_terminal_gets_one_line() -> None:
    file, line = terminal(width=60)

    line.show(HALF_WAY)

    assert file.getvalue().count("\n") == 0
    line.clear()


@pytest.mark.parametrize(
    ("as_json", "is_terminal", "shows"), [(True, True, None), (False, True, "LiveLine"), (False, False, "LogLines")]
)
def test_a_command_shows_progress_where_it_can_be_read(
    monkeypatch: pytest.MonkeyPatch, as_json: bool, is_terminal: bool, shows: str | None
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal() if is_terminal else io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("KDI_VERBOSE", raising=False)

    shown = vars(watch_of_command(as_json=as_json))["_shown"]

    assert (shown and type(shown).__name__) == shows


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([], "interrupted: nothing was committed; the same command begins again"),
        (
            [READING],
            "interrupted (bronze/orders: reading messages): nothing was committed; the same command begins again",
        ),
        (
            [WorkStep(doing="committing", commits=True), READING],
            "interrupted (bronze/orders: reading messages): 1 commit landed before; nothing else was committed;"
            " kdi status shows what waits",
        ),
        (
            [WorkStep(name="bronze/orders", doing="committing", commits=True)],
            "interrupted (bronze/orders: committing): this commit landed whole or not at all; kdi status shows which",
        ),
    ],
)
def test_ctrl_c_says_what_is_safe(steps: list[WorkStep], text: str) -> None:
    watch = StepWatch(None, every=1.0)

    with pytest.raises(KeyboardInterrupt), watch.watching():
        for step in steps[:-1]:
            with announced(step):
                pass
        if steps:
            with announced(steps[-1]):
                raise KeyboardInterrupt
        raise KeyboardInterrupt

    assert interrupted_text(watch) == text
