"""`make bench-small`: CPU seconds of small warm drains beside Structured Streaming, and beside another checkout.

Each round publishes 1,000 messages to a topic of good ones, and 1,000 to one where ten are bad. Our drain then takes
what came to each, and the Structured Streaming job of ``make bench`` what came to the first. Sessions are warm, and
tables grow. With ``--against PATH`` the checkout there does the same in a process of its own, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import IO, cast

from confluent_kafka import Producer
from rich.console import Console

from benchmarks.structured_streaming import ingest
from benchmarks.topic import benchmark_cluster
from benchmarks.usage import Meter
from kdi_assets.components.load import load_streams
from kdi_assets.drain.drain import drain
from kdi_assets.runtime.session import open_session
from kdi_assets.settings import Settings
from kdi_assets.sources.generator import Traffic, WebRequests
from kdi_assets.sources.kafka_client import client_config
from kdi_assets.sources.publisher import ensure_topic
from kdi_assets.stream import KafkaCluster

MESSAGES, BAD, PARTITIONS, WARM_UP_ROUNDS = 1_000, 10, 4, 3
GOOD_TOPIC, BAD_TOPIC = "small_good", "small_bad"
CLEAN, WITH_BAD, STREAMING = "drain, all good", "drain, ten bad", "structured streaming"
JOBS = (CLEAN, WITH_BAD, STREAMING)
HERE = "this checkout"
console = Console(highlight=False)

Measured = dict[tuple[str, str], list[dict[str, float]]]
"""By checkout and job, the figures of each round."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print, or serve a process that does."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_drains", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--against", type=Path, help="another checkout, with its own .venv and .kdi")
    parser.add_argument("--json", type=Path, help="where to write the figures; default: in KDI_HOME")
    parser.add_argument("--serve", nargs=2, metavar=("SERVERS", "LAKE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(*options.serve)
        return
    home = Settings.from_environment().home
    checkouts = {HERE: Path.cwd()} | ({str(options.against): options.against.resolve()} if options.against else {})
    measured = all_rounds(home / "benchmark-small", checkouts, options.rounds)
    figures = show(measured)
    path = options.json or home / "benchmark-small.json"
    path.write_text(json.dumps(figures, indent=2) + "\n")
    console.print(f"written to {path}")


def all_rounds(folder: Path, checkouts: dict[str, Path], rounds: int) -> Measured:
    """Every job of every checkout in each round; who begins takes turns."""
    measured: Measured = {}
    with benchmark_cluster(folder) as cluster:
        servers = cluster.bootstrap_servers
        publish_round(servers)  # so that the topics are there
        names = list(checkouts)
        with workers(servers, folder, checkouts) as running:
            for number in range(1 - WARM_UP_ROUNDS, rounds + 1):
                publish_round(servers)
                for name in names if number % 2 else names[::-1]:
                    for job in JOBS if number % 4 < 2 else JOBS[::-1]:
                        figures = ask(running[name], job)
                        console.print(f"round {number}, {name}, {job}: {figures['cpu_seconds']:.2f} CPU s")
                        if number > 0:
                            measured.setdefault((name, job), []).append(figures)
    return measured


def publish_round(servers: str) -> None:
    """A thousand messages to each topic."""
    cluster, now = KafkaCluster("main", servers), datetime.now(UTC)
    producer = Producer(client_config(cluster))
    for topic, bad in ((GOOD_TOPIC, 0), (BAD_TOPIC, BAD)):
        ensure_topic(cluster, topic, partitions=PARTITIONS)
        values = WebRequests(Traffic()).batch(MESSAGES - bad, now=now)
        for number, value in enumerate([*values, *WebRequests(Traffic(bad=1.0)).batch(bad, now=now)]):
            producer.produce(topic, value, partition=number % PARTITIONS)
    if left := producer.flush(60):
        sys.exit(f"{left} messages were not acknowledged")


@contextmanager
def workers(servers: str, folder: Path, checkouts: dict[str, Path]) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """A process of each checkout with a warm session; this file is what they run, over the code of theirs."""
    started: dict[str, subprocess.Popen[str]] = {}
    try:
        for number, (name, root) in enumerate(checkouts.items()):
            lake = folder / f"lake-{number}"
            rmtree(lake, ignore_errors=True)
            python = root / ".venv/bin/python"
            environment = {**os.environ, "PYTHONPATH": str(root), "KDI_HOME": str(root / ".kdi")}
            command = [str(python if python.exists() else sys.executable), __file__, "--serve", servers, str(lake)]
            started[name] = subprocess.Popen(
                command, cwd=root, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        yield started
    finally:
        for worker in started.values():
            worker.communicate()  # nothing more comes: it ends


def ask(worker: subprocess.Popen[str], job: str) -> dict[str, float]:
    """Let a worker do a job; what it cost."""
    asked, answers = cast(IO[str], worker.stdin), cast(IO[str], worker.stdout)
    asked.write(job + "\n")
    asked.flush()
    for line in answers:
        if line.startswith('{"cpu_seconds"'):
            figures: dict[str, float] = json.loads(line)
            return figures
    sys.exit(f"a worker ended during: {job}")


def serve(servers: str, lake: str) -> None:
    """Do what comes, line by line, in one session."""
    spark = open_session(Settings.from_environment(), app_name="kdi benchmark")
    stream = replace(load_streams()["bronze/web_requests"], cluster=KafkaCluster("main", servers))
    topics = {CLEAN: (GOOD_TOPIC, 0), WITH_BAD: (BAD_TOPIC, BAD)}
    streams = {job: replace(stream, topic=topic, table=f"bronze/{topic}") for job, (topic, _) in topics.items()}
    table = Path(lake) / "streaming"
    for line in sys.stdin:
        job, meter = line.strip(), Meter()
        if job == STREAMING:
            ingest(spark, bootstrap_servers=servers, topic=GOOD_TOPIC, table=table)
            expected = True
        else:
            report = drain(streams[job], lake=lake, session=lambda: spark)
            expected = report.backlog_after == 0 and report.dead_letters % MESSAGES >= topics[job][1]
        used = meter.read()
        if not expected:
            sys.exit(f"{job}: {report}")
        sys.stdout.write(json.dumps({"cpu_seconds": used.cpu_seconds, "wall_seconds": used.wall_seconds}) + "\n")
        sys.stdout.flush()


def show(measured: Measured) -> dict[str, object]:
    """The medians and their ratios, printed; and all figures."""
    cpu = {key: median(round_["cpu_seconds"] for round_ in rounds) for key, rounds in measured.items()}
    wall = {key: median(round_["wall_seconds"] for round_ in rounds) for key, rounds in measured.items()}
    for (name, job), seconds in cpu.items():
        console.print(f"{name:40} {job:24} {seconds:6.2f} CPU s {wall[name, job]:6.2f} s")
    ratios: dict[str, float] = {}
    for name in dict.fromkeys(name for name, _ in cpu):
        ratios[f"{name}: all good / structured streaming"] = cpu[name, CLEAN] / cpu[name, STREAMING]
        ratios[f"{name}: ten bad / all good"] = cpu[name, WITH_BAD] / cpu[name, CLEAN]
        if name != HERE:
            ratios |= {f"{HERE} / {name}: {job}": cpu[HERE, job] / cpu[name, job] for job in JOBS}
    for what, ratio in ratios.items():
        console.print(f"{what}: {ratio:.2f}")
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "messages": MESSAGES,
        "cpu_ratios": ratios,
        "rounds": {f"{name}: {job}": rounds for (name, job), rounds in measured.items()},
    }


if __name__ == "__main__":
    main()
