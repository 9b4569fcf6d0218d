"""The cost of a deployment's idle processes: memory and CPU of each unit, and of PostgreSQL.

Usage: ``python -m benchmarks.deployment [--seconds N] [--streams N]``. It starts the units' own command lines, lets
them drain the demo's stream once, so that the driver is warm, and then measures them idle. The other streams have
empty topics, and tables with the log of a drain.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import psutil
import psycopg2
from dagster import DagsterRunStatus, RunsFilter

from benchmarks.harness import console, option_parser, own_broker
from benchmarks.idle_streams import create_tables, create_topics
from benchmarks.many_topics import topic_documents
from kdi_assets.follow.serve.postgres.embedded import FOLDER, stop_postgres
from tests.conftest import CHECKOUT
from tests.deployment.deployed import Deployment, running_postgres

MESSAGES = 100_000
DRAIN_SECONDS = 600
SETTLE_SECONDS = 90
"""Before the measurement: Spark ends idle Python workers after a minute, and their CPU seconds with them."""
UNITS = ("driver", "code-server", "daemon", "webserver")


def main() -> None:
    """Print a line per unit."""
    parser = option_parser("deployment", __doc__)
    parser.add_argument("--seconds", type=int, default=60, help="how long to watch (60)")
    parser.add_argument("--streams", type=int, default=0, help="streams beside the demo's, all idle (0)")
    options = parser.parse_args()
    seconds: int = options.seconds
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="kdi-deployment-")))
        deployment = started(folder, stack, streams=options.streams)
        with_runs = drain_once(deployment)
        time.sleep(SETTLE_SECONDS)
        roots = {name: psutil.Process(service.pid) for name, service in deployment.services.items()}
        pid_file = Path(deployment.environment["PGHOST"]) / "postmaster.pid"
        roots["postgres"] = psutil.Process(int(pid_file.read_text().split()[0]))
        before, database = {name: cpu_seconds(root) for name, root in roots.items()}, database_work(deployment)
        time.sleep(seconds)  # the measured time
        shares = {name: cpu_between(before[name], cpu_seconds(root)) / seconds for name, root in roots.items()}
        for name, root in roots.items():
            console.print(f"{name:12} {memory(root) / 1e6:6,.0f} MB  {shares[name]:6.1%} of a core")
        console.print(f"together {sum(shares.values()):.1%} of a core")
        connections, transactions = (now - was for was, now in zip(database, database_work(deployment), strict=True))
        console.print(
            f"a minute: {connections * 60 / seconds:,.0f} connections, {transactions * 60 / seconds:,.0f} queries"
        )
        console.print(f"code-server with its runs, at most: {with_runs / 1e6:,.0f} MB")


def started(folder: Path, stack: ExitStack, *, streams: int) -> Deployment:
    """A broker, a PostgreSQL and the units, with the demo's stream and so many idle ones; all end with the stack."""
    postgres = stack.enter_context(running_postgres())
    cluster = stack.enter_context(own_broker(folder))
    more = {"PYTHONPATH": str(CHECKOUT), "KDI_KAFKA": cluster.bootstrap_servers}
    deployment = Deployment(folder, postgres=postgres, environment=more)
    stack.callback(stop_postgres, deployment.home / FOLDER)  # which the run of the demo's served table starts
    stack.callback(deployment.stop)
    copytree(CHECKOUT / "kdi_assets" / "defs", deployment.streams, dirs_exist_ok=True)
    if streams:
        idle = topic_documents(deployment, streams)
        create_topics(idle)
        create_tables(idle, lake=deployment.environment["KDI_LAKE"])
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
            if instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.FAILURE])):
                raise SystemExit((deployment.folder / "driver.log").read_text()[-2000:] + "\na run has failed")
            if time.monotonic() > until:
                raise SystemExit(f"not drained within {DRAIN_SECONDS} seconds")
            most = max(most, memory(code_server))
            time.sleep(0.5)
    return most


def database_work(deployment: Deployment) -> tuple[int, int]:
    """How many connections and transactions PostgreSQL has counted; outside a transaction each query is one."""
    names = {"host": "PGHOST", "user": "PGUSER", "dbname": "PGDATABASE"}
    address = {name: deployment.environment[variable] for name, variable in names.items()}
    with closing(psycopg2.connect(**address)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT sessions, xact_commit FROM pg_stat_database WHERE datname = current_database()")
        return cursor.fetchone() or (0, 0)


def tree(root: psutil.Process) -> list[psutil.Process]:
    """The process and its children."""
    return [root, *root.children(recursive=True)]


def cpu_seconds(root: psutil.Process) -> dict[psutil.Process, float]:
    """User and system time of each process of a tree, including its ended children."""
    return {process: sum(process.cpu_times()[:4]) for process in tree(root)}


def cpu_between(before: Mapping[psutil.Process, float], now: Mapping[psutil.Process, float]) -> float:
    """What the processes used that are there now. PySpark's idle workers end, and no parent inherits their times."""
    return sum(seconds - before.get(process, 0.0) for process, seconds in now.items())


def memory(root: psutil.Process) -> int:
    """Bytes; shared pages are divided among the processes."""
    total = 0
    for process in tree(root):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total


if __name__ == "__main__":
    main()
