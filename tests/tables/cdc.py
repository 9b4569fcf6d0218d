"""A database and its change stream, made up by a seed: what connectors send of it, and what a table of it must have.

The database is a dictionary; its changes are sent as Debezium sends them. The model applies those that were delivered
one by one in the database's order. It knows nothing of windows, files or versions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

WORD = "__debezium_unavailable_value"
COLUMNS = ("id", "email", "name", "body", "tags", "photo")
LARGE = {"body": WORD, "tags": [WORD], "photo": bytearray(WORD.encode())}
"""Columns that the database keeps apart if they are large, and what the connector sends if an update leaves them."""
ROW = "id: bigint, email: string, name: string, body: string, tags: array<string>, photo: binary"
SCHEMA = (
    f"op string, before struct<{ROW}>, after struct<{ROW}>, source struct<lsn: bigint>, "
    "kafka struct<partition: int, offset: bigint>"
)
Identity = Literal["default", "full"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One message of the change stream.

    Attributes:
        lsn: Its place in the database's own order; unique.
        partition, offset: Its place in Kafka.
    """

    op: str
    before: Row | None
    after: Row | None
    lsn: int
    partition: int = 0
    offset: int = -1

    @property
    def primary_key(self) -> int:
        return int((self.after or self.before or {})["id"])

    @property
    def values(self) -> tuple[Any, ...]:
        """The row of the bronze table."""
        before, after = (None if row is None else tuple(row[c] for c in COLUMNS) for row in (self.before, self.after))
        return self.op, before, after, (self.lsn,), (self.partition, self.offset)


@dataclass
class Database:
    """A table of people, and the connector that reads its log.

    Attributes:
        identity: REPLICA IDENTITY: what ``before`` has.
        rows: By primary key.
    """

    random: Random
    identity: Identity
    keys: int = 12
    rows: dict[int, Row] = field(default_factory=dict)
    lsn: int = 0
    made: int = 0

    def changes(self, count: int) -> list[Change]:
        """So many random changes, of transactions that change rows several times."""
        found: list[Change] = []
        while len(found) < count:
            found += self._change()
        return found

    def snapshot(self) -> list[Change]:
        """All rows again, as after the connector lost its offsets: op ``r``, at the log's place of now."""
        return [Change("r", None, dict(row), self._next()) for row in self.rows.values()]

    def _change(self) -> Iterator[Change]:
        key = self.random.randrange(self.keys)
        row = self.rows.get(key)
        if row is None:
            self.rows[key] = self._values(key)
            yield Change("c", None, dict(self.rows[key]), self._next())
        elif self.random.random() < 0.2:
            yield Change("d", self._old(row), None, self._next())
            del self.rows[key]
        elif self.random.random() < 0.1:
            yield from self._moved(key, row)
        else:
            yield self._updated(key, row)

    def _moved(self, key: int, row: Row) -> Iterator[Change]:
        """An update of the primary key, which Debezium sends as a delete and an insert."""
        other = next((k for k in range(self.keys) if k not in self.rows), None)
        if other is None:
            return
        yield Change("d", self._old(row), None, self._next())
        del self.rows[key]
        self.rows[other] = {**self._values(other), "email": row["email"]}
        yield Change("c", None, dict(self.rows[other]), self._next())

    def _updated(self, key: int, row: Row) -> Change:
        new = self._values(key)
        left = {c for c in LARGE if self.random.random() < 0.6}
        now = {c: row[c] if c in left or (c == "email" and self.random.random() < 0.7) else new[c] for c in COLUMNS}
        self.rows[key] = now
        # What is left alone and large is not in the log; with the whole old row, the connector fills it from there.
        sent = {c: LARGE[c] if c in left and row[c] is not None and self.identity == "default" else now[c] for c in now}
        if self.identity == "full" and self.random.random() < 0.5:
            sent = {c: LARGE[c] if c in left and row[c] is not None else now[c] for c in now}
        return Change("u", self._old(row) if self.identity == "full" else None, sent, self._next())

    def _values(self, key: int) -> Row:
        self.made += 1
        made = self.made
        return {
            "id": key,
            "email": f"{made}@x.example",
            "name": self.random.choice([None, f"name {made}", "same"]),
            "body": self.random.choice([None, "", f"body {made} " * 3]),
            "tags": self.random.choice([None, [], [f"tag {made}", None]]),
            "photo": self.random.choice([None, bytearray(f"photo {made}".encode())]),
        }

    def _old(self, row: Row) -> Row:
        return dict(row) if self.identity == "full" else {c: row["id"] if c == "id" else None for c in COLUMNS}

    def _next(self) -> int:
        self.lsn += self.random.randrange(1, 5)
        return self.lsn


@dataclass
class Topic:
    """The partitions of a topic, to which changes are sent by key; partitions can be added."""

    random: Random
    partitions: int = 1
    ends: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def sent(self, changes: Iterable[Change]) -> list[Change]:
        """The changes with their places in Kafka."""
        return [self._placed(change) for change in changes]

    def _placed(self, change: Change) -> Change:
        row = change.after or change.before or {}
        partition = (int(row["id"]) * 7 + self.partitions) % self.partitions
        self.ends[partition] += 1
        return replace(change, partition=partition, offset=self.ends[partition] - 1)


def in_portions(changes: Sequence[Change], topic: Topic, random: Random, *, portions: int) -> list[list[Change]]:
    """The changes as they arrive: mostly in order, some much later than others, some twice.

    A connector that starts again sends some again, perhaps to another topic partition than before.
    """
    found: list[list[Change]] = [[] for _ in range(portions)]
    for n, change in enumerate(changes):
        due = n * portions // len(changes)
        found[min(portions - 1, due + (random.randrange(portions) if random.random() < 0.1 else 0))].append(change)
        if random.random() < 0.1:
            again = topic.sent([change])[0] if random.random() < 0.5 else change
            found[random.randrange(due, portions)].append(again)
    return found


@dataclass(frozen=True)
class Span:
    """What a key had from one change to the next."""

    values: Row
    since: int
    until: int | None


def spans(delivered: Iterable[Change], key: str) -> dict[Any, list[Span]]:
    """By key, what it had from change to change, by the changes that were delivered, in the database's order."""
    by_key: dict[Any, dict[tuple[int, int], Change]] = defaultdict(dict)
    for change in delivered:
        before, after = change.before or {}, change.after or {}
        if change.op == "d":
            by_key[before[key]][change.lsn, 0] = change
            continue
        if before and before[key] != after[key]:
            by_key[before[key]][change.lsn, 0] = replace(change, op="d")
        by_key[after[key]][change.lsn, 0] = change
    return {value: list(_spans(dict(sorted(changes.items())).values())) for value, changes in by_key.items()}


def _spans(changes: Iterable[Change]) -> Iterator[Span]:
    now: Row = {}
    open_: Span | None = None
    for change in changes:
        if open_ is not None:
            yield replace(open_, until=change.lsn)
        open_ = None
        if change.op == "d":
            now = {}
            continue
        now = dict(_completed(change, now))
        open_ = Span(now, change.lsn, None)
    if open_ is not None:
        yield open_


def _completed(change: Change, former: Row) -> Iterator[tuple[str, Any]]:
    for column, value in (change.after or {}).items():
        if column in LARGE and value == LARGE[column]:
            of_before = (change.before or {}).get(column)
            yield column, former.get(column) if of_before is None else of_before
        else:
            yield column, value
