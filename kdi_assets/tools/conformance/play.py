"""Plays a scenario with a writer: carries out its steps, and records what the writer did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

from kdi_assets.tools.conformance.layout import read_tables, table_version
from kdi_assets.tools.conformance.messages import Sent, good_values
from kdi_assets.tools.conformance.oracle import WriterAccount, account
from kdi_assets.tools.conformance.scenario import (
    AddPartitions,
    Begin,
    Compact,
    Expire,
    Finish,
    Kill,
    Leave,
    Mark,
    Moment,
    Produce,
    Recreate,
    Restore,
    Run,
    Scenario,
    ScenarioBytes,
    ScenarioStep,
    Transaction,
)
from kdi_assets.tools.conformance.topic import Topic
from kdi_assets.tools.conformance.writer import Writer, WriterStart

ATTEMPTS = 5
"""How often a writer that ends with an error is started again within one ``run``."""
MOMENTS: Sequence[Moment] = ("started", "started", "file", "commit")
TRIES = 3
"""At most so many starts for each kill that hits."""
SETTLED_SECONDS = 2.0
"""A writer that runs until it is stopped is stopped so long after its last commit, if everything is there."""
LATEST_SECONDS = 0.05
"""A kill at a file or a commit comes so much later, at most."""


@dataclass
class Played:
    """What happened.

    Attributes:
        starts: How often a writer was started.
        kills: How many starts were killed while they ran.
        errors: Errors that the writer ended with while it was to catch up.
        other_errors: Errors of writers that ran beside others.
        decisions: What the adapter's ``decide`` did.
        stands: Whether the writer still ended with an error at the end.
        expired: Messages that Kafka deleted by their age before the writer caught up with them.
        errors_before: So many of the errors came before that.
        unfinished: Whether messages were missing when the last wait ended, and the writer still did something.
        account: What became of the messages.
    """

    starts: int = 0
    kills: int = 0
    errors: list[str] = field(default_factory=list)
    other_errors: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    stands: bool = False
    expired: frozenset[Sent] = frozenset()
    errors_before: int = 0
    unfinished: bool = False
    account: WriterAccount | None = None


class Player:
    """Plays one scenario.

    Args:
        random: Decides about the moments of kills.
        report: Called with a line before each step.
    """

    def __init__(
        self, scenario: Scenario, *, topic: Topic, writer: Writer, random: Random, report: Callable[[str], None]
    ) -> None:
        self._scenario, self._topic, self._writer = scenario, topic, writer
        self._random, self._report = random, report
        self._ids = count(1)
        self._running: list[WriterStart] = []
        self._mark: int | None = None
        self._gone: frozenset[str] = frozenset()
        """Members of the writer's consumer group that have ended; Kafka may still give them topic partitions."""
        self._usual_seconds = writer.adapter.start_seconds
        self._required: frozenset[Sent] = frozenset()
        """What the topic held when the writer last caught up: Kafka may delete it now, and it must be there."""
        self._compacted: frozenset[Sent] = frozenset()
        self.played = Played()

    def play(self) -> Played:
        """Carry out all steps, then ask the oracle."""
        try:
            for step in self._scenario.steps:
                self._report(step.step)
                self._do(step)
            self.played.account = self._account()
        finally:
            for start in self._running:
                start.kill()
        return self.played

    def _do(self, step: ScenarioStep) -> None:
        match step:
            case Produce():
                self._topic.produce(self._messages(step))
            case Transaction():
                values = self._messages(Produce(messages=step.messages))
                self._topic.transaction(values, commit=step.end == "commit")
            case Run():
                self._catch_up()
            case Kill():
                self._kill(step)
            case Begin():
                arrived = self._writer.new_files(step.until)
                self._running += [self._start(len(self._running) + n + 1) for n in range(step.writers)]
                self._running[-1].wait(self._writer.adapter.start_seconds, arrived)
            case Leave():
                self._writer.stop(self._running.pop(0))
            case Finish():
                self._finish()
            case AddPartitions():
                self._topic.add_partitions(step.total)
            case Compact():
                self._compacted |= self._topic.compact() - self._required
            case Expire():
                self.played.expired |= self._topic.expire(keep=step.keep) - self._required
                self.played.errors_before = len(self.played.errors)
            case Recreate():
                self._topic.recreate()
            case Mark():
                self._mark = table_version(self._writer.layout().rows.uri)
            case Restore():
                self._restore()

    def _messages(self, step: Produce) -> Iterator[tuple[bytes | None, bytes | None]]:
        now = datetime.now(UTC) - timedelta(hours=1)
        values = good_values(ids=self._ids, added=step.added, days_ago=step.days_ago, now=now)
        for number in range(step.messages):
            yield f"key {number % step.keys if step.keys else number}".encode(), next(values)
        for number, value in enumerate(step.values):
            match value:
                case ScenarioBytes():
                    yield f"value {number}".encode(), bytes.fromhex(value.hex)
                case _:
                    yield f"value {number}".encode(), None if value is None else value.encode()

    def _start(self, writer: int = 1) -> WriterStart:
        self.played.starts += 1
        if all(start.ended() for start in self._running):
            self._gone = frozenset(self._holders().values())
        return self._writer.start(writer)

    def _catch_up(self) -> None:
        """Start until it ends well; decide what can be decided. What it says last is whether it stands still."""
        for _ in range(ATTEMPTS):
            start = self._start()
            began = time.monotonic()
            if self._writer.adapter.runs == "until caught up":
                self._writer.finish(start)
            else:
                self._let_catch_up(start)
            self.played.stands = start.failed()
            if not start.failed():
                self._usual_seconds = min(self._usual_seconds, time.monotonic() - began)
                self._required = frozenset(self._topic.sent)
                return
            self.played.errors.append(self._writer.error_of(start))
            decision = self._writer.decide(start)
            self.played.decisions += [decision] if decision else []
            if not decision and self.played.errors[-2:-1] == self.played.errors[-1:]:
                return  # the same error again: it stands still

    def _let_catch_up(self, *starts: WriterStart) -> None:
        """Wait until everything is there or the writers do nothing any more, then stop them."""
        adapter, self.played.unfinished = self._writer.adapter, False
        until, quiet_since, seen = time.monotonic() + adapter.start_seconds, time.monotonic(), None
        while not all(start.ended() for start in starts):
            # A writer that repeats messages goes on after everything is there.
            waits = bool(self._account().lost)
            # One that writes nothing may be about to: it says something, or waits for its topic partitions.
            found = table_version(self._writer.layout().rows.uri), waits and [s.output.stat().st_size for s in starts]
            if found != seen or (waits and not self._holds_all()):
                seen, quiet_since = found, time.monotonic()
            if time.monotonic() - quiet_since > (adapter.quiet_seconds if waits else SETTLED_SECONDS):
                break
            if time.monotonic() > until:
                self.played.unfinished = waits
                break
            time.sleep(0.5)
        for start in starts:
            if not start.ended():
                self._writer.stop(start)

    def _holds_all(self) -> bool:
        holders = self._holders()
        return not self._writer.consumer_group or (
            len(holders) == self._topic.partitions and self._gone.isdisjoint(holders.values())
        )

    def _holders(self) -> dict[int, str]:
        group = self._writer.consumer_group
        return self._topic.holders(group) if group else {}

    def _kill(self, step: Kill) -> None:
        """Kill it so many times while it runs; a start that ends before its moment is not counted."""
        hits, tries = 0, 0
        while hits < step.times and tries < TRIES * step.times:
            self._topic.produce(self._messages(Produce(messages=step.messages)))
            moment = MOMENTS[(tries + self._random.randrange(len(MOMENTS))) % len(MOMENTS)]
            arrived, pause = self._writer.new_files(moment), self._random.uniform(0, self._latest(moment))
            start = self._start()
            start.wait(self._writer.adapter.start_seconds, arrived)
            start.wait(pause)
            hit = not start.ended()
            start.kill()
            if step.service and self._writer.service:
                self._writer.service.kill()
            hits, tries = hits + hit, tries + 1
            self._usual_seconds *= 1.0 if hit else 0.7  # it ends faster than it did
        self.played.kills += hits

    def _latest(self, moment: Moment) -> float:
        return self._usual_seconds if moment == "started" else LATEST_SECONDS

    def _finish(self) -> None:
        if self._writer.adapter.runs == "until stopped":
            self._let_catch_up(*self._running)
        for start in self._running:
            self._writer.finish(start)
        self.played.other_errors += [self._writer.error_of(start) for start in self._running if start.failed()]
        self._running.clear()

    def _restore(self) -> None:
        from deltalake import DeltaTable

        if self._mark is not None:
            DeltaTable(self._writer.layout().rows.uri).restore(self._mark)

    def _account(self) -> WriterAccount:
        layout = self._writer.layout()
        excused = self.played.expired | self._compacted
        return account(self._topic.sent, read_tables(layout), rows=layout.rows, deleted=excused)
