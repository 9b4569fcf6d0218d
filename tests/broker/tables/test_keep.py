"""Rows that end: dates that are kept no longer leave, and the ledger still accounts for every offset."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.documents.model.message_rules import Explode, Route
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.follow.refine.refine import refine
from kdi_assets.operate.erase.erase import erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.operate.monitoring.commit_history import commit_history
from kdi_assets.operate.upkeep.document_upkeep import keep_document, plan_upkeep
from kdi_assets.operate.upkeep.expiry import Expiry, expire, plan_expiry
from kdi_assets.operate.upkeep.unconsumed import Followers
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.history import history_of
from kdi_assets.streams.ledger.letters import dead_letters_with_state
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.replay.replay_letters import replay_letters
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, Once
from tests.faults.topics import delete_records, make_again
from tests.predecessor.table import COORDINATES, MICROS, PredecessorTable
from tests.refined import refined_table

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


class Crash(BaseException):
    pass


def crash() -> None:
    raise Crash


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


def shown_letters(web: DrivenStream) -> list[Any]:
    history = history_of(web.stream, web.lake)
    assert history is not None
    letters = dead_letters_with_state(web.session(), web.stream, web.lake, history)
    return letters.where("state = 'open'").orderBy("offset").collect()


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


def test_orphaned_letters_and_those_inside_a_declared_loss_stay(aged: DrivenStream) -> None:
    """Purpose: a dead letter that may be the only copy of its message is never removed.
    Procedure: drains die between old dead letters and their commit; someone gives up the offset of another old letter.
    Pass: all these are still stored after the expiry, and the audit counts as before.
    """
    web = aged
    for _ in range(2):
        web.send('{"id": 7, "day"', timestamp=at_age(11))
        with pytest.raises(Crash):
            web.drain(at=Once("dead letters written", crash))
    web.drain()
    web.resolve("rewind", topic_partition=web.tp(), to=7)
    delete_records(web, {0: 8})
    web.carry_out(web.decide("accept-loss"))
    web.drain()

    expired(web)
    audit = web.audit()

    stored = DeltaTable(web.stream.dead_letters_uri(web.lake)).to_pyarrow_table().to_pylist()
    assert sorted(r["offset"] for r in stored) == [3, 7, 7, 7, 8], "one 8 is of a drain that died, and nobody counts it"
    assert (audit.complete, audit.declared_losses, audit.kept_no_longer) == (True, 1, 5)


def test_the_dead_letter_of_a_message_that_became_a_row_leaves_with_the_row(aged: DrivenStream) -> None:
    web = aged
    strict = web.with_definition(date_expression="CASE WHEN id < 7 THEN to_date(day) END")
    web.send(message(7, 11), message(8, 9))
    strict.drain()
    replay_letters(web.stream, lake=web.lake, session=web.session)
    replayed = ids(web)

    expired(web)
    audit = web.audit()

    stored = DeltaTable(web.stream.dead_letters_uri(web.lake)).to_pyarrow_table().to_pylist()
    assert (replayed, ids(web)) == ([0, 1, 4, 5, 6, 7, 8], [4, 5, 8])
    assert {r["offset"] for r in stored} == {3, 8}
    assert (audit.complete, audit.rows, audit.kept_no_longer) == (True, 3, 5)


def test_a_dead_letter_whose_timestamp_is_no_time_leaves_by_the_day_of_its_commit(aged: DrivenStream) -> None:
    """Purpose: of a message without a true timestamp the dead letter is often the only copy, and is not removed at
    once.
    """
    web = aged
    seconds = datetime.fromtimestamp(at_age(0).timestamp() / 1000, UTC)
    web.send('{"id": 7, "day"', timestamp=seconds)
    web.send('{"id": 8, "day"', timestamp=datetime.fromtimestamp(0, UTC))
    web.drain()

    expired(web)
    stays = stored_letters(web)
    later = datetime.now(UTC) + timedelta(days=KEPT_DAYS + 1)
    planned = plan_expiry(web.stream, web.lake, NOBODY, now=later)
    done = expire(web.stream, web.lake, NOBODY, session=web.session, now=later)

    assert stays == [3, 7, 8]
    assert planned is not None and done is not None
    assert (planned.dead_letters, done.dead_letters, stored_letters(web)) == (3, 3, [])
    assert (web.audit().complete, web.audit().kept_no_longer) == (True, 9)


def test_a_dead_letter_of_a_message_that_was_drained_again_leaves_too(aged: DrivenStream) -> None:
    """Purpose: such letters are none of the ledger's any more, and must neither stay for ever nor be due each night.
    Procedure: two old messages become dead letters; after a rewind one becomes a row of today, one is filtered.
    Pass: the letters stay until the messages are drained again; then they leave without a commit, the audit of single
    offsets still finds the filtered message, and nothing more is due.
    """
    web = aged
    strict = web.with_definition(date_expression="CASE WHEN id < 7 THEN to_date(day) END")
    web.send(message(7, 0), message(8, 0), timestamp=at_age(11))
    strict.drain()
    web.resolve("rewind", topic_partition=web.tp(), to=7)
    rewound, not_drained = expired(web), stored_letters(web)
    web.stream = replace(web.stream, filter="id <> 8")
    web.drain()
    version = web.version()

    planned = plan_expiry(web.stream, web.lake, NOBODY, now=datetime.now(UTC))
    done = expired(web)
    bounds = {web.tp(): OffsetRange(web.tp(), 0, 9)}
    found = audit(web.stream, lake=web.lake, session=web.session, bounds=bounds)

    assert (rewound.dead_letters, not_drained) == (1, [3, 7, 8])
    assert planned is not None and (planned.dead_letters, done.dead_letters, done.committed) == (2, 2, None)
    assert (stored_letters(web), web.version(), ids(web)) == ([3], version, [4, 5, 7])
    assert (found.complete, found.missing, found.filtered) == (True, 0, 1)
    assert expired(web) == Expiry(day(KEPT_DAYS))


def stored_letters(web: DrivenStream) -> list[int]:
    stored = DeltaTable(web.stream.dead_letters_uri(web.lake)).to_pyarrow_table(columns=["offset"])
    return sorted(stored["offset"].to_pylist())


def test_the_messages_of_a_recreated_topic_keep_their_dead_letters(aged: DrivenStream) -> None:
    """Purpose: messages of two topics have the same offsets; only those of the first are old."""
    web = aged
    anew = replace(web, publisher=make_again(web, partitions=1))
    anew.resolve("new-topic")
    anew.send('{"id": 10, "day"', message(11, 1), message(12, 11), '{"id": 13, "day"')
    anew.drain()

    expired(anew)
    audit = anew.audit()

    assert ids(anew) == [4, 5, 11]
    assert [letter["offset"] for letter in shown_letters(anew)] == [0, 3, 3]
    assert (audit.complete, audit.rows, audit.dead_letters, audit.kept_no_longer) == (True, 3, 3, 5)


@pytest.mark.parametrize("at_once", [False, True])
def test_the_audit_of_some_offsets_knows_which_topics_messages_left(aged: DrivenStream, at_once: bool) -> None:
    """Purpose: messages of two topics have the same offsets, and leave in two commits or in one.
    Procedure: drain rows and dead letters of a topic and of the topic that was made again; the rows and letters of the
    first leave before those of the second are drained, or all leave together.
    Pass: an audit that looks at single offsets counts each message that left once.
    """
    web = aged
    if not at_once:
        expired(web)
    anew = replace(web, publisher=make_again(web, partitions=1))
    anew.resolve("new-topic")
    anew.stream = replace(anew.stream, keep_days=None)
    anew.send(message(10, 12), message(11, 1), message(12, 11), timestamp=at_age(11))
    anew.send('{"id": 13, "day"', timestamp=at_age(11))
    anew.drain()
    bounds = {anew.tp(): OffsetRange(anew.tp(), 0, 7)}

    between = audit(anew.stream, lake=anew.lake, session=anew.session, bounds=bounds)
    expired(anew)
    after = audit(anew.stream, lake=anew.lake, session=anew.session, bounds=bounds)

    assert (between.complete, between.missing) == (True, 0)
    assert between.kept_no_longer == (0 if at_once else 4)
    assert ids(anew) == [4, 5, 11]
    assert (after.complete, after.missing, after.kept_no_longer, after.dead_letters) == (True, 0, 7, 1)


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
