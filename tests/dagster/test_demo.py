"""`make demo` and `make demo-s3` do what they show, and leave no process behind, however they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.parts import State
from kdi_assets.dev.broker import QUICK_START
from kdi_assets.dev.s3_server import ACCESS_KEY
from tests.conftest import CHECKOUT
from tests.secrets import files_with_keys

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state for these tests, with the checkout's jars."""
    home = tmp_path_factory.mktemp("kdi")
    (home / "jars").symlink_to(CHECKOUT / ".kdi" / "jars")
    return home


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Starts a module of the examples on that state, and ends it with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(module: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "KDI_HOME": str(home), "JDK_JAVA_OPTIONS": " ".join(QUICK_START)}
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=environment,
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with process:
            process.terminate()


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """The lines up to the first with the text."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"it ended without {text!r}:\n{''.join(lines)}")


def test_an_interrupted_demo_stops_every_process_it_started(start: Start, home: Path) -> None:
    process = start("examples.demo")
    read_until(process, "Kafka answers")
    assert State(home).users()

    process.send_signal(signal.SIGINT)
    read_until(process, "stopping")
    process.send_signal(signal.SIGTERM)  # an impatient user
    output, _ = process.communicate(timeout=120)

    assert process.returncode == 130, output
    assert State(home).users() == []


def test_the_demo_drains_two_waves_and_the_audit_accounts_for_every_offset(start: Start, home: Path) -> None:
    """Purpose: what a newcomer sees first works, on the state that interrupted demos left, and cleans up after itself.
    Procedure: run it; try to clean the state while it runs, and after it has ended; paste the query that it prints.
    Pass: exit code 0, three dates, 250,000 messages published, the query's rows are the table's, no process is left.
    """
    process = start("examples.demo")
    begin = read_until(process, "Kafka answers")
    refused, _ = (cleaning := start("examples.clean")).communicate(timeout=60)
    output, _ = process.communicate(timeout=700)
    output = "".join(begin) + output

    assert process.returncode == 0, output
    assert cleaning.returncode == 1 and ": the broker" in refused
    assert re.search(r"published 200,000 .*published 50,000 ", output, re.DOTALL)
    rows = [int(count.replace(",", "")) for count in re.findall(r"\d{4}-\d\d-\d\d: ([\d,]+) rows", output)]
    assert len(rows) == 3 and 246_000 < sum(rows) < 249_000  # one percent of 250,000 is bad, at random
    assert sum(rows) == rows_of_the_query(output)
    assert State(home).users() == []

    cleaned, _ = (cleaning := start("examples.clean")).communicate(timeout=60)
    assert cleaning.returncode == 0, cleaned
    assert not any((home / folder).exists() for folder in ("broker", "lake", "dagster"))


def test_the_demo_on_s3_accounts_for_every_offset_and_writes_no_key_down(start: Start, home: Path) -> None:
    """Purpose: everything works with the lake in a bucket, and no credentials get into a file or into the output.
    Procedure: run it; search its output, its logs, Dagster's storage and run output, and the lake for the keys.
    Pass: exit code 0, three dates, the audit is complete, no file has a key, no process is left.
    """
    state = State(home, on_s3=True)
    output, _ = (process := start("examples.demo", "--s3")).communicate(timeout=700)

    assert process.returncode == 0, output
    rows = [int(count.replace(",", "")) for count in re.findall(r"\d{4}-\d\d-\d\d: ([\d,]+) rows", output)]
    assert len(rows) == 3 and 246_000 < sum(rows) < 249_000
    assert "none missing, none twice" in output
    assert ACCESS_KEY not in output
    assert (state.logs / "driver.log").stat().st_size > 0
    assert list(state.dagster.rglob("*.db"))
    assert files_with_keys(state.folder) == []
    assert state.users() == []


def rows_of_the_query(output: str) -> int:
    """Run the command that the demo printed, and add up the counts in the table that it shows."""
    (command,) = re.findall(r"^ +(\S+ -c .*)$", output, re.MULTILINE)
    shown = subprocess.run(command, shell=True, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return sum(int(count) for count in re.findall(r"\| +(\d+) +\|$", shown, re.MULTILINE))
