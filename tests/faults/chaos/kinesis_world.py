"""The world of a stream of Kinesis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from kdi_assets.documents.model.kinesis_stream import Consumer, KinesisStream
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kinesis.errors import ConsumerTaken, ShardTrimmed
from kdi_assets.messages.of_stream import source_of
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.audit.source_comparison import compare
from kdi_assets.streams.drain.plan_errors import TopicPartitionVanished, TopicRecreated
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.resolve.resolve import Action as Decided
from kdi_assets.streams.resolve.resolve import Decision, commit_decision, decide
from tests.faults.chaos.readers import At
from tests.faults.chaos.world import World
from tests.kinesis.drains import Put
from tests.kinesis.oracle import MOST_EARLY, assert_rows_are
from tests.kinesis_ledger import Between, LedgerReading, PutRecord, Shard, live_entries, read_by_ledger

SUBSCRIBED_AGAIN_SECONDS = 6
"""A second subscription within five seconds would be refused."""
SHORTEST_RETENTION = timedelta(hours=24)
MODES = (Consumer(), Consumer(mode="efo"), Consumer(mode="efo", deregister="after_drain"))


@dataclass(kw_only=True)
class KinesisWorld(World):
    """A stream of Kinesis.

    Attributes:
        orders: The same stream, and what was put into it.
        before_start: How many records were put before the table's start.
        retention: Of the stream.
        epochs: Of each topic id.
        parents: Of each shard that was made by a split or a merge.
        gone: Records that retention has passed.
        advanced_hours: Of the server's clock.
    """

    DECIDABLE = (ShardTrimmed, TopicPartitionVanished, TopicRecreated)

    orders: Put
    before_start: int = 0
    retention: timedelta = SHORTEST_RETENTION
    epochs: dict[str, int] = field(default_factory=dict)
    parents: dict[Shard, tuple[int, ...]] = field(default_factory=dict)
    gone: set[PutRecord] = field(default_factory=set)
    advanced_hours: float = 0

    def __post_init__(self) -> None:
        self.note_epoch()

    @property
    def messages(self) -> int:
        return len(self.orders.log)

    @property
    def refusals(self) -> tuple[type[KdiError], ...]:
        return (*super().refusals, ConsumerTaken)

    def positions(self) -> Mapping[TopicPartition, int]:
        entries = live_entries(self.stream, self.lake)
        return entries[-1].positions if entries else {}

    def waits(self) -> bool:
        if self.log is None:
            return True
        return bool(self._unread())

    def drain(
        self, stream: Stream | None = None, *, at: Callable[[str], None] = lambda point: None
    ) -> DrainReport | None:
        """As of any source.

        Raises:
            AssertionError: The drain says that it is done, and has not read what was there before it.
        """
        self.orders.server.advance(SUBSCRIBED_AGAIN_SECONDS)
        there = set(self.orders.log)
        report = super().drain(stream, at=at)
        if report and not report.taken_by_another:
            left = [record for record in self._unread() if record in there]
            assert not left, f"missing: the drain has ended, and has not read {left[:3]}"
        return report

    def turn(self) -> None:
        """How records are read changes from step to step."""
        assert isinstance(self.stream, KinesisStream)
        self.stream = self.orders.stream = replace(self.stream, consumer=self.random.choice(MODES))
        self.orders.server.advance(SUBSCRIBED_AGAIN_SECONDS)

    def note_epoch(self) -> None:
        """The stream was created."""
        self.epochs[source_of(self.stream).topic_id(self.stream.topic)] = self.orders.epoch
        self.retention = SHORTEST_RETENTION

    def note_lineage(self) -> None:
        """Shards were split or merged."""
        self.parents |= {(self.orders.epoch, shard): of for shard, of in self.orders.parents.items()}

    def note_gone(self) -> None:
        """The server's clock went on, or the retention is another one."""
        held_since = self.orders.moment() - self.retention + MOST_EARLY
        self.gone |= {record for record in self.orders.log if record.put_at < held_since}

    def note_start(self) -> None:
        if self.stream.start == "latest":
            self.before_start = len(self.orders.log)

    def decide(self, refusal: KdiError) -> None:
        if isinstance(refusal, TopicRecreated):
            made_again = self.epochs[live_entries(self.stream, self.lake)[-1].topic_id] != self.orders.epoch
            assert made_again, f"nobody created the stream again: {refusal}"
            self.goes_back = True
            self.resolve("new-topic")
            return
        shortest = (self.orders.moment() - SHORTEST_RETENTION).timestamp() * 1000
        for tp, (since, until) in self.resolve("accept-loss").lost_between.items():
            assert since <= min(until, shortest), f"{tp}: what arrived since {since} is given up, and cannot be gone"

    def resolve(self, action: Decided, **target: object) -> Decision:
        """Decide, as `kdi resolve … --yes` does."""
        decision = decide(self.stream, self.lake, action, session=self.session, **target)  # type: ignore[arg-type]
        commit_decision(self.session(), decision, self.stream, self.lake)
        return decision

    def assert_rows(self) -> None:
        self.note_gone()
        reading = self._reading(live_entries(self.stream, self.lake))
        for record, losses in reading.lost:
            self._assert_rightly_lost(record, losses)
        assert_rows_are(self.stream, self.lake, reading.numbered, given_up=self.given_up)

    def wanted(self, entries: Sequence[LedgerEntry]) -> Counter[At]:
        numbered = self._reading(entries).numbered
        return Counter((s, n) for (_, s), records in numbered.items() for n, record in enumerate(records) if record)

    def end(self) -> None:
        self.orders.server.unmet_faults()

    def assert_complete(self) -> None:
        entries = live_entries(self.stream, self.lake)
        reading, every = self._reading(entries), [lost for entry in entries for lost in entry.lost_between.values()]
        for shard in reading.records:
            for record in reading.unread(shard) if shard[0] == self.orders.epoch else ():
                self._assert_rightly_lost(record, every)
        audited = audit(self.stream, lake=self.lake, session=self.session)
        # The audit takes a row that somebody deleted for missing if a stream that was created again has its offset too.
        deleted_before = bool(self.given_up and self.orders.epoch)
        assert audited.complete or deleted_before, audited.line()
        compared = compare(self.stream, lake=self.lake, session=self.session)
        assert not compared.faults, compared.faults
        # Rows that somebody deleted are absent where VACUUM has removed what says so.
        assert self.given_up or not compared.absent, f"{compared.line()}: {compared.absent_at}"
        assert not (failures := self.orders.server.failures()), failures

    def _reading(self, entries: Sequence[LedgerEntry]) -> LedgerReading:
        log = self.orders.log[self.before_start :]
        return read_by_ledger(entries, log, epochs=self.epochs, parents=self.parents)

    def _unread(self) -> Sequence[PutRecord]:
        """The records that the stream holds, and no drain has read."""
        self.note_gone()
        reading = self._reading(live_entries(self.stream, self.lake))
        unread = (r for shard in reading.records if shard[0] == self.orders.epoch for r in reading.unread(shard))
        return [record for record in unread if record not in self.gone]

    def _assert_rightly_lost(self, record: PutRecord, losses: Sequence[Between]) -> None:
        """Retention passed the record, and an accepted loss says so."""
        assert record in self.gone, f"missing: {record} was passed over, and the stream holds it"
        first, last = ((record.put_at - early).timestamp() * 1000 for early in (MOST_EARLY, timedelta()))
        named = any(since <= last and first <= until for since, until in losses)
        assert named, f"missing: {record} is lost, and the losses that were accepted are {losses}"
