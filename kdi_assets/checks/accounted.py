"""Every offset is accounted for: the audit as a check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Protocol

from kdi_assets.checks.finding import Finding
from kdi_assets.checks.subject import Subject
from kdi_assets.ledger.audit import AuditReport, audit
from kdi_assets.ledger.report import NothingToAudit
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Audit(Protocol):
    """``kdi_assets.ledger.audit.audit``."""

    def __call__(self, stream: Stream, *, lake: str, session: Callable[[], SparkSession]) -> AuditReport: ...


def every_offset_accounted_for(subject: Subject, *, audit: Audit = audit) -> Finding:
    """Whether every offset below the positions is a row, a dead letter, a confirmed gap or a declared loss, once.

    Raises:
        NothingToAudit: The ledger's entries are gone from the log, and nobody copied them.
    """
    try:
        report = audit(subject.stream, lake=subject.lake, session=subject.session)
    except NothingToAudit as nothing:
        if nothing.knows_ledger:
            raise
        return Finding("passed", "nothing was drained yet")
    known = {f.name: getattr(report, f.name) for f in fields(report)}
    return Finding(
        "passed" if report.complete else "error",
        report.line(),
        {name: n for name, n in known.items() if isinstance(n, int) and not isinstance(n, bool)},
        {name: tuple(map(str, lines)) for name, lines in known.items() if isinstance(lines, tuple) and lines},
    )
