"""Warm drains into a lake on S3 beside the same drains into a local lake, by turns in one session.

Usage: ``python -m benchmarks.lake_on_s3 [--write]``; with ``--write`` the figures go into docs/benchmarks.md.

The S3 server is `ministack` on the loopback: its CPU is measured apart, and the network costs nothing.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median

import psutil
from rich.console import Console

from benchmarks.contents import CONTENTS
from benchmarks.page import PAGE, Measured, with_goal, write_section
from benchmarks.topic import Topic, benchmark_cluster
from benchmarks.usage import Meter
from benchmarks.worker import HERE
from kdi_assets.config.loader import load_streams
from kdi_assets.dev.s3_server import S3Server, start_s3_server
from kdi_assets.drain.drain import drain
from kdi_assets.runtime.spark import open_session
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Cluster, Stream

LOCAL, S3 = LAKES = "local", "S3"
CONTENT = "clean", "bad"
BEGIN = "<!-- what `python -m benchmarks.lake_on_s3` measured -->"
GOAL = 1.6
"""S3 in terms of local, of CPU and wall seconds."""
WARM_UP = 4  # rounds before the first that counts: the JVM gets faster with each
console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one drain; ``cpu_seconds`` without broker and S3 server."""

    wall_seconds: float
    cpu_seconds: float
    server_cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the medians, and write them if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lake_on_s3", description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--content", choices=CONTENT, default="clean")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    options, begun = parser.parse_args(arguments), Measured.beginning(HERE)
    folder = Settings.from_environment().home / "benchmark"
    with benchmark_cluster(folder) as cluster:
        server = start_s3_server(folder / "s3")
        try:
            os.environ |= server.environment()
            found = measured(cluster, folder, server, options.messages, options.rounds, options.content)
        finally:
            server.stop()
    text = as_markdown(found, begun, messages=options.messages, content=options.content)
    console.print(f"\n{text}", markup=False)
    if options.write:
        write_section(HERE / PAGE, BEGIN, text)


def measured(
    cluster: Cluster, folder: Path, server: S3Server, messages: int, rounds: int, content: str
) -> dict[str, list[Cost]]:
    """The costs of the drains into each lake."""
    lakes = {LOCAL: str(folder / "lake"), S3: f"{server.create_bucket('benchmark')}/lake"}
    servers = psutil.Process().children(recursive=True)
    settings = replace(Settings.from_environment(), lake=lakes[S3])
    spark = open_session(replace(settings, spark_master=settings.spark_master or "local[*]"), app_name="kdi benchmark")
    topic = Topic(cluster, "requests", CONTENTS[content])
    stream = replace(load_streams()["bronze/web_requests"], topic=topic.name, table="bronze/requests", cluster=cluster)
    found: dict[str, list[Cost]] = {name: [] for name in LAKES}
    process = psutil.Process(server.pid)
    for number in range(1 - WARM_UP, rounds + 1):
        topic.publish(messages)
        for name in Random(number).sample(LAKES, len(LAKES)):  # noqa: S311
            meter, before, before_all = Meter(), cpu_of(process), sum(map(cpu_of, servers))
            report = drain(stream, lake=lakes[name], session=lambda: spark)
            cost, of_server = meter.read(), cpu_of(process) - before
            if report.backlog_after or report.rows_added + report.dead_letters != messages:
                raise SystemExit(f"{name}, round {number}: {report}")
            cpu = cost.cpu_seconds - (sum(map(cpu_of, servers)) - before_all)
            console.print(f"round {number}, {name}: {cpu:.2f} CPU s, {cost.wall_seconds:.2f} s")
            if number > 0:
                found[name].append(Cost(cost.wall_seconds, cpu, of_server))
    check_rows(stream, lakes, topic)
    return found


def cpu_of(process: psutil.Process) -> float:
    """CPU seconds of a process without children."""
    return float(sum(process.cpu_times()[:2]))


def check_rows(stream: Stream, lakes: dict[str, str], topic: Topic) -> None:
    """Stop if a table does not have every good message."""
    from deltalake import DeltaTable

    for name, lake in lakes.items():
        rows = DeltaTable(stream.table_uri(lake)).to_pyarrow_dataset().count_rows()
        if rows != topic.published - topic.bad:
            raise SystemExit(f"{name}: {rows:,} rows, not {topic.published - topic.bad:,}")


def as_markdown(found: Mapping[str, Sequence[Cost]], begun: Measured, *, messages: int, content: str) -> str:
    """When and where it was measured, the medians, and S3 in terms of local."""
    middles = {name: [median(getattr(c, f) for c in costs) for f in Cost.__slots__] for name, costs in found.items()}
    wall, cpu = (s3 / local for s3, local in zip(middles[S3][:2], middles[LOCAL][:2], strict=True))
    rows = [f"| {name} | {wall:.2f} | {cpu:.2f} | {server:.2f} |" for name, (wall, cpu, server) in middles.items()]
    return "\n".join(
        [
            f"{begun.where()} {messages:,} messages, {CONTENTS[content].title}, {len(found[S3])} rounds, medians.",
            "",
            "| lake | wall s | CPU s | CPU s of the S3 server |",
            "| --- | --- | --- | --- |",
            *rows,
            f"| S3 / local | {with_goal(wall, GOAL)} | {with_goal(cpu, GOAL)} | |",
        ]
    )


if __name__ == "__main__":
    main()
