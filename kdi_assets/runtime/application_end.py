"""What the cluster did to Spark: it gave a job no executor, or ended the application; the errors of both."""

from __future__ import annotations

from kdi_assets.runtime.errors import ApplicationEnded, NoExecutors
from kdi_assets.runtime.executors import no_executors
from kdi_assets.runtime.gateway import ended_context
from kdi_assets.runtime.yarn import runs_on_yarn, what_yarn_says


def cluster_failure(root: str) -> NoExecutors | ApplicationEnded | None:
    """The error of a failure that the cluster caused.

    Args:
        root: What Spark says of the failure.
    """
    return no_executors(root) or ended_application()


def ended_application() -> ApplicationEnded | None:
    """The error of this process's application, if its cluster has ended it.

    Then whatever is called fails, each call with other words. So Spark's context is asked, and not the failure.
    """
    if (context := ended_context()) is None:
        return None
    master, application = str(context.master), str(context.applicationId)
    said = what_yarn_says(application) if runs_on_yarn(master) else ""
    return ApplicationEnded(master=master, application=application, said=said)
