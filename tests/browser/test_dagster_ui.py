"""The product as a person meets it: Dagster's UI in a real browser, over real processes.

``--tour=docs/images`` makes the pictures of docs/tour.md on the way.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta

import pytest
from deltalake import DeltaTable
from playwright.sync_api import Browser, FloatRect, expect

from tests.browser.conftest import VIEWPORT, Shot
from tests.browser.person import STEP_MILLISECONDS, TICK_MILLISECONDS, Person
from tests.browser.site import Site
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("drained")

DAYS_AGO = [0] * 200 + [1] * 50 + [2] * 20 + [9] * 7 + [40] * 3
BAD_ORDERS = {
    "malformed_json": b"not json",
    "wrong_type": b'{"id": "x"}',
    "missing_field": b'{"customer": "c1"}',
    "date_outside_window": b'{"id": 1, "at": "2131-01-01T00:00:00Z"}',
}
AUDIT = "every_offset_accounted_for"
LETTERS = "bronze/orders_dead_letters"


@dataclass(frozen=True, slots=True)
class Drained:
    """A run that a person launched, and the day on which its orders were published."""

    run_id: str
    today: date

    def day(self, days_ago: int) -> date:
        """A date before that day; orders were placed on some of them."""
        return self.today - timedelta(days=days_ago)


@pytest.fixture(scope="module")
def drained(site: Site, browser: Browser) -> Drained:
    """A run for today, launched from the page of bronze/orders while orders of five dates were waiting."""
    today = site.publish_orders(DAYS_AGO, bad=list(BAD_ORDERS.values()))
    with browser.new_page(viewport=VIEWPORT) as page:
        page.set_default_timeout(STEP_MILLISECONDS)
        person = Person(page, site.url)
        person.open_asset("bronze/orders")
        run_id = person.materialize()
        person.wait_for_the_run("Success")
    return Drained(run_id, today)


@pytest.mark.core
def test_materializing_today_brings_every_order_into_the_table_and_the_run_tells_of_it(
    site: Site, drained: Drained, person: Person, shot: Shot
) -> None:
    person.open_run(drained.run_id)
    person.filter_events("bronze/orders:")

    expect(person.page.get_by_text("draining 284 offsets: orders/0 [0, 144), orders/1 [0, 140)")).to_be_visible()
    expect(person.page.get_by_text("280 rows on 5 dates and 4 dead letters")).to_be_visible()
    shot("run")
    assert site.rows_by_date("bronze/orders") == {drained.day(ago): rows for ago, rows in Counter(DAYS_AGO).items()}


def test_the_drain_says_what_was_waiting_and_how_much_became_what(drained: Drained, person: Person, shot: Shot) -> None:
    person.open_asset("bronze/orders", "Events")

    expect(person.page.get_by_text("observed in run")).to_contain_text(drained.run_id[:8])
    for name, value in {"drained_rows": 280, "dead_letters": 4, "backlog_before": 284, "backlog_after": 0}.items():
        expect(person.value_of(name)).to_have_text(str(value))
    expect(person.value_of("drained_rows_by_date")).to_contain_text(f'"{drained.day(40)}": 3')
    shot("drain")


def test_the_partitions_bar_shows_late_dates_with_their_rows_and_run(
    drained: Drained, person: Person, shot: Shot
) -> None:
    person.open_asset("bronze/orders", "Partitions")
    person.page.get_by_text(str(drained.day(9)), exact=True).first.click()

    expect(person.page.get_by_text("Materialized (5)")).to_be_visible()
    expect(person.value_of("rows_added")).to_have_text("7")
    expect(person.value_of("dagster/partition_row_count")).to_have_text("7")
    expect(person.page.get_by_role("link", name=drained.run_id[:8])).to_be_visible()
    shot("partitions")


def test_a_materialization_leads_to_the_dead_letters_of_its_attempt(
    site: Site, person: Person, drained: Drained, shot: Shot
) -> None:
    person.open_asset("bronze/orders", "Events")
    person.page.get_by_text(str(drained.day(40)), exact=True).first.click()
    expect(person.value_of("rows_added")).to_have_text("3")
    query = person.value_of("dead_letters_query").inner_text()
    shot("materialization")

    letters = [json.loads(line) for line in site.query(query)]

    assert {letter["reason"]: letter["message"].encode() for letter in letters} == BAD_ORDERS
    expect(person.value_of("dead_letters_table")).to_contain_text("orders_dead_letters")


def test_columns_are_described_by_the_comments_and_expressions_of_the_document(person: Person, shot: Shot) -> None:
    person.open_asset("bronze/orders")

    expect(person.row_of("amount")).to_contain_text("in euros, tax included")
    expect(person.row_of("date")).to_contain_text("to_date(at)")
    shot("asset")


def test_columns_of_refined_tables_have_the_descriptions_of_the_columns_that_they_take(
    site: Site, person: Person, shot: Shot
) -> None:
    site.await_date("silver/visits", site.publish_clicks(600))

    def are_shown() -> bool:  # the event follows the commit, and a page that was opened before does not show it
        person.open_asset("silver/visits")
        with suppress(AssertionError):
            expect(person.row_of("page")).to_contain_text("path below the shop", timeout=STEP_MILLISECONDS)
            return True
        return False

    wait_until(are_shown, seconds=TICK_MILLISECONDS / 1000)
    shot("refined_columns")


def test_backlog_lag_rows_and_dead_letters_of_the_drains_are_plotted(person: Person, shot: Shot) -> None:
    person.open_asset("bronze/orders")
    person.page.get_by_role("button").filter(has_text="Plots").click()
    person.page.get_by_role("button").filter(has_text="Events").click()

    for name in ("backlog_before", "lag_seconds_before", "drained_rows", "dead_letters", "seconds"):
        expect(person.page.get_by_text(name, exact=True)).to_have_count(1)
    person.page.get_by_text("Metadata", exact=True).evaluate("title => title.scrollIntoView()")
    shot("plots")


def test_an_executed_check_passes_and_says_what_it_counted(person: Person, shot: Shot) -> None:
    person.open_check("bronze/orders", AUDIT)
    person.execute_check()
    person.wait_for_the_run("Success")

    person.open_check("bronze/orders", AUDIT)
    expect(person.page.get_by_text("Passed", exact=True)).to_be_visible()
    expect(person.page.get_by_text("284 offsets = 280 rows + 4 dead letters")).to_be_visible()
    expect(person.value_of("missing")).to_have_text("0")
    shot("check")


def test_a_tick_that_requests_nothing_says_why_and_who_must_decide(person: Person, shot: Shot) -> None:
    person.open_sensor()
    person.ticks("0 runs requested").first.get_by_text("0 runs requested").last.click()

    told = person.page.get_by_role("dialog")
    expect(told).to_contain_text("has no topic 'refunds'")
    expect(told).to_contain_text("create the topic")
    shot("tick_without_run")


def test_a_tick_that_requests_a_run_says_which_stream_is_due_and_why(site: Site, person: Person, shot: Shot) -> None:
    person.open_sensor()
    known = person.ticks("1 run requested").all_inner_texts()
    site.publish_clicks(600)
    tick = person.new_tick("1 run requested", known=known)
    tick.get_by_role("button", name="View logs").click(timeout=TICK_MILLISECONDS)

    told = person.page.get_by_role("dialog")
    expect(told).to_contain_text("bronze/clicks 600 offsets")
    shot("tick_with_run")


def test_a_late_click_reaches_gold_on_its_date_and_on_no_other(site: Site, person: Person, shot: Shot) -> None:
    """Clicks of a drained date arrive nine days later; silver and gold follow, and today's date stays as it was."""
    today = site.publish_clicks(600)
    site.await_date("gold/daily_pages", today)
    late = site.publish_clicks(600, days_ago=9, pages=30)
    site.await_date("gold/daily_pages", late)

    person.open_asset("gold/daily_pages", "Partitions")
    expect(person.page.get_by_text("Materialized (2)")).to_be_visible(timeout=TICK_MILLISECONDS)
    versions = []
    # The bar above the list ends with today's date.
    for day, place, rows in ((today, 1, "40"), (late, 0, "30")):
        person.page.get_by_text(str(day), exact=True).nth(place).click()
        expect(person.value_of("rows_added")).to_have_text(rows)
        versions.append(int(person.value_of("delta_version").inner_text()))
    assert versions[0] < versions[1]
    shot("late_date")


def test_the_graph_leads_from_topics_over_bronze_silver_and_gold_to_the_database(person: Person, shot: Shot) -> None:
    person.page.set_viewport_size({"width": 2200, "height": 1300})  # all of it
    person.open_graph("kafka", "bronze", "silver", "gold", "served")

    expect(person.page.get_by_text("dead_letters", exact=True).last).to_be_visible()
    for name in ("clicks", "orders", "refunds", "daily_pages"):
        expect(person.page.get_by_text(name, exact=True)).to_have_count(2)
    expect(person.page.get_by_text("visits", exact=True)).to_have_count(1)
    expect(person.page.get_by_text("Observed", exact=True)).to_have_count(2)
    expect(person.page.get_by_text("Loading…", exact=True)).to_have_count(0)
    shot("graph", clip=FloatRect(x=600, y=205, width=1540, height=800))


def test_the_table_of_the_clicks_shows_what_every_check_found_of_its_last_drain(
    site: Site, person: Person, shot: Shot
) -> None:
    """Every drain of the sensor makes the checks that need no Spark; the first one made the others, which later ones
    repeat: none is shown as not evaluated."""
    site.await_date("bronze/clicks", site.publish_clicks(600))
    site.publish_clicks(600)

    person.open_check("bronze/clicks", AUDIT)
    expect(person.row_of("checked_at")).to_be_visible(timeout=TICK_MILLISECONDS)
    for name in (AUDIT, "schema_as_declared", "dead_letter_rate", "dates_in_window", "backlog_after_drain"):
        expect(person.page.get_by_text(name, exact=True).first).to_be_visible()
    for bad in ("Failed", "Not Evaluated"):
        expect(person.page.get_by_text(bad, exact=True)).to_have_count(0)
    shot("checks")


def test_a_check_that_fails_is_red_after_one_drain(site: Site, person: Person, shot: Shot) -> None:
    site.publish_broken_clicks(600)

    person.open_check("bronze/clicks", "dead_letter_rate")
    failed = person.page.get_by_text("became dead letters").first
    expect(failed).to_contain_text("600 of", timeout=TICK_MILLISECONDS)
    expect(person.page.get_by_text("Failed", exact=True).first).to_be_visible()
    shot("check_failed")


def test_the_letters_of_a_date_are_replayed_from_their_asset_which_says_how_they_stand(
    person: Person, drained: Drained, shot: Shot
) -> None:
    person.open_asset(LETTERS)
    person.materialize(drained.today)
    person.wait_for_the_run("Success")

    person.open_asset(LETTERS, "Events")
    for name, letters in {"open": 4, "resolved": 0, "discarded": 0}.items():
        expect(person.value_of(name)).to_have_text(str(letters))
    shot("dead_letters")


def test_an_older_date_is_replayed_and_says_how_many_rows_went_and_came(
    site: Site, person: Person, drained: Drained, shot: Shot
) -> None:
    """Someone changed the rows of a date; their messages still have the original values."""
    older = drained.day(9)
    orders = DeltaTable(f"{site.lake}/bronze/orders")
    orders.update(updates={"customer": "'someone else'"}, predicate=f"date = '{older}'")

    person.open_asset("bronze/orders")
    person.materialize(older)
    person.wait_for_the_run("Success")

    assert site.rows_by_date("bronze/orders") == {drained.day(ago): rows for ago, rows in Counter(DAYS_AGO).items()}
    person.open_asset("bronze/orders", "Partitions")
    person.page.get_by_text(str(older), exact=True).first.click()
    for name in ("rows_added", "rows_removed", "dagster/partition_row_count"):
        expect(person.value_of(name)).to_have_text("7")
    shot("replayed")


def test_dates_that_kafka_no_longer_holds_are_refused_with_what_happened_what_is_safe_and_what_to_run(
    site: Site, person: Person, drained: Drained, shot: Shot
) -> None:
    older = drained.day(2)
    site.delete_orders({0: 130, 1: 130})  # half of that date

    person.open_asset("bronze/orders")
    person.materialize(older)
    person.wait_for_the_run("Failure")
    told = person.full_message("STEP_FAILURE")

    expect(person.row_of("what happened", within=told)).to_contain_text("Kafka no longer holds 10 of the 20 messages")
    expect(person.row_of("what is safe", within=told)).to_contain_text("nothing was written")
    expect(person.row_of("what to run", within=told)).to_contain_text(f"kdi replay bronze/orders --from {older}")
    shot("refused", above=told.get_by_text('File "').first)  # Dagster's traceback follows
    person.open_check("bronze/orders", AUDIT)
    expect(person.page.get_by_text("Passed", exact=True)).to_be_visible()
