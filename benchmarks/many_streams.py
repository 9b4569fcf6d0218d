"""How many streams a driver takes, and how many drivers 70 and 1,000 streams need.

Usage: ``python -m benchmarks.many_streams [--measure] [--write]``. With ``--measure`` it starts a deployment and
measures what a run, a stream in a run and a tick cost; without, it takes the last such figures from the JSON file
beside it. What a drain costs is read from docs/benchmarks.md. Then it simulates each case for a quarter of an hour or
more, which takes minutes; ``--write`` puts them into docs/many-streams.md.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness import option_parser, show_section
from benchmarks.page import table_lines
from benchmarks.run_costs import MESSAGES, Measured, measure
from benchmarks.stream_simulation import (
    Costs,
    Location,
    Outcome,
    made_up_topics,
    share_busy,
    simulated,
    spread,
    topics_behind,
)
from kdi_assets.documents.model.stream import DrainWhen

CHECKOUT = Path(__file__).parent.parent
MEASURED = CHECKOUT / "benchmarks" / "many_streams.json"
PAGE = "docs/many-streams.md"
BEGIN = "<!-- what `python -m benchmarks.many_streams` computed -->"
MOST_BUSY, LATE = 0.7, 1.5
"""A driver may be at most so busy, and 95 % of its drains may take at most so many times their limit."""
SCENARIOS = [(70, 10e6), (70, 1e9), (1000, 100e6), (1000, 1e9)]
LAGS = (60, 300, 900)
MANY = r"(\d+) streams, (\d+) of them behind at once by (\d+) messages each:\nall drained after (\d+) s, in (\d+) runs"
HOUR, DAY = 3600.0, 86_400.0
NIELSEN_HOURLY = 300e6
CORES, GIB = 4, 8
"""The task of a driver with its code server: the default of deploy/aws."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure if asked, simulate, print, and write the page if asked."""
    parser = option_parser("many_streams", __doc__, write=PAGE)
    parser.add_argument(
        "--measure", action="store_true", help="measure first: five minutes, nothing else on the machine"
    )
    options = parser.parse_args(arguments)
    if options.measure:
        MEASURED.write_text(json.dumps(asdict(measure()), indent=1) + "\n")
    text = "\n\n".join(sections(Measured(**json.loads(MEASURED.read_text()))))
    show_section(text, BEGIN, PAGE, write=options.write)


def sections(measured: Measured) -> Iterator[str]:
    """The parts of the page."""
    costs = measured.costs()
    yield _inputs(measured, costs)
    yield _assumed()
    yield _check(costs)
    rows = [_row(count, messages, lag, measured) for count, messages in SCENARIOS for lag in LAGS]
    yield "### What streams need\n\n" + _table(HEADINGS, rows)
    yield _others(costs)


def _inputs(measured: Measured, costs: Costs) -> str:
    drains = [(f"a drain of {messages:,} messages, alone", c.cpu, c.wall) for messages, c in costs.drains]
    rows = [
        ("a run, without its streams", measured.run_cpu, measured.run_wall),
        (f"each stream in it, with {MESSAGES:,} messages", measured.stream_cpu, measured.stream_wall),
        *drains,
    ]
    return (
        f"### What was measured\n\nOn {measured.date} at commit {measured.commit}, {os.cpu_count()} cores, load "
        f"average {measured.load} before, {measured.rounds} rounds; "
        f"drains as [benchmarks](benchmarks.md) had them then.\n\n"
        + _table(("", "CPU s", "wall s"), [(name, f"{cpu:.2f}", f"{wall:.2f}") for name, cpu, wall in rows])
        + f"\n\nA drain writes {measured.files:.1f} files. An idle deployment uses {measured.idle_core:.1%} of a core, "
        f"and a tick {1e6 * measured.tick_cpu:,.0f} CPU µs for each stream."
    )


def _assumed() -> str:
    """What the sums add to the measurements: the size of a driver, and when drivers count as enough."""
    return (
        "### What is assumed\n\n"
        f"* {CORES} cores and {GIB} GiB for each driver with its code server. A core is as fast as one of the measured "
        f"cores, and a driver with {CORES} of them works like one with two.\n"
        f'* "Drivers" is the smallest number whose cores are at most {MOST_BUSY:.0%} busy, and with which 95 % of the '
        f"drains commit their oldest message within {LATE} times the limit.\n"
        "* Messages are JSON of 328 bytes, and each drain reaches one date. The sizes of the streams are log-normal: a "
        "few have most of the messages."
    )


def _check(costs: Costs) -> str:
    """The simulation of a measurement in docs/operations.md, beside it."""
    page = (CHECKOUT / "docs" / "operations.md").read_text()
    found = re.search(MANY, page)
    if not found:
        raise SystemExit("docs/operations.md has no measurement of many streams. Run: make soak")
    count, lagging, messages, seconds, runs = map(int, found.groups())
    when = DrainWhen(backlog_messages=100, lag_seconds=60)
    topics = topics_behind(count, lagging, messages=messages, drain_when=when)
    outcome = Location(topics, costs=costs, cores=2).run_for(HOUR, until_empty=True)
    return (
        f"### Simulated and measured\n\n{count} streams, {lagging} of them behind at once by {messages} messages each: "
        f"simulated {outcome.seconds:.0f} s and {outcome.runs} runs; [measured](operations.md#many-streams) "
        f"{seconds} s and {runs} runs. The measured driver had only created tables before, so its JVM compiled the "
        "code of a drain meanwhile, and the broker was on the same two cores; the simulated driver is warm."
    )


HEADINGS = (
    "streams",
    "messages a day, million",
    "oldest may wait, s",
    "drivers",
    "runs a day",
    "drains a day",
    "messages a drain",
    "waited s, p50 / p95",
    "cores used",
    "files written a day",
)


def _row(count: int, messages: float, lag: float, measured: Measured) -> tuple[str, ...]:
    groups, seen = _enough_drivers(count, messages, lag, measured.costs())
    days, a_day = DAY / seen.seconds, f"{messages / 1e6:,.0f}"
    return (
        f"{count:,}",
        a_day,
        f"{lag:.0f}",
        str(groups),
        f"{seen.runs * days:,.0f}",
        f"{seen.drains * days:,.0f}",
        f"{seen.messages / max(1, seen.drains):,.0f}",
        f"{seen.quantile(0.5):.0f} / {seen.quantile(0.95):.0f}",
        f"{seen.cpu_seconds / seen.seconds:.1f}",
        f"{seen.drains * days * measured.files:,.0f}",
    )


def _enough_drivers(count: int, messages: float, lag: float, costs: Costs) -> tuple[int, Outcome]:
    """The fewest drivers that keep up, and what they did."""
    when = DrainWhen(backlog_messages=None, lag_seconds=lag)
    for groups in range(1, 65):
        topics = made_up_topics(count, messages_a_day=messages, drain_when=when)
        # At least: each stream once in so many seconds.
        each = LATE * lag
        least = sum(costs.of(int(topic.rate * each)).cpu / each for topic in topics if topic.rate * each >= 1)
        if least > groups * CORES * MOST_BUSY:
            continue
        shares, seconds = spread(topics, groups, costs=costs, seconds=lag), max(900.0, 2 * lag)
        seen = simulated(shares, costs=costs, cores=CORES, seconds=seconds)
        on_time = seen.quantile(0.95) <= LATE * lag
        if on_time and share_busy(seen, groups=groups, cores=CORES) <= MOST_BUSY:
            return groups, seen
    raise SystemExit(f"{count} streams with {messages:,.0f} messages a day need more than 64 drivers")


def _others(costs: Costs) -> str:
    million = costs.drains[-1][1].cpu
    cores = NIELSEN_HOURLY * 24 / 1e6 * million / DAY / MOST_BUSY
    return (
        f"### Beside others\n\n{NIELSEN_HOURLY / 1e6:.0f} million messages an hour: {million:.1f} CPU s a million as "
        f"measured, {cores:.1f} cores at {MOST_BUSY:.0%} busy, for the way into a table alone."
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(table_lines(headings, rows))


if __name__ == "__main__":
    main()
