"""What `kdi status` says about a stream, to people and to programs."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kdi_assets.cli.output import plain
from kdi_assets.cli.screen import cropped
from kdi_assets.cli.stream_status import HEAD, StreamStatus, text
from kdi_assets.drain.backlog import Backlog, PartitionBacklog, State, StatusWord
from kdi_assets.drain.refusals import RetentionPassedPosition
from kdi_assets.errors import KdiError
from kdi_assets.ledger.log import NotADeltaTable
from kdi_assets.ledger.table_facts import DataFiles, TableFacts
from kdi_assets.sources.kafka import BrokerUnreachable
from kdi_assets.stream import KafkaCluster, Status, Stream, TopicPartition

NOW = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
TP = TopicPartition("orders", 0)
MAIN = KafkaCluster("main", "localhost:9092")
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
) -> StreamStatus:
    stream = Stream("orders", table, "id bigint", "current_date()", MAIN, status=said)
    waits: dict[str, Any] = {"lag_seconds": lag, "arrival_rate": 10.0, "time_to_loss_seconds": loss} if offsets else {}
    word = StatusWord.WARN if offsets else StatusWord.OK
    partitions = {TP: PartitionBacklog(100, 100 + offsets, 0, word=word, **waits)} if looked else {}
    backlog = Backlog(stream.name, partitions, offsets, waits.get("lag_seconds"), refusal, held)
    drained_at = NOW - drained_ago if drained_ago else None
    return StreamStatus(stream, backlog, TableFacts(9, drained_at, 700, 0, files=DataFiles(30, 5000, 12)))


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
def test_a_line_tells_backlog_lag_times_letters_files_last_drain_and_state(
    given: StreamStatus, cells: tuple[str, ...]
) -> None:
    """What never comes and what is unknown are not the same."""
    assert given.cells(NOW) == ("bronze/orders", *cells)


def test_an_open_transaction_is_told_below_the_table() -> None:
    assert text([status(0, held=12)], NOW).splitlines()[-1] == (
        "bronze/orders: 12 offsets are held back by an open transaction"
    )


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

    seen = StreamStatus(status().stream, unread, TableFacts())

    assert seen.cells(NOW) == ("bronze/orders", "?", "?", "?", "?", "-", "-", "-", "refused")
    assert seen.fields()["backlog_offsets"] is None
    assert seen.fields()["backlog_bytes"] is None


def test_of_a_silent_broker_nothing_is_claimed() -> None:
    fields = status(0, refusal=SILENT, looked=False).fields()

    assert (fields["backlog_offsets"], fields["state"]) == (None, "unreachable")


def test_programs_read_raw_numbers_and_every_topic_partition() -> None:
    told = json.loads(json.dumps(plain(status(1234, loss=math.inf).fields()), allow_nan=False))

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

    lines = text([longest, status()], NOW).splitlines()

    assert lines[0].split("  ")[0] == HEAD[0]
    assert max(map(len, lines[:3])) <= 120


def test_a_refusal_is_told_in_full_once_for_all_its_streams() -> None:
    told = text([status(refusal=SILENT, looked=False), status(refusal=SILENT, looked=False)], NOW)

    assert told.count("no answer from localhost:1") == 1
    assert told.count("unreachable") == 2


def test_a_screen_that_is_too_small_says_how_much_it_does_not_show() -> None:
    assert cropped("head\none\ntwo\nthree", columns=4, lines=3) == ["head", "one", "… 2…"]
    assert cropped("head\none", columns=4, lines=3) == ["head", "one"]
