"""Rows that end: dates that are kept no longer leave, and the ledger still accounts for every offset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.operate.upkeep.expiry import Expiry, expire
from kdi_assets.operate.upkeep.unconsumed import Followers
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream

TODAY = datetime.now(UTC).date()
KEPT_DAYS = 10
RECORD: dict[str, Any] = {
    "record_ddl": "id int, day string",
    "columns": {},
    "coordinates": "kafka",
    "date_expression": "to_date(day)",
}
NOBODY = Followers((), (), Path())


def day(age: int) -> date:
    return TODAY - timedelta(days=age)


def message(number: int, age: int) -> str:
    return f'{{"id": {number}, "day": "{day(age)}"}}'


def at_age(age: int) -> datetime:
    return datetime(*day(age).timetuple()[:3], 12, tzinfo=UTC)


@pytest.fixture
def aged(driven: DrivenFactory) -> DrivenStream:
    """Rows of 12, 11 and 10 days ago and of today, and a broken message of 11 and of 3 days ago; all are kept."""
    web = driven(partitions=1, **RECORD)
    web.send(message(0, 12), message(1, 11), timestamp=at_age(11))
    web.send('{"id": 2, "day"', timestamp=at_age(11))
    web.drain()
    web.send('{"id": 3, "day"', timestamp=at_age(3))
    web.send(message(4, 10), message(5, 0), message(6, 11), timestamp=at_age(0))
    web.drain()
    return web


def keeping(web: DrivenStream, days: int = KEPT_DAYS) -> DrivenStream:
    """The stream with `keep`."""
    web.stream = replace(web.stream, keep_days=days)
    return web


def expired(
    web: DrivenStream, followers: Followers = NOBODY, *, at: Callable[[str], None] = lambda point: None
) -> Expiry:
    """The stream keeps its rows for ten days from now on; what is older leaves."""
    done = expire(keeping(web).stream, web.lake, followers, session=web.session, now=datetime.now(UTC), at=at)
    assert done is not None
    return done


def ids(web: DrivenStream) -> list[int]:
    return sorted(row["id"] for row in web.rows())


@pytest.mark.core
def test_dates_that_are_kept_no_longer_leave_and_the_audit_closes(aged: DrivenStream) -> None:
    web = aged
    positions, before = web.entries()[-1].positions, web.version()

    done = expired(web)
    audit, newest, compared = web.audit(), web.entries()[-1], web.compare()
    again, idle = expired(web), web.drain()

    assert (newest.kind, newest.version, newest.positions) == ("expire", before + 1, positions)
    assert (newest.kept_from, dict(newest.removed_by_date)) == (day(10), {day(12): 1, day(11): 2})
    assert (done.rows, done.dead_letters) == (3, 1)
    assert ids(web) == [4, 5]
    assert [letter["offset"] for letter in web.letters()] == [3]
    assert (audit.complete, audit.offsets, audit.rows, audit.dead_letters) == (True, 7, 2, 1)
    assert (audit.kept_no_longer, audit.erased) == (4, 0)
    assert "4 kept no longer" in audit.line()
    assert (compared.changed, compared.absent) == (0, 0), "the broker still has them, and nobody misses them"
    assert (again.committed, idle.commits) == (None, ())
