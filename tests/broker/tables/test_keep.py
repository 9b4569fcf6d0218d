"""Rows that end: dates that are kept no longer leave, and the ledger still accounts for every offset."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.documents.model.message_rules import Explode, Route
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.refine import refine
from kdi_assets.operate.erase.erase import erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.operate.monitoring.commit_history import commit_history
from kdi_assets.operate.upkeep.document_upkeep import keep_document, plan_upkeep
from kdi_assets.operate.upkeep.expiry import Expiry, expire, plan_expiry
from kdi_assets.operate.upkeep.unconsumed import Followers
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.replay.replay_dates import replay_dates
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, Once
from tests.predecessor.table import COORDINATES, MICROS, PredecessorTable
from tests.refined import refined_table
from tests.tables.kept import (
    NOBODY,
    RECORD,
    TODAY,
    Crash,
    crash,
    day,
    expired,
    ids,
    keeping,
    message,
    shown_letters,
)


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


def test_a_late_message_of_a_date_that_is_kept_no_longer_becomes_a_dead_letter(aged: DrivenStream) -> None:
    web = aged
    expired(web)
    web.send(message(7, 11), message(8, 10))

    web.drain()

    assert ids(web) == [4, 5, 8]
    assert web.letters("offset", "reason")[-1] == (7, "date_outside_window")
    assert web.audit().complete


def test_a_replay_leaves_out_dates_that_are_kept_no_longer_whether_their_rows_left_or_not(aged: DrivenStream) -> None:
    web = keeping(aged)
    web.stream = replace(web.stream, columns={"note": "'seen'"})
    replaying: dict[str, Any] = {"lake": web.lake, "session": web.session, "first": day(30), "last": TODAY}

    replay_dates(web.stream, **replaying)
    before = web.rows("id", "note")
    expired(web)
    replay_dates(web.stream, **replaying)
    audit = web.audit()

    assert before == [(0, "new"), (1, "new"), (4, "seen"), (5, "seen"), (6, "new")], (
        "they leave, and are not judged again"
    )
    assert web.rows("id", "note") == [(4, "seen"), (5, "seen")]
    assert (audit.complete, audit.kept_no_longer, audit.dead_letters) == (True, 4, 1)


def test_a_restore_brings_rows_back_until_the_next_upkeep_and_the_audit_is_right_all_the_time(
    aged: DrivenStream,
) -> None:
    web = aged
    before = web.version()
    expired(web)
    web.send(message(7, 1))
    web.drain()
    DeltaTable(web.uri).restore(before)

    waiting = expired(web)
    web.drain()
    restored = web.audit()
    back = ids(web)
    again = expired(web)
    after, compared = web.audit(), web.compare()

    assert waiting.committed is None and "no drain has set its positions back yet" in waiting.waits_for[0]
    assert back == [0, 1, 4, 5, 6, 7]
    assert (restored.complete, restored.rows, restored.kept_no_longer) == (True, 6, 1), (
        "its dead letter did not come back"
    )
    assert again.committed is not None and ids(web) == [4, 5, 7]
    assert (after.complete, after.rows, after.dead_letters, after.kept_no_longer) == (True, 3, 1, 4)
    assert (compared.changed, compared.absent) == (0, 0)


def test_a_rewind_over_them_makes_dead_letters_and_no_rows(aged: DrivenStream) -> None:
    web = aged
    expired(web)

    web.resolve("rewind", topic_partition=web.tp(), to=0)
    web.drain()
    drained = web.audit()
    shown = [letter["offset"] for letter in shown_letters(web)]
    again = expired(web)
    after = web.audit()

    assert (drained.complete, drained.rows, drained.dead_letters) == (True, 2, 5)
    assert shown == [0, 1, 2, 3, 6], "a letter that was drained again after its message left is shown"
    assert (ids(web), again.rows, again.dead_letters) == ([4, 5], 0, 3)
    assert (after.complete, after.dead_letters, after.kept_no_longer) == (True, 2, 3), "6 came today"


@pytest.mark.parametrize("first", ["erase", "expire"])
def test_an_erasure_beside_it_is_counted_apart(aged: DrivenStream, first: str) -> None:
    web = aged
    chosen = EraseFilter("id IN (1, 5)", "offset = 3")
    steps: list[Callable[[], object]] = [
        lambda: erase(web.stream, lake=web.lake, session=web.session, chosen=chosen, because="asked"),
        lambda: expired(web),
    ]

    for step in steps if first == "erase" else steps[::-1]:
        step()
    audit, compared = web.audit(), web.compare()

    assert ids(web) == [4]
    assert (audit.complete, audit.rows, audit.dead_letters) == (True, 1, 0)
    assert (audit.erased, audit.kept_no_longer) == ((3, 3) if first == "erase" else (2, 4))
    assert (compared.changed, compared.absent) == (0, 0)


@pytest.mark.parametrize("point", ["files written", "commit sent"])
def test_a_process_that_ends_at_any_step_leaves_tables_that_the_next_upkeep_finishes(
    aged: DrivenStream, point: str
) -> None:
    web = aged

    with pytest.raises(Crash):
        expired(web, at=Once(point, crash))
    between = web.audit()
    open_now = [letter["offset"] for letter in shown_letters(web)]
    done = expired(web)
    after = web.audit()

    assert between.complete
    assert open_now == ([2, 3] if point == "files written" else [3])
    assert (done.committed is None) == (point == "commit sent")
    assert [letter["offset"] for letter in web.letters()] == [3]
    assert (after.complete, after.dead_letters, after.kept_no_longer) == (True, 1, 4)
    assert expired(web).is_due is False


@pytest.mark.parametrize("point", ["files written", "commit sent"])
def test_a_drain_with_dead_letters_at_any_point_loses_nothing(aged: DrivenStream, point: str) -> None:
    web = keeping(aged)
    web.send(message(7, 2), message(8, 12), '{"id": 9')

    done = expired(web, at=Once(point, lambda: web.drain()))
    audit = web.audit()

    assert done.committed is not None
    assert ids(web) == [4, 5, 7]
    assert (audit.complete, audit.offsets, audit.dead_letters, audit.kept_no_longer) == (True, 10, 3, 4)


def test_a_drain_in_flight_commits_over_it(aged: DrivenStream) -> None:
    web = aged
    web.send(message(7, 2), '{"id": 8')

    report = web.drain(at=Once("dead letters written", lambda: expired(web)))

    assert len(report.commits) == 1
    assert (web.audit().complete, web.audit().kept_no_longer, ids(web)) == (True, 4, [4, 5, 7])


def test_of_two_at_once_one_wins_and_the_other_finds_nothing(aged: DrivenStream) -> None:
    web = aged
    other: list[Expiry] = []

    done = expired(web, at=Once("files written", lambda: other.append(expired(web))))

    assert (done.committed is None, other[0].committed is None) == (True, False)
    assert [e.kind for e in web.entries()].count("expire") == 1
    assert (web.audit().complete, web.audit().kept_no_longer) == (True, 4)


def exploding(driven: DrivenFactory) -> DrivenStream:
    """A stream whose messages become a row for each of their days."""
    fields = {
        "record_ddl": "id int, days array<string>",
        "explode": Explode("at", "days"),
        "date_expression": "to_date(at)",
    }
    return driven(partitions=1, **{**RECORD, **fields})


def of_days(number: int, *ages: int) -> str:
    return json.dumps({"id": number, "days": [str(day(age)) for age in ages]})


def test_a_message_with_rows_of_several_dates_leaves_as_a_whole_once_its_newest_date_is_not_kept(
    driven: DrivenFactory,
) -> None:
    web = exploding(driven)
    web.send(of_days(0, 12, 11), of_days(1, 11, 10, 2), of_days(2, 11), of_days(3, 2, 1))
    web.drain()

    done = expired(web)
    first = web.audit()
    feed = web.feed(done.committed.version) if done.committed else None
    kept = [(row["id"], row["date"]) for row in web.rows()]
    later = expire(web.stream, web.lake, NOBODY, session=web.session, now=datetime.now(UTC) + timedelta(days=9))
    second = web.audit()

    assert (done.rows, feed) == (3, {"delete": 3})
    assert kept == [(1, day(11)), (1, day(10)), (1, day(2)), (3, day(2)), (3, day(1))]
    assert (first.complete, first.became_rows, first.kept_no_longer) == (True, 2, 2)
    assert later is not None and later.rows == 3, "message 3 has a row that is kept"
    assert (second.complete, second.rows, second.kept_no_longer) == (True, 2, 3)


def test_a_replay_leaves_out_messages_that_also_have_rows_of_dates_that_are_kept_no_longer(
    driven: DrivenFactory,
) -> None:
    web = exploding(driven)
    web.send(of_days(0, 11, 2), of_days(1, 3, 2))
    web.drain()
    keeping(web)
    web.stream = replace(web.stream, columns={"note": "'seen'"})

    report = replay_dates(web.stream, lake=web.lake, session=web.session, first=day(30), last=TODAY)
    audit = web.audit()

    assert report.commit is not None
    assert web.rows("id", "note") == [(0, "new"), (0, "new"), (1, "seen"), (1, "seen")]
    assert (audit.complete, audit.became_rows, audit.dead_letters) == (True, 2, 0)


def test_the_streams_of_a_shared_topic_keep_their_rows_each_as_long_as_its_document_says(
    driven: DrivenFactory,
) -> None:
    first = driven(partitions=1, **RECORD, route=Route("id < 10", "dead_letters", {"bronze/others": "id >= 10"}))
    others = first.with_definition(table="bronze/others", route=Route("id >= 10"), app_id="others")
    first.send(message(1, 12), message(2, 1), message(11, 12), message(12, 1))
    first.drain()
    others.drain()

    expired(first)

    assert (ids(first), ids(others)) == ([2], [11, 12])
    assert first.audit().complete and others.audit().complete
    assert (first.audit().kept_no_longer, others.audit().kept_no_longer) == (1, 0)


@pytest.mark.parametrize("coordinates", [COORDINATES, {**COORDINATES, "timestamp": MICROS}])
def test_rows_that_another_writer_left_in_a_table_that_was_taken_over_leave_too(
    driven: DrivenFactory, coordinates: Any
) -> None:
    """Purpose: the ledger never counted these rows, so it must not count them when they leave."""
    web = driven(partitions=1, app_id="kdi", columns={})
    table = PredecessorTable(web.uri, app_id="kdi", coordinates=coordinates)
    table.create()
    table.ingest(1, sorted(web.produce(6), key=lambda message: message.offset))
    web.drain()
    web.produce(4)
    web.drain()
    tomorrow = datetime.now(UTC) + timedelta(days=2)
    web.stream = replace(web.stream, keep_days=1)

    done = expire(web.stream, web.lake, NOBODY, session=web.session, now=tomorrow)
    audit = web.audit()

    assert done is not None and isinstance(done.committed, LedgerEntry)
    assert (done.rows, web.rows()) == (10, [])
    assert isinstance(done.committed, LedgerEntry) and done.committed.erasure
    assert done.committed.erasure.count == 4
    assert (audit.complete, audit.offsets, audit.kept_no_longer) == (True, 4, 4)


def test_dates_wait_for_a_table_that_is_made_of_them_and_has_not_consumed_them(aged: DrivenStream) -> None:
    web = aged
    silver = copy_of(web)
    followers = Followers((silver,), (), Path())

    new = expired(web, followers)
    refine(silver, lake=web.lake, session=web.session)
    web.send(message(7, 0))
    web.drain()
    done = expired(web, followers)

    assert new.committed is None and "silver/copy: it must compute all rows again: the table is new" in new.waits_for
    assert done.committed is not None, "what came to other dates since does not hold it back"
    assert ids(web) == [4, 5, 7]


def test_by_hand_dates_leave_although_the_newest_commit_is_old(aged: DrivenStream) -> None:
    web, in_a_month = keeping(aged), datetime.now(UTC) + timedelta(days=31)
    planned = plan_expiry(web.stream, web.lake, NOBODY, now=in_a_month)

    done = expire(web.stream, web.lake, NOBODY, session=web.session, now=in_a_month)

    assert planned is not None and planned.newest_entry == web.entries()[-2].planned_at
    assert done is not None and done.rows == 5


def copy_of(web: DrivenStream) -> RefinedTableSpec:
    upstream = {"table": web.stream.table, "as": "kept"}
    return refined_table(**{"table": "silver/copy", "from": [upstream], "sql": "SELECT id, date FROM kept"})


def test_dates_wait_for_rows_of_theirs_that_came_since(aged: DrivenStream) -> None:
    web = aged
    silver = copy_of(web)
    followers = Followers((silver,), (), Path())
    refine(silver, lake=web.lake, session=web.session)
    web.send(message(7, 11))
    web.drain()

    waiting = expired(web, followers)
    line = waiting.line(web.stream.name)

    assert waiting.waits_for == (f"silver/copy: it has not consumed {day(11)}",)
    assert line.endswith(f"they stay until this is done: silver/copy: it has not consumed {day(11)}")
    assert len(ids(web)) == 6


def test_the_nightly_upkeep_removes_them_before_it_compacts_and_the_history_says_so(aged: DrivenStream) -> None:
    web, now = keeping(aged), datetime.now(UTC)
    hourly = plan_upkeep(web.stream, web.lake, now=now, thorough=False, followers=NOBODY)
    planned = plan_upkeep(web.stream, web.lake, now=now, followers=NOBODY)

    done = keep_document(web.stream, web.lake, planned, session=web.session, now=now, followers=NOBODY)
    newest = next(c for c in commit_history(web.stream, web.lake) if c.operation == "expire")

    assert hourly.expiry is None and planned.expiry is not None
    assert (planned.expiry.rows, planned.expiry.dead_letters) == (3, 1)
    assert done.expiry is not None and done.expiry.committed is not None and not done.all_errors
    assert newest.description == f"3 rows on 2 dates before {day(10)}, 1 dead letter of 4 messages: kept no longer"
    assert plan_upkeep(web.stream, web.lake, now=now, followers=NOBODY).expiry == Expiry(day(10))
