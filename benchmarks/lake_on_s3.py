"""Warm drains into a lake on S3 beside the same drains into a local lake, by turns in one session.

Usage: ``python -m benchmarks.lake_on_s3 [--write]``; with ``--write`` the figures go into docs/benchmarks.md.

The S3 server is `ministack` on the loopback: its CPU is measured apart, and the network costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import psutil

from benchmarks.contents import CONTENTS
from benchmarks.harness import (
    beginning,
    console,
    hold,
    medians,
    option_parser,
    own_broker,
    own_folder,
    own_session,
    show_section,
)
from benchmarks.page import PAGE, Measured, table_lines, with_goal
from benchmarks.topic import Topic
from benchmarks.usage import Meter
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.streams.drain.drain import drain
from kdi_assets.tools.local.s3_server import S3Server, start_s3_server

LOCAL, S3 = LAKES = "local", "S3"
CONTENT = "clean", "bad"
BEGIN = "<!-- what `python -m benchmarks.lake_on_s3` measured -->"
GOAL = 1.6
"""S3 in terms of local, of CPU and wall seconds."""
WARM_UP = 4  # rounds before the first that counts: the JVM gets faster with each


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one drain; ``cpu_seconds`` without broker and S3 server."""

    wall_seconds: float
    cpu_seconds: float
    server_cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the medians, and write them if asked."""
    parser = option_parser("lake_on_s3", __doc__, rounds=9, write=PAGE)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--content", choices=CONTENT, default="clean")
    options, begun = parser.parse_args(arguments), beginning()
    with own_folder() as folder, own_broker(folder) as cluster:
        server = start_s3_server(folder / "s3")
        try:
            os.environ |= server.environment()
            found = measured(cluster, folder, server, options.messages, options.rounds, options.content)
        finally:
            server.stop()
    text = as_markdown(found, begun, messages=options.messages, content=options.content)
    show_section(text, BEGIN, PAGE, write=options.write)


def measured(
    cluster: Cluster, folder: Path, server: S3Server, messages: int, rounds: int, content: str
) -> dict[str, list[Cost]]:
    """The costs of the drains into each lake."""
    lakes = {LOCAL: str(folder / "lake"), S3: f"{server.create_bucket('benchmark')}/lake"}
    servers = psutil.Process().children(recursive=True)
    topic = Topic(cluster, "requests", CONTENTS[content])
    stream = replace(load_streams()["bronze/web_requests"], topic=topic.name, table="bronze/requests", cluster=cluster)
    found: dict[str, list[Cost]] = {name: [] for name in LAKES}
    process = psutil.Process(server.pid)
    with own_session(lakes[S3]) as spark:
        for number in range(1 - WARM_UP, rounds + 1):
            topic.publish(messages)
            for name in Random(number).sample(LAKES, len(LAKES)):  # noqa: S311
                meter, before, before_all = Meter(), cpu_of(process), sum(map(cpu_of, servers))
                report = drain(stream, lake=lakes[name], session=lambda: spark)
                used, of_server = meter.read(), cpu_of(process) - before
                whole = not report.backlog_after and report.rows_added + report.dead_letters == messages
                hold(whole, f"{name}, round {number}: {report}")
                cpu = used.cpu_seconds - (sum(map(cpu_of, servers)) - before_all)
                console.print(f"round {number}, {name}: {cpu:.2f} CPU s, {used.wall_seconds:.2f} s")
                found[name] += [Cost(used.wall_seconds, cpu, of_server)] if number > 0 else []
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
        hold(rows == topic.published - topic.bad, f"{name}: {rows:,} rows, not {topic.published - topic.bad:,}")


def as_markdown(found: Mapping[str, Sequence[Cost]], begun: Measured, *, messages: int, content: str) -> str:
    """When and where it was measured, the medians, and S3 in terms of local."""
    middles = {
        name: medians(costs, "wall_seconds", "cpu_seconds", "server_cpu_seconds") for name, costs in found.items()
    }
    wall, cpu = (s3 / local for s3, local in zip(middles[S3][:2], middles[LOCAL][:2], strict=True))
    rows = [(name, *(f"{figure:.2f}" for figure in figures)) for name, figures in middles.items()]
    rows.append(("S3 / local", with_goal(wall, GOAL), with_goal(cpu, GOAL), ""))
    return "\n".join(
        [
            f"{begun.where()} {messages:,} messages, {CONTENTS[content].title}, {len(found[S3])} rounds, medians.",
            "",
            *table_lines(("lake", "wall s", "CPU s", "CPU s of the S3 server"), rows),
        ]
    )


if __name__ == "__main__":
    main()
