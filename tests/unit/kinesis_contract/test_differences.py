"""Known differences must be of tests that there are: otherwise a test that was renamed would fail at that endpoint."""

from __future__ import annotations

from tests.kinesis.differences import DIFFERENCES
from tests.unit.kinesis_contract import (
    test_contract_of_consumers,
    test_contract_of_records,
    test_contract_of_shards,
    test_contract_of_streams,
)

MODULES = (
    test_contract_of_consumers,
    test_contract_of_records,
    test_contract_of_shards,
    test_contract_of_streams,
)


def test_each_known_difference_names_a_test_of_the_contract() -> None:
    tests = {name for module in MODULES for name in vars(module)}

    named = {name.partition("[")[0] for known in DIFFERENCES.values() for name in known}

    assert named - tests == set()
