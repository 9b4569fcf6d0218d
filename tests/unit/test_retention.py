"""What a topic's configuration says of retention, and what is made of one that does not say it."""

from __future__ import annotations

import pytest

from kdi_assets.sources.kafka import TopicMissing
from kdi_assets.sources.kafka_config import Retention

USUAL = {"cleanup.policy": "delete", "retention.ms": "60000", "retention.bytes": "-1"}


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, Retention(60.0, None)),
        ({"retention.ms": "-1", "retention.bytes": "1000"}, Retention(None, 1000)),
        ({"cleanup.policy": "compact"}, Retention(None, None)),
        ({"cleanup.policy": "compact,delete"}, Retention(60.0, None)),
    ],
)
def test_retention_is_by_age_by_size_by_both_or_not_at_all(changed: dict[str, str], kept: Retention) -> None:
    assert Retention.told_by({**USUAL, **changed}) == kept


@pytest.mark.parametrize("config", [{}, {**USUAL, "retention.bytes": "None"}, TopicMissing(cluster="main", topic="t")])
def test_what_is_not_told_is_unknown_and_no_error(config: dict[str, str] | TopicMissing) -> None:
    assert Retention.told_by(config) is None
