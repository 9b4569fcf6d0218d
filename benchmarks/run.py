"""`make bench`: our drain and Structured Streaming over the same messages, in one run, by turns.

A case is a number of messages, their content, and a kind: ``warm`` (a session that has drained before), ``cold`` (from
the start of a process) or ``stages`` (warm, and cut into stages). Up to 10,000 messages are published before each round
and drained into an existing table; more are published once, and drained into a new table in each round.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from shutil import rmtree

import psutil

from benchmarks.contents import CONTENTS
from benchmarks.engines import PREFIXES, STREAMING
from benchmarks.harness import beginning, console, option_parser, own_broker, own_folder
from benchmarks.kinesis import KinesisTopic, benchmark_kinesis
from benchmarks.page import Result
from benchmarks.topic import Topic
from benchmarks.worker import HERE, Run, Worker
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.settings import Settings

WARM, COLD, STAGES = KINDS = "warm", "cold", "stages"
SIZE = re.compile(r"(\d+)([km]?)")
CASES = (
    "1m clean bad unknown warm cold, 1m avro protobuf warm, 1m clean bad stages, "
    "1k clean bad unknown warm cold, 1k avro protobuf warm, 1k clean bad stages, "
    "100k clean single_object gzip zstd csv text bytes warm"
)
GROWING = 10_000
"""This many messages are published before each round, for tables that grow; more are published once."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case, print and write."""
    parser = option_parser("run", __doc__)
    parser.add_argument("--cases", default=CASES, help="as '1k clean bad warm, 1m avro'; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="warm rounds; default: %(default)s")
    parser.add_argument("--cold-rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--against", type=Path, help="another checkout, with its own .venv and .kdi, in turn")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md, with what was written before")
    options = parser.parse_args(arguments)
    home, begun = Settings.from_environment().home, beginning()
    checkouts = [HERE, *([options.against.resolve()] if options.against else [])]
    runs = [replace(run, checkout=str(checkout)) for run in parsed(options.cases) for checkout in checkouts]
    results: list[Result] = []
    with ExitStack() as stack:
        cluster = stack.enter_context(own_broker(stack.enter_context(own_folder())))
        if any(CONTENTS[run.content].consumer for run in runs):
            stack.enter_context(benchmark_kinesis())
        for messages in dict.fromkeys(run.messages for run in runs):
            site = Site(cluster, home / "benchmark" / "lake", [run for run in runs if run.messages == messages])
            found = [*site.warm_rounds(options.rounds), *site.cold_rounds(options.cold_rounds)]
            if options.write:
                replace(begun, results=found).added_to(home / "benchmark.json").write_page(HERE)
            results += found
    console.print(f"\n{replace(begun, results=results).as_markdown()}")


def parsed(text: str) -> list[Run]:
    """The runs for cases, in order, each once: the reference first.

    Raises:
        SystemExit: A word is not part of a case.
    """
    runs: dict[Run, None] = {}
    for words in (part.split() for part in text.split(",") if part.strip()):
        sizes = [found for word in words if (found := SIZE.fullmatch(word))]
        contents, kinds = [w for w in words if w in CONTENTS], [w for w in words if w in KINDS]
        if len(sizes) + len(contents) + len(kinds) < len(words):
            sys.exit(f"{' '.join(words)}: a case is a size as 1k or 1m, one of {', '.join(CONTENTS)}, and of {KINDS}")
        numbers = [int(found[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[found[2]] for found in sizes]
        for messages, kind in product(numbers or [1_000, 1_000_000], kinds or [WARM, COLD]):
            when = COLD if kind == COLD else WARM
            runs[Run(messages, when, STREAMING, "clean")] = None
            for content in contents or ["clean", "bad", "unknown"]:
                engines = [CONTENTS[content].engine, *(PREFIXES if kind == STAGES else ())]
                runs |= dict.fromkeys(Run(messages, when, engine, content) for engine in engines)
    return list(runs)


class Site:
    """The topics of one number of messages, and their tables."""

    def __init__(self, cluster: Cluster, lake: Path, runs: Sequence[Run]) -> None:
        rmtree(lake, ignore_errors=True)
        self._servers, self._lake, self._runs = cluster.bootstrap_servers, lake, runs
        self._senders = psutil.Process().children()
        self._topics = {name: _topic(cluster, run) for name, run in {run.topic: run for run in runs}.items()}
        self._messages = runs[0].messages
        self._grows = self._messages <= GROWING
        if not self._grows:
            console.print(f"publishing {self._messages:,} messages to each of {len(self._topics)} topics")
            self._publish()

    def warm_rounds(self, rounds: int) -> Iterator[Result]:
        """A process for each checkout; the rounds before the first warm the JVM, which gets faster with each."""
        runs = [run for run in self._runs if run.kind == WARM]
        with ExitStack() as stack:
            workers = {at: stack.enter_context(self._worker(at)) for at in dict.fromkeys(r.checkout for r in runs)}
            first = -4 if self._grows else -1
            for number in range(first, rounds + 1 if runs else first):
                self._begin_round()
                # A run finds the garbage of the one before on the heap, so they change places. At first in order:
                # stages read the table that a drain has made.
                for run in runs if number == first else Random(number).sample(runs, len(runs)):  # noqa: S311
                    result = self._measured(workers[run.checkout], run, number)
                    if number > 0:
                        yield result

    def cold_rounds(self, rounds: int) -> Iterator[Result]:
        """A process for each run; tables that grow are made in a round before the first."""
        runs = [run for run in self._runs if run.kind == COLD]
        for number in range(0 if self._grows and not self._lake.exists() else 1, rounds + 1):
            self._begin_round()
            for run in runs:
                with self._worker(run.checkout) as worker:
                    result = self._measured(worker, run, number)
                if number > 0:
                    yield result

    def _worker(self, checkout: str) -> Worker:
        return Worker(self._servers, self._lake, Path(checkout))

    def _begin_round(self) -> None:
        if self._grows:
            self._publish()

    def _publish(self) -> None:
        for topic in self._topics.values():
            topic.publish(self._messages)

    def _measured(self, worker: Worker, run: Run, number: int) -> Result:
        """One run, checked: every message is in a table."""
        topic, before = self._topics[run.topic], self._sent_bytes()
        answer = worker.carry_out(run, anew=run.engine not in PREFIXES and not self._grows)
        sent = self._sent_bytes() - before
        expected = (topic.published - topic.bad, topic.bad)
        if answer.rows is not None and (answer.rows, answer.dead_letters) != expected:
            sys.exit(f"{run}: {answer.rows:,} rows and {answer.dead_letters:,} dead letters, not {expected}")
        cpu, wall = answer.usage.cpu_seconds, answer.usage.wall_seconds
        label = f"{run.messages:,} {run.content}, {run.kind} {number}, {run.engine}"
        other = f" of {run.checkout}" if run.checkout != str(HERE) else ""
        console.print(f"{label}{other}: {cpu:.2f} CPU s, {wall:.2f} s")
        return Result(run, answer.usage, sent, answer.stages)

    def _sent_bytes(self) -> int:
        return sum(sender.io_counters().write_chars for sender in self._senders)


def _topic(cluster: Cluster, run: Run) -> Topic:
    content = CONTENTS[run.content]
    return (KinesisTopic if content.consumer else Topic)(cluster, run.topic, content)


if __name__ == "__main__":
    main()
