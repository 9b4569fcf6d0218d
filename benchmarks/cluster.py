"""A million messages drained, and audited against their topic, by clusters of two executors and `local[2]`, by turns.

Usage: ``python -m benchmarks.cluster [--kubernetes] [--write]``; with ``--write`` the figures go into
docs/benchmarks.md. The clusters are a standalone one, a YARN and, if asked, Kubernetes as ``make proof-kubernetes``
runs it; each has two cores for tasks, on this machine, and its tables in a folder. CPU is that of the driver and its
JVM, and of the cluster's own processes and executors; the broker's is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import psutil

from benchmarks.contents import CONTENTS
from benchmarks.harness import beginning, console, hold, medians, option_parser, own_broker, own_folder, show_section
from benchmarks.page import PAGE, Measured, table_lines, with_goal
from benchmarks.topic import Topic
from kdi_assets.documents.model.stream import Stream
from kdi_assets.settings import Settings
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.audit.source_comparison import compare
from kdi_assets.streams.drain.drain import drain
from tests.deployment.standalone import SPARK_HOME, Standalone
from tests.driven import web_requests
from tests.faults.systems.cluster_driver import ClusterDriver
from tests.hadoop.mini_cluster import MiniCluster
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.release import Release, image, programs

LOCAL = "local[2]"
BEGIN = "<!-- what `python -m benchmarks.cluster` measured -->"
GOAL = 1.2
"""A cluster's drain in terms of that of ``local[2]``, which has as many cores, of wall seconds."""
CONFIG = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "1g"}
ON_YARN = {"spark.yarn.jars": f"local:{SPARK_HOME}/jars/*", "spark.executor.instances": "2"}
ENVIRONMENT = {"SPARK_SUBMIT_OPTS": "", "SPARK_DRIVER_MEMORY": "2g"}


@dataclass(frozen=True, slots=True)
class Took:
    """The cost of a drain into a new table, and of its audit against the topic."""

    drain_wall: float
    drain_cpu: float
    audit_wall: float
    audit_cpu: float


@dataclass(frozen=True, slots=True)
class Engine:
    """A driver, where it makes tables, and the processes of its cluster as they are now."""

    driver: ClusterDriver
    lake: Path
    cluster: Callable[[], Sequence[int]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write if asked."""
    parser = option_parser("cluster", __doc__, rounds=3, write=PAGE)
    parser.add_argument("--messages", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--kubernetes", action="store_true", help="also by Kubernetes, compiled at the first time")
    options, begun = parser.parse_args(arguments), beginning()
    home = Settings.from_environment().home
    with ExitStack() as stack:
        folder = stack.enter_context(own_folder())
        cluster = stack.enter_context(own_broker(folder))
        topic = Topic(cluster, "clean", CONTENTS["clean"])
        topic.publish(options.messages)
        stream = replace(web_requests(topic.name, cluster), max_records=options.messages)
        engines = started(stream, folder, stack, home=home, kubernetes=options.kubernetes)
        found = measured(stream, engines, rounds=options.rounds, messages=options.messages)
    text = as_markdown(found, begun, messages=options.messages)
    show_section(text, BEGIN, PAGE, write=options.write)


def started(
    stream: Stream, folder: Path, stack: ExitStack, *, home: Path, kubernetes: bool = False
) -> dict[str, Engine]:
    """A driver for each engine, and its cluster; all end with the stack."""
    standalone = Standalone(_empty(folder / "standalone"), home=home)
    stack.callback(standalone.stop)
    settings = Settings(home, str(folder), stream.kafka.bootstrap_servers, LOCAL)
    yarn = MiniCluster(_empty(folder / "hadoop"), settings)
    stack.callback(yarn.stop)

    def engine(
        name: str, master: str, cluster: Callable[[], Sequence[int]], config: Mapping[str, str], **variables: str
    ) -> Engine:
        lake = folder / "lakes" / name
        driver = ClusterDriver(
            replace(settings, spark_master=master, lake=lake.as_uri()),
            config={**CONFIG, **config, "spark.local.dir": str(standalone.hidden)},
            environment={**ENVIRONMENT, **variables},
            messages_per_task=None,
        )
        stack.callback(driver.stop)
        return Engine(driver, lake, cluster)

    workers = [child.pid for child in standalone.workers.values()]
    engines = {
        LOCAL: engine("local", LOCAL, list, {}),
        "standalone": engine("standalone", standalone.master, lambda: workers, {}),
        "YARN": engine("yarn", "yarn", lambda: [yarn.pid], ON_YARN, HADOOP_CONF_DIR=str(yarn.configuration)),
    }
    if kubernetes:
        release, cluster = _release(_empty(folder / "kubernetes"), stack, settings)
        config = {name: value for name, value in release.config().items() if "authenticate" in name}
        engines["Kubernetes"] = engine("kubernetes", release.master, cluster, config, **release.environment())
    return engines


def _release(folder: Path, stack: ExitStack, settings: Settings) -> tuple[Release, Callable[[], Sequence[int]]]:
    """The chart on servers of Kubernetes, and the processes of these and of its executors."""
    servers = ControlPlane(folder, settings.home)
    stack.callback(servers.stop)
    kubelet = Kubelet(servers.admin, _empty(folder / "pods"), programs=programs(), image=image(settings))
    stack.callback(kubelet.stop)
    release = Release(servers, kubelet, _empty(folder / "release"))
    return release, lambda: [*servers.pids, *map(kubelet.process_of, release.executors())]


def measured(stream: Stream, engines: Mapping[str, Engine], *, rounds: int, messages: int) -> dict[str, list[Took]]:
    """Drain by turns into new tables, and audit these against the topic; a round before the others does not count."""
    took: dict[str, list[Took]] = {name: [] for name in engines}
    for number in range(rounds + 1):
        for name, engine in engines.items():
            _empty(engine.lake)
            report, *of_drain = _cost(engine, drain, stream)
            audited = engine.driver.call(audit, stream, lake=engine.lake.as_uri())
            compared, *of_audit = _cost(engine, compare, stream)
            found = Took(*of_drain, *of_audit)
            console.print(f"round {number}, {name}: {report.rows_added:,} rows, {found}")
            hold(audited.complete and audited.rows == messages, f"{name}: the audit found {audited}")
            hold(
                compared.agrees and compared.messages == messages,
                f"{name}: the audit against the topic found {compared}",
            )
            took[name] += [found] if number else []
    return took


def as_markdown(took: Mapping[str, Sequence[Took]], begun: Measured, *, messages: int) -> str:
    """When and where it was measured, the medians, and each cluster in terms of ``local[2]``."""
    figures = ("drain_wall", "drain_cpu", "audit_wall", "audit_cpu")
    middle = {name: medians(found, *figures) for name, found in took.items()}
    rows = [(name, *(f"{figure:.1f}" for figure in figures)) for name, figures in middle.items()]
    for name in [name for name in middle if name != LOCAL]:
        wall, *others = (there / here for there, here in zip(middle[name], middle[LOCAL], strict=True))
        rows.append((f"{name} / {LOCAL}", with_goal(wall, GOAL), *(f"{ratio:.2f}" for ratio in others)))
    return "\n".join(
        [
            f"{begun.where()} {messages:,} messages, {len(took[LOCAL])} rounds, medians; each audit is complete.",
            "",
            *table_lines(("", "drain, wall s", "CPU s", "audit against the topic, wall s", "CPU s"), rows),
        ]
    )


def _cost(engine: Engine, work: Callable[..., Any], stream: Stream) -> tuple[Any, float, float]:
    """What it returns, its wall seconds, and the CPU seconds of driver and cluster."""
    before, begun = _cpu_seconds(engine), time.monotonic()
    result = engine.driver.call(work, stream, lake=engine.lake.as_uri())
    return result, time.monotonic() - begun, _cpu_seconds(engine) - before


def _cpu_seconds(engine: Engine) -> float:
    """Of driver and cluster and their descendants, ended ones included."""
    trees = [psutil.Process(pid) for pid in (engine.driver.pid, *engine.cluster())]
    every = [process for tree in trees for process in (tree, *tree.children(recursive=True))]
    return float(sum(sum(process.cpu_times()[:4]) for process in every))


def _empty(folder: Path) -> Path:
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    main()
