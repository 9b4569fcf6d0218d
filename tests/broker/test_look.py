"""A look at real topics and tables: what it says of time, size and loss, and what it does not ask again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.drain import known
from kdi_assets.drain.backlog import StatusWord
from kdi_assets.drain.look import Look, look
from kdi_assets.drain.survey import fresh_ledger
from kdi_assets.ledger.freshness import quantiles
from kdi_assets.ledger.history import entries
from kdi_assets.ledger.recent import recent_commits
from kdi_assets.stream import DrainWhen, TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults.topics import delete_records
from tests.kafka_log import Publisher

HOUR_MS = "3600000"
REQUEST = b'{"status": 200, "meta": {"producer": {"timestamp": "2026-07-01T12:00:00Z"}}}'


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The streams whose ledgers were read, one by one."""
    read: list[str] = []

    def counted(stream: Any, *arguments: Any, **options: Any) -> Any:
        read.append(stream.name)
        return fresh_ledger(stream, *arguments, **options)

    monkeypatch.setattr(known, "fresh_ledger", counted)
    yield read


def publish(web: DrivenStream, producer: Publisher, *, ago: timedelta, count: int = 1) -> None:
    """Messages of a moment in the past, in topic partition 0."""
    for _ in range(count):
        producer.produce(web.stream.topic, REQUEST, partition=0, timestamp=datetime.now(UTC) - ago)
    producer.flush()


def test_a_drain_records_when_it_was_planned_what_it_saw_and_how_old_and_large_its_messages_were(
    driven: DrivenFactory, producer: Publisher
) -> None:
    web = driven(partitions=2)
    publish(web, producer, ago=timedelta(minutes=10), count=9)
    publish(web, producer, ago=timedelta(0))

    web.drain()

    (*_, entry) = entries(web.uri, web.stream.app_id)
    topic = web.stream.topic
    assert entry.ends == {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 0}
    assert sum(entry.ages.values()) == 10
    assert entry.message_bytes == 10 * len(REQUEST)
    assert set(entry.seconds) == {"read and write", "dead letters", "account"}
    assert entry.planned_at is not None
    p50, p99 = quantiles([(entry.ages, 0.0)], [0.5, 0.99]) or (0, 0)
    assert p50 == pytest.approx(600, rel=0.1)
    assert p99 == pytest.approx(600, rel=0.1)


@pytest.mark.core
def test_a_backlog_is_told_with_its_age_its_size_and_the_time_until_it_is_lost(
    driven: DrivenFactory, producer: Publisher
) -> None:
    web = driven(partitions=2, config={"retention.ms": HOUR_MS})
    publish(web, producer, ago=timedelta(0), count=10)
    web.drain()
    publish(web, producer, ago=timedelta(minutes=10), count=30)

    seen = look(web.stream, web.lake)

    assert (seen.offsets, seen.bytes) == (30, 30 * len(REQUEST))
    assert seen.lag_seconds == pytest.approx(600, abs=30)
    assert seen.arrival_rate == pytest.approx(30 / 600, rel=0.1)
    assert seen.time_to_loss_seconds == pytest.approx(3000, abs=30)
    assert seen.time_to_close_seconds is not None
    assert seen.time_to_close_seconds < 10
    assert seen.word is StatusWord.OK, "a commit came a moment ago"


def test_what_waits_and_is_not_drained_has_stopped_after_a_while(driven: DrivenFactory) -> None:
    web = driven(partitions=2)
    web.produce(10)
    web.drain()
    web.produce(10)

    (now,) = Look()([web.stream], lake=web.lake)
    (later,) = Look(clock=lambda: datetime.now(UTC) + timedelta(minutes=10))([web.stream], lake=web.lake)

    assert (now.word, later.word) == (StatusWord.OK, StatusWord.STOP)


def test_where_a_topic_keeps_so_many_bytes_the_loss_is_foretold_by_its_size(
    driven: DrivenFactory, producer: Publisher
) -> None:
    web = driven(partitions=1, config={"retention.ms": "-1", "retention.bytes": "100000"})
    publish(web, producer, ago=timedelta(0), count=10)
    web.drain()
    publish(web, producer, ago=timedelta(seconds=100), count=200)

    left = look(web.stream, web.lake).time_to_loss_seconds

    room = 100_000 / (len(REQUEST) + 70) - 200
    assert left == pytest.approx(room / 2, rel=0.1)


def test_an_idle_topic_is_ok_and_has_nothing_to_lose(driven: DrivenFactory) -> None:
    web = driven(partitions=2)
    web.produce(10)
    web.drain()

    seen = look(web.stream, web.lake)

    assert (seen.offsets, seen.word, seen.time_to_close_seconds, seen.time_to_loss_seconds) == (0, "OK", 0.0, None)


def test_a_table_is_opened_again_only_when_it_has_a_new_version(driven: DrivenFactory, opened: list[str]) -> None:
    web, other, see = driven(), driven(), Look()
    for stream in (web, other):
        stream.produce(10, bad=0.5)
        stream.drain()
    opened.clear()

    see([web.stream, other.stream], lake=web.lake)
    see([web.stream, other.stream], lake=web.lake)
    assert sorted(opened) == sorted([web.stream.name, other.stream.name])

    web.produce(10)
    web.drain()
    opened.clear()
    first, _ = see([web.stream, other.stream], lake=web.lake)
    assert (opened, first.offsets) == ([web.stream.name], 0)


def test_letters_that_were_restored_are_seen_though_the_table_did_not_move(driven: DrivenFactory) -> None:
    web, see = driven(), Look()
    for seed in (1, 2):
        web.produce(10, bad=0.5, seed=seed)
        web.drain()
    before = see([web.stream], lake=web.lake)[0].refusal

    DeltaTable(web.stream.dead_letters_uri(web.lake)).restore(0)

    refusal = see([web.stream], lake=web.lake)[0].refusal
    assert before is None
    assert type(refusal).__name__ == "DeadLettersReplaced"


def test_a_position_that_retention_passed_is_seen_though_the_table_did_not_move(driven: DrivenFactory) -> None:
    web, see = driven(partitions=1), Look()
    web.produce(10)
    web.drain()
    web.produce(10)
    assert see([web.stream], lake=web.lake)[0].refusal is None

    delete_records(web, {0: 15})

    assert type(see([web.stream], lake=web.lake)[0].refusal).__name__ == "RetentionPassedPosition"


def test_streams_of_one_topic_have_lags_of_their_own(driven: DrivenFactory, producer: Publisher) -> None:
    web = driven(partitions=1)
    publish(web, producer, ago=timedelta(hours=1))
    web.drain()
    publish(web, producer, ago=timedelta(minutes=1))
    second = web.with_definition(table="bronze/second", app_id="second")

    first_seen, second_seen = Look()([web.stream, second.stream], lake=web.lake)

    assert first_seen.lag_seconds == pytest.approx(60, abs=30)
    assert second_seen.lag_seconds == pytest.approx(3600, abs=30)


def test_a_retired_stream_is_not_looked_for_and_not_drained(driven: DrivenFactory) -> None:
    retired = driven().with_definition(topic="went_away", status="retired")

    seen = look(retired.stream, retired.lake)
    with pytest.raises(Exception, match="is retired") as refused:
        retired.drain()

    assert (seen.refusal, seen.known) == (None, False)
    assert type(refused.value).__name__ == "StreamRetired"


def test_a_paused_stream_is_drained_when_a_person_asks(driven: DrivenFactory) -> None:
    paused = driven(status="paused", drain_when=DrainWhen())
    produced = paused.produce(10)

    paused.drain()

    paused.assert_each_offset_once(produced)


def test_a_renamed_stream_goes_on_where_it_was_once_its_folders_are_moved(driven: DrivenFactory) -> None:
    web = driven()
    web.produce(20, bad=0.2, seed=1)
    web.drain()
    renamed = web.with_definition(table="bronze/renamed", renamed_from=web.stream.table)

    with pytest.raises(Exception, match="mv ") as refused:
        renamed.drain()
    for beside in ("", "_dead_letters"):
        Path(web.uri + beside).rename(Path(renamed.uri + beside))
    produced = web.produce(30, bad=0.2, seed=2)
    renamed.drain()

    assert type(refused.value).__name__ == "TableNotMoved"
    assert len(recent_commits(renamed.uri, web.stream.app_id)) == 3
    renamed.assert_each_offset_once(produced)
