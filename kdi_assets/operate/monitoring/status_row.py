"""The state of a table at one moment, in one form for `kdi status`, `kdi freshness`, metrics and alerts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.errors import AGAIN, KdiError
from kdi_assets.operate.monitoring.checks.finding import Level, level_of_delay


class StatusRow(Protocol):
    """A table of any kind."""

    @property
    def name(self) -> str:
        """Its name in commands."""

    @property
    def kind(self) -> TableKind: ...

    @property
    def state(self) -> str:
        """One word; ``OK`` if all is well."""

    @property
    def behind(self) -> int | None:
        """What a run has to do: offsets of a stream, versions of other tables; 0: nothing, ``None``: unknown."""

    @property
    def waiting_seconds(self) -> float | None:
        """How long the oldest of it waits; 0 if nothing waits, ``None`` if unknown."""

    @property
    def committed_at(self) -> datetime | None:
        """When a run last did something; ``None``: never, or unknown."""

    @property
    def limits(self) -> FreshnessLimits | None:
        """``freshness`` of its document."""

    @property
    def refusal(self) -> KdiError | None:
        """Why a run would be refused, or why something is unknown."""

    @property
    def next_command(self) -> str:
        """The command that a person types to bring it up to date; empty: none does, or there is nothing to do."""

    @property
    def facts(self) -> Mapping[str, object]:
        """What only its kind has, for programs: raw numbers, units in the keys."""


def command_after(refusal: KdiError, *, run: str) -> str:
    """The command to type after a refusal, without its explanation; empty if only statements for a database help.

    Args:
        run: The command that was refused, where the refusal does not know it.
    """
    commands, _, _ = refusal.message_parts()[2].partition("  ")
    alternatives = commands.replace(AGAIN, run).replace("; then ", " && ").split("; or ")
    return next((command for command in alternatives if not command[:1].isupper()), "")  # SQL begins in capitals


def freshness_level(row: StatusRow) -> Level | None:
    """What the limits of its document say of the table; ``None`` without limits, or if its delay is unknown."""
    if row.limits is None or row.waiting_seconds is None or row.refusal:
        return None
    return level_of_delay(row.waiting_seconds, row.limits)


def json_fields(row: StatusRow) -> dict[str, object]:
    """The row for ``--json``: the facts of its kind, then what all kinds have."""
    level = freshness_level(row)
    return {
        **row.facts,
        "kind": row.kind,
        "state": row.state,
        "behind": row.behind,
        "waiting_seconds": row.waiting_seconds,
        "fresh": None if level is None else level == "passed",
        "next_command": row.next_command or None,
        "error": row.refusal,
    }
