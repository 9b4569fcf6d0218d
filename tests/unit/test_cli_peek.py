"""What `kdi peek` says of a message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kdi_assets.cli.peek import Peeked
from kdi_assets.stream import TopicPartition

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def peeked(**fields: Any) -> Peeked:
    return Peeked(TopicPartition("orders", 0), 7, AT, **fields)


@pytest.mark.parametrize(
    ("message", "verdict", "lines"),
    [
        (peeked(rows=['{"id":7}'], count=1), "row", ['{"id":7}']),
        (peeked(has_value=False, tombstones="row", rows=['{"id":null}'], count=1), "row", ['{"id":null}']),
        (peeked(rows=["{}", "[]"], count=7), "row: 7 of them", ["{}", "[]", "(and 5 more)"]),
        (peeked(reason="no_date", field="date", value=b"{}"), "dead letter: no_date in date", ["{}"]),
        (peeked(reason="no_date", field="date"), "dead letter: no_date in date", ["(its value is withheld)"]),
        (peeked(has_value=False, tombstones="dead_letter", reason="tombstone"), "dead letter: tombstone", []),
        (peeked(), "filtered", []),
        (peeked(has_value=False), "tombstone", []),
        (peeked(has_value=False, tombstones="row"), "filtered", []),
    ],
)
def test_a_message_is_told_with_its_verdict_and_what_is_kept_of_it(
    message: Peeked, verdict: str, lines: list[str]
) -> None:
    first, *others = message.text().splitlines()

    assert first.startswith("orders/0 offset 7, ")
    assert first.endswith(f": {verdict}")
    assert [line.strip() for line in others] == lines
    assert message.fields()["verdict"] == verdict.partition(":")[0]
    assert message.fields()["value"] == (message.value.decode() if message.value is not None else None)
