"""What a table's log tells of its commits: `kdi history`, and the newest ones."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import islice
from pathlib import Path

from deltalake import DeltaTable

from kdi_assets.drain.known import Recent
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.life import life
from kdi_assets.ledger.recent import recent_commits
from kdi_assets.metrics.totals import Totals
from kdi_assets.stream import OffsetRange
from tests.table_by_hand import TOPIC, TP, TableByHand, data_file, orders, position

MINUTE = timedelta(minutes=1)


def told(lake: Path) -> list[tuple[int, str, str, bool | None]]:
    """What happened, the newest first."""
    return [(e.version, e.what, e.told, e.live) for e in life(orders(), str(lake))]


def test_a_life_is_told_commit_by_commit_the_newest_first(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start")
    table.drain(100, dead_letters=5)
    table.commit(ago=MINUTE, operation="OPTIMIZE")
    table.ledger_commit("replay", outcomes={"row": 3, "dead_letter": 2}, returned={TP: 3})
    table.commit(ago=MINUTE, operation="DELETE", operationParameters={"predicate": '["(id#1 = 7)"]'})
    table.ledger_commit(
        "replay",
        dates=(date(2026, 1, 2), date(2026, 1, 3)),
        outcomes={"row": 90, "filtered": 7},
        rows_by_date={date(2026, 1, 3): 90},
        removed_by_date={date(2026, 1, 2): 97},
    )

    assert told(tmp_path) == [
        (6, "replay", "messages of 2026-01-02 to 2026-01-03: 90 are rows, 7 are filtered; 97 rows out, 90 in", True),
        (5, "DELETE", "(id = 7)", True),
        (4, "replay", "dead letters: 3 became rows, 2 stay open", True),
        (3, "OPTIMIZE", "", True),
        (2, "drain", "100 offsets: 95 rows on 1 date, 5 dead letters", True),
        (1, "start", "orders/0: none to 0", True),
        (0, "CREATE TABLE", "", True),
    ]


def test_a_decision_says_who_made_it_why_and_where_it_moved_positions(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start")
    table.drain(100)
    table.position = 150
    lost = (OffsetRange(TP, 100, 150),)
    table.ledger_commit("resolve", declared_losses=lost, decided_by="ann", because="retention was a day")

    decided = next(life(orders(), str(tmp_path)))

    assert decided.entry and (decided.entry.decided_by, decided.entry.because) == ("ann", "retention was a day")
    assert decided.set_positions == {TP: (100, 150)}
    assert decided.told == "orders/0: 100 to 150; orders/0 [100, 150) given up"


def test_what_a_restore_undid_is_marked(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start")
    table.drain(100)
    table.commit(position(TOPIC, 0), ago=MINUTE, operation="RESTORE", operationParameters={"version": 1})

    assert [(v, what, live) for v, what, _, live in told(tmp_path)] == [
        (3, "RESTORE", True),
        (2, "drain", False),
        (1, "start", True),
        (0, "CREATE TABLE", True),
    ]


def test_what_lies_below_a_restore_to_nobody_knows_where_may_be_undone_or_not(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start")
    table.commit(data_file(1, date(2026, 3, 1), rows=5), ago=MINUTE)
    table.commit(ago=MINUTE, operation="RESTORE", operationParameters={"timestamp": "2020-01-01 00:00:00"})
    table.ledger_commit("restore")

    assert [(v, live) for v, _, _, live in told(tmp_path)] == [(4, True), (3, True), (2, None), (1, None), (0, None)]


def test_a_long_life_is_read_no_further_than_it_is_asked_for(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start")
    for _ in range(5):
        table.drain(100)
        table.commit(ago=MINUTE, operation="OPTIMIZE")
    DeltaTable(table.log.parent).create_checkpoint()
    (table.log / f"{3:020}.json").write_text("torn")

    newest = list(islice(life(orders(), str(tmp_path)), 5))
    every = told(tmp_path)

    assert [(e.version, e.what, e.live) for e in newest[:2]] == [(11, "OPTIMIZE", True), (10, "drain", True)]
    assert [(v, what, live) for v, what, _, live in every[-5:-2]] == [
        (4, "drain", True),
        (3, "unreadable", True),
        (2, "drain", None),
    ]


def test_replays_say_nothing_of_how_a_stream_is_drained_and_hide_no_drain(tmp_path: Path) -> None:
    table = TableByHand(str(tmp_path))
    table.ledger_commit("start", ago=timedelta(hours=3))
    table.drain(100, ago=timedelta(hours=2), dead_letters=20)
    for _ in range(12):
        table.ledger_commit("replay", outcomes={"row": 1}, returned={TP: 1}, rows_by_date={table.now.date(): 1})
    uri = orders().table_uri(str(tmp_path))

    drained = recent_commits(uri, "orders")
    recent = Recent.of(drained)
    every = recent_commits(uri, "orders", without=())

    assert [c.entry.kind for c in drained] == ["start", "drain"]
    assert [sample.position for sample in recent.window[TP]] == [0, 100]
    assert recent.last_at == drained[-1].committed_at
    assert {c.entry.kind for c in every} == {"replay"}


def test_totals_have_the_rows_of_replays_too() -> None:
    totals = Totals()
    entry = LedgerEntry(
        1, "replay", "orders", "a", "orders", "t", "d", {TP: 10}, bytes=70, rows_by_date={date(2026, 3, 1): 3}
    )

    totals.add(entry)

    assert [totals.counts[f"kdi_{n}_total"] for n in ("drains", "rows", "file_bytes")] == [0, 3, 70]
