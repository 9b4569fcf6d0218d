"""Streams whose rows end: messages of some age, and the expiry of what is kept no longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from kdi_assets.operate.upkeep.expiry import Expiry, expire
from kdi_assets.operate.upkeep.unconsumed import Followers
from kdi_assets.streams.ledger.history import history_of
from kdi_assets.streams.ledger.letters import dead_letters_with_state
from tests.driven import DrivenStream

TODAY = datetime.now(UTC).date()
KEPT_DAYS = 10
RECORD: dict[str, Any] = {
    "record_ddl": "id int, day string",
    "columns": {"note": "'new'"},
    "coordinates": "kafka",
    "date_expression": "to_date(day)",
}
NOBODY = Followers((), (), Path())


def day(age: int) -> date:
    return TODAY - timedelta(days=age)


def message(number: int, age: int) -> str:
    return f'{{"id": {number}, "day": "{day(age)}"}}'


def at_age(age: int) -> datetime:
    """Noon of that day; today, if it is not noon yet, now: a broker refuses messages of the future."""
    return min(datetime(*day(age).timetuple()[:3], 12, tzinfo=UTC), datetime.now(UTC))


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


class Crash(BaseException):
    pass


def crash() -> None:
    raise Crash


def shown_letters(web: DrivenStream) -> list[Any]:
    history = history_of(web.stream, web.lake)
    assert history is not None
    letters = dead_letters_with_state(web.session(), web.stream, web.lake, history)
    return letters.where("state = 'open'").orderBy("offset").collect()


def stored_letters(web: DrivenStream) -> list[int]:
    stored = DeltaTable(web.stream.dead_letters_uri(web.lake)).to_pyarrow_table(columns=["offset"])
    return sorted(stored["offset"].to_pylist())
