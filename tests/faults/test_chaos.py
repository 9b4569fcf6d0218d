"""A run of chaos; ``make chaos`` makes many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.chaos.run import RUN_SECONDS, chaos, started_parts


def test_a_seeded_run_of_chaos_leaves_nothing_lost_or_twice(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: faults come together, and in orders that nobody thought of.
    Procedure: half a minute of load, faults and operator actions, composed by the seed; two readers look all along.
    Pass: what must hold holds after every step, and at the end everything that was produced is there.
    """
    from tests.conftest import CHECKOUT

    monkeypatch.setenv("KDI_HOME", str(CHECKOUT / ".kdi"))
    with started_parts(tmp_path) as parts:
        outcome = chaos(parts, str(tmp_path / "lake"), seed=pytestconfig.getoption("--seed"), seconds=RUN_SECONDS)

    assert not outcome.violation, "\n".join([outcome.line(), *outcome.steps])
    assert len(outcome.steps) > 3
    assert outcome.looks > 3
