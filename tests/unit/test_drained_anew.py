"""Offsets behind a position that was set back, whose rows stand: what a plan says of them, and how late they were."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from kdi_assets.cli.plan import _fields, _text
from kdi_assets.drain.accounting import Account
from kdi_assets.drain.carry_out import _entry
from kdi_assets.drain.counts import Counts
from kdi_assets.drain.dead_letters import Written
from kdi_assets.drain.plan import Plan
from kdi_assets.drain.survey import Survey
from kdi_assets.ledger.delta import Staged
from kdi_assets.ledger.entry import LedgerEntry
from tests.unit.test_plan import P0, P1, ledger, orders, plan, topic

HELD = topic({P0: (0, 1000), P1: (0, 40)})


def seen(until: int) -> tuple[Survey, Plan]:
    """A stream whose first topic partition was set back to 100, and has rows up to an offset; and its next plan."""
    at = {P0: 100, P1: 40}
    entry = LedgerEntry(7, "resolve", "orders", "a", "orders", "topic-id", "table", at, rows_until={P0: until})
    state = ledger(at, entry=entry)
    return Survey(HELD, state, None), plan(state, HELD)


@pytest.mark.parametrize(("until", "anew"), [(300, 200), (5000, 900), (100, 0)])
def test_a_plan_says_how_many_offsets_are_drained_anew(until: int, anew: int) -> None:
    survey, step = seen(until)

    said = f"{anew} offsets to be drained anew: rows that they became before stand until then."
    assert (said in _text(orders(), survey, step).splitlines()) == (anew > 0)
    assert _fields(orders(), survey, step)["anew_offsets"] == sum(survey.anew().values()) == anew


@pytest.mark.parametrize(("until", "ages"), [(300, {}), (100, {8: 900})])
def test_messages_that_were_in_the_table_before_count_as_none_that_came_late(until: int, ages: dict[int, int]) -> None:
    """They may be a year old, and nobody waited for them."""
    _, step = seen(until)
    counts = Counts(900, 900, 900, {}, 1, 0, 0, ages={8: 900})
    staged, written = Staged(rows_by_date={date(2026, 5, 5): 900}), Written(0, 0, None)

    entry = _entry(
        replace(step, now=datetime(2026, 5, 5, tzinfo=UTC)), orders(), staged, counts, written, Account((), ())
    )

    assert entry.ages == ages
