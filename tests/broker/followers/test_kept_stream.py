"""What follows a stream whose rows end: with the commits of a real stream, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream_fields import Announce
from kdi_assets.follow.refine.audit.audit import audit_refined
from kdi_assets.follow.refine.refine import refine
from kdi_assets.operate.erase.erase import erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.operate.upkeep.expiry import expire
from kdi_assets.operate.upkeep.unconsumed import Followers
from kdi_assets.streams.announce.announce import announce
from kdi_assets.streams.replay.replay_dates import replay_dates
from tests.conftest import DrivenFactory, TopicFactory
from tests.driven import DrivenStream
from tests.faults.topics import await_markers
from tests.refined import refined_table
from tests.tables.announced import announcements, assert_each_version_once

NOW = datetime.now(UTC)
MADE: dict[str, dict[str, Any]] = {
    "copy": {"sql": "SELECT id, date FROM kept"},
    "sums": {"mode": {"aggregate": {"by": ["date"], "measures": {"n": "count", "ids": {"sum": "id"}}}}},
    "once": {"sql": "SELECT id, date FROM kept", "mode": {"deduplicate": {"keys": ["id"], "order_by": "id"}}},
}


def day(age: int) -> date:
    return NOW.date() - timedelta(days=age)


def message(number: int, age: int) -> str:
    return f'{{"id": {number}, "day": "{day(age)}"}}'


def rows(web: DrivenStream, table: RefinedTableSpec) -> list[tuple[object, ...]]:
    read = DeltaTable(table.table_uri(web.lake)).to_pyarrow_table().to_pylist()
    return sorted(tuple(row[name] for name in sorted(row)) for row in read)


def computed(web: DrivenStream, table: RefinedTableSpec) -> list[tuple[object, ...]]:
    """The rows of a table by what is in the stream's table now."""
    found = sorted(web.rows("date", "id"))
    if table.name.endswith("sums"):
        ids = {day: [number for of, number in found if of == day] for day, _ in found}
        return [(day, sum(of_day), len(of_day)) for day, of_day in ids.items()]
    return sorted(set(found)) if table.name.endswith("once") else found


def test_tables_made_of_a_stream_keep_the_dates_that_it_does_not_whatever_it_does_next(
    driven: DrivenFactory, topic: TopicFactory
) -> None:
    """Procedure: rows of four dates, two of which leave; then a late message, a RESTORE, a replay of dates, a rewind
    and an erasure, each with a drain, a refinement and the upkeep that removes what came back.
    Pass: after each, the dates that left are as they were, the others as computed of the stream's table; the audit
    agrees; the removal is announced, and each version once.
    """
    web = driven(
        partitions=1,
        record_ddl="id int, day string",
        columns={},
        coordinates="kafka",
        date_expression="to_date(day)",
        announce=Announce(topic()),
    )
    made = [
        refined_table(**{"table": f"silver/{name}", "from": [{"table": web.stream.table, "as": "kept"}], **fields})
        for name, fields in MADE.items()
    ]
    followers = Followers(tuple(made), (), Path())

    def follow() -> None:
        for table in made:
            refine(table, lake=web.lake, session=web.session)

    def ended() -> bool:
        announce(web.stream, web.lake)
        done = expire(web.stream, web.lake, followers, session=web.session, now=NOW)
        assert done is not None and not done.waits_for, done
        return done.committed is not None

    web.send(message(0, 12), message(1, 11), message(2, 10), message(3, 0))
    web.drain()
    web.stream = replace(web.stream, keep_days=10)
    follow()
    kept = {day(10), day(0)}
    frozen = {table.name: [row for row in rows(web, table) if kept.isdisjoint(row)] for table in made}
    before = web.version()
    assert ended()
    steps: dict[str, Callable[[], object]] = {
        "late": lambda: web.send(message(4, 11), message(5, 10), message(6, 0)),
        "restore": lambda: DeltaTable(web.uri).restore(before),
        "replay": lambda: replay_dates(web.stream, lake=web.lake, session=web.session, first=day(30), last=day(0)),
        "rewind": lambda: web.resolve("rewind", topic_partition=web.tp(), to=1),
        "erase": lambda: erase(web.stream, lake=web.lake, session=web.session, chosen=EraseFilter("id = 3")),
    }

    for name, happens in steps.items():
        happens()
        web.drain()
        follow()
        ended()
        follow()
        for table in made:
            assert rows(web, table) == sorted(frozen[table.name] + computed(web, table)), (name, table.name)
    for table in made:
        audit = audit_refined(table, lake=web.lake, session=web.session, everything=True)
        assert audit.equal and audit.first == day(10)
    announce(web.stream, web.lake)

    assert web.stream.announce
    await_markers(web.stream.kafka, web.stream.announce.topic)
    found = announcements(web.stream.kafka, web.stream.announce.topic)
    assert_each_version_once(found, web.uri)
    left = [this for this in found if this.commit == "expire"]
    assert {file.date for file in left[0].removed} == {str(day(12)), str(day(11))} and not left[0].added
