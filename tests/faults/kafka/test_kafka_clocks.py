"""Time: wrong clocks, zones, and an unusual number of dates in one drain."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from tests.conftest import DrivenFactory
from tests.driven import WEB_REQUESTS, DrivenStream

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SKEWED = [
    NOON - timedelta(days=400),
    NOON,
    datetime(2099, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
    NOON + timedelta(milliseconds=1),
    NOON - timedelta(milliseconds=1),
    datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    NOON,
]
"""The timestamps of messages, in the order of their offsets."""


def request(day: str, **fields: object) -> str:
    """A good message with an event time on that day."""
    stamp = day if "T" in day else f"{day}T10:00:00+00:00"
    return json.dumps({"meta": {"producer": {"timestamp": stamp}}, "url": "https://a.b/", **fields})


def produce_skewed(web: DrivenStream) -> None:
    """One message with each of the times, all with a good event date."""
    for moment in SKEWED:
        web.send(request("2026-03-01"), timestamp=moment)


@pytest.mark.scenario("clock skew, wrong event times")
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_producers_with_wrong_clocks_move_nothing_but_their_own_messages(driven: DrivenFactory, kind: str) -> None:
    """Purpose: positions, commits and lag must not depend on a producer's clock.
    Procedure: Kafka timestamps of 1970, 2038, 2099 and out of order; event dates of 1970, 2099 and of no calendar; on
    topics that keep the producer's time, and on those that use the broker's; read the backlog; drain; read it again.
    Pass: each message is there once with the time that the topic keeps; the event dates outside the window are dead
    letters for that reason; the lag is a number, never below 0.
    """
    web = driven(partitions=1, config={**ANY_TIME, "message.timestamp.type": kind})
    produce_skewed(web)
    days = ("1970-01-01", "2099-12-31", "0000-00-00", "9999-12-31", "-2026-03-01", "20260301")
    produced = web.send(*map(request, days))

    lag = read_backlog(web.stream, web.lake).lag_seconds
    report = web.drain()

    assert lag is not None and report.lag_seconds is not None
    assert min(lag, report.lag_seconds) >= 0
    assert (max(lag, report.lag_seconds) < 3600) == (kind == "LogAppendTime")
    assert report.rows_by_date == {date(2026, 3, 1): len(SKEWED)}
    reasons = web.letters("reason")
    assert reasons.count("date_outside_window") >= 3 and len(reasons) == 6
    web.assert_each_offset_once(produced)
    assert read_backlog(web.stream, web.lake).offsets == 0


@pytest.mark.scenario("clock skew, wrong event times")
@pytest.mark.parametrize("start", [NOON, datetime(2050, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)])
def test_a_start_at_a_moment_goes_by_the_first_message_that_claims_it(driven: DrivenFactory, start: datetime) -> None:
    """Purpose: timestamps are not sorted; a start is still one offset, and everything after it arrives.
    Procedure: messages with timestamps out of order; streams that start at a moment that several messages have, that
    one has, that none has; drain; one more message; drain.
    Pass: everything from the first offset whose timestamp is not before the moment; if there is none, from the end.
    """
    web = driven(partitions=1, config=ANY_TIME, start=start)
    produce_skewed(web)

    web.drain()
    produced = web.send(request("2026-03-01"))
    web.drain()

    first = next((offset for offset, moment in enumerate(SKEWED) if moment >= start), len(SKEWED))
    web.assert_each_offset_once([m for m in produced if m.offset >= first])


@pytest.fixture
def far_from_utc(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process and its JVM use the time zone of New York."""
    assert spark._jvm is not None
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    zones.setDefault(zones.getTimeZone("America/New_York"))
    yield
    zones.setDefault(before)
    monkeypatch.delenv("TZ")
    time.tzset()


@pytest.mark.scenario("time zones at the date's boundary")
@pytest.mark.usefixtures("far_from_utc")
@pytest.mark.parametrize("declared", ["timestamp", "string"])
def test_a_date_is_that_of_utc_whatever_the_zone_of_event_and_machine(driven: DrivenFactory, declared: str) -> None:
    """Purpose: around midnight and at clock changes, another zone gives another date.
    Procedure: event times around midnight, at the turn of a year and at changes to and from summer time, written with
    offsets from -12:00 to +14:00; the field is declared as a timestamp, or as a string that the expression casts;
    process and JVM are in New York; drain.
    Pass: the date of each row is the one that Python computes in UTC.
    """
    dates = "to_date(at)" if declared == "timestamp" else "to_date(cast(at AS timestamp))"
    web = driven(partitions=1, record_ddl=f"{WEB_REQUESTS}, at {declared}", date_expression=dates)
    values = []
    turns = ["2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01", "2026-01-01", "2024-03-01"]
    for turn in turns:
        for seconds in (-3601, -1, 0, 1, 3599, 3600, 7200):
            moment = datetime.fromisoformat(turn).replace(tzinfo=UTC) + timedelta(seconds=seconds)
            for hours in (-12, -5, -4, 0, 1, 2, 5.75, 14):
                local = moment.astimezone(timezone(timedelta(hours=hours)))
                # The oracle compares the date with the first field, which is UTC already.
                values.append(request(moment.isoformat(), at=local.isoformat()))

    produced = web.send(*values)
    report = web.drain()

    assert report.dead_letters == 0
    web.assert_each_offset_once(produced)


@pytest.mark.scenario("many dates in one drain")
def test_a_drain_of_many_dates_is_one_commit_and_one_file_each(driven: DrivenFactory) -> None:
    """Purpose: late messages of months come at once; a commit or several files for each date would slow readers down.
    Procedure: messages of 66 dates over three topic partitions; drain.
    Pass: one commit, one file for each date; every date has its event.
    """
    web = driven(partitions=3)
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=n) for n in range(66)]
    for partition in range(3):
        produced = web.send(*(request(day.isoformat()) for day in days * 2), partition=partition)

    report = web.drain()

    assert (len(report.commits), report.rows_by_date) == (1, dict.fromkeys(days, 6))
    assert len(list(Path(web.uri).rglob("*.parquet"))) == len(days)
    web.assert_each_offset_once(produced)
