"""A random walk over decisions and accidents: the model alone, or the model beside a real broker, Spark and Delta.

Accidents: RESTORE, retention, new topic partitions, a recreated topic, a broker that lost the end of its log, a drain
or a decision that ends before or after its commit. After every step the table must equal the model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from tests.faults.chaos.model import Message, Model, Refused, Version

BEFORE, BEHIND = "before the commit", "behind the commit"
LEAST_DAYS = 2


class Walk:
    """Takes random steps; each returns a line about what it did.

    Args:
        parts: ``KafkaAndDelta``: take the same steps, and are compared with the model after each. Without them the
            model walks alone.
        truncates: Whether the broker may lose the end of a log, which takes a real one some seconds.
    """

    def __init__(self, model: Model, random: Random, parts: Any = None, *, truncates: int = 2) -> None:
        self.model, self._random, self._parts = model, random, parts
        self._restored = False  # and no drain has answered it yet, as far as is certain
        self._steps: tuple[tuple[Callable[[], str], int], ...] = (
            (self._produce, 8),
            (self._drain, 8),
            (self._decide, 5),
            (self._restore, 3),
            (self._expire, 2),
            (self._retention, 2),
            (self._truncate, truncates),
            (self._recreate, 1),
            (self._add_partition, 1),
        )

    def step(self) -> str:
        """One step and the checks after it.

        Raises:
            AssertionError: A check failed.
        """
        steps, weights = zip(*self._steps, strict=True)
        told: str = self._random.choices(steps, weights)[0]()
        drained = told.startswith("drain: ") and "refused" not in told and "ends" not in told
        self._restored = told.startswith("restore: version") or (self._restored and not drained)
        if drained:
            assert not (faults := self.model.faults()), faults
        if self._parts:
            self._parts.assert_is(self.model, drained=drained)
        return told

    def _produce(self) -> str:
        count, partitions = self._random.randint(1, 6), len(self.model.logs)
        bad = self._random.random() < 0.1
        messages = [self._message(partitions) for _ in range(count)]
        messages += [self._message(partitions, bad=True)] if bad else []
        if self._parts:
            self._parts.produce(messages)
        return f"produce: {len(messages)} messages"

    def _message(self, partitions: int, *, bad: bool = False) -> Message:
        # Most are new; some are of dates that end soon, or have ended.
        age = self._random.choice((0, 1, self._random.randint(0, self.model.keep + 2)))
        return self.model.produce(self._random.randrange(partitions), bad=bad, age=age)

    def _expire(self) -> str:
        """Days go by: with a fixed clock, the stream keeps fewer days than before."""
        if not self.model.versions:
            return "expire: nothing, there is no table"
        keep = max(LEAST_DAYS, self.model.keep - self._random.randint(0, 4))
        dies = self._random.choices(("", BEFORE, BEHIND), (8, 1, 1))[0]
        waits = self._parts.expire(keep, dies=dies) if self._parts else self._restored
        assert not waits or self._restored, "it waits only for a drain that answers a RESTORE"
        before = self.model.snapshot()
        if waits or dies == BEFORE:
            self.model.keep = keep
        else:
            self.model.expire(keep)
        left = len(self.model.versions) - before[0]
        return f"expire: what is older than {keep} days, {'waits' if waits else f'{left} commits'} {dies}"

    def _drain(self) -> str:
        dies = self._random.choices(("", BEFORE, BEHIND), (8, 1, 1))[0]
        return f"drain: {self._decided('drain', dies)}"

    def _decide(self) -> str:
        if not self.model.versions:
            return "decide: nothing, there is no table"
        dies = self._random.choices(("", BEFORE, BEHIND), (8, 1, 1))[0]
        match self._random.choice(("accept-loss", "rewind", "rewind", "new-topic", "the truncation")):
            case "accept-loss":
                return f"decide: accept-loss {self._decided('accept_loss', dies)}"
            case "new-topic":
                return f"decide: new-topic {self._decided('new_topic', dies)}"
            case "rewind":
                partition = self._random.randrange(len(self.model.logs))
                back = partition, self._random.randint(0, self.model.logs[partition].end)
                return f"decide: rewind of {back[0]} to {back[1]} {self._decided('rewind', dies, *back)}"
        if cut := first_that_differs(self.model):
            return f"decide: rewind of {cut[0]} to {cut[1]} {self._decided('rewind', dies, *cut)}"
        return "decide: nothing, no log was truncated"

    def _decided(self, step: str, dies: str, *arguments: int) -> str:
        """Do the same on both sides; a decision that ends before its commit does nothing except record a RESTORE."""
        before = self.model.snapshot()
        refused = _refusal(getattr(self.model, step), *arguments)
        if dies == BEFORE:
            self.model.go_back_to(before)
        if self._parts:
            found = _refusal(partial(getattr(self._parts, step), dies=dies), *arguments)
            agrees = (refused is None) == (found is None)
            names = found.refusals <= refused.refusals if refused and found else True
            assert agrees and names, f"the model: {refused or 'done'}; the engine: {found or 'done'}"
        return f"refused, {refused}" if refused else f"ends {dies}" if dies else "done"

    def _both(self, step: str, *arguments: int) -> None:
        """Do the same on both sides; neither may refuse."""
        for side in filter(None, (self.model, self._parts)):
            getattr(side, step)(*arguments)

    def _restore(self) -> str:
        if len(self.model.versions) < 2:
            return "restore: nothing, there is no older version"
        version = self._random.choice(self.model.restorable())
        self._both("restore", version)
        return f"restore: version {version} of the model"

    def _retention(self) -> str:
        partition = self._random.randrange(len(self.model.logs))
        log = self.model.logs[partition]
        offset = self._random.randint(log.earliest, log.end)
        self._both("delete_before", partition, offset)
        return f"retention: {partition} begins at {offset}"

    def _truncate(self) -> str:
        partition = self._random.randrange(len(self.model.logs))
        log = self.model.logs[partition]
        if log.end == log.earliest:
            return "truncate: nothing, the log is empty"
        # A dead letter whose message the broker lost is replayed or discarded first; the walk does not do that.
        letters = [m.offset for m in log.messages if self.model.may_be_letter(m)]
        offset = self._random.randint(max([log.earliest, *(at + 1 for at in letters)]), log.end)
        self._both("truncate", partition, offset)
        return f"truncate: {partition} ends at {offset}"

    def _recreate(self) -> str:
        partitions = self._random.randint(1, 3)
        self._both("recreate", partitions)
        return f"recreate: the topic has {partitions} topic partitions"

    def _add_partition(self) -> str:
        if len(self.model.logs) > 3:
            return "add a topic partition: nothing, there are four"
        self._both("add_partition")
        return f"add a topic partition: {len(self.model.logs)} now"


def _refusal(step: Callable[..., object], *arguments: int) -> Refused | None:
    try:
        step(*arguments)
    except Refused as refusal:
        return refusal
    return None


def first_that_differs(model: Model) -> tuple[int, int] | None:
    """Where a log was truncated below rows: the topic partition, and the first offset with another message."""
    version: Version = model.table
    for partition, log in enumerate(model.logs):
        rows = (m for m in version.rows if (m.epoch, m.partition) == (model.epoch, partition))
        gone = [m.offset for m in rows if m.offset >= log.earliest and not log.holds(m)]
        if gone and version.ledger.epoch == model.epoch:
            return partition, min(gone)
    return None


def steps_of(lines: Sequence[str]) -> str:
    """The steps of a walk, numbered, and how often each kind occurred."""
    kinds = Counter(re.split(r":", line)[0] for line in lines)
    return "\n".join([f"{n}. {line}" for n, line in enumerate(lines, 1)] + [str(dict(kinds))])
