"""Our drain in every scenario of the conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.settings import Settings
from kdi_assets.tools.conformance.adapter import load_adapter
from kdi_assets.tools.conformance.scenario import load_scenario, scenario_names
from kdi_assets.tools.conformance.suite import Suite
from kdi_assets.tools.local.broker import Broker

REFUSED = {
    "retention": ("retention deleted", "accept-loss"),
    "recreated-topic": ("was deleted and created again", "new-topic"),
}
"""Where nothing is surely right: what the refusal says, and the decision that it names."""


def test_our_drain_is_right_in_every_scenario_or_names_the_decision(
    broker: Broker, settings: Settings, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Purpose: the suite knows only our command line and our tables, as any user does; it must find nothing.
    Procedure: all scenarios, over the broker of the test process, with `kdi drain` in a warm driver of the suite's own.
    Pass: right everywhere, but for the two scenarios that need a decision: there the refusal names it, and afterwards
    all that Kafka still has is there; every kill hit a running drain.
    """
    seed = pytestconfig.getoption("--seed")
    suite = Suite(broker.bootstrap_servers, tmp_path, settings.home, seed, print)

    results = list(suite.run([load_adapter("ours")], [load_scenario(name) for name in scenario_names()]))

    said = {result.scenario: result.verdict for result in results}
    assert {name: v.words for name, v in said.items() if v.words != ("right",)} == dict.fromkeys(
        REFUSED, ("refused loudly",)
    ), said
    for name, (error, decision) in REFUSED.items():
        assert all(error in each for each in said[name].errors)
        assert all(decision in each for each in said[name].decisions)
    assert said["kills"].kills == 6
