"""A refinement's entry counts added and removed rows by date, also on dates that only lost rows."""

from __future__ import annotations

from itertools import islice

from kdi_assets.operate.monitoring.refined_history import refined_history
from tests.refined import D1, D2, FIRST, MORE, SUMS, Lakeside, refined_table

DATED = refined_table(
    **{
        "table": "silver/dated",
        "from": "bronze/events",
        "mode": {"upsert": {"keys": ["id"], "sequence_by": "bytes", "apply_as_deletes": "op = 'd'"}},
    }
)


def test_rows_are_counted_on_the_dates_that_got_and_that_lost_them(lakeside: Lakeside) -> None:
    """Procedure: a row moves to the next date, another one comes; then the first date loses its last row."""
    lakeside.append(FIRST)
    lakeside.refine(DATED)
    lakeside.append([(4, "a", 5, "i", D2), (1, "b", 70, "u", D2)])
    moved = lakeside.refine(DATED)
    lakeside.append([(2, "b", 90, "d", D2)])
    deleted = lakeside.refine(DATED)

    assert (moved.rows_by_date, moved.removed_by_date, moved.dates) == ({D2: 2}, {D1: 1}, (D1, D2))
    assert (deleted.rows_by_date, deleted.removed_by_date, deleted.dates) == ({}, {D1: 1}, (D1,))
    in_log = [commit.entry for commit in islice(refined_history(DATED, lakeside.lake), 2)]
    assert in_log == [deleted, moved], "the log says what the run said"


def test_rows_of_dates_that_are_computed_again_are_removed_and_added(lakeside: Lakeside) -> None:
    lakeside.append(FIRST)
    lakeside.refine(SUMS)
    lakeside.append(MORE)
    changed = lakeside.refine(SUMS)
    again = lakeside.refine(SUMS, rebuild=True)

    assert (changed.rows_by_date, changed.removed_by_date) == ({D2: 2}, {D2: 1})
    assert (again.rows_by_date, again.removed_by_date) == ({D1: 2, D2: 2}, {D1: 2, D2: 2})
