"""Many streams over time: the sensor's real decisions on made-up backlogs, drains that cost what was measured.

No Kafka, no Spark, no Dagster: a tick every five seconds decides with ``kdi_assets.sensors.policy`` and packs runs with
``kdi_assets.sensors.requests``; runs take turns on the cores of their driver.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from kdi_assets.components.names import table_key
from kdi_assets.documents.model.stream import Cluster, DrainWhen, Stream, TopicPartition
from kdi_assets.operate.monitoring.backlog import Backlog, PartitionBacklog
from kdi_assets.sensors.memory import Memory
from kdi_assets.sensors.policy import progress_digest, streams_to_drain
from kdi_assets.sensors.requests import run_requests
from kdi_assets.streams.ledger.recent_commits import Pace

TICK_SECONDS = 5.0  # Dagster's daemon looks so often
RUNS_AT_ONCE = 4  # of a code location; deploy/dagster.yaml
BENCHMARKS = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN = datetime(2026, 1, 1, 6, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs: CPU seconds of all processes, and seconds on idle cores."""

    cpu: float
    wall: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs.

    Attributes:
        run: Of a run, without its streams.
        stream: Of a stream in a run, with a drain of as many messages as the first of ``drains``.
        drains: Cost of a drain alone, by messages, ascending.
        tick_cpu: CPU seconds of the sensor for each stream at each tick.
    """

    run: Cost
    stream: Cost
    drains: Sequence[tuple[int, Cost]]
    tick_cpu: float = 0.0

    def of(self, messages: int) -> Cost:
        """The cost of a stream in a run: lines between the measured drains, and the last one goes on."""
        smallest = self.drains[0][1]
        for (low, below), (high, above) in zip(self.drains, self.drains[1:], strict=False):
            if messages <= high or high == self.drains[-1][0]:
                share = max(0.0, (messages - low) / (high - low))
                cpu, wall = (b + share * (a - b) for b, a in ((below.cpu, above.cpu), (below.wall, above.wall)))
                return Cost(self.stream.cpu + cpu - smallest.cpu, self.stream.wall + wall - smallest.wall)
        raise AssertionError("drains have at least two entries")

    def pace(self) -> Pace:
        """How the sensor sees it: a fixed part of a drain, and messages a second."""
        (_, small), *_, (many, large) = self.drains
        return Pace(small.wall, many / (large.wall - small.wall))


def measured_drains() -> list[tuple[int, Cost]]:
    """Warm drains of good JSON, by messages, from the page of the benchmarks."""
    page = BENCHMARKS.read_text()
    found = re.findall(r"^\| ([\d,]+) \| warm \| drain: JSON \| \d+ \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    return sorted((int(messages.replace(",", "")), Cost(float(cpu), float(wall))) for messages, cpu, wall in found)


@dataclass(slots=True)
class Run:
    """A run: its drains one after the other, and what is left of the current one."""

    names: list[str]
    left: Cost


@dataclass(slots=True)
class Topic:
    """A stream's topic: messages that arrived, position, and when the oldest waiting message came."""

    stream: Stream
    rate: float
    end: float = 0.0
    position: int = 0
    waits_since: float | None = None
    planned: tuple[int, float] | None = None

    def arrive(self, messages: int, now: float) -> None:
        if messages and self.waits_since is None:
            self.waits_since = now
        self.end += messages

    def backlog(self, now: float, pace: Pace) -> Backlog:
        offsets = int(self.end) - self.position
        lag = None if self.waits_since is None else now - self.waits_since
        held = PartitionBacklog(self.position, int(self.end), 0, lag_seconds=lag)
        tp = TopicPartition(self.stream.topic, 0)
        return Backlog(self.stream.name, {tp: held}, offsets, lag, None, 0, pace=pace)


@dataclass(slots=True)
class Outcome:
    """What a simulated time came to.

    Attributes:
        waits: For each drain, the age of its oldest message when it was committed, in seconds.
        cpu_seconds: Of all processes.
        left: Messages that waited at the end.
    """

    seconds: float
    messages: int = 0
    runs: int = 0
    drains: int = 0
    cpu_seconds: float = 0.0
    left: int = 0
    waits: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Of the waits."""
        ordered = sorted(self.waits)
        return ordered[int(share * (len(ordered) - 1))] if ordered else 0.0

    def with_other(self, other: Outcome) -> Outcome:
        """The sum of two groups of streams in the same time."""
        names = ("messages", "runs", "drains", "cpu_seconds", "left")
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(self, **sums, waits=[*self.waits, *other.waits])


class Location:
    """A code location with its warm driver and its streams, over time."""

    def __init__(self, topics: Sequence[Topic], *, costs: Costs, cores: float, seed: int = 0) -> None:
        self.topics = {topic.stream.name: topic for topic in topics}
        self._streams = {topic.stream.name: topic.stream for topic in topics}
        self._by_key = {table_key(topic.stream): topic.stream.name for topic in topics}
        self._costs, self._cores, self._random = costs, cores, random.Random(seed)  # noqa: S311 (messages, not secrets)
        self._memories = {name: Memory() for name in self.topics}
        self._queue: list[Run] = []
        self.active: list[Run] = []
        self.now = BEGIN.timestamp()

    def run_for(self, seconds: float, *, until_empty: bool = False) -> Outcome:
        """Tick and drain; with ``until_empty`` it ends as soon as nothing waits."""
        outcome, began = Outcome(seconds), self.now
        while self.now < began + seconds:
            for topic in self.topics.values():
                topic.arrive(self._arrivals(topic.rate * TICK_SECONDS), self.now)
            self._tick(outcome)
            self._work(self.now + TICK_SECONDS, outcome)
            if until_empty and not self.active and all(t.position == int(t.end) for t in self.topics.values()):
                break
        outcome.seconds = self.now - began
        outcome.left = sum(int(topic.end) - topic.position for topic in self.topics.values())
        return outcome

    def _arrivals(self, mean: float) -> int:
        """Random arrivals around a mean: Poisson's variance, by a normal distribution."""
        return max(0, round(self._random.gauss(mean, mean**0.5))) if mean > 20 else self._poisson(mean)

    def _poisson(self, mean: float) -> int:
        found, waited = 0, self._random.expovariate(1.0)
        while waited < mean:
            found, waited = found + 1, waited + self._random.expovariate(1.0)
        return found

    def _tick(self, outcome: Outcome) -> None:
        pace = self._costs.pace()
        outcome.cpu_seconds += self._costs.tick_cpu * len(self.topics)
        backlogs = [topic.backlog(self.now, pace) for topic in self.topics.values()]
        in_flight = {name: "a run" for run in (*self.active, *self._queue) for name in run.names}
        decision = streams_to_drain(
            backlogs, streams=self._streams, in_flight=in_flight, memories=self._memories, now=self.now
        )
        moment = datetime.fromtimestamp(self.now, UTC)
        requests = run_requests(decision.due, self._streams, now=moment)
        self._queue += [self._requested(request) for request in requests]
        outcome.runs += len(requests)
        due = {d.backlog.stream: d.backlog for d in decision.due}
        for name, memory in self._memories.items():
            self._memories[name] = replace(memory, catching_up=name in decision.catching_up)
            if name in due:
                self._memories[name] = self._memories[name].requested(progress_digest(due[name]), self.now)

    def _requested(self, request: dg.RunRequest) -> Run:
        names = [self._by_key[key] for key in request.asset_selection or ()]
        return Run(names, self._costs.run)

    def _work(self, until: float, outcome: Outcome) -> None:
        """Let the active runs take turns on the cores until then."""
        while self.now < until:
            while self._queue and len(self.active) < RUNS_AT_ONCE:
                self.active.append(self._queue.pop(0))
            if done := [run for run in self.active if run.left.wall < 1e-6]:
                for run in done:
                    self._next(run, outcome)
                continue
            wanted = sum(run.left.cpu / run.left.wall for run in self.active)
            speed = min(1.0, self._cores / wanted) if wanted else 1.0
            step = min([until - self.now, *(run.left.wall / speed for run in self.active)])
            for run in self.active:
                share = step * speed / run.left.wall
                outcome.cpu_seconds += share * run.left.cpu
                run.left = Cost(run.left.cpu * (1 - share), run.left.wall * (1 - share))
            self.now += step

    def _next(self, run: Run, outcome: Outcome) -> None:
        """Commit the run's current drain, and plan its next one: a drain takes what has arrived when it starts."""
        topic = self.topics[run.names[0]]
        if topic.planned is not None:
            end, oldest = topic.planned
            outcome.waits.append(self.now - oldest)
            outcome.messages, outcome.drains = outcome.messages + end - topic.position, outcome.drains + 1
            topic.position, topic.planned = end, None
            run.names.pop(0)
            if not run.names:
                self.active.remove(run)
                return
            topic = self.topics[run.names[0]]
        oldest = self.now if topic.waits_since is None else topic.waits_since
        topic.planned, topic.waits_since = (int(topic.end), oldest), None
        run.left = self._costs.of(int(topic.end) - topic.position)


def made_up_topics(count: int, *, messages_a_day: float, drain_when: DrainWhen) -> list[Topic]:
    """Topics of very different sizes: the rates are log-normal, so that a few topics have most of the messages."""
    chance = random.Random(1)  # noqa: S311 (sizes, not secrets)
    weights = [chance.lognormvariate(0.0, 2.0) for _ in range(count)]
    cluster, total = Cluster("main", "127.0.0.1:1"), sum(weights)
    topics = [
        Topic(
            Stream(f"t{n}", f"bronze/t{n}", "id bigint", "current_date()", cluster, drain_when=drain_when),
            rate=messages_a_day / 86_400 * weight / total,
        )
        for n, weight in enumerate(weights)
    ]
    for topic in topics:  # each was drained at another time, or all would be due at once
        waiting = chance.uniform(0.0, drain_when.lag_seconds or 0.0)
        topic.arrive(int(topic.rate * waiting), BEGIN.timestamp() - waiting)
    return topics


def topics_behind(count: int, lagging: int, *, messages: int, drain_when: DrainWhen) -> list[Topic]:
    """Topics of which some have a backlog, and to which nothing more comes."""
    topics = made_up_topics(count, messages_a_day=0.0, drain_when=drain_when)
    for topic in topics[:lagging]:
        topic.arrive(messages, BEGIN.timestamp())
    return topics


def spread(topics: Sequence[Topic], groups: int, *, costs: Costs, seconds: float) -> list[list[Topic]]:
    """Topics in groups of about the same work, the largest first, each to the group with the least."""
    found: list[list[Topic]] = [[] for _ in range(groups)]
    work: dict[int, float] = dict.fromkeys(range(groups), 0.0)
    for topic in sorted(topics, key=lambda t: t.rate, reverse=True):
        least = min(work, key=lambda number: work[number])
        found[least].append(topic)
        work[least] += costs.of(int(topic.rate * seconds)).cpu
    return found


def simulated(groups: Sequence[Sequence[Topic]], *, costs: Costs, cores: float, seconds: float) -> Outcome:
    """Each group on a driver of its own, after some minutes that do not count."""
    outcomes = []
    for number, topics in enumerate(groups):
        location = Location(topics, costs=costs, cores=cores, seed=number)
        location.run_for(300.0)
        outcomes.append(location.run_for(seconds))
    first, *others = outcomes
    for other in others:
        first = first.with_other(other)
    return first


def share_busy(outcome: Outcome, *, groups: int, cores: float) -> float:
    """Share of the cores that was used."""
    return outcome.cpu_seconds / (outcome.seconds * cores * groups)
