"""All checks of a stream at once."""

from __future__ import annotations

from kdi_assets.documents.model.stream import CheckName
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.finding import CheckResult
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from tests.driven import DrivenStream


def checked(web: DrivenStream, *, drained: bool = False) -> dict[CheckName, CheckResult]:
    """The results of all checks of the stream."""
    return {
        name: run_check(name, CheckSubject(web.stream, web.lake, web.session, drained=drained))
        for name in web.stream.check_names
    }


def wrong(web: DrivenStream) -> dict[CheckName, str]:
    """The checks that do not pass, and their levels."""
    return {name: finding.level for name, finding in checked(web).items() if not finding.passed}
