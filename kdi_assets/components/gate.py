"""A pipeline's gate: drain a stream, make its checks, and return the results; all in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.asset_checks import level_of
from kdi_assets.components.names import check_key, first_date, table_key
from kdi_assets.components.table_asset import table_asset
from kdi_assets.components.table_run import REQUESTED_TAG
from kdi_assets.documents.model.stream import COSTLY, Stream
from kdi_assets.operate.monitoring.checks.finding import Level
from kdi_assets.resources.spark import SparkResource
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport

NO_CONSOLE = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True, slots=True)
class GateCheck:
    """The result of one check."""

    check: str
    level: Level
    said: str
    blocking: bool


@dataclass(frozen=True, slots=True)
class Gate:
    """The result of one stream; the field names are keys of ``--json``.

    Attributes:
        failure: Why the drain failed, or a check could not be made; empty if neither happened.
        offsets: How many it drained; ``None`` if it drained nothing because it was not to, or failed.
    """

    stream: str
    outcomes: tuple[GateCheck, ...]
    failure: str = ""
    offsets: int | None = None

    @property
    def passed(self) -> bool:
        """Nothing failed, and no check found an error; warnings pass."""
        return not self.failure and all(outcome.level != "error" for outcome in self.outcomes)


def run_gate(stream: Stream, instance: DagsterInstance, *, drains: bool, costly: bool) -> Gate:
    """Materialize the stream's table under today's date and make its checks, or make the checks alone.

    A failed check fails neither the run nor `dagster asset materialize` unless it blocks; ``Gate.passed`` is stricter.
    """
    now = datetime.now(UTC)
    names = [name for name in stream.check_names if costly or name not in COSTLY]
    selection: dg.AssetSelection = dg.AssetSelection.checks(*(check_key(stream, name) for name in names))
    if drains:
        selection |= dg.AssetSelection.assets(table_key(stream)).without_checks()
    if drains and now.date() < first_date(stream):  # Dagster would refuse the date
        return Gate(stream.name, (), f"its date window begins on {first_date(stream)}; no drain before that")
    reports: list[DrainReport] = []

    def drain_and_keep(*of: Any, **options: Any) -> DrainReport:
        reports.append(drain(*of, **options))
        return reports[-1]

    result = dg.materialize(
        [table_asset(stream, drain=drain_and_keep, audit=audit)],
        selection=selection,
        instance=instance,
        partition_key=now.date().isoformat() if drains else None,
        tags={REQUESTED_TAG: now.isoformat()},
        resources={"spark": SparkResource()},
        run_config=NO_CONSOLE,
        raise_on_error=False,
    )
    evaluations = result.get_asset_check_evaluations()
    outcomes = tuple(_outcome(e, blocking=e.check_name in stream.checks.blocking) for e in evaluations)
    failure = _failure(result.all_events) or ("" if len(outcomes) == len(names) else "not every check was made")
    offsets = sum(c.offset_count for report in reports for c in report.commits) if reports else None
    return Gate(stream.name, outcomes, failure, offsets)


def _outcome(evaluation: dg.AssetCheckEvaluation, *, blocking: bool) -> GateCheck:
    return GateCheck(evaluation.check_name, level_of(evaluation), evaluation.description or "", blocking)


def _failure(events: Sequence[dg.DagsterEvent]) -> str:
    """The failed step's text; empty if a blocking check failed it, because that is among the outcomes."""
    for event in events:
        if event.event_type_value == "STEP_FAILURE":
            data = event.step_failure_data
            if data.user_failure_data and data.user_failure_data.description:
                return data.user_failure_data.description
            if data.error is None or data.error.cls_name != "DagsterAssetCheckFailedError":
                return data.error_display_string
    return ""
