"""Where rows may be of another topic, or of another writer, by what the ledger knows."""

from __future__ import annotations

import pytest

from kdi_assets.drain.beyond import from_positions, of_older_topics, of_others
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.history import LiveHistory
from tests.unit.test_anew import P0, r, said

TOOK, OURS = said(7, "takeover", 20), said(8, "drain", 30, r(20, 30))
OLD, NEW = said(2, "drain", 40, r(0, 40), topic_id="old"), said(3, "resolve", 0)
WITHIN = from_positions({P0: 5})


@pytest.mark.parametrize(
    ("entries", "since", "end"),
    [
        ((said(0, "start", 0), said(1, "drain", 30, r(0, 30))), 0, None),
        ((said(0, "start", 0), OLD, NEW), 0, 40),
        ((TOOK, OURS), 7, None),
        ((OURS,), 8, WITHIN[P0].end),
        ((), 0, None),
    ],
    ids=["ours from the start", "an older topic", "taken over", "cut off", "no ledger"],
)
def test_rows_of_an_older_topic_may_lie_below_its_positions_and_anywhere_if_entries_are_gone(
    entries: tuple[LedgerEntry, ...], since: int, end: int | None
) -> None:
    found = of_older_topics(LiveHistory(9, entries, since, ()), "topic", WITHIN)

    assert found == ({P0: r(5, end)} if end else {})


def test_rows_of_another_writer_may_lie_below_what_the_ledger_can_speak_of() -> None:
    assert of_others(LiveHistory(9, (TOOK, OURS), 7, ()), WITHIN) == {P0: r(5, 20)}
    assert of_others(LiveHistory(9, (said(0, "start", 0), OURS), 0, ()), WITHIN) == {}
    assert of_others(LiveHistory(9, (), 0, ()), WITHIN) == dict(WITHIN)
