"""Drains every few seconds with upkeep on: are the files well sized at the end, and do plans take longer?

Each round publishes, drains and measures a plan; every few rounds upkeep runs, as its schedule would. Files are small
against production: the target is a mebibyte, so that minutes of traffic fill several files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os import getloadavg
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.harness import console, hold, option_parser, own_broker, own_folder, own_session
from benchmarks.page import commit_of
from benchmarks.worker import HERE
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.documents.model.upkeep import Upkeep
from kdi_assets.operate.upkeep.document_upkeep import keep_document, plan_upkeep
from kdi_assets.operate.upkeep.table_files import facts_of, parts_of
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.snapshot import take_snapshot
from kdi_assets.tools.local.generator import Traffic
from kdi_assets.tools.local.publisher import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = 2**20
PAGE = Path(__file__).parent.parent / "docs/operations.md"
ENDS = 10
"""Plans at the start and at the end whose median is compared."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """What the rounds did.

    Attributes:
        plans: Seconds of each plan, in order: wall time and CPU time of this process.
        upkeeps: How many runs of upkeep there were; each compacted something.
    """

    plans: tuple[tuple[float, float], ...]
    upkeeps: int


def stream_of(cluster: Cluster) -> Stream:
    """The demo's stream with small files."""
    return Stream(
        topic="upkeep",
        table="bronze/upkeep",
        cluster=cluster,
        record_ddl="meta struct<producer: struct<timestamp: string>>, method string, session_id string, status int, "
        "url string, uuid string",
        date_expression="to_date(substr(meta.producer.timestamp, 1, 10))",
        target_file_size=TARGET,
        upkeep=Upkeep(small_files=8),
    )


def run(seconds: float, *, period: float, messages: int, every: int) -> None:
    """Run the rounds, then print the figures and write them into the page."""
    with own_folder() as folder, own_broker(folder) as cluster, own_session(folder / "lake") as spark:
        stream, lake = stream_of(cluster), str(folder / "lake")
        done = rounds(stream, lake, spark, seconds=seconds, period=period, messages=messages, every=every)
        written = figures(stream, lake, spark, done, seconds=seconds, messages=messages)
    console.print(written)
    page = PAGE.read_text()
    marked = re.sub(r"(<!-- upkeep: figure -->\n).*?(<!-- upkeep end -->)", rf"\g<1>{written}\n\g<2>", page, flags=re.S)
    PAGE.write_text(marked)


def rounds(
    stream: Stream, lake: str, spark: SparkSession, *, seconds: float, period: float, messages: int, every: int
) -> Rounds:
    """Publish, drain and plan until the time is over; a round begins ``period`` seconds after the one before."""
    plans, upkeeps = list[tuple[float, float]](), 0
    started, number = time.monotonic(), 0
    while time.monotonic() < started + seconds:
        time.sleep(max(0.0, started + number * period - time.monotonic()))
        number += 1
        publish(stream.kafka, stream.topic, Traffic(dates=1, seed=number), count=messages, partitions=4)
        drain(stream, lake=lake, session=lambda: spark)
        began, cpu = time.perf_counter(), time.process_time()
        take_snapshot(stream, lake).plan(stream)
        plans.append((time.perf_counter() - began, time.process_time() - cpu))
        if number % every == 0:
            now = datetime.now(UTC)
            planned = plan_upkeep(stream, lake, now=now, thorough=False)
            kept = keep_document(stream, lake, planned, session=lambda: spark, now=now)
            if kept.all_errors:
                raise kept.all_errors[0]
            upkeeps += any(table.compacted for table in kept.tables)
    return Rounds(tuple(plans), upkeeps)


def figures(stream: Stream, lake: str, spark: SparkSession, done: Rounds, *, seconds: float, messages: int) -> str:
    """The text of the page; the audit must be complete."""
    report = audit(stream, lake=lake, session=lambda: spark)
    hold(report.complete, report.line())
    log = TableLog.existing(stream.table_uri(lake))
    files = facts_of(parts_of(log, target_bytes=TARGET))
    (wall, cpu), (last_wall, last_cpu) = _medians(done.plans[:ENDS]), _medians(done.plans[-ENDS:])
    return (
        f"{len(done.plans)} drains of {messages:,} messages in {seconds:.0f} s, {done.upkeeps} compactions meanwhile, "
        f"no failed drain, {log.version} versions:\n"
        f"{files.well_sized_bytes / max(1, files.bytes):.0%} of {files.bytes / 2**20:.1f} MiB are in files of half to "
        f"twice the target of 1 MiB; {files.files} files.\n"
        f"A plan took {1000 * wall:.0f} ms at the start and {1000 * last_wall:.0f} ms at the end "
        f"({last_wall / wall:.2f} times), {1000 * cpu:.0f} and {1000 * last_cpu:.0f} ms of them CPU time "
        f"({last_cpu / cpu:.2f} times); medians of {ENDS}.\n"
        f"Seen {datetime.now(UTC).date()} at commit {commit_of(HERE)} on 2 cores (load average {getloadavg()[1]:.1f}); "
        "the lake on a local disk."
    )


def _medians(plans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    wall, cpu = zip(*plans, strict=True)
    return median(wall), median(cpu)


def main() -> None:
    """Read the options and run."""
    parser = option_parser("upkeep", __doc__)
    parser.add_argument("--seconds", type=float, default=300, help="how long messages are published and drained")
    parser.add_argument("--period", type=float, default=0, help="seconds from one round to the next; 0: at once")
    parser.add_argument("--messages", type=int, default=2_000, help="of each round")
    parser.add_argument("--every", type=int, default=10, help="rounds between two runs of upkeep")
    chosen = parser.parse_args()
    run(chosen.seconds, period=chosen.period, messages=chosen.messages, every=chosen.every)


if __name__ == "__main__":
    main()
