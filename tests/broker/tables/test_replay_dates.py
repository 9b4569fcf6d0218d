"""Replay of dates: messages are read again and become what today's document makes of them, each exactly once."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_rules import DeadLetterLimit, Mask
from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.streams.drain.errors import NothingDrained
from kdi_assets.streams.ledger.history import live_history
from kdi_assets.streams.ledger.letters import dead_letters_with_state
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.replay.report import MessagesGone, ReplayReport
from tests.broker.formats.order_items import ORDERS, order
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import DrivenStream
from tests.faults.topics import delete_records
from tests.kafka_log import Produced
from tests.oracle import Reading, is_good
from tests.tables.dead_letters import RIGHT

DAYS = [date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3)]
BY_OFFSET = "date_add(DATE'2026-01-01', CAST(kafka.offset % 3 AS INT))"
"""Every third offset is of one date."""
BEFORE = {"host": "concat('old ', parse_url(url, 'HOST'))"}


def web_request(message: Produced) -> dict[str, Any]:
    """The row's fields that do not depend on the document."""
    said = json.loads(message.value or b"")
    fields = {field: said.get(field) for field in ("method", "session_id", "status", "url", "uuid")}
    return {**fields, "date": DAYS[message.offset % 3]}


READING = Reading(web_request, is_good)


def by_offset(driven: DrivenFactory, count: int = 90, **fields: Any) -> DrivenStream:
    """A stream whose rows were made by an old document, over three dates."""
    given = {"date_expression": BY_OFFSET, "columns": BEFORE, "dead_letter_limit": DeadLetterLimit(share=1.0), **fields}
    web = driven(partitions=2, **given)
    web.produce(count, bad=0.2)
    web.drain()
    return web


def replayed(web: DrivenStream, first: date, last: date | None = None, **options: Any) -> ReplayReport:
    return replay_dates(web.stream, lake=web.lake, session=web.session, first=first, last=last or first, **options)


def looked_at(web: DrivenStream, first: date, **options: Any) -> ReplayReport:
    return replayed(web, first, dry_run=True, **options)


def hosts(web: DrivenStream) -> Counter[tuple[date, bool]]:
    """Rows by date, and whether an old document made them."""
    return Counter((r["date"], r["host"].startswith("old ")) for r in web.found().rows)


def files_of(web: DrivenStream, day: date) -> set[str]:
    return {file for file in TableLog.existing(web.uri).file_uris if f"date={day}" in file}


@also_on_s3
@pytest.mark.core
@pytest.mark.compiled
def test_a_date_becomes_what_todays_definition_makes_of_its_messages_and_no_other_file_is_touched(
    driven: DrivenFactory,
) -> None:
    """Procedure: dry-run the middle one of three dates, replay it, and again, after its rows have changed."""
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
    web.assert_each_offset_once(web.produce(0), reading=READING)
    assert files_of(web, DAYS[0]) | files_of(web, DAYS[2]) == others
    assert done.outcomes == looked.outcomes == {"row": rows}
    assert done.changes == looked.changes == {"changed": rows}
    assert (done.rows_by_date, done.removed_by_date) == ({DAYS[1]: rows}, {DAYS[1]: rows})
    assert (again.commit, again.changes) == (None, {"same": rows})
    assert web.audit().complete
    assert len(DeltaTable(web.uri).history()) == 3
    assert [e.kind for e in web.entries()] == ["start", "drain", "replay"]


WAS = {"host": "CASE WHEN kafka.offset % 10 = 0 THEN CAST(CAST(url AS INT) AS STRING) ELSE parse_url(url, 'HOST') END"}
"""Rejects every tenth offset; ``NOW`` makes rows of these and rejects the next ones."""
NOW = {"host": WAS["host"].replace("% 10 = 0", "% 10 = 1")}
MOVED = f"CASE WHEN kafka.offset % 10 = 3 THEN DATE'2026-02-01' ELSE {BY_OFFSET} END"
EVER = (DAYS[0], date(2100, 1, 1))


def test_a_mask_hides_what_was_written_before_it(driven: DrivenFactory) -> None:
    """Pass: the same messages are rows, each once, and their two columns are masked."""
    web = by_offset(driven)
    where = web.stream.coordinates
    read = (f"{where}.partition", f"{where}.offset", "session_id", "url")
    clear = web.rows(*read)
    masked = web.with_definition(columns=BEFORE, mask={"url": Mask("null"), "session_id": Mask("keep_last", keep=4)})

    done = replayed(masked, DAYS[0], DAYS[2])

    assert any(url for *_, url in clear) and all(len(session) > 4 for *_, session, _ in clear)
    hidden = [(p, offset, "*" * (len(session) - 4) + session[-4:], None) for p, offset, session, _ in clear]
    assert masked.rows(*read) == hidden
    assert done.changes == {"changed": len(clear)}
    assert masked.audit().complete


def test_messages_become_whatever_they_are_now_as_if_they_had_never_been_anything_else(driven: DrivenFactory) -> None:
    """Procedure: a document that makes rows of letters, letters of rows, leaves some out and moves others to another
    date; replay everything; compare with a table that was drained with it from the start; then one row is deleted.

    Pass: rows and letters are the same, the change feed contains only changes, and the audit explains every offset, by
    counts as well as one by one.
    """
    web = by_offset(driven, 200, columns=WAS).with_definition(
        columns=NOW, date_expression=MOVED, filter="kafka.offset % 10 <> 2"
    )
    new = web.with_definition(table=f"{web.stream.table}_anew", app_id="anew")
    filtered = new.drain().filtered

    done = replayed(web, *EVER)

    assert web.rows() == new.rows()
    assert letters(web) == letters(new)
    audit = web.audit()
    assert (audit.complete, audit.filtered, audit.deleted) == (True, filtered, 0)
    assert done.outcomes == {"dead_letter": audit.dead_letters, "filtered": audit.filtered, "row": audit.rows}
    assert set(done.changes) == {"added", "gone", "moved", "same"}
    assert done.commit is not None
    assert web.feed(done.commit.version) == {
        "insert": done.changes["added"] + done.changes["moved"],
        "delete": done.changes["gone"] + done.changes["moved"],
    }
    web.session().sql(f"DELETE FROM delta.`{web.uri}` WHERE meta.kafka.offset = 3")
    after = web.audit()
    assert (after.complete, after.deleted, after.filtered) == (True, 2, audit.filtered)  # of each topic partition one


def letters(web: DrivenStream) -> Counter[tuple[int, int, str]]:
    """The open ones."""
    history = live_history(web.uri, web.stream.app_id)
    assert history is not None
    found = dead_letters_with_state(web.session(), web.stream, web.lake, history).where("state = 'open'")
    return Counter((r["partition"], r["offset"], r["reason"]) for r in found.collect())


def test_what_arrives_deletes_or_kills_meanwhile_neither_loses_nor_doubles_a_row(driven: DrivenFactory) -> None:
    """Procedure: a replay waits with its files written while late rows of its date are drained, and is killed after its
    commit. Another waits while a row of its date is deleted; a third commits between the files and the commit of a
    drain.

    Pass: late rows are there in both orders, the deleted row stays deleted, each other offset is there once.
    """
    web = by_offset(driven).with_definition(columns=RIGHT)
    met: list[str] = []

    def drains(point: str) -> None:
        if point == "files written":
            met.append("late rows")
            web.produce(30, seed=1)
            web.drain()
        if point == "commit sent":
            raise KeyboardInterrupt

    def deletes(point: str) -> None:
        if point == "letters written" and "deleted" not in met:
            met.append("deleted")
            web.session().sql(f"DELETE FROM delta.`{web.uri}` WHERE meta.kafka.offset = 2")

    def replays(point: str) -> None:
        if point == "files written":
            replayed(web.with_definition(columns=BEFORE), DAYS[0])

    with pytest.raises(KeyboardInterrupt):
        replayed(web, DAYS[1], at=drains)
    replayed(web, DAYS[2], at=deletes)
    web.produce(30, seed=2)
    web.drain(at=replays)

    gone = [OffsetRange(web.tp(p), 2, 3) for p in (0, 1)]
    web.assert_each_offset_once(web.produce(0), given_up=gone, reading=READING)
    assert met == ["late rows", "deleted"]
    done = [e.kind for e in web.entries()]
    assert done == ["start", "drain", "drain", "replay", "replay", "replay", "drain"]
    assert 2 not in web.rows("meta.kafka.offset")
    old = {day for day, is_old in hosts(web) if is_old}
    assert old == {DAYS[0]}
    assert web.audit().complete


def test_what_kafka_no_longer_holds_is_counted_and_left_only_by_decision(driven: DrivenFactory) -> None:
    """Procedure: retention deletes the older half; replay a date, compare it, and replay the available part."""
    web = by_offset(driven, columns=BEFORE).with_definition(columns=RIGHT)
    delete_records(web, {0: 20, 1: 25})
    before = hosts(web)
    gone = sum(1 for r in web.found().rows if r["date"] == DAYS[1] and lost(r))

    with pytest.raises(MessagesGone, match="--leave-missing --accept-dead-letters") as refused:
        replayed(web, DAYS[1], accept_dead_letters=True)
    looked = looked_at(web, DAYS[1], into=f"{web.lake}/bronze/compared")
    untouched = hosts(web)
    done = replayed(web, DAYS[1], leave_missing=True)

    assert (refused.value.missing.rows_by_date, refused.value.messages) == ({DAYS[1]: gone}, before[DAYS[1], True])
    assert untouched == before
    held = before[DAYS[1], True] - gone
    assert looked.changes == {"changed": held, "missing": gone}
    compared = web.session().read.format("delta").load(f"{web.lake}/bronze/compared")
    assert {r["change"]: r["count"] for r in compared.groupBy("change").count().collect()} == looked.changes
    assert (done.messages, done.missing.rows, done.changes) == (held, gone, {"changed": held})
    assert {(r["date"], lost(r)) for r in web.found().rows if r["host"].startswith("old ")} == {
        *((DAYS[0], True), (DAYS[0], False), (DAYS[1], True), (DAYS[2], True), (DAYS[2], False))
    }
    assert web.audit().complete
    delete_records(web, {0: -1, 1: -1})
    assert looked_at(web, DAYS[1]).changes == {"missing": held + gone}


def test_a_message_of_many_rows_is_replayed_whole_or_left_alone(driven: DrivenFactory) -> None:
    """Procedure: orders whose lines have several dates; one line of one of them is deleted; replay one of the dates.

    Pass: all lines of every order with a line of that date are rebuilt, on any dates; the order that lacks a line stays
    as it is, and the line does not come back.
    """
    orders = driven(partitions=1, **{**ORDERS, "columns": {"line": "concat('old ', item.sku)"}})
    orders.send(*map(order, range(40)), key="k")
    orders.drain()
    orders.session().sql(f"DELETE FROM delta.`{orders.uri}` WHERE id = 4 AND item.sku = 's3'")
    anew = orders.with_definition(columns={"line": "item.sku"})

    done = replayed(anew, date(2026, 3, 3))

    of_date = {r["id"] for r in anew.found().rows if r["item"] and r["item"]["qty"] % 3 == 2} - {4}
    new = {r["id"] for r in anew.found().rows if r["line"] and not r["line"].startswith("old ")}
    assert (done.torn, new) == (1, of_date)
    assert done.changes == {"changed": sum(r["id"] in of_date for r in anew.found().rows)}
    assert sorted(r["item"]["sku"] for r in anew.found().rows if r["id"] == 4) == ["s0", "s1", "s2"]
    audit = anew.audit()
    assert (audit.complete, audit.deleted, audit.twice) == (True, 1, 0)


def lost(row: Any) -> bool:
    """Whether retention has deleted its message."""
    at = row["meta"]["kafka"]
    return bool(at["offset"] < {0: 20, 1: 25}[at["partition"]])


def test_a_date_before_the_first_drain_is_refused_with_the_way_to_fill_it(driven: DrivenFactory) -> None:
    web = driven(partitions=1)
    web.produce(2)

    for dry_run in (False, True):
        with pytest.raises(NothingDrained, match=f"kdi drain {web.stream.name}"):
            replayed(web, date(2026, 1, 1), dry_run=dry_run)
