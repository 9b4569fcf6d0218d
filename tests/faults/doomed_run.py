"""A Dagster run that drains one stream and kills itself (SIGKILL) at a named point; a process of its own.

Usage: ``python -m tests.faults.doomed_run TOPIC BOOTSTRAP_SERVERS POINT``, with DAGSTER_HOME and the ``KDI_…``
variables set. It attaches to the warm driver, as a run on one machine does.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from functools import partial

import dagster as dg

from kdi_assets.components.assets import table_asset
from kdi_assets.drain.drain import drain
from kdi_assets.drain.report import Commit
from kdi_assets.ledger.audit import audit
from kdi_assets.stream import KafkaCluster
from resources.spark import SparkResource
from tests.driven import web_requests

EVENT_NOT_LOGGED = "event not logged"


def die() -> None:
    """End at once: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(topic: str, bootstrap_servers: str, doom: str) -> None:
    """Materialize the stream's asset for today, up to the point."""

    def at(point: str) -> None:
        if point == doom:
            die()

    def doomed_drain(*args: object, on_commit: object, **options: object) -> object:
        def untold(commit: Commit) -> None:
            if doom == EVENT_NOT_LOGGED:
                die()
            on_commit(commit)  # type: ignore[operator]

        return partial(drain, at=at)(*args, on_commit=untold, **options)  # type: ignore[arg-type]

    stream = web_requests(topic, KafkaCluster(name="main", bootstrap_servers=bootstrap_servers))
    asset = table_asset(stream, drain=doomed_drain, audit=audit)  # type: ignore[arg-type]
    dg.materialize(
        [asset],
        instance=dg.DagsterInstance.get(),
        partition_key=datetime.now(UTC).date().isoformat(),
        resources={"spark": SparkResource(driver="shared")},
        selection=[asset.key],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
