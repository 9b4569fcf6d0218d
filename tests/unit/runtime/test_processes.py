"""Child processes end when they should; and which ports our servers use."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import free_port, is_free
from tests.waiting import wait_until

FOREVER = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
DEAF = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()",
]
PARENT = """
import sys, time
from pathlib import Path
from kdi_assets.runtime.processes import Child
child = Child([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
input()
{then}
"""


def started(command: list[str], tmp_path: Path) -> Child:
    """A child that has reported its start."""
    child = Child(command, log=tmp_path / "child.log")
    wait_until(lambda: "up" in (tmp_path / "child.log").read_text(), seconds=30)
    return child


def ends(orphan: psutil.Process) -> bool:
    """Whether it ends soon; the process that collects orphans may take seconds."""
    until = time.monotonic() + 10
    while not has_ended(orphan) and time.monotonic() < until:
        time.sleep(0.02)
    return has_ended(orphan)


def has_ended(orphan: psutil.Process) -> bool:
    """Whether it has ended, collected or not."""
    try:
        return orphan.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_wait_for_an_answer_ends_with_the_answer_the_child_or_the_time(tmp_path: Path) -> None:
    up, ended = started(FOREVER, tmp_path), Child([sys.executable, "-c", "raise SystemExit(3)"])

    assert up.await_answer(lambda: True, seconds=30) == ""
    assert up.await_answer(lambda: False, seconds=0) == "did not answer within 0 s"
    assert ended.await_answer(lambda: False, seconds=30) == "ended with exit code 3 before it answered"
    up.stop()


def test_a_child_is_stopped_in_good_order(tmp_path: Path) -> None:
    child = started(FOREVER, tmp_path)

    child.stop()

    assert child.exit_code() == -signal.SIGTERM


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    child = started(DEAF, tmp_path)

    child.stop(within_seconds=0.2)

    assert child.exit_code() == -signal.SIGKILL


def test_what_a_child_left_behind_is_stopped_with_it(tmp_path: Path) -> None:
    leaves_one = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print('up', p.pid, flush=True); sys.exit(3)"
    )
    child = started([sys.executable, "-c", leaves_one], tmp_path)
    left_behind = psutil.Process(int((tmp_path / "child.log").read_text().split()[1]))
    wait_until(lambda: child.exit_code() == 3)
    outlived_it = not has_ended(left_behind)

    child.stop()

    assert outlived_it
    assert ends(left_behind)


@pytest.mark.parametrize("then", ["sys.exit(0)", "raise RuntimeError", "time.sleep(600)"])
def test_a_child_does_not_outlive_its_parent_whether_that_ends_fails_or_is_killed(then: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(then=then)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with parent:
        assert parent.stdin is not None and parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.stdin.write("go on\n")
        parent.stdin.flush()
        if "sleep" in then:
            parent.kill()
        parent.wait(30)

    assert ends(child)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server on the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_free_port_is_taken_as_preferred_and_for_a_taken_one_another_is_chosen(listener: socket.socket) -> None:
    preferred, taken = free_port(), listener.getsockname()[1]

    assert free_port(preferred) == preferred
    assert free_port(taken) != taken


def test_a_port_whose_server_has_gone_is_free_although_its_connections_linger(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = listener.accept()

    accepted.close()  # the server's side closes first: its end of the connection lingers (TIME_WAIT)
    client.close()
    listener.close()

    assert is_free(port)
