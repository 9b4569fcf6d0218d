"""A CDC topic's changes as a refined table: equal to a model that applies them one by one, in their true order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.refined import Lakeside, refined_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 10_000
DELIVERED = 100_000
TWICE = 8_000
REFINEMENTS = 8
SCHEMA = "customer_id bigint, op string, name string, city string, at bigint"
CITIES = ("Bern", "Gent", "Linz", None)
Row = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a customer; ``at`` is its place in the database's own order."""

    customer_id: int
    op: str
    name: str | None
    city: str | None
    at: int

    @property
    def values(self) -> tuple[Any, ...]:
        return self.customer_id, self.op, self.name, self.city, self.at


def made_up_changes(random: Random) -> list[Change]:
    """Changes in their true order: inserts, updates, deletes (some of them of nobody), and inserts after a delete."""
    alive: set[int] = set()
    changes: list[Change] = []
    for at in range(DELIVERED - TWICE):
        key = random.randrange(KEYS)
        if random.random() < (0.25 if key in alive else 0.1):
            alive.discard(key)
            changes.append(Change(key, "d", None, None, at))
            continue
        changes.append(Change(key, "u" if key in alive else "c", f"name {at}", random.choice(CITIES), at))
        alive.add(key)
    return changes


def as_delivered(changes: Sequence[Change], random: Random) -> list[Change]:
    """Some of them twice; most somewhat late, one of fifty so late that other drains come first."""
    delivered = [*changes, *random.sample(changes, TWICE)]
    delay = {False: 300.0, True: len(changes) / 2}
    arrival = [(change.at + random.uniform(0, delay[random.random() < 0.02]), n) for n, change in enumerate(delivered)]
    return [delivered[n] for _, n in sorted(arrival)]


def newest_states(changes: Iterable[Change]) -> Counter[Row]:
    """The customers that are there at the end, one row each."""
    customers: dict[int, Change] = {}
    for change in in_true_order(changes):
        if change.op == "d":
            customers.pop(change.customer_id, None)
        else:
            customers[change.customer_id] = change
    return Counter(_row(c, sequence=c.at) for c in customers.values())


def all_states(changes: Iterable[Change]) -> Counter[Row]:
    """Everything that customers ever were, with when it began and ended."""
    now: dict[int, Change] = {}
    rows: Counter[Row] = Counter()
    for change in in_true_order(changes):
        if (before := now.pop(change.customer_id, None)) is not None:
            rows[_row(before, valid_from=before.at, valid_to=change.at)] += 1
        if change.op != "d":
            now[change.customer_id] = change
    rows.update(_row(c, valid_from=c.at, valid_to=None) for c in now.values())
    return rows


def in_true_order(changes: Iterable[Change]) -> list[Change]:
    """Each change once."""
    return sorted(set(changes), key=lambda change: change.at)


def _row(change: Change, **more: int | None) -> Row:
    fields = {"customer_id": change.customer_id, "name": change.name, "city": change.city, "sequence_at": None, **more}
    return tuple(sorted(fields.items()))


@pytest.mark.parametrize(("scd_type", "model"), [(1, newest_states), (2, all_states)], ids=["SCD 1", "SCD 2"])
def test_a_hundred_thousand_changes_give_what_applying_them_in_order_gives(
    spark: SparkSession, lake: str, pytestconfig: pytest.Config, scd_type: int, model: Any
) -> None:
    """Purpose: changes that come twice, late, or after a delete must neither bring a row back nor hide one.
    Procedure: 100,000 changes of 10,000 keys in 16 commits, refined after every second; an OPTIMIZE; at the end,
    upstream forgets the changes of some keys.
    Pass: after each refinement the table equals the model over what was delivered so far; none computes all rows again.
    """
    random = Random(pytestconfig.getoption("--seed"))
    delivered = as_delivered(made_up_changes(random), random)
    lakeside = Lakeside(spark, lake)
    fields = {"keys": ["customer_id"], "sequence_by": "at", "apply_as_deletes": "op = 'd'", "scd_type": scd_type}
    mode = {"upsert": {**fields, "column_list": ["customer_id", "name", "city"]}}
    customers = refined_table(table="silver/customers", partition_by=None, mode=mode, **{"from": "bronze/changes"})

    for number in range(REFINEMENTS):
        first, middle, last = (DELIVERED * n // (2 * REFINEMENTS) for n in range(2 * number, 2 * number + 3))
        for part in (delivered[first:middle], delivered[middle:last]):
            lakeside.append([change.values for change in part], "bronze/changes", SCHEMA)
        if number == REFINEMENTS // 2:
            lakeside.sql("OPTIMIZE {t}", "bronze/changes")
        report = lakeside.refine(customers)
        assert report.kind == ("changes" if number else "rebuild"), report.why
        assert_equal(lakeside.rows("silver/customers"), model(delivered[:last]), f"after {last} changes")
    lakeside.sql("DELETE FROM {t} WHERE customer_id % 100 = 7", "bronze/changes")
    report = lakeside.refine(customers)

    assert report.kind == "changes"
    left = [change for change in delivered if change.customer_id % 100 != 7]
    assert_equal(lakeside.rows("silver/customers"), model(left), "after the DELETE")


def assert_equal(ours: Counter[Row], theirs: Counter[Row], when: str) -> None:
    """The first difference says enough."""
    missing, surplus = theirs - ours, ours - theirs
    assert not missing, f"{when}: {missing.total()} rows missing, as {min(missing, key=str)}"
    assert not surplus, f"{when}: {surplus.total()} rows too many, as {min(surplus, key=str)}"
