"""Mode replace_dates, whose SQL may be any: rows of dates that did not change upstream are right as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.compute import COMPARED
from kdi_assets.follow.refine.errors import NotByDate
from kdi_assets.follow.refine.row_errors import UndatedRowsChanged
from tests.refined import Lakeside, refined_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

D1, D2, D3 = date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3)
ORDERS, PRICES = "bronze/orders", "bronze/prices"
ON_DATE = "orders.date = prices.date AND orders.id = prices.id"

OF_OWN_DATES: dict[str, str | dict[str, str]] = {
    "union of tables": "SELECT date, id, host FROM orders UNION ALL SELECT date, id, op FROM prices",
    "left join": f"SELECT orders.date, orders.id, prices.bytes FROM orders LEFT JOIN prices ON {ON_DATE}",
    "not exists": f"SELECT * FROM orders WHERE NOT EXISTS (SELECT 1 FROM prices WHERE {ON_DATE})",
    "window of a date": "SELECT date, id, sum(bytes) OVER (PARTITION BY date, host ORDER BY bytes) AS n FROM orders",
    "groups of a date, joined to themselves": (
        "WITH most AS (SELECT date, host, max(bytes) AS bytes FROM orders GROUP BY date, host) "
        "SELECT o.date, id, most.bytes FROM orders o JOIN most ON o.date = most.date AND o.host = most.host"
    ),
    "python": {"python": f"{__name__}:doubled"},
}
OF_OTHER_DATES: dict[str, str | dict[str, str]] = {
    "full join": (
        "SELECT coalesce(orders.date, prices.date) AS date, orders.id, prices.bytes "
        f"FROM orders FULL JOIN prices ON {ON_DATE}"
    ),
    "table of other dates": "SELECT o.date, o.id, prices.bytes FROM orders o JOIN prices ON o.id = prices.id",
    "union with the next day": "SELECT date, id FROM orders UNION ALL SELECT date_add(date, 1), id FROM orders",
    "window over dates": "SELECT date, id, lag(id) OVER (PARTITION BY host ORDER BY date, id) AS before FROM orders",
    "subquery": "SELECT date, id, bytes - (SELECT min(bytes) FROM orders) AS above FROM orders",
    "subqueries of tables of one shape": (
        "SELECT date, id, bytes - (SELECT min(bytes) FROM orders) AS a, bytes - (SELECT min(bytes) FROM prices) AS b "
        "FROM orders"
    ),
    "join to itself": "SELECT a.date, a.id, b.date AS other FROM orders a JOIN orders b ON a.host = b.host",
    "groups over dates": "SELECT max(date) AS date, host, count(*) AS n FROM orders GROUP BY host",
    "other day": "SELECT date_add(date, CAST(bytes > 15 AS INT)) AS date, id FROM orders",
    "limit": "SELECT * FROM orders ORDER BY bytes, id, date LIMIT 3",
    "python": {"python": f"{__name__}:above_the_least"},
}


def doubled(orders: DataFrame) -> DataFrame:
    """A document's function over rows of any date."""
    return orders.unionAll(orders).dropDuplicates(["date", "id"]).selectExpr("date", "id")


def above_the_least(orders: DataFrame) -> DataFrame:
    """A document's function that reads rows by itself."""
    (least,) = orders.selectExpr("min(bytes) AS least").collect()
    return orders.selectExpr("date", "id", f"bytes - {least['least']} AS above")


def made_by(rows: str | Mapping[str, str]) -> RefinedTableSpec:
    fields: dict[str, Any] = {"sql": rows} if isinstance(rows, str) else dict(rows)
    tables = [ORDERS, PRICES] if "prices" in str(rows) else [ORDERS]
    return refined_table(**{"table": "gold/t", "from": tables, "mode": "replace_dates", **fields})


def change(lakeside: Lakeside, step: int, *, prices: bool) -> set[date]:
    """New and late rows in one table, in the other one, in both, and a row that leaves; the dates that change."""
    match step:
        case 0:
            lakeside.append([(4, "a", 40, "i", D3)], ORDERS)
            return {D3}
        case 1:
            lakeside.append([(5, "a", 1, "i", D1)], ORDERS)
            return {D1}
        case 2 if prices:
            lakeside.append([(4, "", 7, "p", D3), (1, "", 9, "p", D1), (3, "", 5, "p", D2)], PRICES)
            return {D1, D2, D3}
        case 3 if prices:
            lakeside.append([(6, "b", 1, "i", D2)], ORDERS)
            lakeside.append([(6, "", 3, "p", D3)], PRICES)
            return {D2, D3}
    lakeside.sql("DELETE FROM {t} WHERE id = 1", ORDERS)
    return {D1}


def begin(lakeside: Lakeside) -> None:
    lakeside.append([(1, "a", 10, "i", D1), (2, "b", 20, "i", D2), (3, "a", 30, "i", D2)], ORDERS)
    lakeside.append([(1, "", 5, "p", D1), (9, "", 6, "p", D2)], PRICES)


@pytest.mark.parametrize("name", OF_OWN_DATES)
def test_rows_made_of_their_own_dates_are_computed_on_the_dates_that_changed(lakeside: Lakeside, name: str) -> None:
    """Pass: after each step only these dates are written again, and the table is as computed at once."""
    table = made_by(OF_OWN_DATES[name])
    begin(lakeside)
    lakeside.refine(table)

    for step in range(5):
        changed = change(lakeside, step, prices=len(table.upstreams) > 1)
        entry = lakeside.refine(table)
        assert (entry.kind, set(entry.dates) - changed, COMPARED in entry.why) in (
            ("dates", set(), False),
            ("nothing", set(), False),
        )
        lakeside.assert_as_computed_at_once(table)


@pytest.mark.parametrize("name", OF_OTHER_DATES)
def test_rows_made_of_other_dates_are_replaced_on_each_date_where_they_differ(lakeside: Lakeside, name: str) -> None:
    """Pass: after each step the table is as computed at once, and the run says that all rows were compared.

    Rows of a table that is joined by other columns than its date are as they were while only the other table changes.
    """
    table = made_by(OF_OTHER_DATES[name])
    begin(lakeside)
    lakeside.refine(table)

    for step in range(5):
        change(lakeside, step, prices=len(table.upstreams) > 1)
        entry = lakeside.refine(table)
        joined_is_as_it_was = name == "table of other dates" and step not in (2, 3)
        assert entry.kind == "nothing" or (COMPARED in entry.why) != joined_is_as_it_was
        lakeside.assert_as_computed_at_once(table)


def test_a_table_that_did_not_change_may_have_other_dates(lakeside: Lakeside) -> None:
    """Pass: new rows of the one are computed by their date; new rows of the other with all rows."""
    table = made_by(OF_OTHER_DATES["table of other dates"])
    begin(lakeside)
    lakeside.refine(table)

    lakeside.append([(1, "a", 10, "i", D3)], ORDERS)
    assert COMPARED not in lakeside.refine(table).why
    lakeside.assert_as_computed_at_once(table)
    lakeside.append([(1, "", 7, "p", D2)], PRICES)
    entry = lakeside.refine(table)

    assert COMPARED in entry.why and set(entry.dates) == {D1, D3}
    lakeside.assert_as_computed_at_once(table)


def test_rows_without_a_date_that_become_others_are_refused(lakeside: Lakeside) -> None:
    """Procedure: a full join that takes the date of one side; a row with it, then one that only the other side has."""
    sql = f"SELECT orders.date, orders.id, prices.bytes FROM orders FULL JOIN prices ON {ON_DATE}"
    table = made_by(sql)
    begin(lakeside)
    lakeside.refine(table)
    lakeside.append([(7, "a", 1, "i", D1)], ORDERS)
    lakeside.refine(table)
    lakeside.assert_as_computed_at_once(table)
    version = lakeside.version("gold/t")

    lakeside.append([(8, "", 1, "p", D3)], PRICES)
    with pytest.raises(UndatedRowsChanged, match="without a date are others than before"):
        lakeside.refine(table)

    assert lakeside.version("gold/t") == version


def test_rows_that_may_be_made_of_dates_that_left_are_refused(lakeside: Lakeside) -> None:
    """Purpose: computed again, the first date that is kept would lose what came of the date before it.
    Pass: the run is refused with the table as before; the same table of rows of their own dates goes on.
    """
    by_date = made_by(OF_OWN_DATES["window of a date"])
    over_dates = replace(made_by(OF_OTHER_DATES["window over dates"]), table="gold/over")
    begin(lakeside)
    for table in (by_date, over_dates):
        lakeside.refine(table)
    before = lakeside.rows("gold/over")
    lakeside.expire(D2, ORDERS)
    lakeside.append([(5, "a", 50, "i", D2)], ORDERS)

    with pytest.raises(NotByDate, match="gold/over may have rows that are made of rows of other dates"):
        lakeside.refine(over_dates)

    assert lakeside.rows("gold/over") == before
    assert lakeside.refine(by_date).dates == (D2,)
