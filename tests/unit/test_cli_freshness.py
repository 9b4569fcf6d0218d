"""What `kdi freshness` reads from tables' logs and says."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import pytest

from kdi_assets.ledger.freshness import HIGHEST, LOWEST, PER_OCTAVE, middle
from tests.table_by_hand import TableByHand
from tests.typed import Kdi, typed

DOCUMENT = """
type: kdi_assets.components.TopicTable
attributes:
  topic: orders
  table: bronze/orders
  schema: "id bigint"
  date: current_date()
  freshness: {warn: 5 minutes, fail: 2 hours}
---
type: kdi_assets.components.TopicTable
attributes: {topic: clicks, table: bronze/clicks, schema: "id bigint", date: current_date()}
"""
ONE_SECOND, EIGHT_SECONDS, A_WHILE = 0, 3 * PER_OCTAVE, 8 * PER_OCTAVE  # buckets


@pytest.mark.parametrize("seconds", [0.2, 7.3, 86_400.0 * 30])
def test_the_middle_of_a_bucket_is_within_five_per_cent_of_every_age_in_it(seconds: float) -> None:
    bucket = math.floor(math.log2(seconds) * PER_OCTAVE)

    assert LOWEST < bucket < HIGHEST
    assert middle(bucket) == pytest.approx(seconds, rel=0.05)


@pytest.fixture
def kdi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, lake: str) -> Kdi:
    """Runs a command in this process, over two streams."""
    (tmp_path / "defs.yaml").write_text(DOCUMENT)
    for name, value in {"KDI_LAKE": lake, "KDI_DEFS": str(tmp_path), "KDI_KAFKA": "127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)

    return typed(monkeypatch, capsys, "freshness")


def test_quantiles_are_of_the_messages_of_the_last_hours_and_of_all_their_drains(kdi: Kdi, lake: str) -> None:
    table = TableByHand(lake)
    table.drain(100, ago=timedelta(hours=30), ages={A_WHILE: 100})
    table.drain(94, ago=timedelta(hours=2), ages={ONE_SECOND: 94}, wait=2.0)
    table.drain(6, ago=timedelta(hours=1), ages={EIGHT_SECONDS: 6}, wait=4.0)

    answer = kdi("orders", "--json")
    longer = kdi("orders", "--json", "--hours", "48")

    (said,) = answer.objects
    assert (answer.code, said["drains"], said["messages"], said["error"]) == (0, 2, 100, None)
    assert said["p50_seconds"] == pytest.approx(3.0, rel=0.05)
    assert said["p95_seconds"] == pytest.approx(12.0, rel=0.05)
    assert (said["warn_seconds"], said["fail_seconds"]) == (300, 7200)
    assert longer.objects[0]["p95_seconds"] == pytest.approx(258.0, rel=0.05)


def test_a_line_for_each_stream_and_dashes_where_nothing_is_known(kdi: Kdi, lake: str) -> None:
    TableByHand(lake).drain(1200, ages={ONE_SECOND: 1200})

    answer = kdi()

    head, clicks, orders = answer.out.splitlines()
    assert head.split() == ["STREAM", "DRAINS", "MESSAGES", "P50", "P95", "P99", "LIMITS"]
    assert clicks.split() == ["bronze/clicks", *"------"]
    assert orders.split(maxsplit=3)[:3] == ["bronze/orders", "1", "1,200"]
    assert orders.endswith("warn 5 min, fail 2 h")


def test_a_log_that_cannot_be_read_costs_its_own_line_and_the_exit_code(kdi: Kdi, lake: str) -> None:
    log = Path(lake) / "bronze/clicks/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("this is no commit")
    TableByHand(lake).drain(10)

    answer = kdi("--json")

    clicks, orders = answer.objects
    assert answer.code == 1
    assert (clicks["drains"], clicks["error"]["type"]) == (None, "TableUnreadable")
    assert (orders["drains"], orders["error"]) == (1, None)
