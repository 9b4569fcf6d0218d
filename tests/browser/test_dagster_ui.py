"""The product as a person meets it: Dagster's UI in a real browser, over real processes."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import VIEWPORT, Shot
from tests.browser.person import TICK_MILLISECONDS, Person
from tests.browser.site import Site

DAYS_AGO = [0] * 200 + [1] * 50 + [2] * 20 + [9] * 7 + [40] * 3
BAD_ORDERS = [b"not json", b'{"id": "x"}', b'{"id": 1, "at": "2031-01-01T00:00:00Z"}', b'{"customer": "c1"}']


def days_ago(days: int) -> date:
    return datetime.now(UTC).date() - timedelta(days=days)


@pytest.fixture(scope="module")
def drained_run(site: Site, browser: Browser) -> str:
    """The id of a run that a person launched from the page of bronze/orders; orders of five dates were waiting."""
    site.publish_orders(DAYS_AGO, bad=BAD_ORDERS)
    page = browser.new_page(viewport=VIEWPORT)
    person = Person(page, site.url)
    person.open_asset("bronze/orders")
    run_id = person.materialize()
    person.wait_for_the_run("Success")
    page.close()
    return run_id


def test_materializing_today_brings_every_order_into_the_table(
    site: Site, drained_run: str, person: Person, shot: Shot
) -> None:
    person.page.goto(f"{site.url}/runs/{drained_run}")

    person.wait_for_the_run("Success")
    shot("run")
    assert site.rows_by_date("bronze/orders") == {
        days_ago(0): 200,
        days_ago(1): 50,
        days_ago(2): 20,
        days_ago(9): 7,
        days_ago(40): 3,
    }


def test_the_partitions_bar_shows_the_late_dates_that_a_drain_touched(
    drained_run: str, person: Person, shot: Shot
) -> None:
    late = days_ago(9).isoformat()

    person.open_asset("bronze/orders", "Partitions")
    person.page.get_by_text(late, exact=True).first.click()

    expect(person.page.get_by_text("Materialized (5)")).to_be_visible()
    expect(person.metadata("rows_added")).to_have_text("rows_added7")
    expect(person.page.get_by_text(drained_run[:8]).first).to_be_visible()
    shot("partitions")


def test_an_older_date_is_refused_with_what_happened_what_is_safe_and_what_to_run(
    person: Person, drained_run: str, shot: Shot
) -> None:
    older = days_ago(20)

    person.open_asset("bronze/orders")
    person.materialize(older)
    person.wait_for_the_run("Failure")
    told = person.full_message("STEP_FAILURE")

    expect(person.metadata("what happened", within=told)).to_contain_text(f"this run asks for {older}")
    expect(person.metadata("what is safe", within=told)).to_contain_text("nothing was read and nothing was written")
    expect(person.metadata("what to run", within=told)).to_contain_text("kdi drain bronze/orders")
    shot("refused")


def test_an_executed_check_passes_and_says_what_it_counted(person: Person, drained_run: str, shot: Shot) -> None:
    person.open_asset("bronze/orders", "Checks")
    person.execute_check()
    person.wait_for_the_run("Success")

    person.open_asset("bronze/orders", "Checks")
    expect(person.page.get_by_text("Passed", exact=True)).to_be_visible()
    expect(person.page.get_by_text("284 offsets = 280 rows + 4 dead letters")).to_be_visible()
    shot("check")


def test_a_tick_says_why_nothing_runs_and_whose_decision_is_missing(person: Person, shot: Shot) -> None:
    person.open_sensor()
    person.page.locator("table").get_by_text("0 runs requested").last.click(timeout=TICK_MILLISECONDS)

    told = person.page.get_by_role("dialog")
    expect(told).to_contain_text("has no topic 'refunds'")
    expect(told).to_contain_text("create the topic")
    shot("tick")


def test_a_materialization_leads_to_the_dead_letters_of_its_attempt_and_to_no_others(
    site: Site, person: Person, drained_run: str, shot: Shot
) -> None:
    person.open_asset("bronze/orders", "Events")
    person.page.get_by_text(days_ago(40).isoformat(), exact=True).first.click()
    query = person.metadata("dead_letters_query").locator("td").nth(1)
    query.scroll_into_view_if_needed()
    shot("dead_letters")

    letters = [json.loads(line) for line in site.query(query.inner_text())]

    assert sorted(letter["message"].encode() for letter in letters) == sorted(BAD_ORDERS)
    assert {letter["reason"] for letter in letters} == {
        "malformed_json",
        "wrong_type",
        "date_outside_window",
        "missing_field",
    }


def test_columns_are_described_by_the_documents_comments_and_expressions(
    person: Person, drained_run: str, shot: Shot
) -> None:
    person.open_asset("bronze/orders")

    expect(person.metadata("amount")).to_contain_text("in euros, tax included")
    expect(person.metadata("date")).to_contain_text("to_date(at)")
    shot("asset")


def test_a_tick_that_starts_a_run_leads_to_it_and_says_why(site: Site, person: Person, shot: Shot) -> None:
    site.publish_clicks(600)

    person.open_sensor()
    person.page.locator("table").get_by_text("1 run requested").last.click(timeout=TICK_MILLISECONDS)
    shot("tick_that_runs")
