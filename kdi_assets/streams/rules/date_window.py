"""Date window: a row has a date, and the date lies in the window that the stream allows, and is still kept."""

from __future__ import annotations

from datetime import datetime

from kdi_assets.messages.formats.rules import Rule
from kdi_assets.streams.rules.records import value_of
from kdi_assets.streams.rules.rules import MessageRule
from kdi_assets.streams.rules.table.column_tree import DATE


class DateWindowRule(MessageRule):
    """The rule of the fields ``date``, ``date_window`` and ``keep``."""

    def expressions(self) -> dict[str, str]:
        return {DATE: f"CAST(({self.stream.date_expression}\n) AS DATE)"}

    def reasons(self, now: datetime) -> list[Rule]:
        allowed = f"DATE'{self.stream.first_date(now)}' AND DATE'{self.stream.date_window.last(now)}'"
        return [
            *super().reasons(now),
            Rule("no_date", self._of_any_row("IS NULL"), DATE),
            Rule("date_outside_window", self._of_any_row(f"NOT BETWEEN {allowed}"), DATE),
        ]

    def _of_any_row(self, predicate: str) -> str:
        """Condition: the predicate is true for the date of one of the message's rows."""
        date = value_of(DATE)
        return f"exists({date}, _kdi_v -> _kdi_v {predicate})" if self.stream.explodes else f"{date} {predicate}"
