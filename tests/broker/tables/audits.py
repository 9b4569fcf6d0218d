"""What an audit's report must hold, whatever it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdi_assets.streams.audit import audit as account
from kdi_assets.streams.audit.audit import AuditReport, audit
from tests.driven import DrivenStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def both_ways(web: DrivenStream, monkeypatch: pytest.MonkeyPatch) -> AuditReport:
    """The report of an audit that must not ask for Spark; it must equal that of one that counts in Spark."""

    def session() -> SparkSession:
        raise AssertionError("Spark was asked for")

    report = audit(web.stream, lake=web.lake, session=session)
    with monkeypatch.context() as patched:
        patched.setattr(account, "count_without_spark", lambda *_: None)
        assert web.audit() == report
    return report


def adds_up(report: AuditReport) -> bool:
    """Every offset is exactly one thing, and additional ones are counted as twice."""
    kept = report.became_rows + report.dead_letters + report.tombstones + report.filtered + report.gaps
    kept += report.declared_losses
    return report.offsets + report.twice == kept + report.deleted + report.missing
