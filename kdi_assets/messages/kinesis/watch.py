"""Looks at many streams again and again, within the limits of calls: what was seen is kept between two looks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Protocol

from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.errors import KdiError, Transient
from kdi_assets.messages.kinesis.client import (
    LATE_MS,
    PAUSE_SECONDS,
    came_in_time,
    is_missing,
    kinesis_client,
    other_calls_may_pass,
    translated,
)
from kdi_assets.messages.kinesis.look_ahead import RENEWALS, of_each, oldest_look
from kdi_assets.messages.kinesis.shards import ListedShard, bookmarks_of, id_of, ready
from kdi_assets.messages.kinesis.walk import UNANSWERED_SECONDS, ShardWalk
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.topic_state import TopicReading, TopicState, Waiting

LOOK_SECONDS = 5.0
"""A shard that was walked to its end is asked once in so long: 4 % of the five calls a second that it allows."""
EARLY_SECONDS = 1.0
"""Ticks come in about so long: a shard may be asked so much too early, and is asked so much later the next time."""
WALKED_PAGES = 5
"""Calls of a look about a shard that was not walked to its end yet."""
LOOKS = 200
"""Calls of a look about all shards. With more shards than that, each is asked less often."""
SUMMARIES_A_SECOND = 10
"""DescribeStreamSummary: an account has twenty a second, for all its readers."""
SUMMARY_SECONDS = 2.0
"""How long a look asks for summaries; the next one asks for the others."""
LOOK_ENDS_SECONDS = 10.0
"""After that a look makes no more calls about shards, if another look follows or one got no answer: others may not come
either."""
COMMAND_ATTEMPTS = 3
"""At a call of a look that no other one follows: with these, one that gets no answer takes some 18 seconds."""
TOPIC_SECONDS = 300.0
"""How old a summary and a list of shards may be. A shard that ends, or is gone, makes them old at once."""


class Describe(Protocol):
    """``KinesisSource.described``."""

    def __call__(self, name: str, *, attempts: int) -> tuple[TopicState, list[ListedShard]]: ...


@dataclass(slots=True)
class _Described:
    topic: TopicState
    shards: list[ListedShard]
    at: float
    old_at: float


@dataclass(slots=True)
class _Table:
    """The walks of one table; ``may_read`` are those whose parents are ended."""

    topic_id: str
    shards: list[ListedShard]
    marks: Mapping[TopicPartition, Bookmark]
    walks: dict[TopicPartition, ShardWalk]
    renew_after_ms: float
    has_bookmarks: bool

    def may_read(self) -> dict[TopicPartition, ShardWalk]:
        ended = {tp.partition for tp, walk in self.walks.items() if walk.ended or walk.mark.ended}
        marks = {tp.partition: Bookmark(ended=tp.partition in ended) for tp in self.marks}
        numbers = {shard.number for shard in ready(self.shards, marks)}
        numbers |= {tp.partition for tp, walk in self.walks.items() if walk.ended and not walk.mark.ended}
        return {tp: walk for tp, walk in self.walks.items() if tp.partition in numbers}

    def without_children(self) -> set[TopicPartition]:
        """The shards that ended, and whose children are not listed yet: records may wait there."""
        parents = {parent for shard in self.shards for parent in shard.parents}
        ended = {tp for tp, walk in self.walks.items() if walk.ended or walk.mark.ended}
        return {tp for tp in ended if tp.partition not in parents}

    def answer(self) -> Waiting | KdiError:
        walks = self.may_read()
        problems = {tp: walk.problem for tp, walk in walks.items() if walk.problem}
        first_at = {tp: datetime.fromtimestamp(w.first.arrived / 1000, UTC) for tp, w in walks.items() if w.first}
        for problem in problems.values():
            if not first_at or not isinstance(problem, Transient):
                return problem
        unknown = {tp for tp, walk in walks.items() if not walk.known} | problems.keys() | self.without_children()
        due = [w.mark for w in walks.values() if self.has_bookmarks and w.is_due(self.renew_after_ms)]
        return Waiting(first_at, renews=None if first_at else oldest_look(due), unknown=frozenset(unknown))


@dataclass(slots=True)
class KinesisWatch:
    """A ``Watch`` of one connection, for one thread."""

    connection: KinesisRegion
    describe: Describe
    clock: Callable[[], float] = field(default_factory=lambda: time.monotonic)
    _described: dict[str, _Described] = field(default_factory=dict)
    _asked: dict[str, float] = field(default_factory=dict)
    _tables: dict[str, _Table] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _clients: dict[int, Any] = field(default_factory=dict)

    def topics(self, names: Collection[str], *, leader_seconds: float) -> Mapping[str, TopicState | KdiError]:
        errors, began = dict[str, KdiError](), self.clock()
        for number, name in enumerate(sorted(filter(self._is_old, names), key=lambda n: self._asked.get(n, -math.inf))):
            if number >= SUMMARIES_A_SECOND:
                time.sleep(1 / SUMMARIES_A_SECOND)
            if not leader_seconds and self.clock() - began > SUMMARY_SECONDS:
                break
            try:
                self._describe(name, attempts=_attempts(leader_seconds))
            except KdiError as error:
                # A command has no next look, and would wait for the answers about all streams one after the other.
                waits = leader_seconds and self.clock() - began > LOOK_ENDS_SECONDS and not came_in_time(error)
                passes = other_calls_may_pass(error) and not waits
                if not passes and not isinstance(error, Transient):
                    return dict.fromkeys(names, error)
                for lost in [name] if passes else names:  # whether the connection is down, shards tell
                    if not isinstance(error, Transient) or self._is_too_old(lost):
                        self._described.pop(lost, None)
                    if lost not in self._described:
                        errors[lost] = error
                if not passes:
                    break
        known = {name: self._described[name].topic for name in names if name in self._described}
        return {**known, **errors}

    def anew(self, name: str) -> TopicState:
        known = self._described.get(name)
        if known is None or known.old_at < self.clock() + TOPIC_SECONDS - EARLY_SECONDS:
            self._describe(name, attempts=1)
        return self._described[name].topic

    def _describe(self, name: str, *, attempts: int) -> None:
        self._asked[name] = self.clock()
        topic, shards = self.describe(name, attempts=attempts)
        self._described[name] = _Described(topic, shards, now := self.clock(), now + TOPIC_SECONDS)

    def _is_old(self, name: str) -> bool:
        return name not in self._described or self._described[name].old_at <= self.clock()

    def _is_too_old(self, name: str) -> bool:
        described = self._described.get(name)
        return described is not None and described.at + TOPIC_SECONDS + UNANSWERED_SECONDS <= self.clock()

    def waiting(
        self, readings: Mapping[str, TopicReading], *, leader_seconds: float
    ) -> Mapping[str, Waiting | KdiError]:
        found, tables = dict[str, Waiting | KdiError](), dict[str, _Table]()
        for name, reading in readings.items():
            try:
                tables[name] = self._table(name, reading)
            except KdiError as refused:
                found[name] = refused
        self._tables |= tables
        try:
            self._look(list(tables.values()), leader_seconds)
        except KdiError as error:
            return dict.fromkeys(readings, error)
        for name, table in tables.items():
            if table.without_children():
                self._described[readings[name].topic.topic].old_at = 0.0
        return found | {name: table.answer() for name, table in tables.items()}

    def _table(self, name: str, reading: TopicReading) -> _Table:
        topic = reading.topic
        listed = self._described[topic.topic].shards
        shards = {tp: s for s in listed if (tp := TopicPartition(topic.topic, s.number)) in topic.partitions}
        marks = reading.start
        if not marks and reading.ledger:
            marks = bookmarks_of(reading.ledger, topic, shards, table=name)
        seconds = (topic.retention and topic.retention.seconds) or 0.0
        table = self._tables.get(name)
        before = table.walks if table and table.topic_id == topic.topic_id else {}
        walks = dict[TopicPartition, ShardWalk]()
        for tp in sorted(shards):
            walk = before.get(tp)
            if walk is None or not walk.follows(marks[tp]):
                walk = ShardWalk(topic.topic, id_of(tp.partition), name, marks[tp], seconds, self.clock)
            walk.mark, walk.seconds, walks[tp] = marks[tp], seconds, walk
        renew_after_ms = LATE_MS + 1000 * seconds / RENEWALS
        return _Table(topic.topic_id, listed, marks, walks, renew_after_ms, has_bookmarks=not reading.start)

    def _look(self, tables: Collection[_Table], leader_seconds: float) -> None:
        """Ask about the shards that are due, the oldest answers first; a few times about those that are not known.

        Raises:
            KdiError: The connection does not answer at all.
        """
        left, began, turn = math.inf if leader_seconds else LOOKS, self.clock(), 0
        look = _LookAtShards(_attempts(leader_seconds), began + LOOK_ENDS_SECONDS, is_followed=not leader_seconds)
        while left > 0 and (turn < WALKED_PAGES or self.clock() - began < leader_seconds):
            walks = [walk for table in tables for walk in table.may_read().values()]
            due = [w for w in walks if not w.has_answer and self.clock() >= w.due_at - EARLY_SECONDS]
            if not due or look.is_over(self.clock()):
                break
            if turn:
                time.sleep(PAUSE_SECONDS)
            due = sorted(due, key=lambda walk: (walk.due_at, walk.asked))[: int(min(left, len(due)))]
            self._step(due, look)
            left, turn = left - len(due), turn + 1
        if look.in_vain and not look.answered and not look.is_followed:
            raise look.in_vain[0]

    def _step(self, walks: Sequence[ShardWalk], look: _LookAtShards) -> None:
        """Ask about each shard once.

        Raises:
            KdiError: No connection can be made, or its keys are refused, and no shard has answered.
        """
        client = self._clients.get(look.attempts) or kinesis_client(self.connection, attempts=look.attempts)
        self._clients[look.attempts] = client
        down: list[KdiError] = []

        def step(number: int) -> None:
            walk = walks[number]
            if (down and not look.answered) or look.is_over(self.clock()):
                return
            walk.due_at, walk.asked = max(walk.due_at, self.clock()) + LOOK_SECONDS, next(self._numbers)
            before = walk.ended, walk.bookmark_is_gone
            try:
                with translated(self.connection, walk.stream):
                    walk.step(client)
                look.answered.append(walk)
            except KdiError as error:
                walk.failed(error)
                look.in_vain.extend([] if came_in_time(error) else [error])
                if not other_calls_may_pass(error):
                    down.append(error)
            if not walk.is_near_end and not walk.error:
                walk.due_at = self.clock()
            if before != (walk.ended, walk.bookmark_is_gone) or (walk.error and is_missing(walk.error)):
                self._described[walk.stream].old_at = 0.0

        of_each(range(len(walks)), step)
        if down:
            self._clients.clear()  # the next one reads the keys again
            if not look.answered:
                raise down[0]


@dataclass(slots=True)
class _LookAtShards:
    """One look at the shards of a connection.

    Attributes:
        attempts: At a call.
        ends: See ``LOOK_ENDS_SECONDS``; by the clock.
        is_followed: Another look comes, and goes on where this one ended.
        answered: The shards that have answered.
        in_vain: Of calls that waited, and got no answer.
    """

    attempts: int
    ends: float
    is_followed: bool
    answered: list[ShardWalk] = field(default_factory=list)
    in_vain: list[KdiError] = field(default_factory=list)

    def is_over(self, now: float) -> bool:
        """Whether no more call is made."""
        return now >= self.ends and (self.is_followed or bool(self.in_vain))


def _attempts(leader_seconds: float) -> int:
    """At a call: a look that is followed by another one need not try again itself."""
    return COMMAND_ATTEMPTS if leader_seconds else 1
