"""A drain on a terminal: the line that shows how far it is, and Ctrl-C in the middle."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kdi_assets.settings import Settings
from tests.broker.commands.conftest import publish
from tests.broker.commands.until_interrupted import KDI
from tests.driven import DrivenStream

MESSAGES = 200_000


@dataclass
class OnTerminal:
    """A command whose standard error is a terminal."""

    process: subprocess.Popen[bytes]
    terminal: int
    told: str = ""

    def read_until(self, seen: Callable[[str], bool]) -> str:
        """All that the terminal got, up to where ``seen`` holds, or to the end of the command."""
        while not seen(self.told):
            ready, _, _ = select.select([self.terminal], [], [], 120)
            assert ready, f"nothing more came after {self.told!r}"
            try:
                self.told += os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:  # Linux: nobody has the other side open any more
                break
        return self.told


@contextmanager
def on_terminal(*arguments: str) -> Iterator[OnTerminal]:
    terminal, other_side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    with subprocess.Popen(
        [*KDI, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=other_side,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(other_side)
        try:
            yield OnTerminal(process, terminal)
        finally:
            process.kill()
            os.close(terminal)


def test_a_drain_on_a_terminal_shows_how_far_it_is_and_after_ctrl_c_what_is_safe(
    environment: Settings, orders: DrivenStream
) -> None:
    publish(orders, good=MESSAGES)

    with on_terminal("drain", "orders") as interrupted:
        interrupted.read_until(lambda told: f" of {MESSAGES:,} offsets" in told)
        os.killpg(interrupted.process.pid, signal.SIGINT)
        said = interrupted.read_until(lambda told: False)
        out, code = interrupted.process.communicate(timeout=60)[0], interrupted.process.returncode
    positions = [entry.kind for entry in orders.entries()]
    with on_terminal("drain", "orders") as whole:
        shown = whole.read_until(lambda told: False)
        result = whole.process.communicate(timeout=60)[0].decode()

    assert (code, out, positions) == (130, b"", ["start"]), said[-1500:]
    assert re.search(r"\(bronze/orders: reading messages and writing files\): \d commits? landed before; nothing", said)
    assert "Traceback" not in said, said[said.index("Traceback") - 200 :]
    assert said.count("\x1b[?25l") == said.count("\x1b[?25h") > 0, "the cursor is back"
    assert re.search(rf"bronze/orders: reading messages and writing files .*[\d,]+ of {MESSAGES:,} offsets", shown)
    assert whole.process.returncode == 0
    assert re.match(rf"bronze/orders: {MESSAGES:,} rows, 0 dead letters, v\d", result)
    assert "offsets" not in result and "\x1b" not in result
    assert orders.entries()[-1].positions == {orders.tp(p): MESSAGES // 2 for p in (0, 1)}
