"""The rules of drains and decisions, walked at random without real parts: no message is lost or gone without a word."""

from __future__ import annotations

from random import Random

import pytest

from tests.faults.chaos.decisions import Walk, steps_of
from tests.faults.chaos.model import Model


@pytest.mark.parametrize("seed", range(20))
def test_no_sequence_of_accidents_and_decisions_loses_a_message(seed: int) -> None:
    walk = Walk(Model(2), Random(seed))

    done = [walk.step() for _ in range(300)]

    assert {step.partition(":")[0] for step in done} >= {"drain", "restore", "decide"}, steps_of(done)
