"""The list of faults against the tests that force them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.scenarios import SCENARIOS

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_fault_that_applies_has_a_test_that_forces_it(scenario: str) -> None:
    forced = re.compile(rf'scenario\(\s*"{re.escape(scenario)}"')

    assert any(forced.search(path.read_text()) for path in TESTS.glob("*/test_*.py"))
