"""Route: which messages of a topic that several streams share belong to this one."""

from __future__ import annotations

from datetime import datetime

from kdi_assets.documents.model.message_rules import ROUTE, Route
from kdi_assets.messages.formats.rules import Rule
from kdi_assets.streams.rules.records import failed, is_true
from kdi_assets.streams.rules.rules import MessageRule
from kdi_assets.streams.rules.verdict import ELSEWHERE


class RouteRule(MessageRule):
    """The rule of the field ``route``. A message of another stream is filtered here, and a row or dead letter there."""

    skip_outcome = ELSEWHERE

    @property
    def _route(self) -> Route:
        return self.stream.route or Route()

    def conditions(self) -> dict[str, str]:
        return self._route.conditions

    def reasons(self, now: datetime) -> list[Rule]:
        if self._route.rest is None:
            return []
        # A message for which a condition raises may belong to any table. The others skip it, so it is kept here.
        raised = [failed(field) for field in self.conditions()]
        unrouted = Rule("unrouted", f"NOT {self._own} AND NOT ({self._of_others})")
        return [*raised, unrouted] if self._route.rest == "dead_letters" else raised

    def skips(self) -> str:
        if self._route.rest is None:
            # A message that is not decoded, or raises, goes to the stream that has the rest.
            return f"NOT {self._own}"
        sound = " AND ".join(f"NOT {failed(field).predicate}" for field in self.conditions()) or "true"
        return f"({sound} AND NOT {self._own} AND ({self._of_others}))"

    @property
    def _own(self) -> str:
        return is_true(ROUTE) if self._route.when else "false"

    @property
    def _of_others(self) -> str:
        return " OR ".join(is_true(field) for field in self.conditions() if field != ROUTE) or "false"
