"""Replay of dates: messages are read again and become what today's definition makes of them, each exactly once."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Any

from deltalake import DeltaTable

from kdi_assets.ledger.history import entries
from kdi_assets.ledger.log import TableLog
from kdi_assets.message_rules import DeadLetterLimit
from kdi_assets.replay.replay_dates import Replayed, look_at_dates, replay_dates
from tests.condemned import RIGHT
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream

DAYS = [date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3)]
BY_OFFSET = "date_add(DATE'2026-01-01', CAST(kafka.offset % 3 AS INT))"
"""Every third offset is of one date."""
BEFORE = {"host": "concat('old ', parse_url(url, 'HOST'))"}


def by_offset(driven: DrivenFactory, count: int = 90, **fields: Any) -> DrivenStream:
    """A stream whose rows were made by an old definition, over three dates."""
    given = {"date_expression": BY_OFFSET, "columns": BEFORE, "dead_letter_limit": DeadLetterLimit(share=1.0), **fields}
    web = driven(partitions=2, **given)
    web.produce(count, bad=0.2)
    web.drain()
    return web


def replayed(web: DrivenStream, first: date, last: date | None = None, **options: Any) -> Replayed:
    return replay_dates(web.stream, lake=web.lake, session=web.session, first=first, last=last or first, **options)


def looked_at(web: DrivenStream, first: date, last: date | None = None, **options: Any) -> Replayed:
    return look_at_dates(web.stream, lake=web.lake, session=web.session, first=first, last=last or first, **options)


def hosts(web: DrivenStream) -> Counter[tuple[date, bool]]:
    """Rows by date, and whether an old definition made them."""
    return Counter((r["date"], r["host"].startswith("old ")) for r in web.found().rows)


def files_of(web: DrivenStream, day: date) -> set[str]:
    return {file for file in TableLog.existing(web.uri).files if f"date={day}" in file}


def test_a_date_becomes_what_todays_definition_makes_of_its_messages_and_no_other_file_is_touched(
    driven: DrivenFactory,
) -> None:
    """Procedure: look at the middle one of three dates, replay it, and again; its rows are other ones by now."""
    web = by_offset(driven).with_definition(columns=RIGHT)
    before, others = hosts(web), files_of(web, DAYS[0]) | files_of(web, DAYS[2])

    looked = looked_at(web, DAYS[1])
    done = replayed(web, DAYS[1])
    again = replayed(web, DAYS[1])

    rows = before[DAYS[1], True]
    assert hosts(web) == {
        (DAYS[0], True): before[DAYS[0], True],
        (DAYS[1], False): rows,
        (DAYS[2], True): before[DAYS[2], True],
    }
    web.assert_each_offset_once(web.produce(0))
    assert files_of(web, DAYS[0]) | files_of(web, DAYS[2]) == others
    assert done.outcomes == looked.outcomes == {"row": rows}
    assert done.changes == looked.changes == {"changed": rows}
    assert (done.rows_by_date, done.removed_by_date) == ({DAYS[1]: rows}, {DAYS[1]: rows})
    assert (again.commit, again.changes) == (None, {"same": rows})
    assert web.audit().complete
    assert len(DeltaTable(web.uri).history()) == 3
    assert [e.kind for e in entries(web.uri, web.stream.app_id)] == ["start", "drain", "replay"]
