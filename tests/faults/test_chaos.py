"""A run of chaos and a walk over decisions; ``make chaos`` makes many."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT


def test_a_seeded_run_of_chaos_leaves_nothing_lost_or_twice(pytestconfig: pytest.Config) -> None:
    """Purpose: faults come together, and in orders that nobody thought of.
    Procedure: half a minute of load, faults and operator actions, composed by the seed; two readers look all along.
    Pass: what must hold holds after every step, and at the end everything that was produced is there.
    """
    ran = _run("tests.faults.chaos.run", seed=pytestconfig.getoption("--seed"))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no violation" in ran.stdout


def test_a_walk_over_decisions_and_accidents_goes_as_the_model_says(pytestconfig: pytest.Config) -> None:
    """Purpose: losses lay where decisions, RESTOREs and accidents of the topic met.
    Procedure: a seeded walk of drains, decisions, RESTOREs, retention, topics made again and logs cut off; a model, and
    a broker with Spark and Delta, take each step.
    Pass: after every step the table has the rows, positions and dead letters that the model has; no step of the model
    loses a message without a word.
    """
    ran = _run("tests.faults.chaos.walk", seed=pytestconfig.getoption("--seed"))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no violation" in ran.stdout


def _run(module: str, *, seed: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, "--seed", str(seed)]
    environment = {**os.environ, "KDI_HOME": str(CHECKOUT / ".kdi")}
    return subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
