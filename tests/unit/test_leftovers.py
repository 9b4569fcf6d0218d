"""When the sensor looks for letters of tries that never committed."""

from __future__ import annotations

from dataclasses import replace

from kdi_assets.ledger.entry import DeadLettersAt, LedgerEntry, RangeCounts
from kdi_assets.stream import OffsetRange, TopicPartition
from sensors.leftovers import suspects_ghosts

P0 = TopicPartition("orders", 0)


def entry(*, letters: int, at: int | None) -> LedgerEntry:
    counts = RangeCounts(OffsetRange(P0, 0, 10), dead_letters=letters)
    where = None if at is None else DeadLettersAt("letters", at)
    names = {"app_id": "orders", "attempt_id": "a", "topic": "orders", "topic_id": "t", "table_id": "d"}
    return LedgerEntry(version=1, kind="drain", positions={P0: 10}, ranges=(counts,), dead_letters_at=where, **names)  # type: ignore[arg-type]


def test_drains_that_each_moved_the_dead_letters_once_left_nothing() -> None:
    replay = replace(entry(letters=0, at=2), outcomes={"row": 3})
    drains = [entry(letters=2, at=0), entry(letters=0, at=0), entry(letters=1, at=1), replay]

    assert not suspects_ghosts(drains, known=-1)
    assert not suspects_ghosts([entry(letters=0, at=None)], known=-1)


def test_a_version_that_no_entry_made_is_looked_into() -> None:
    assert suspects_ghosts([entry(letters=2, at=1)], known=-1)
    assert suspects_ghosts([entry(letters=2, at=5), entry(letters=3, at=7)], known=4)
    assert suspects_ghosts([entry(letters=0, at=5)], known=4)
