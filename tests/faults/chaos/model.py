"""What a topic and its table must be after any sequence of drains, decisions and accidents: a model without real parts.

It expresses the rules of drains and decisions in sets of messages. A walk compares it with real parts step by step, and
with what must never happen: a message that is lost, there twice, or gone silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Refusal = str
MOST_DAYS = 20


@dataclass(frozen=True, order=True)
class Message:
    """A message that a broker once acknowledged; each is unique."""

    number: int
    epoch: int  # of its topic, which may be deleted and recreated
    partition: int
    offset: int
    bad: bool = False
    age: int = 0
    """In days; of its date, and of its timestamp."""


@dataclass
class TopicPartitionLog:
    """The broker's log of a topic partition: offsets are indexes of the list."""

    messages: list[Message] = field(default_factory=list)
    earliest: int = 0

    @property
    def end(self) -> int:
        return len(self.messages)

    def holds(self, message: Message) -> bool:
        at = message.offset
        return self.earliest <= at < self.end and self.messages[at] == message


@dataclass(frozen=True)
class Ledger:
    """The ledger of the current rows.

    Attributes:
        positions: Next offset of every topic partition.
        last_read: By topic partition the last message that was read, as far as it is below the position.
        lost: Messages that someone gave up.
    """

    epoch: int
    positions: Mapping[int, int]
    last_read: Mapping[int, Message] = field(default_factory=dict)
    lost: frozenset[Message] = frozenset()


@dataclass(frozen=True)
class Version:
    """One version of the table."""

    rows: frozenset[Message]
    letters: frozenset[Message]  # dead letters that count
    ledger: Ledger
    copies: Mapping[Message, int] = field(default_factory=dict)  # which drain wrote the newest dead letter of each


class Refused(Exception):
    """A drain or a decision that must be refused; the name of the error class says why."""

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__(" or ".join(refusals))
        self.refusals = frozenset(refusals)


class Model:
    """A topic and its table, which starts at ``earliest``.

    Attributes:
        removed: Rows that decisions removed from the table and that the broker no longer has.
        undone: Messages that a RESTORE or a rewind removed from the table, to be drained again: if the broker loses
            them before that, the last copy is lost, as with every message that waits.
        versions: Of the table, the newest last.
        keep: How many days rows and dead letters are kept.
        ended: Messages that left because they were kept no longer.
        deleted: Dead letters that left with them, each with the drain that wrote it: no RESTORE brings them back.
    """

    def __init__(self, partitions: int) -> None:
        self.epoch, self.produced = 1, 0
        self.logs = [TopicPartitionLog() for _ in range(partitions)]
        self.versions: list[Version] = []
        self.removed: frozenset[Message] = frozenset()
        self.undone: frozenset[Message] = frozenset()
        self.keep = MOST_DAYS
        self.ended: frozenset[Message] = frozenset()
        self.deleted: frozenset[tuple[Message, int]] = frozenset()
        self._drains = 0

    @property
    def table(self) -> Version:
        return self.versions[-1]

    def snapshot(self) -> tuple[int, frozenset[Message]]:
        """The current state, for ``go_back_to``."""
        return len(self.versions), self.removed

    def go_back_to(self, snapshot: tuple[int, frozenset[Message]]) -> None:
        """Undo everything except the table: nothing was committed since."""
        del self.versions[max(snapshot[0], 1) :]
        self.removed = snapshot[1]

    def restorable(self) -> list[int]:
        """Older versions of the table."""
        return list(range(len(self.versions) - 1))

    # What happens to the topic.

    def produce(self, partition: int, *, bad: bool = False, age: int = 0) -> Message:
        """One more message."""
        log, self.produced = self.logs[partition], self.produced + 1
        message = Message(self.produced, self.epoch, partition, log.end, bad, age)
        log.messages.append(message)
        return message

    def add_partition(self) -> None:
        """The topic has one more topic partition."""
        self.logs.append(TopicPartitionLog())

    def delete_before(self, partition: int, offset: int) -> None:
        """Retention."""
        self.logs[partition].earliest = max(offset, self.logs[partition].earliest)

    def truncate(self, partition: int, offset: int) -> None:
        """The broker lost the end of its log, as by an unclean leader election."""
        del self.logs[partition].messages[offset:]

    def recreate(self, partitions: int) -> None:
        """The topic is deleted and recreated."""
        self.epoch += 1
        self.logs = [TopicPartitionLog() for _ in range(partitions)]

    # What happens to the table.

    def restore(self, version: int) -> None:
        """RESTORE: rows, letters and positions are those of that version."""
        before, after = self.table, self.versions[version]
        there = frozenset(m for m in after.letters if (m, after.copies[m]) not in self.deleted)
        after = replace(after, letters=there)
        self.undone |= (before.rows | before.letters) - (after.rows | after.letters)
        self.versions.append(after)

    def drain(self) -> list[Version]:
        """Drain everything; the versions that it committed.

        Raises:
            Refused: Nothing was read. A RESTORE is recorded even then.
        """
        made = len(self.versions)
        if not self.versions:
            start = Ledger(self.epoch, {p: log.earliest for p, log in enumerate(self.logs)})
            self.versions.append(Version(frozenset(), frozenset(), start))
        if refusals := self._refusals():
            raise Refused(*refusals)
        ledger, rows, letters = self.table.ledger, self.table.rows, self.table.letters
        last_read, positions = dict(ledger.last_read), dict(ledger.positions)
        read: list[Message] = []
        for partition, log in enumerate(self.logs):
            waiting = log.messages[positions.get(partition, 0) :]
            read += waiting
            positions[partition] = log.end
            if waiting:
                last_read[partition] = waiting[-1]
        if read:
            self._drains += 1
            rejected = {m for m in read if self._is_rejected(m)}
            rows, letters = rows | (set(read) - rejected), letters | rejected
            copies = {**self.table.copies, **dict.fromkeys(rejected, self._drains)}
            after = replace(ledger, positions=positions, last_read=last_read)
            self.versions.append(Version(rows, letters, after, copies))
        return self.versions[made:]

    def _is_rejected(self, message: Message) -> bool:
        """Whether a drain makes a dead letter of it: it cannot be read, or its date is kept no longer."""
        return message.bad or message.age > self.keep

    def may_be_letter(self, message: Message) -> bool:
        """Whether a drain made a dead letter of it, or will."""
        return self._is_rejected(message) or any(message in version.letters for version in self.versions)

    def expire(self, keep: int) -> None:
        """Rows and dead letters that are older than this many days leave."""
        self.keep = keep
        table = self.table
        rows = {m for m in table.rows if m.age > keep}
        letters = {m for m in table.letters if m.age > keep}
        if not rows and not letters:
            return
        self.ended |= rows | letters
        self.deleted |= {(m, table.copies[m]) for m in letters}
        self.versions.append(replace(table, rows=table.rows - rows, letters=table.letters - letters))

    def _refusals(self) -> set[Refusal]:
        ledger = self.table.ledger
        if ledger.epoch != self.epoch:
            return {"TopicRecreated"}
        found: set[Refusal] = set()
        for partition, log in enumerate(self.logs):
            position, last = ledger.positions.get(partition, 0), ledger.last_read.get(partition)
            if position < log.earliest:
                found.add("RetentionPassedPosition")
            elif log.end < position:
                found.add("BrokerEndBelowPosition")
            elif last and position < log.end and log.earliest <= last.offset and not log.holds(last):
                found.add("TopicTruncated")
        return found

    # Decisions.

    def accept_loss(self) -> None:
        """Give up what retention deleted before it was drained."""
        self._refuse_other_topic()
        ledger = self.table.ledger
        lost, positions = set(ledger.lost), dict(ledger.positions)
        for partition, log in enumerate(self.logs):
            position = positions.get(partition, 0)
            if position < log.earliest:
                lost |= set(log.messages[position : log.earliest])
                positions[partition] = log.earliest
        if positions == dict(ledger.positions):
            raise Refused("NothingToResolve")
        self._decided(replace(ledger, positions=positions, lost=frozenset(lost)))

    def rewind(self, partition: int, offset: int) -> None:
        """Drain again from an offset on; rows after it are removed, and kept if they are the only copies."""
        self._refuse_other_topic()
        ledger, log = self.table.ledger, self.logs[partition]
        position = ledger.positions.get(partition, 0)
        if not log.earliest <= offset <= min(position, log.end):
            raise Refused("NothingToResolve")
        behind = {
            m
            for m in self.table.rows | self.table.letters
            if (m.epoch, m.partition) == (self.epoch, partition) and m.offset >= offset
        }
        if any(m in self.table.letters and not log.holds(m) for m in behind):
            raise Refused("NothingToResolve")  # dead letters that are the only copies
        # After a truncation, its evidence must not be removed with the rows: the row before them keeps it.
        stay = (self.table.rows | self.table.letters) - behind
        below = [m for m in stay if (m.epoch, m.partition) == (self.epoch, partition)]
        last_read = {p: m for p, m in ledger.last_read.items() if p != partition}
        if last := max(below, key=lambda m: m.offset, default=None):
            if log.earliest <= last.offset and not log.holds(last):
                raise Refused("NothingToResolve")
            last_read[partition] = last
        self.removed |= {m for m in behind if not log.holds(m)}
        self.undone |= {m for m in behind if log.holds(m)}
        after = replace(ledger, positions={**ledger.positions, partition: offset}, last_read=last_read)
        self._decided(after, without=frozenset(behind))

    def new_topic(self) -> None:
        """Continue with a recreated topic; rows of the former one stay."""
        ledger = self.table.ledger
        if ledger.epoch == self.epoch:
            raise Refused("NothingToResolve")
        positions = dict.fromkeys(range(len(self.logs)), 0)
        self._decided(Ledger(self.epoch, positions, lost=ledger.lost))

    def _refuse_other_topic(self) -> None:
        if self.table.ledger.epoch != self.epoch:
            raise Refused("NothingToResolve")

    def _decided(self, ledger: Ledger, *, without: frozenset[Message] = frozenset()) -> None:
        table = self.table
        self.versions.append(replace(table, rows=table.rows - without, letters=table.letters - without, ledger=ledger))

    # What must hold.

    def faults(self) -> list[str]:
        """What must not be, just after a drain that was not refused."""
        table, found = self.table, []
        there = table.rows | table.letters
        for partition, log in enumerate(self.logs):
            position, last = table.ledger.positions.get(partition, 0), table.ledger.last_read.get(partition)
            found += [f"{m} waits behind a drain" for m in log.messages[position:]]
            if last and last.offset >= log.earliest and not log.holds(last):
                continue  # truncated and grown exactly to the position: the next message makes the drain refuse it
            below = log.messages[log.earliest : position]
            accounted = there | table.ledger.lost | self.ended
            found += [f"{m} was passed over" for m in below if m not in accounted]
        drained = frozenset().union(*(v.rows | v.letters for v in self.versions))
        gone = drained - there - self.removed - self.undone - table.ledger.lost - self.ended
        return found + [f"{m} was in the table and is nowhere" for m in sorted(gone)]
