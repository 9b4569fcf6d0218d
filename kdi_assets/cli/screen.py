"""A screen that is drawn again and again: in its place in a terminal, one below the other elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

OTHER_SCREEN, OWN_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


@contextmanager
def screen() -> Iterator[Callable[[str], None]]:
    """Draws texts; in a terminal on the alternate screen, which leaves the scrollback as it was."""
    if not sys.stdout.isatty():
        yield lambda text: typer.echo(f"{text}\n")
        return
    _send(OTHER_SCREEN)
    try:
        yield _draw
    finally:
        _send(OWN_SCREEN)


def _draw(text: str) -> None:
    size = shutil.get_terminal_size()
    lines = cropped(text, columns=size.columns, lines=size.lines)
    _send(HOME + "\n".join(line + CLEAR_LINE for line in lines) + CLEAR_BELOW)


def cropped(text: str, *, columns: int, lines: int) -> list[str]:
    """What fits; the last line says how much does not."""
    all_lines = text.splitlines()
    shown = all_lines if len(all_lines) <= lines else all_lines[: lines - 1]
    more = [f"… {len(all_lines) - len(shown)} more lines"] if len(shown) < len(all_lines) else []
    return [line if len(line) <= columns else f"{line[: columns - 1]}…" for line in (*shown, *more)]


def _send(codes: str) -> None:
    sys.stdout.write(codes)
    sys.stdout.flush()
