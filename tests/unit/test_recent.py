"""What the newest ledger commits say of how a stream is drained."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

from kdi_assets.drain.known import Recent
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.recent import recent_commits
from kdi_assets.metrics.totals import Totals
from tests.table_by_hand import TP, TableByHand, orders


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

    assert (totals.drains, totals.rows, totals.file_bytes) == (0, 3, 70)
