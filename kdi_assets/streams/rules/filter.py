"""Filter: messages for which the stream's condition is not true are skipped, and counted."""

from __future__ import annotations

from datetime import datetime

from kdi_assets.messages.formats.rules import Rule
from kdi_assets.streams.rules.records import failed, is_true
from kdi_assets.streams.rules.rules import MessageRule

FIELD = "filter"


class FilterRule(MessageRule):
    """The rule of the field ``filter``."""

    def conditions(self) -> dict[str, str]:
        return {FIELD: self.stream.filter}

    def reasons(self, now: datetime) -> list[Rule]:
        return [failed(FIELD)]

    def skips(self) -> str:
        # A filter that raised skips nothing: the audit asks this of every message, without the reason before it.
        return f"(NOT {failed(FIELD).predicate} AND NOT {is_true(FIELD)})"
