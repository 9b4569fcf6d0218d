"""A shop's customers change: Debezium's messages in the order of the source, and what they must become."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

from demo.scene import Message

CITIES = ("Athens", "Bergen", "Cairo", "Dakar", "Evora", "Fukuoka")
Customer = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """One change; ``lsn`` is its place in the source's log."""

    lsn: int
    op: str
    before: Customer | None
    after: Customer | None

    @property
    def id(self) -> int:
        """The customer's id."""
        return (self.after or self.before or (0,))[0]

    def messages(self) -> Iterator[Message]:
        """The change, and after a delete its tombstone."""
        key = json.dumps({"id": self.id}).encode()
        now = round(datetime.now(UTC).timestamp() * 1000)
        envelope = {"before": _row(self.before), "after": _row(self.after), "op": self.op, "ts_ms": now}
        yield key, json.dumps({**envelope, "source": {"lsn": self.lsn}}).encode()
        if self.op == "d":
            yield key, None


def _row(customer: Customer | None) -> dict[str, object] | None:
    return dict(zip(("id", "name", "city"), customer, strict=True)) if customer else None


def changes(random: Random, *, count: int, customers: int) -> list[Change]:
    """Inserts, updates, deletes and inserts after deletes, in the order of the source."""
    now: dict[int, Customer] = {}
    made = []
    for lsn in range(1, count + 1):
        number = random.randrange(customers)
        before = now.pop(number, None)
        gone = before is not None and random.random() < 0.2
        after = None if gone else (number, f"customer {number}", random.choice(CITIES))
        if after:
            now[number] = after
        made.append(Change(lsn, "d" if gone else "u" if before else "c", before, after))
    return made


def states(source: Iterable[Change]) -> dict[int, Customer]:
    """The customers after all changes: what `silver/customers` must be."""
    now: dict[int, Customer] = {}
    for change in source:
        now.pop(change.id, None)
        if change.after:
            now[change.id] = change.after
    return now


def history(source: Iterable[Change]) -> set[tuple[Customer, int, int | None]]:
    """Every state with the lsn that began and that ended it: what `silver/customers_history` must be."""
    began: dict[int, tuple[Customer, int]] = {}
    ended: set[tuple[Customer, int, int | None]] = set()
    for change in source:
        if known := began.pop(change.id, None):
            ended.add((*known, change.lsn))
        if change.after:
            began[change.id] = (change.after, change.lsn)
    return ended | {(*known, None) for known in began.values()}
