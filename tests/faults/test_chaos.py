"""A run of chaos and a walk over decisions; ``make chaos`` makes many."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT


@pytest.mark.parametrize(
    ("kind", "lake", "made"),
    [
        ("kafka", "local", {"run", "walk"}),
        ("kafka", "s3", {"run", "walk"}),
        ("kinesis", "local", {"run of Kinesis"}),
    ],
    ids=["kafka, local", "kafka, s3", "kinesis, local"],
)
def test_a_seeded_run_and_a_seeded_walk_leave_nothing_lost_or_twice(
    pytestconfig: pytest.Config, kind: str, lake: str, made: set[str]
) -> None:
    """Purpose: faults combine, in orders that nobody thought of; losses were found where decisions, RESTOREs and
    accidents of the topic met.
    Procedure: half a minute of load, faults and operator actions, composed by the seed, while two readers look; of a
    topic, then walks of drains, decisions, RESTOREs, retention, recreated topics and truncated logs, which a model and
    a broker with Spark and Delta take step by step.
    Pass: every check holds after every step, and at the end every produced message is there; after each step of a walk
    the table has the rows, positions and dead letters of the model.
    """
    seed = str(pytestconfig.getoption("--seed"))
    command = [sys.executable, "-m", "tests.faults.chaos.run", "--seed", seed, "--kind", kind, "--lake", lake]
    environment = {**os.environ, "KDI_HOME": str(CHECKOUT / ".kdi")}

    ran = subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=400, check=False
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert made <= {line.partition(",")[0] for line in ran.stdout.splitlines()}, ran.stdout
