"""Every check, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kdi_assets.drain.spark_errors import jvm_loss_named, root_cause
from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.monitoring.checks.backlog_checks import backlog_after_drain, fresh
from kdi_assets.monitoring.checks.finding import CheckResult, refused
from kdi_assets.monitoring.checks.ledger_checks import (
    dead_letter_rate,
    every_offset_accounted_for,
    expectations,
    positions_never_go_back,
)
from kdi_assets.monitoring.checks.subject import CheckSubject
from kdi_assets.monitoring.checks.table_checks import (
    dates_in_window,
    no_duplicate_coordinates,
    schema_as_declared,
    table_health,
)
from kdi_assets.stream.stream import COSTLY, CheckName

Measure = Callable[[CheckSubject], CheckResult]

MEASURES: Mapping[CheckName, Measure] = {
    "every_offset_accounted_for": every_offset_accounted_for,
    "no_duplicate_coordinates": no_duplicate_coordinates,
    "schema_as_declared": schema_as_declared,
    "positions_never_go_back": positions_never_go_back,
    "dead_letter_rate": dead_letter_rate,
    "dates_in_window": dates_in_window,
    "backlog_after_drain": backlog_after_drain,
    "table_health": table_health,
    "expectations": expectations,
    "fresh": fresh,
}


class TableNotRead(Terminal):
    """Spark could not read what a check asked for: a data file may be gone."""

    stream: str
    check: str
    detail: str

    what_happened = "{stream}: {check} could not be checked, Spark says: {detail}"
    what_is_safe = "nothing was written."
    what_to_run = "kdi audit {stream}"


def _measured(name: CheckName, subject: CheckSubject, measure: Measure) -> CheckResult:
    """What a check finds.

    Raises:
        TableNotRead, ReadOrWriteFailed: Spark could not do it, or is gone.
        KdiError: Whatever else kept the check from being made.
    """
    if name not in COSTLY:
        return measure(subject)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with jvm_loss_named(subject.stream):
        try:
            return measure(subject)
        except (PySparkException, Py4JError) as failed:
            if isinstance(failed, Py4JError) and getattr(failed, "java_exception", None) is None:
                raise  # the JVM is gone, and the table may be well
            raise TableNotRead(stream=subject.stream.name, check=name, detail=root_cause(failed)) from failed


def found(name: CheckName, subject: CheckSubject, measure: Measure | None = None) -> CheckResult:
    """What a check finds; that it could not be made is a finding as well.

    Raises:
        Transient: It blocks and could not be made. A verdict that nobody has must neither hold up what is built on the
            table, nor lift what an earlier one holds up; and a retry can help.
    """
    try:
        return _measured(name, subject, measure or MEASURES[name])
    except KdiError as refusal:
        if isinstance(refusal, Transient) and name in subject.stream.checks.blocking:
            raise
        return refused(refusal)
