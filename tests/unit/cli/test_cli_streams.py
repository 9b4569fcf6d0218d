"""What `kdi freshness` and `kdi status` say about streams, to people and to programs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.cli.operate.status import HEAD, stream_cells, text
from kdi_assets.cli.output import to_json
from kdi_assets.delta.errors import NotADeltaTable
from kdi_assets.documents.model.stream import Cluster, Status, Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.operate.monitoring.backlog import Backlog, PartitionBacklog, State
from kdi_assets.operate.monitoring.freshness import bucket_seconds
from kdi_assets.operate.monitoring.status_row import json_fields
from kdi_assets.operate.monitoring.stream_row import StreamRow
from kdi_assets.operate.monitoring.table_facts import DataFiles, TableFacts
from kdi_assets.streams.drain.plan_errors import RetentionPassedPosition
from kdi_assets.streams.ledger.entry import BUCKETS_PER_OCTAVE, HIGHEST_BUCKET, LOWEST_BUCKET
from tests.documents import stream as a_document
from tests.documents import written
from tests.table_by_hand import TableByHand
from tests.typed import Kdi
from tests.unit.monitoring.backlogs import waits

ONE_SECOND, EIGHT_SECONDS, A_WHILE = 0, 3 * BUCKETS_PER_OCTAVE, 8 * BUCKETS_PER_OCTAVE  # buckets


@pytest.mark.parametrize("seconds", [0.2, 7.3, 86_400.0 * 30])
def test_the_middle_of_a_bucket_is_within_five_per_cent_of_every_age_in_it(seconds: float) -> None:
    bucket = math.floor(math.log2(seconds) * BUCKETS_PER_OCTAVE)

    assert LOWEST_BUCKET < bucket < HIGHEST_BUCKET
    assert bucket_seconds(bucket) == pytest.approx(seconds, rel=0.05)


def test_quantiles_are_of_the_messages_of_the_last_hours_and_of_all_their_drains(kdi: Kdi, lake: str) -> None:
    table = TableByHand(lake)
    table.drain(100, ago=timedelta(hours=30), ages={A_WHILE: 100})
    table.drain(94, ago=timedelta(hours=2), ages={ONE_SECOND: 94}, wait=2.0)
    table.drain(6, ago=timedelta(hours=1), ages={EIGHT_SECONDS: 6}, wait=4.0)

    answer = kdi("freshness", "orders", "--json")
    longer = kdi("freshness", "orders", "--json", "--hours", "48")

    (said,) = answer.objects
    assert (answer.code, said["drains"], said["messages"], said["error"]) == (0, 2, 100, None)
    assert said["p50_seconds"] == pytest.approx(3.0, rel=0.05)
    assert said["p95_seconds"] == pytest.approx(12.0, rel=0.05)
    assert (said["warn_seconds"], said["fail_seconds"]) == (300, 7200)
    assert longer.objects[0]["p95_seconds"] == pytest.approx(258.0, rel=0.05)


def test_a_line_for_each_stream_and_dashes_where_nothing_is_known(kdi: Kdi, tmp_path: Path, lake: str) -> None:
    written(tmp_path, clicks=a_document("bronze/clicks"))
    TableByHand(lake).drain(1200, ages={ONE_SECOND: 1200})

    answer = kdi("freshness")

    head, clicks, orders = answer.out.splitlines()
    assert head.split() == ["STREAM", "DRAINS", "MESSAGES", "P50", "P95", "P99", "LIMITS"]
    assert clicks.split() == ["bronze/clicks", *"------"]
    assert orders.split(maxsplit=3)[:3] == ["bronze/orders", "1", "1,200"]
    assert orders.endswith("warn 5 min, fail 2 h")


def test_a_log_that_cannot_be_read_costs_its_own_line_and_the_exit_code(kdi: Kdi, tmp_path: Path, lake: str) -> None:
    written(tmp_path, clicks=a_document("bronze/clicks"))
    log = Path(lake) / "bronze/clicks/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("this is no commit")
    TableByHand(lake).drain(10)

    answer = kdi("freshness", "--json")

    clicks, orders = answer.objects
    assert answer.code == 1
    assert (clicks["drains"], clicks["error"]["type"]) == (None, "TableUnreadable")
    assert (orders["drains"], orders["error"]) == (1, None)


NOW = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
TP = TopicPartition("orders", 0)
MAIN = Cluster("main", "localhost:9092")
SILENT = BrokerUnreachable(cluster="main", bootstrap_servers="localhost:1", detail="timed out")
LOST = RetentionPassedPosition(stream="bronze/orders", topic_partition=TP, position=10, earliest=25)


def status(
    offsets: int = 0,
    *,
    refusal: KdiError | None = None,
    drained_ago: timedelta | None = timedelta(minutes=1),
    looked: bool = True,
    held: int = 0,
    said: Status = "active",
    table: str = "bronze/orders",
    lag: float = 38.2,
    loss: float | None = 7500.0,
) -> StreamRow:
    stream = Stream("orders", table, "id bigint", "current_date()", MAIN, status=said)
    waiting: dict[str, Any] = {"rate": 10.0, "loss": loss, "word": State.WARN} if offsets else {}
    backlog = waits(offsets, lag if offsets else None, stream=table, held=held, refusal=refusal, **waiting)
    backlog = backlog if looked else replace(backlog, topic_partitions={})
    drained_at = NOW - drained_ago if drained_ago else None
    return StreamRow(stream, backlog, TableFacts(9, drained_at, 700, 0, files=DataFiles(30, 5000, 12)))


@pytest.mark.parametrize(
    ("given", "cells"),
    [
        (status(0), ("0", "-", "-", "-", "0", "12", "11:59:00Z", "OK")),
        (status(0, drained_ago=timedelta(days=2)), ("0", "-", "-", "-", "0", "12", "2026-06-29", "OK")),
        (status(0, drained_ago=None), ("0", "-", "-", "-", "0", "12", "-", "OK")),
        (status(1234), ("1,234", "38s", "2s", "2h 5m", "0", "12", "11:59:00Z", "WARN")),
        (status(5, loss=math.inf), ("5", "38s", "2s", "never", "0", "12", "11:59:00Z", "WARN")),
        (status(5, loss=None), ("5", "38s", "2s", "?", "0", "12", "11:59:00Z", "WARN")),
        (status(5, loss=0.0), ("5", "38s", "2s", "0s", "0", "12", "11:59:00Z", "WARN")),
        (status(0, said="retired", looked=False), ("-", "-", "-", "-", "0", "12", "11:59:00Z", "retired")),
        (status(0, refusal=SILENT, looked=False), ("?", "?", "?", "?", "0", "12", "11:59:00Z", "unreachable")),
    ],
)
def test_a_line_has_backlog_lag_letters_files_drain_and_state(given: StreamRow, cells: tuple[str, ...]) -> None:
    """Never and unknown are different."""
    assert stream_cells(given, NOW) == ("bronze/orders", *cells)


@pytest.mark.parametrize(
    ("refusal", "said", "state"),
    [
        (None, "active", State.WARN),
        (None, "paused", State.PAUSED),
        (LOST, "active", State.REFUSED),
        (LOST, "paused", State.REFUSED),
        (SILENT, "active", State.UNREACHABLE),
        (None, "retired", State.RETIRED),
    ],
)
def test_the_state_is_what_matters_most(refusal: KdiError | None, said: Status, state: State) -> None:
    assert status(90, refusal=refusal, said=said).state == state


def test_where_positions_cannot_be_read_no_backlog_is_claimed() -> None:
    held = {TP: PartitionBacklog(None, 90, 0)}
    unread = Backlog("bronze/orders", held, 0, None, NotADeltaTable(uri="/lake/orders"), 0)

    seen = StreamRow(status().stream, unread, TableFacts())

    assert stream_cells(seen, NOW) == ("bronze/orders", "?", "?", "?", "?", "-", "-", "-", "refused")
    assert json_fields(seen)["backlog_offsets"] is None
    assert json_fields(seen)["backlog_bytes"] is None


def test_programs_read_raw_numbers_and_every_topic_partition() -> None:
    told = json.loads(json.dumps(to_json(json_fields(status(1234, loss=math.inf))), allow_nan=False))

    assert told["topic_partitions"]["orders/0"] == {
        "earliest": 0,
        "position": 100,
        "end": 1334,
        "backlog_offsets": 1234,
        "lag_seconds": 38.2,
        "arrival_rate_offsets_per_second": 10.0,
        "time_to_loss_seconds": None,
        "open_transaction_offsets": 0,
        "status": "WARN",
    }
    assert (told["state"], told["backlog_offsets"], told["lag_seconds"]) == ("WARN", 1234, 38.2)
    assert (told["table_files"], told["table_bytes"], told["small_files"]) == (30, 5000, 12)
    assert (told["drained_at"], told["time_to_loss_seconds"]) == ("2026-07-01T11:59:00Z", None)


def test_the_table_fits_120_columns_with_large_numbers_and_long_times() -> None:
    longest = status(999_999_999, lag=86399, loss=8_639_999, refusal=SILENT, table="bronze/" + "t" * 17)

    lines = text([longest, status()], [], NOW).splitlines()

    assert lines[0].split("  ")[0] == HEAD[0]
    assert max(map(len, lines[:3])) <= 120


def test_a_refusal_is_told_in_full_once_for_all_its_streams() -> None:
    silent = status(refusal=SILENT, looked=False)
    shared = status(table="bronze/clicks")
    shared = replace(shared, table=replace(shared.table or TableFacts(), deployments=("lake-1:/kdi", "laptop:/kdi")))
    told = text([silent, silent, status(held=12), shared], [], NOW)

    assert json_fields(silent)["backlog_offsets"] is None
    assert "bronze/orders: 12 offsets are held back by an open transaction" in told.splitlines()
    assert "bronze/clicks: drained in turns by lake-1:/kdi and laptop:/kdi: nothing is lost or twice; " in told
    assert json_fields(shared)["deployments_in_turns"] == ["lake-1:/kdi", "laptop:/kdi"]
    assert told.count("no answer from localhost:1") == 1
    assert told.count("unreachable") == 2
