"""The oracle catches engines that lose, double or change messages: every mutant, and never the real engine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import DrivenFactory
from tests.faults.drain.mutants import MUTANTS, Mutant, Scenario

CORE = ("letters counted without asking the ledger", "position one too high", "expectation not checked")
"""The mutants of make test: a message lost, dead letters and rows doubled."""
SCENARIOS = dict.fromkeys(m.scenario for m in MUTANTS)
SCENARIOS_OF_CORE = {m.scenario for m in MUTANTS if m.name in CORE}


def _in_its_tier(value: object, core: bool) -> Any:
    return pytest.param(value, marks=pytest.mark.core if core else ())


@pytest.mark.parametrize(
    "scenario", [_in_its_tier(s, s in SCENARIOS_OF_CORE) for s in SCENARIOS], ids=[s.__name__ for s in SCENARIOS]
)
def test_the_engine_as_it_is_passes_where_the_mutants_fail(driven: DrivenFactory, scenario: Scenario) -> None:
    """Purpose: an oracle that always fails catches nothing.
    Procedure: each mutant's scenario, with the real engine; a last drain.
    Pass: every offset exactly once.
    """
    web = driven(partitions=1)

    produced = scenario(web)
    web.drain()

    web.assert_each_offset_once(produced)


@pytest.mark.parametrize("mutant", [_in_its_tier(m, m.name in CORE) for m in MUTANTS], ids=[m.name for m in MUTANTS])
def test_a_mutant_of_the_engine_is_caught(
    driven: DrivenFactory, mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a check that cannot fail proves nothing.
    Procedure: the engine with one bug; the scenario that reveals it.
    Pass: the oracle says that something is missing, twice or changed.
    """
    web = driven(partitions=1)
    mutant.mutate(monkeypatch)

    produced = mutant.scenario(web)

    with pytest.raises(AssertionError, match=r"missing|twice|dead letter:|row:"):
        web.assert_each_offset_once(produced)
