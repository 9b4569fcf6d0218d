"""The ledger entry's form in the log."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

import pytest

from kdi_assets.delta.markers import days_of, kept_from_id
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.shard_bookmarks import Bookmark, Span
from kdi_assets.messages.topic_state import LastRead
from kdi_assets.streams.ledger.commit import ledger_transactions
from kdi_assets.streams.ledger.entry import DeadLettersAt, Erasure, FieldCounts, LedgerEntry, RangeCounts, RowlessCounts
from kdi_assets.streams.ledger.entry_json import (
    FORMAT,
    FORMAT_OF_BOOKMARKS,
    FORMAT_OF_EXPIRIES,
    entry_to_json,
    parse_entry,
)
from kdi_assets.streams.ledger.errors import WrittenByNewerRelease
from kdi_assets.streams.ledger.routes import Routes

P3 = TopicPartition("orders", 3)
ENTRY = LedgerEntry(
    version=12,
    kind="drain",
    app_id="orders",
    attempt_id="try-1",
    topic="orders",
    topic_id="t",
    table_id="d",
    positions={P3: 20},
    run_id="run",
    deployment="lake-1:/var/lib/kdi/dagster",
    ranges=(RangeCounts(OffsetRange(P3, 10, 20), became_rows=6, dead_letters=2, tombstones=1, gaps=1),),
    gaps=(OffsetRange(P3, 14, 15),),
    declared_losses=(OffsetRange(P3, 5, 10),),
    digest=-(2**63),
    rows_by_date={date(2026, 1, 2): 6},
    bytes=99,
    cpu_seconds=1.25,
    files_added=3,
    dead_letters_at=DeadLettersAt("letters", 4),
    last_read={P3: LastRead(19, 1_700_000_000_000, "00ff")},
)


(COUNTS,) = ENTRY.ranges
REPLAY = replace(
    ENTRY,
    kind="replay",
    ranges=(),
    dates=(date(2026, 1, 2), date(2026, 1, 3)),
    outcomes={"row": 5, "filtered": 2},
    returned={P3: -4},
    withdrawn={P3: RowlessCounts(tombstones=1, filtered=2)},
    withdrawn_digest=-7,
    removed_by_date={date(2026, 1, 2): 8},
    letters_by_date={date(2026, 1, 4): 1},
)
FILTERED = replace(ENTRY, ranges=(replace(COUNTS, became_rows=2, filtered=4),), filtered_digest=77)
EXPLODED = replace(ENTRY, rows_by_date={date(2026, 1, 2): 7})
DECIDED = replace(ENTRY, routes=Routes({"a": "x < 1"}, since={P3: 7}, stopped=True), decided_by="me", because="so")
OF_KINESIS = replace(
    ENTRY,
    bookmarks={P3: Bookmark("49" * 28, None, 1_700_000_000_000, "00ff", 1_700_000_000_500, ended=True)},
    spans={P3: Span("48" * 28, "49" * 28, 10, digest=-5)},
    lost_between={P3: (1_700_000_000_000, 1_700_000_009_000)},
)

EXPIRED = replace(
    OF_KINESIS,
    kind="expire",
    ranges=(),
    erasure=Erasure(became_rows={P3: 5}, dead_letters={P3: 1}, digest=-9),
    kept_from=date(2026, 1, 2),
    removed_by_date={date(2026, 1, 1): 5},
)


@pytest.mark.parametrize("entry", [ENTRY, REPLAY, FILTERED, EXPLODED, DECIDED, OF_KINESIS, EXPIRED])
def test_an_entry_comes_back_from_the_log_as_it_was(entry: LedgerEntry) -> None:
    assert parse_entry(entry_to_json(entry), 12, "orders") == entry


def test_an_expiry_is_refused_by_releases_that_do_not_know_it() -> None:
    assert json.loads(entry_to_json(EXPIRED))["kdi_ledger"] == FORMAT_OF_EXPIRIES > FORMAT_OF_BOOKMARKS


def test_only_an_expiry_that_removed_rows_says_from_which_date_on_the_table_keeps_them() -> None:
    first = {kept_from_id("d"): days_of(date(2026, 1, 2))}

    assert first.items() <= ledger_transactions(EXPIRED, 12).items()
    assert kept_from_id("d") not in ledger_transactions(replace(EXPIRED, removed_by_date={}), 12)
    assert kept_from_id("d") not in ledger_transactions(ENTRY, 12)


def test_an_entry_counts_rows_messages_that_became_rows_and_all_messages() -> None:
    assert (EXPLODED.rows, EXPLODED.became_rows, EXPLODED.messages) == (7, 6, 9)


def test_user_metadata_of_other_writers_is_no_entry() -> None:
    assert parse_entry("", 1, "orders") is None
    assert parse_entry("made by hand", 1, "orders") is None
    assert parse_entry(entry_to_json(ENTRY), 12, "another ledger on the same table") is None


@pytest.mark.parametrize("entry", [OF_KINESIS, replace(OF_KINESIS, erasure=Erasure())])
def test_releases_that_do_not_know_bookmarks_refuse_an_entry_with_them(entry: LedgerEntry) -> None:
    assert json.loads(entry_to_json(entry))["kdi_ledger"] == FORMAT_OF_BOOKMARKS
    assert json.loads(entry_to_json(ENTRY))["kdi_ledger"] == FORMAT


@pytest.mark.scenario("table written by an earlier release")
def test_an_entry_of_a_newer_format_is_refused() -> None:
    newer = json.dumps({**json.loads(entry_to_json(ENTRY)), "kdi_ledger": FORMAT + 1})

    with pytest.raises(WrittenByNewerRelease, match="newer release"):
        parse_entry(newer, 12, "orders")


@pytest.mark.scenario("table written by an earlier release")
def test_unknown_fields_of_the_same_format_are_ignored() -> None:
    plain = json.loads(entry_to_json(ENTRY))
    plain |= {"codec": "avro", "ranges": [[*plain["ranges"][0], 7]]}
    plain["dead_letters_at"] |= {"bytes": 4}

    assert parse_entry(json.dumps(plain), 12, "orders") == ENTRY


def test_fields_that_an_earlier_release_did_not_write_are_empty() -> None:
    needed = ("kdi_ledger", "kind", "app_id", "attempt_id", "topic", "topic_id", "table_id", "positions")
    plain = {name: value for name, value in json.loads(entry_to_json(ENTRY)).items() if name in needed}

    entry = parse_entry(json.dumps(plain), 12, "orders")

    assert entry is not None
    assert (entry.positions, entry.ranges, entry.gaps, entry.dead_letters_at) == ({P3: 20}, (), (), None)


def test_fields_without_a_column_are_counted_by_name_and_added_up() -> None:
    unknown = FieldCounts(5, {"plan": 4, "meta.host": 1}, others=2)
    entry = replace(ENTRY, unknown=unknown, misfits=FieldCounts(1, {"id": 1}))
    later = json.loads(entry_to_json(entry))
    later["unknown"]["of a later release"] = 1

    assert parse_entry(entry_to_json(entry), 12, "orders") == parse_entry(json.dumps(later), 12, "orders") == entry
    assert unknown + FieldCounts(2, {"meta.host": 2}) == FieldCounts(7, {"plan": 4, "meta.host": 3}, others=2)
    assert unknown.listed(1) == "plan (4) and at least 3 more"
    assert FieldCounts(1, {"plan": 1}).listed() == "plan (1)"
    del later["unknown"], later["misfits"]
    old = parse_entry(json.dumps(later), 12, "orders")
    assert old is not None
    assert not old.unknown
