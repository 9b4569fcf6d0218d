"""Run the loads, and write the results into the documentation.

python -m tests.faults.soak.run [freshness] [freshness-of-50] [many] [killing] [--seconds 600]
    [--write docs/operations.md]
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.page import commit_of
from benchmarks.worker import HERE
from tests.faults.soak import killing, loads
from tests.faults.soak.site import running_system

BEGIN, END = "<!-- soak: {} -->", "<!-- soak end -->"
KILLS_EACH = 5
console = Console(highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named scenarios, all by default."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak.run", description=__doc__)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], help="by default all")
    parser.add_argument("--seconds", type=float, default=600.0, help="of load (600)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help="the page whose figures are to be replaced")
    options = parser.parse_args(arguments)
    for name in options.scenarios or SCENARIOS:
        lines = SCENARIOS[name](options.seconds, options.seed)
        console.print("\n".join([name, *lines]), markup=False)
        if options.write:
            write(options.write, name, lines)


def _freshness(streams: int, seconds: float, seed: int) -> list[str]:
    with running_system(streams=streams, drain_when=loads.AT_ONCE) as system:
        seen = loads.freshness(system, seconds)
    return [
        f"{loads.RATE:.0f} messages a second into {streams} streams for {seen.seconds:.0f} s, "
        f"{seen.messages:,} messages:",
        f"from timestamp to visible p50 {seen.p50:.1f} s, p95 {seen.p95:.1f} s, p99 {seen.p99:.1f} s.",
        f"{seen.drains / seen.seconds:.1f} drains a second, for which driver, code server and daemon use "
        f"{seen.busy_cores:.1f} cores: {seen.busy_cores * seen.seconds / seen.drains:.2f} CPU seconds of each drain.",
        f"Idle afterwards: {seen.idle_core:.1%} of a core; a Dagster without streams {seen.empty_core:.1%}.",
    ]


def _many(seconds: float, seed: int) -> list[str]:
    streams, lagging = 300, 30
    with running_system(streams=streams, drain_when=loads.USUAL) as system:
        seen = loads.many(system, lagging)
    return [
        f"{streams} streams, {lagging} of them behind at once by {loads.PER_STREAM} messages each:",
        f"all drained after {seen.drained:.0f} s, in {seen.runs} runs.",
        f"Before that, from nothing to {streams} tables with their positions: {seen.settled:.0f} s.",
    ]


def _killing(seconds: float, seed: int) -> list[str]:
    with running_system(streams=killing.STREAMS, drain_when=killing.AT_ONCE) as system:
        seen = killing.measure(system, seconds, each=KILLS_EACH, seed=seed)
    kills = ", ".join(f"{kind} {count} times" for kind, count in seen.kills.items())
    return [
        f"SIGKILL during {seen.seconds:.0f} s of load ({killing.RATE:.0f} messages a second): {kills}; seed {seed}.",
        f"{seen.messages:,} messages, {seen.commits} commits, {seen.runs} runs, {seen.runs_failed} of them failed.",
        f"At rest {seen.recovered_seconds:.0f} s after the load; no message lost or doubled, every date shown, no run "
        "left, no slot held.",
    ]


SCENARIOS: Mapping[str, Callable[[float, int], list[str]]] = {
    "freshness": partial(_freshness, 5),
    "freshness-of-50": partial(_freshness, 50),
    "many": _many,
    "killing": _killing,
}


def write(page: Path, name: str, lines: Sequence[str]) -> None:
    """Put the figures of a scenario between its marks on the page, with time and machine."""
    begin = BEGIN.format(name)
    seen = (
        f"Seen {datetime.now(UTC):%Y-%m-%d} at commit {commit_of(HERE)} on {os.cpu_count()} cores, "
        f"load {os.getloadavg()[1]:.1f} at the end."
    )
    text = "\n".join([begin, *lines, seen, END])
    found = re.compile(rf"{re.escape(begin)}\n.*?{re.escape(END)}", re.DOTALL)
    page.write_text(found.sub(lambda _: text, page.read_text()))


if __name__ == "__main__":
    main()
