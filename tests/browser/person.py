"""What a person does in Dagster's UI, click by click; every step waits for its result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Locator, Page, expect

# Limits for a machine that is busy with other work; on a quiet one everything takes seconds.
STEP_MILLISECONDS = 60_000
TICK_MILLISECONDS = 120_000
RUN_MILLISECONDS = 300_000


@dataclass(frozen=True, slots=True)
class Person:
    """One person at one browser window."""

    page: Page
    url: str

    def open_graph(self, *unfolded: str) -> None:
        """The lineage of everything, as large as the window allows, with these groups unfolded."""
        self.page.goto(f"{self.url}/asset-groups")
        self.page.get_by_label("unfold_more").first.click()
        self.page.wait_for_url("**expanded=**")
        # The view moves to the unfolded group, and the other groups may be outside of the window then: go by address.
        (first,) = parse_qs(urlsplit(self.page.url).query)["expanded"]
        location = re.sub(r"[^:]+$", "", first)
        self.page.goto(f"{self.url}/asset-groups?expanded={','.join(location + group for group in unfolded)}")
        expect(self.page.get_by_label("unfold_less")).to_have_count(len(unfolded))
        self.page.reload()  # as large as the window allows
        expect(self.page.get_by_label("unfold_less")).to_have_count(len(unfolded))

    def open_asset(self, table: str, tab: str = "Overview") -> None:
        """The page of a table."""
        self.page.goto(f"{self.url}/assets/{table}")
        if tab != "Overview":
            self.page.get_by_role("tab", name=tab).click()

    def open_check(self, table: str, name: str) -> None:
        """The page of one of a table's checks."""
        self.open_asset(table, "Checks")
        self.page.get_by_text(name, exact=True).first.click()
        self.page.wait_for_url(f"**checkDetail={name}**")

    def open_sensor(self, name: str = "lag_main") -> None:
        """The page of the sensor, with the list of its ticks."""
        self.page.goto(f"{self.url}/automation")
        self.page.get_by_role("link", name=name).click()
        self.page.get_by_role("button", name="View logs").first.wait_for(timeout=TICK_MILLISECONDS)

    def open_run(self, run_id: str) -> None:
        """The page of a run."""
        self.page.goto(f"{self.url}/runs/{run_id}")
        self.page.get_by_text("RUN_SUCCESS").or_(self.page.get_by_text("RUN_FAILURE")).first.wait_for()

    def filter_events(self, text: str) -> None:
        """On the run's page: show the events with this text."""
        events = self.page.get_by_placeholder("Filter…")
        events.fill(text)
        events.press("Enter")

    def ticks(self, result: str) -> Locator:
        """On the sensor's page: the ticks with this result, the newest first."""
        return self.page.locator("tr").filter(has_text=result).filter(has_text="View logs")

    def new_tick(self, result: str, *, known: Sequence[str]) -> Locator:
        """On the sensor's page: the newest tick with this result whose text is not among these.

        Ticks are identified by their times: the page shows the last 25 ticks, so the number does not show that one
        came.
        """
        ticks = self.ticks(result)
        for text in known:
            ticks = ticks.filter(has_not_text=re.findall(r"\d\d:\d\d:\d\d", text)[0])
        return ticks.first

    def materialize(self, day: date | None = None) -> str:
        """From the asset's page: pick a date, by default the latest, launch, and open the run; its id."""
        self.page.get_by_role("button", name="Materialize…").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("button", name="Latest", exact=True).click()
        if day is not None:
            dates = dialog.locator("input[placeholder^='ex:']")
            dates.fill(day.isoformat())
            dates.press("Enter")
        dialog.get_by_role("button", name="Launch 1 run").click()
        return self._follow_the_launch()

    def execute_check(self) -> str:
        """From the check's page: execute it, and open the run; its id."""
        self.page.get_by_role("button").filter(has_text=re.compile("^Execute$")).click()
        return self._follow_the_launch()

    def wait_for_the_run(self, status: str) -> None:
        """On the run's page: wait until it shows this result."""
        ended = self.page.get_by_text("Success", exact=True).or_(self.page.get_by_text("Failure", exact=True)).first
        expect(ended).to_be_visible(timeout=RUN_MILLISECONDS)
        expect(ended).to_have_text(status)

    def full_message(self, kind: str) -> Locator:
        """On the run's page: unfold the message of an event; the dialog."""
        button = self.page.get_by_role("button", name="View full message")
        event = self.page.locator("div").filter(has_text=kind).filter(has=button).last  # the innermost
        event.get_by_role("button", name="View full message").click()
        return self.page.get_by_role("dialog")

    def row_of(self, name: str, *, within: Locator | None = None) -> Locator:
        """The row of a table that has a cell with this text."""
        return (within or self.page).locator("tr").filter(has=self.page.get_by_text(name, exact=True)).first

    def value_of(self, name: str) -> Locator:
        """The second cell of that row."""
        return self.row_of(name).locator("td").nth(1)

    def _follow_the_launch(self) -> str:
        launched = self.page.locator(".bp5-toast, [class*='toast' i]").filter(has_text="Launched run")
        launched.get_by_text("View", exact=True).first.click()
        self.page.wait_for_url("**/runs/*")
        return self.page.url.rsplit("/", 1)[1].split("?")[0]
