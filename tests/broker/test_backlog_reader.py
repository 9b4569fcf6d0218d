"""The backlog of real topics and tables: times, sizes, losses, and what is cached."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.errors import TableNotMoved
from kdi_assets.delta.log import TableLog
from kdi_assets.operate.monitoring import ledger_cache
from kdi_assets.operate.monitoring.backlog import State
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader, read_backlog
from kdi_assets.operate.monitoring.freshness import quantiles
from kdi_assets.streams.drain.plan_errors import StreamRetired
from kdi_assets.streams.drain.snapshot import fresh_ledger
from kdi_assets.streams.ledger.recent_commits import recent_commits
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults.topics import delete_records

HOUR_MS = "3600000"
REQUEST = b'{"status": 200, "meta": {"producer": {"timestamp": "2026-07-01T12:00:00Z"}}}'


def publish(web: DrivenStream, *, ago: timedelta = timedelta(0), count: int = 1) -> None:
    """Produce messages with a past timestamp to topic partition 0."""
    web.send(*[REQUEST] * count, timestamp=datetime.now(UTC) - ago)


def test_a_drain_records_when_it_was_planned_what_it_saw_and_how_old_and_large_its_messages_were(
    driven: DrivenFactory,
) -> None:
    web = driven(partitions=2)
    publish(web, ago=timedelta(minutes=10), count=9)
    publish(web)

    web.drain()

    entry = web.entries()[-1]
    assert entry.ends == {web.tp(0): 10, web.tp(1): 0}
    assert sum(entry.ages.values()) == 10
    assert entry.message_bytes == 10 * len(REQUEST)
    assert set(entry.seconds) == {"read and write", "dead letters", "account"}
    assert entry.planned_at is not None
    assert quantiles([(entry.ages, 0.0)], [0.5, 0.99]) == pytest.approx([600, 600], rel=0.1)


@pytest.mark.core
def test_a_backlog_is_told_with_its_age_its_size_and_the_time_until_it_is_lost(driven: DrivenFactory) -> None:
    web = driven(partitions=2, config={"retention.ms": HOUR_MS})
    publish(web, count=10)
    web.drain()
    publish(web, ago=timedelta(minutes=10), count=30)

    seen = read_backlog(web.stream, web.lake)

    assert (seen.offsets, seen.bytes) == (30, 30 * len(REQUEST))
    assert seen.lag_seconds == pytest.approx(600, abs=30)
    assert seen.arrival_rate == pytest.approx(30 / 600, rel=0.1)
    assert seen.time_to_loss_seconds == pytest.approx(3000, abs=30)
    assert seen.time_to_close_seconds is not None
    assert seen.time_to_close_seconds < 10
    assert seen.word is State.OK, "a commit came a moment ago"


def test_an_idle_topic_is_ok_and_what_waits_and_is_not_drained_has_stopped_after_a_while(driven: DrivenFactory) -> None:
    web = driven(partitions=2)
    web.produce(10)
    web.drain()

    seen = read_backlog(web.stream, web.lake)
    web.produce(10)
    (now,) = BacklogReader()([web.stream], lake=web.lake)
    (later,) = BacklogReader(clock=lambda: datetime.now(UTC) + timedelta(minutes=10))([web.stream], lake=web.lake)

    assert (seen.offsets, seen.word, seen.time_to_close_seconds, seen.time_to_loss_seconds) == (0, "OK", 0.0, None)
    assert (now.word, later.word) == (State.OK, State.STOP)


def test_a_table_is_opened_again_only_when_it_has_a_new_version(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, other, see = driven(), driven(), BacklogReader()
    for stream in (web, other):
        stream.produce(10, bad=0.5)
        stream.drain()
    opened: list[str] = []

    def counted(stream: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(stream.name)
        return fresh_ledger(stream, *arguments, **options)

    monkeypatch.setattr(ledger_cache, "fresh_ledger", counted)
    for _ in range(2):
        see([web.stream, other.stream], lake=web.lake)
    assert sorted(opened) == sorted([web.stream.name, other.stream.name])

    web.produce(10)
    web.drain()
    opened.clear()
    first, _ = see([web.stream, other.stream], lake=web.lake)
    assert (opened, first.offsets) == ([web.stream.name], 0)


def test_what_happened_to_letters_and_topic_is_seen_though_the_table_did_not_move(driven: DrivenFactory) -> None:
    """Procedure: read the backlog; retention passes the position; the dead letters are restored; read after each."""
    web, see, refusals = driven(partitions=1), BacklogReader(), list[str]()
    for seed in (1, 2):
        web.produce(10, bad=0.5, seed=seed)
        web.drain()
    web.produce(10)

    for happens in (
        lambda: None,
        lambda: delete_records(web, {0: 25}),
        lambda: DeltaTable(web.stream.dead_letters_uri(web.lake)).restore(0),
    ):
        happens()
        refusals.append(type(see([web.stream], lake=web.lake)[0].refusal).__name__)

    assert refusals == ["NoneType", "RetentionPassedPosition", "DeadLettersReplaced"]


def test_streams_of_one_topic_have_lags_of_their_own(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    publish(web, ago=timedelta(hours=1))
    web.drain()
    publish(web, ago=timedelta(minutes=1))
    second = web.with_definition(table="bronze/second", app_id="second")

    first_seen, second_seen = BacklogReader()([web.stream, second.stream], lake=web.lake)

    assert first_seen.lag_seconds == pytest.approx(60, abs=30)
    assert second_seen.lag_seconds == pytest.approx(3600, abs=30)


def test_a_paused_stream_is_drained_when_a_person_asks_and_a_retired_one_not_even_looked_for(
    driven: DrivenFactory,
) -> None:
    paused = driven(status="paused")
    produced = paused.produce(10)
    paused.drain()
    retired = paused.with_definition(topic="went_away", status="retired")

    seen = read_backlog(retired.stream, retired.lake)
    with pytest.raises(StreamRetired):
        retired.drain()

    paused.assert_each_offset_once(produced)
    assert (seen.refusal, seen.known) == (None, False)


def test_a_renamed_stream_goes_on_where_it_was_once_its_folders_are_moved(driven: DrivenFactory) -> None:
    web = driven()
    web.produce(20, bad=0.2, seed=1)
    web.drain()
    renamed = web.with_definition(table="bronze/renamed", renamed_from=web.stream.table)

    with pytest.raises(TableNotMoved, match="mv "):
        renamed.drain()
    for beside in ("", "_dead_letters"):
        Path(web.uri + beside).rename(Path(renamed.uri + beside))
    produced = web.produce(30, bad=0.2, seed=2)
    renamed.drain()

    assert len(recent_commits(TableLog.open(renamed.uri), web.stream.app_id)) == 3
    renamed.assert_each_offset_once(produced)
