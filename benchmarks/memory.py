"""Does the driver's memory grow with the number of messages? A tenth of the topic and all of it, in bounded plans."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.topic import DATES, PARTITIONS, published_topic, rows_in
from benchmarks.usage import Usage
from benchmarks.worker import OURS, Round, Worker
from kdi_assets.settings import Settings
from kdi_assets.sources.generator import Traffic
from kdi_assets.sources.publisher import publish
from kdi_assets.stream import Stream

console = Console(highlight=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Drain a tenth of the messages, publish the others, drain all; each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--max-records", type=int, default=1_000_000, help="offsets in one plan")
    options = parser.parse_args(arguments)
    folder, few = Settings.from_environment().home / "benchmark", options.messages // 10
    with published_topic(folder, messages=few) as stream:
        bounded = replace(stream, max_records=options.max_records)
        small = drained(bounded, folder / "small", messages=few)
        traffic = Traffic(dates=DATES, seed=2)
        publish(stream.cluster, stream.topic, traffic, count=options.messages - few, partitions=PARTITIONS)
        large = drained(bounded, folder / "large", messages=options.messages)
    growth = large.peak_rss_bytes / small.peak_rss_bytes
    console.print(f"growth of peak RSS from {few:,} to {options.messages:,} messages: {growth:.2f}")


def drained(stream: Stream, lake: Path, *, messages: int) -> Usage:
    """Drain all of the topic in a new process, check the table, and say what it cost."""
    worker = Worker()
    try:
        usage = worker.carry_out(Round(OURS, stream, lake, cold=True))
    finally:
        worker.close()
    rows = rows_in(stream, lake)
    if rows != messages:
        sys.exit(f"the table holds {rows:,} rows, not {messages:,}")
    peak, speed = usage.peak_rss_bytes / 1e6, messages / usage.wall_seconds
    console.print(f"{messages:,} messages, {stream.max_records:,} a plan: peak RSS {peak:,.0f} MB, {speed:,.0f} rows/s")
    return usage


if __name__ == "__main__":
    main()
