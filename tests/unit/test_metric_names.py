"""Dashboard and alert rules name the metrics that are exported, and no others."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from kdi_assets.drain.backlog import State, StatusWord
from kdi_assets.stream import FreshnessLimits
from tests.table_by_hand import TableByHand
from tests.unit.test_metrics import STREAM, registry

CHECKOUT = Path(__file__).parents[2]
METRIC = re.compile(r"\b(kdi_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
UNITS = (
    "_seconds",
    "_bytes",
    "_offset",
    "_offsets",
    "_files",
    "_version",
    "_up",
    "_state",
    "_total",
    "_ratio",
    "kdi_streams",
)


@pytest.fixture
def exported(tmp_path: Path) -> dict[str, Metric]:
    """What a scrape exports, by the name that is queried."""
    now = datetime.now(UTC)
    table = TableByHand(tmp_path, now=now)
    table.drain(ago=timedelta(minutes=1), seconds={"read and write": 1.5}, ages={8: 100})
    stream = replace(STREAM, freshness=FreshnessLimits(300, 1800))
    scraped: CollectorRegistry = registry(tmp_path, None, stream)
    return {family.name + ("_total" if family.type == "counter" else ""): family for family in scraped.collect()}


def labels(family: Metric) -> set[str]:
    return {label for sample in family.samples for label in sample.labels}


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((CHECKOUT / "deploy/prometheus/rules.yaml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CHECKOUT / "deploy/grafana/kdi.json").read_text())
    return loaded


def expressions() -> Iterator[str]:
    """Every PromQL expression that is shipped."""
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ()))


def queried() -> Iterator[tuple[str, dict[str, str]]]:
    """Every metric in them: its name and its matchers."""
    for expression in expressions():
        for name, matchers in METRIC.findall(expression):
            yield name, {label: wanted for label, _, wanted in MATCHER.findall(matchers)}


def test_every_metric_has_samples_and_a_name_with_its_unit(exported: dict[str, Metric]) -> None:
    assert [name for name, family in exported.items() if not family.samples] == []
    assert [name for name in exported if not name.startswith("kdi_") or not name.endswith(UNITS)] == []


def test_dashboard_and_rules_query_what_is_exported_by_labels_that_it_has(exported: dict[str, Metric]) -> None:
    asked = list(queried())
    wrong = [pair for pair in asked if pair[0] not in exported or not pair[1].keys() <= labels(exported[pair[0]])]

    assert wrong == []
    assert exported.keys() - {name for name, _ in asked} == set(), "all of them are looked at"


def test_states_and_quantiles_that_are_queried_exist(exported: dict[str, Metric]) -> None:
    told = {"state": {state.value for state in State}, "quantile": {"0.5", "0.95", "0.99"}}
    asked = Counter(
        (label, value)
        for _, matchers in queried()
        for label, wanted in matchers.items()
        if label in told
        for value in wanted.split("|")
    )

    assert len(asked) > 5
    assert [pair for pair in asked if pair[1] not in told[pair[0]]] == []
    assert {s.labels["state"] for s in exported["kdi_stream_state"].samples} == told["state"]
    assert {word.value for word in StatusWord} < told["state"]
