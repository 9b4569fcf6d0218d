"""What becomes of dead letters, as one commit: records appended first, then the entry that makes them count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kdi_assets.drain.dead_letters import append_letters, refuse_gone
from kdi_assets.drain.failures import jvm_loss_named, spark_failures
from kdi_assets.drain.plan import expected, moving_nothing
from kdi_assets.drain.refusals import AccountingMismatch, AnotherDrainActive, DeadLettersGone, NotDrainedYet
from kdi_assets.drain.report import Commit
from kdi_assets.drain.settle import settle
from kdi_assets.drain.survey import survey
from kdi_assets.drain.verdict import ROW, VERDICTS
from kdi_assets.formats.rules import literal
from kdi_assets.ledger.commit import OvertakenCommit, StagedFilesGone, commit
from kdi_assets.ledger.delta import Staged
from kdi_assets.ledger.entry import DeadLettersAt, Kind, LedgerEntry
from kdi_assets.ledger.history import LiveHistory, live_history
from kdi_assets.ledger.letters import OUTCOME
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.state import LedgerState, positions_in, read_transactions
from kdi_assets.replay.chosen import Chosen
from kdi_assets.replay.open_letters import OpenLetters, Tally, open_letters, tallies_by
from kdi_assets.sources.kafka import TopicState
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Done = TypeVar("Done")
TRIES = 5
"""So often others may come first before they have the field."""
_PASSING: tuple[Kind, ...] = ("drain", "renewal")
"""They touch none of the offsets that letters below the positions have."""


class Change(NamedTuple):
    """What becomes of letters with one reason.

    Attributes:
        outcome: One of ``verdict.VERDICTS``, or ``elsewhere``.
        example: Topic partition and offset of one of them.
    """

    reason: str
    field: str
    outcome: str
    new_reason: str
    new_field: str
    letters: int
    example: tuple[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of open letters, or what would.

    Attributes:
        outcomes: One of ``verdict.VERDICTS``, ``elsewhere`` or ``discarded``, to how many letters became it.
        withheld: Open letters that do not hold all of their message; a replay leaves them alone.
        waiting: Those at or behind a position, which are drained again anyway.
        commit: What came of it in the table; ``None`` if there was nothing to say, or nothing was to be done.
        changes: By old and new reason; of a dry run alone.
    """

    stream: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    withheld: int = 0
    waiting: int = 0
    commit: Commit | None = None
    changes: tuple[Change, ...] = ()

    @property
    def letters(self) -> int:
        """Those that something became of."""
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True)
class Deciding:
    """A stream whose dead letters something is to become of, at one version of its table."""

    stream: Stream
    lake: str
    spark: SparkSession
    topic: TopicState
    ledger: LedgerState
    history: LiveHistory
    now: datetime
    entry: LedgerEntry

    @property
    def dead_letters_at(self) -> DeadLettersAt | None:
        """What the ledger counts on so far."""
        return self.ledger.entry.dead_letters_at if self.ledger.entry else None

    @contextmanager
    def open_letters(self, chosen: Chosen) -> Iterator[OpenLetters]:
        """As ``open_letters.open_letters``."""
        with open_letters(
            self.spark,
            self.stream,
            self.lake,
            chosen,
            ledger=self.ledger,
            history=self.history,
            topic_id=self.topic.topic_id,
        ) as found:
            yield found

    def tell(self, said: DataFrame, expected: Mapping[str, Tally], *, ranges: Sequence[OffsetRange]) -> Told:
        """Append what becomes of letters, and letters; it does not count before the commit.

        Args:
            said: As ``judge.verdicts`` gives it, or ``judge.condemned``, or both.
            expected: By outcome; of new letters by the empty name.

        Raises:
            AccountingMismatch: What lies there is not this.
        """
        uri = self.stream.dead_letters_uri(self.lake)
        with spark_failures(self.stream, "writing what becomes of dead letters"):
            between = (self.stream.date_window.start, self.stream.date_window.last(self.now))
            appended = append_letters(said, uri, attempt_id=self.entry.attempt_id, between=between)
            table = self.spark.read.format("delta").load(uri)
            written = table.where(f"attempt_id = {literal(self.entry.attempt_id)}")
            groups = tallies_by(written, OUTCOME, "partition")
        lying: defaultdict[str, Tally] = defaultdict(Tally)
        for (outcome, _), tally in groups.items():
            lying[outcome or ""] += tally
        if lying != expected:
            of = {outcome: tally.count for outcome, tally in expected.items()}
            detail = f"{ {outcome: tally.count for outcome, tally in lying.items()} } lie there, of {of} dead letters"
            raise self.mismatch(detail, ranges)
        rows = {p: tally.count for (outcome, p), tally in groups.items() if outcome == VERDICTS[ROW]}
        returned = {TopicPartition(self.stream.topic, p): count for p, count in sorted(rows.items())}
        return Told(appended.at, appended.by_date, returned)

    def mismatch(self, detail: str, ranges: Sequence[OffsetRange]) -> AccountingMismatch:
        """The refusal of what does not add up."""
        return AccountingMismatch(stream=self.stream.name, detail=detail, ranges=tuple(ranges))

    def commit(self, staged: Staged, entry: LedgerEntry) -> LedgerEntry:
        """Make rows and outcomes count.

        Raises:
            OvertakenCommit: Something else happened to the table than drains.
            DeadLettersGone: The outcomes, or letters that count, may not be there any more.
        """
        for counted_on in {self.dead_letters_at, entry.dead_letters_at}:
            refuse_gone(self.stream, self.lake, counted_on)
        topic_partitions = len(self.topic.partitions)

        def positions_at(newest: TableLog) -> Mapping[TopicPartition, int]:
            return positions_in(read_transactions(newest, self.stream, topic_partitions), self.stream)

        with spark_failures(self.stream, "committing"):
            return commit(
                self.spark,
                staged,
                self.ledger.uri,
                behind=self.ledger.version,
                expect=expected(self.stream, self.ledger, entry.positions),
                entry=entry,
                passing=_PASSING,
                positions_at=positions_at,
            )


@dataclass(frozen=True, slots=True)
class Told:
    """What was written of letters.

    Attributes:
        by_date: How many, by the dates of their messages' own timestamps.
        returned: By topic partition, those that are rows now.
    """

    at: DeadLettersAt | None
    by_date: Mapping[date, int]
    returned: Mapping[TopicPartition, int]

    def of(self, entry: LedgerEntry) -> LedgerEntry:
        """The entry that makes it count."""
        return replace(entry, dead_letters_at=self.at, letters_by_date=self.by_date, returned=self.returned)


def until_not_overtaken(
    stream: Stream,
    lake: str,
    session: Callable[[], SparkSession],
    kind: Kind,
    act: Callable[[Deciding], Done],
    *,
    nothing: Done,
    run_id: str = "",
    settles: bool = True,
) -> Done:
    """Look at the stream and act, again where others came first.

    Args:
        act: Is given what its commit is planned on.
        nothing: The answer where nothing was drained yet.
        settles: Whether what must be committed before anything is read is, as a drain would: the answer to a RESTORE,
            and for a replay other route conditions.

    Raises:
        AnotherDrainActive: Overtaken again and again.
        NotDrainedYet: The table is another writer's still.
        KdiError: What a drain would refuse as well.
    """
    for left in reversed(range(TRIES)):
        seen = survey(stream, lake)
        pending = seen.settlement
        if pending and kind == "discard" and pending.kind == "routes":
            pending = None
        if pending and pending.kind == "takeover":
            raise NotDrainedYet(stream=stream.name, uri=stream.table_uri(lake))
        if seen.ledger is None or (pending and pending.kind not in ("restore", "routes")):
            return nothing
        if seen.refusal and kind == "replay":
            raise seen.refusal  # which table a message belongs to is what nobody knows now
        try:
            with jvm_loss_named(stream):
                if pending and settles:
                    settle(session(), pending, stream, lake, ledger=seen.ledger, topic=seen.topic)
                    continue
                return act(_deciding(stream, lake, session(), seen.topic, seen.ledger, kind, run_id))
        except (OvertakenCommit, StagedFilesGone, DeadLettersGone) as overtaken:
            if not left:
                raise AnotherDrainActive(stream=stream.name, detail=overtaken.parts()[0]) from overtaken
    raise AnotherDrainActive(stream=stream.name, detail="the table was restored again and again")


def _deciding(
    stream: Stream, lake: str, spark: SparkSession, topic: TopicState, ledger: LedgerState, kind: Kind, run_id: str
) -> Deciding:
    history = live_history(ledger.uri, stream.app_id, archive_uri=stream.archive_uri(lake))
    if history is None or history.version != ledger.version:
        raise OvertakenCommit(uri=ledger.uri, version=ledger.version + 1, operation="while it was looked at")
    now = datetime.now(UTC)
    entry = moving_nothing(kind, stream, ledger, topic, ledger.entry)
    entry = replace(entry, run_id=run_id, planned_at=now)
    return Deciding(stream, lake, spark, topic, ledger, history, now, entry)
