"""The cost of a deployment's idle processes: memory and CPU of each unit, and of PostgreSQL.

Usage: ``python -m benchmarks.deployment [--seconds N]``. It starts the units' own command lines, lets them drain the
demo's stream once, so that the driver is warm, and then measures them idle.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from dagster import DagsterRunStatus, RunsFilter

from benchmarks.harness import console, option_parser, own_broker
from tests.conftest import CHECKOUT
from tests.deployment.deployed import Deployment, running_postgres

MESSAGES = 100_000
DRAIN_SECONDS = 600
UNITS = ("driver", "code-server", "daemon", "webserver")


def main() -> None:
    """Print a line per unit."""
    parser = option_parser("deployment", __doc__)
    parser.add_argument("--seconds", type=int, default=60, help="how long to watch (60)")
    seconds = parser.parse_args().seconds
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="kdi-deployment-")))
        deployment = started(folder, stack)
        with_runs = drain_once(deployment)
        roots = {name: psutil.Process(service.pid) for name, service in deployment.services.items()}
        pid_file = Path(deployment.environment["PGHOST"]) / "postmaster.pid"
        roots["postgres"] = psutil.Process(int(pid_file.read_text().split()[0]))
        before = {name: cpu_seconds(root) for name, root in roots.items()}
        time.sleep(seconds)  # the measured time
        for name, root in roots.items():
            share = (cpu_seconds(root) - before[name]) / seconds
            console.print(f"{name:12} {memory(root) / 1e6:6,.0f} MB  {share:6.1%} of a core")
        console.print(f"code-server with its runs, at most: {with_runs / 1e6:,.0f} MB")


def started(folder: Path, stack: ExitStack) -> Deployment:
    """A broker, a PostgreSQL and the units, with the demo's stream; all end with the stack."""
    postgres = stack.enter_context(running_postgres())
    cluster = stack.enter_context(own_broker(folder))
    documents = {"KDI_DEFS": str(CHECKOUT / "kdi_assets" / "defs"), "KDI_KAFKA": cluster.bootstrap_servers}
    more = {"PYTHONPATH": str(CHECKOUT), **documents}
    deployment = Deployment(folder, postgres=postgres, environment=more)
    stack.callback(deployment.stop)
    deployment.run("dagster", "instance", "migrate")
    deployment.start(*UNITS)
    return deployment


def drain_once(deployment: Deployment) -> int:
    """Publish, and wait until it is drained; the maximum memory that code server and runs held together, in bytes."""
    code_server, most = psutil.Process(deployment.services["code-server"].pid), 0
    deployment.run("kdi", "generate", f"--count={MESSAGES}")
    until = time.monotonic() + DRAIN_SECONDS
    with deployment.instance() as instance:
        while not instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.SUCCESS])) or instance.get_runs(
            RunsFilter(statuses=[DagsterRunStatus.QUEUED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED])
        ):
            if time.monotonic() > until:
                raise SystemExit(f"not drained within {DRAIN_SECONDS} seconds")
            most = max(most, memory(code_server))
            time.sleep(0.5)
    return most


def tree(root: psutil.Process) -> list[psutil.Process]:
    """The process and its children."""
    return [root, *root.children(recursive=True)]


def cpu_seconds(root: psutil.Process) -> float:
    """User and system time, including ended children."""
    return sum(sum(process.cpu_times()[:4]) for process in tree(root))


def memory(root: psutil.Process) -> int:
    """Bytes; shared pages are divided among the processes."""
    total = 0
    for process in tree(root):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total


if __name__ == "__main__":
    main()
