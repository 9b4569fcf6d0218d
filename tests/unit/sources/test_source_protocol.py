"""Every source has the methods of ``Source`` and no others, so that its callers need to know the protocol only."""

from __future__ import annotations

import inspect

import pytest

from kdi_assets.messages.kafka.source import KafkaSource
from kdi_assets.messages.source import Source
from tests.memory_source import MemorySource


def methods(of: type) -> dict[str, list[tuple[str, object, object]]]:
    """By public method its parameters: name, kind, and type as it is written."""
    found = inspect.getmembers(of, inspect.isfunction)
    return {
        name: [(p.name, p.kind, p.annotation) for p in inspect.signature(method).parameters.values()]
        for name, method in found
        if not name.startswith("_")
    }


def defaults(of: type) -> dict[tuple[str, str], object]:
    found = {name: inspect.signature(getattr(of, name)).parameters.values() for name in methods(of)}
    return {(name, p.name): p.default for name, parameters in found.items() for p in parameters}


@pytest.mark.parametrize("source", [KafkaSource, MemorySource])
def test_a_source_has_the_methods_of_the_protocol_by_the_same_parameters(source: type) -> None:
    assert methods(source) == methods(Source)


def test_what_a_caller_leaves_out_is_for_kafka_what_the_protocol_says() -> None:
    assert defaults(KafkaSource) == defaults(Source)


def test_each_method_of_the_protocol_says_what_it_gives() -> None:
    assert [name for name in methods(Source) if not inspect.getdoc(getattr(Source, name))] == []
