"""Several warm drivers of one home, without a JVM: which of them a process attaches to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pyspark
import pytest
from typer.testing import CliRunner

from kdi_assets.cli.app import app_for
from kdi_assets.cli.output import EXIT_RETRY
from kdi_assets.runtime.driver.control import (
    ANSWER_SECONDS,
    ControlConnection,
    ControlServer,
    DriverAddress,
    only_driver,
)
from kdi_assets.runtime.driver.drivers import (
    CLIENTS_SECONDS,
    connect_to_driver,
    driver_folder,
    running_drivers,
    uses_warm_driver,
)
from kdi_assets.runtime.errors import DriverDiffers, DriverGone, DriverRuns
from kdi_assets.runtime.jars import release_digest
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.settings import Settings
from tests.waiting import wait_until

SECRET = "only those who may read the file know"
NO_JVM = 1
"""A port on which nothing listens."""


class Owner:
    """Counts its clients like a driver.

    ``refuses``: it is about to be recycled; without ``answers`` it hangs; ``stops_clients``: those that it takes hang.
    """

    def __init__(self, number: int) -> None:
        self.number, self.refuses, self.clients = number, False, 0
        self.stops_clients, self.answers = False, threading.Event()
        self.answers.set()
        self._lock = threading.Lock()

    def on_connect(self, hello: dict[str, Any]) -> dict[str, Any] | None:
        self.answers.wait()
        if hello["ask"] == "status":
            return {"pid": 7, "clients": [*range(self.clients)], "jobs": 0, "served": 3, "idle_seconds": None}
        if self.refuses:
            return None
        if self.stops_clients:
            os.kill(hello["pid"], signal.SIGSTOP)
        with self._lock:
            self.clients += 1
        return {"number": self.number}

    def on_message(self, hello: dict[str, Any], message: dict[str, Any]) -> None:
        raise AssertionError

    def on_disconnect(self, hello: dict[str, Any]) -> None:
        if hello["ask"] == "attach":
            with self._lock:
                self.clients -= 1


@contextmanager
def running(
    home: Path, number: int, *, lake: str = "/lake", spark_version: str = pyspark.__version__, jvm_port: int = NO_JVM
) -> Iterator[Owner]:
    """A driver that answers during the body; afterwards its file stays, as after a kill."""
    folder, owner = driver_folder(home, number), Owner(number)
    with only_driver(folder), ControlServer(owner, secret=SECRET) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        there = DriverAddress(os.getpid(), jvm_port, server.port, SECRET, spark_version, lake=lake)
        replace(there, kernel=release_digest()).publish(folder)
        yield owner
        server.close_all()


@pytest.fixture
def attach(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """Attaches one more client; returns the number of its driver."""
    with ExitStack() as attached:

        def connect() -> int:
            connection = attached.enter_context(closing(connect_to_driver(tmp_path, ask="attach")))
            number = connection.answer["number"]
            assert isinstance(number, int)
            return number

        yield connect


def test_each_number_is_one_driver_and_the_first_is_that_of_the_home(tmp_path: Path) -> None:
    with running(tmp_path, 1), running(tmp_path, 12), running(tmp_path, 2):
        assert [*running_drivers(tmp_path)] == [1, 2, 12]
        assert running_drivers(tmp_path)[1] == tmp_path
        with pytest.raises(DriverRuns), running(tmp_path, 2):
            pass
    assert not running_drivers(tmp_path)


def test_clients_are_spread_over_the_drivers(tmp_path: Path, attach: Callable[[], int]) -> None:
    with running(tmp_path, 1), running(tmp_path, 2), running(tmp_path, 3):
        before = {*tmp_path.iterdir()}

        assert Counter(attach() for _ in range(9)) == {1: 3, 2: 3, 3: 3}
        assert {*tmp_path.iterdir()} == before, "a file of root would keep others from attaching"


def test_clients_that_start_together_do_not_choose_the_same_driver(tmp_path: Path) -> None:
    with running(tmp_path, 1) as one, running(tmp_path, 2) as other, ExitStack() as attached:
        together = threading.Barrier(8)

        def connect() -> None:
            together.wait()
            attached.enter_context(closing(connect_to_driver(tmp_path, ask="attach")))

        threads = [threading.Thread(target=connect) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert (one.clients, other.clients) == (4, 4)


def test_beside_a_driver_that_hangs_clients_that_start_together_attach_in_seconds(tmp_path: Path) -> None:
    with running(tmp_path, 1) as hangs, running(tmp_path, 2) as other, ExitStack() as attached:
        hangs.answers.clear()
        began = time.monotonic()

        with ThreadPoolExecutor(6) as together:
            for found in [together.submit(connect_to_driver, tmp_path, ask="attach") for _ in range(6)]:
                attached.enter_context(closing(found.result()))

        assert other.clients == 6 and time.monotonic() - began < ANSWER_SECONDS
        hangs.answers.set()


def test_a_client_that_was_stopped_while_it_chose_does_not_keep_others_from_attaching(tmp_path: Path) -> None:
    program = "import os, sys, pathlib; from kdi_assets.runtime.driver.drivers import connect_to_driver as connect; "
    program += "connect(pathlib.Path(sys.argv[1]), ask='attach', pid=os.getpid())"
    with running(tmp_path, 1) as one, running(tmp_path, 2):
        one.stops_clients = True
        stopped = subprocess.Popen([sys.executable, "-c", program, tmp_path])
        try:
            os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
            one.stops_clients = False
            found = start_in_thread(lambda: connect_to_driver(tmp_path, ask="attach"), name="client")

            with closing(found.result(timeout=ANSWER_SECONDS)) as connection:
                assert connection.answer == {"number": 2}, "the other one has a client"
        finally:
            stopped.kill()
            stopped.wait()


def test_a_driver_that_was_killed_or_takes_no_client_is_passed_over(tmp_path: Path, attach: Callable[[], int]) -> None:
    with running(tmp_path, 1):
        pass
    with running(tmp_path, 2) as about_to_end, running(tmp_path, 3):
        about_to_end.refuses = True

        assert [attach() for _ in range(3)] == [3, 3, 3]


def test_a_driver_of_another_version_is_passed_over_if_there_is_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kdi_assets.runtime.driver import attach as attaching

    def no_jvm() -> None:  # a real gateway has a thread, which other tests' clocks would count
        raise ConnectionRefusedError

    monkeypatch.setattr(attaching, "launch_gateway", no_jvm)
    attach, here = attaching.attach, Settings(tmp_path, "/lake")
    with running(tmp_path, 1, spark_version="3.5.0"):
        with running(tmp_path, 2), pytest.raises(DriverGone, match="drivers/2 is gone: its JVM does not answer"):
            attach(here)
        with running(tmp_path, 2, spark_version="3.5.1"), pytest.raises(DriverDiffers, match="Spark 3.5.0"):
            attach(here)


def test_a_driver_whose_application_has_ended_is_gone_for_that_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: such a driver ends at once, so that its JVM does not answer either when the client looks why."""
    from kdi_assets.runtime.driver import attach as attaching

    monkeypatch.setattr(attaching, "launch_gateway", lambda: None)
    monkeypatch.setattr(attaching, "shared_context", lambda gateway: None)

    with running(tmp_path, 1), pytest.raises(DriverGone, match="its cluster has ended Spark's application"):
        attaching.attach(Settings(tmp_path, "/lake"))


@pytest.mark.parametrize("jvm", ["none", "hangs up"])
def test_attaching_in_vain_leaves_no_thread_behind(tmp_path: Path, jvm: str) -> None:
    """A code server or a daemon may try for days."""
    from kdi_assets.runtime.driver.attach import attach

    with ThreadingTCPServer(("127.0.0.1", 0), BaseRequestHandler) as hangs_up:
        threading.Thread(target=hangs_up.serve_forever, args=(0.01,), daemon=True).start()
        port = NO_JVM if jvm == "none" else int(hangs_up.server_address[1])
        with running(tmp_path, 1, jvm_port=port):
            before = threading.active_count()
            for _ in range(5):
                with pytest.raises(DriverGone, match="its JVM does not answer"):
                    attach(Settings(tmp_path, "/lake"))

            wait_until(lambda: threading.active_count() <= before, seconds=10)
        hangs_up.shutdown()


def test_if_no_driver_takes_a_client_the_error_says_so(tmp_path: Path) -> None:
    with running(tmp_path, 1) as one, running(tmp_path, 2) as other:
        one.refuses = other.refuses = True

        with pytest.raises(DriverGone, match="none of its drivers takes another client"):
            connect_to_driver(tmp_path, within_seconds=0.2, ask="attach")


def test_without_a_choice_drivers_are_used_if_all_are_for_the_lake(tmp_path: Path) -> None:
    here = Settings(tmp_path, "/lake")

    with running(tmp_path, 2):
        assert uses_warm_driver(here), "the first one need not run"
        with running(tmp_path, 1, lake="/other"):
            assert not uses_warm_driver(here), "a process would attach to either"
    assert not uses_warm_driver(here)


def test_without_a_choice_drivers_that_hang_are_not_waited_for_beside_one_that_answers(tmp_path: Path) -> None:
    with running(tmp_path, 1) as one, running(tmp_path, 2), running(tmp_path, 3, lake="/other") as third:
        one.answers.clear()
        third.answers.clear()
        began = time.monotonic()

        uses = uses_warm_driver(Settings(tmp_path, "/lake"))

        assert uses and time.monotonic() - began < ANSWER_SECONDS / 2
        one.answers.set()
        third.answers.set()


def test_without_a_choice_a_driver_that_needs_a_second_is_waited_for_beside_one_that_starts(tmp_path: Path) -> None:
    """Purpose: the one that starts refuses at once; otherwise the process would start a JVM of its own beside both."""
    with only_driver(tmp_path), running(tmp_path, 2) as slow:
        slow.answers.clear()
        answers = threading.Timer(CLIENTS_SECONDS + 0.5, slow.answers.set)
        answers.start()

        assert uses_warm_driver(Settings(tmp_path, "/lake"))
        answers.join()


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "JSON"])
def test_status_shows_all_drivers_also_behind_one_that_starts(
    tmp_path: Path, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_HOME", str(tmp_path))
    with only_driver(tmp_path), running(tmp_path, 2):
        every, one, starts = (
            CliRunner().invoke(app_for(()), ["driver", "status", *more, *number])
            for number in ([], ["--number", "2"], ["--number", "1"])
        )

    starting, answers = every.stdout.splitlines()
    assert "none has been started there, or it has ended" in starting and every.exit_code == EXIT_RETRY
    assert "driver 2: process 7, 0 attached, 0 jobs running, 3 served" == answers or json.loads(answers)["served"] == 3
    assert (one.stdout.splitlines(), one.exit_code) == ([answers], 0)
    assert isinstance(starts.exception, DriverGone) and not starts.stdout


def test_a_connection_says_which_driver_is_gone(tmp_path: Path) -> None:
    with running(tmp_path, 2):
        pass

    with pytest.raises(DriverGone, match="drivers/2 is gone"):
        ControlConnection(driver_folder(tmp_path, 2), ask="attach")
