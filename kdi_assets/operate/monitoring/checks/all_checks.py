"""Every check, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kdi_assets.delta.storage import storage_failures, table_unreadable
from kdi_assets.documents.model.stream import COSTLY, CheckName
from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.operate.monitoring.checks.backlog_checks import backlog_after_drain, fresh
from kdi_assets.operate.monitoring.checks.finding import CheckResult, not_checked
from kdi_assets.operate.monitoring.checks.ledger_checks import (
    cpu_seconds_a_day,
    dead_letter_rate,
    every_offset_accounted_for,
    expectations,
    positions_never_go_back,
)
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.operate.monitoring.checks.table_checks import (
    dates_in_window,
    no_duplicate_coordinates,
    schema_as_declared,
    table_health,
)
from kdi_assets.runtime.spark_failures import SparkFailure, translated
from kdi_assets.streams.spark_errors import jvm_loss_named

Check = Callable[[CheckSubject], CheckResult]

CHECKS: Mapping[CheckName, Check] = {
    "every_offset_accounted_for": every_offset_accounted_for,
    "no_duplicate_coordinates": no_duplicate_coordinates,
    "schema_as_declared": schema_as_declared,
    "positions_never_go_back": positions_never_go_back,
    "dead_letter_rate": dead_letter_rate,
    "dates_in_window": dates_in_window,
    "backlog_after_drain": backlog_after_drain,
    "table_health": table_health,
    "expectations": expectations,
    "cpu_seconds_a_day": cpu_seconds_a_day,
    "fresh": fresh,
}


LOOKING_BACK: frozenset[CheckName] = frozenset({"positions_never_go_back", "dead_letter_rate", "expectations"})
"""Checks that read the commits of a day, or thousands."""


class TableNotRead(Terminal):
    """Spark could not read the table for a check: a data file may be gone."""

    stream: str
    check: str
    detail: str

    what_happened = "{stream}: {check} could not be checked, Spark says: {detail}"
    what_is_safe = "nothing was written."
    what_to_run = "kdi audit {stream}"


def run_check(name: CheckName, subject: CheckSubject, check: Check | None = None) -> CheckResult:
    """Run a check; its failure to run is a result as well.

    Args:
        check: Instead of the one in ``CHECKS``.

    Raises:
        Transient: A blocking check failed to run, and a retry can help. Any result would be wrong: it would block the
            assets downstream, or unblock those that an earlier result blocks.
    """
    try:
        return _run(name, subject, check or CHECKS[name])
    except KdiError as refusal:
        if isinstance(refusal, Transient) and name in subject.stream.checks.blocking:
            raise
        return not_checked(refusal)


def _run(name: CheckName, subject: CheckSubject, check: Check) -> CheckResult:
    """Run a check, and translate the errors of Spark and of the storage.

    Raises:
        TableNotRead, ReadOrWriteFailed: Spark failed, or its JVM is gone.
        StorageFailed, TableUnreadable: The log or the storage could not be read.
    """
    if name not in COSTLY:
        return _without_spark(subject, check)

    def error_of(failure: SparkFailure) -> KdiError | None:
        if failure.jvm_is_lost or not failure.is_of_spark:
            return None  # the table may be intact: a verdict would block what is built from it
        return TableNotRead(stream=subject.stream.name, check=name, detail=failure.root)

    with jvm_loss_named(subject.stream), translated(error_of):
        return check(subject)


def _without_spark(subject: CheckSubject, check: Check) -> CheckResult:
    # Each drain makes these checks after its commit, and a storage that hesitates then must not fail the run.
    from deltalake.exceptions import DeltaError

    try:
        with storage_failures(subject.uri):
            return check(subject)
    except DeltaError as failed:
        raise table_unreadable(subject.uri, failed) from failed
