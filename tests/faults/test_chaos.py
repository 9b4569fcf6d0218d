"""A run of chaos; ``make chaos`` makes many."""

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
    command = [sys.executable, "-m", "tests.faults.chaos.run", "--seed", str(pytestconfig.getoption("--seed"))]
    environment = {**os.environ, "KDI_HOME": str(CHECKOUT / ".kdi")}

    ran = subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no violation" in ran.stdout
