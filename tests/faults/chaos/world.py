"""The world of one run: a stream, what was done to it so far, and what must hold after every step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.errors import AnotherDrainActive
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.ledger.entry import LedgerEntry
from tests.faults.chaos.readers import READERS, At, Readers
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


W = TypeVar("W", contravariant=True)


@dataclass(frozen=True)
class Action(Generic[W]):
    """Something that happens to a stream.

    Attributes:
        run: Does it, and returns what it did in a few words.
        requires: Whether it can happen in this world.
        promises: What it preserves, or brings about.
        weight: How often it comes, relative to the others.
    """

    name: str
    run: Callable[[W], str]
    promises: str
    weight: int
    requires: Callable[[W], bool] = lambda world: True


@dataclass(kw_only=True)
class World(ABC):
    """One stream with faults.

    Attributes:
        home: ``KDI_HOME`` of the warm driver that everything here attaches to.
        interferences: What may happen between plan and commit of a drain.
        given_up: Offsets that may be missing: declared losses, rows removed on purpose.
        oldest_restorable: The oldest table version whose files VACUUM has left.
        goes_back: Whether the current step may set positions back.
    """

    DECIDABLE: ClassVar[tuple[type[KdiError], ...]]
    """Refusals of a drain that a person on call decides as they propose."""

    stream: Stream
    lake: str
    session: Callable[[], SparkSession]
    home: Path
    random: Random
    readers: Readers
    seed: int
    interferences: Sequence[Action[Any]]
    given_up: list[OffsetRange] = field(default_factory=list)
    oldest_restorable: int = 0
    goes_back: bool = False
    _positions: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return self.stream.table_uri(self.lake)

    @property
    def log(self) -> TableLog | None:
        """The table's log, now."""
        return TableLog.open(self.uri)

    def version(self) -> int:
        """The newest version of the table."""
        return TableLog.existing(self.uri).version

    def choose(self, actions: Sequence[Action[Any]]) -> Action[Any] | None:
        """One of the actions that can happen now."""
        possible = [a for a in actions if a.requires(self)]
        return self.random.choices(possible, [a.weight for a in possible])[0] if possible else None

    @property
    def refusals(self) -> tuple[type[KdiError], ...]:
        """How a drain may end while another one runs."""
        return (AnotherDrainActive, *self.DECIDABLE)

    def drain(
        self, stream: Stream | None = None, *, at: Callable[[str], None] = lambda point: None
    ) -> DrainReport | None:
        """Drain as a person on call would: decide what must be decided, and nothing else."""
        try:
            return drain(stream or self.stream, lake=self.lake, session=self.session, at=at)
        except self.DECIDABLE as refusal:
            self.decide(refusal)
            return None

    def check(self) -> None:
        """What must hold between any two steps.

        * Each message below the positions is there once; nothing else is there.
        * Positions go forward, unless someone set them back.
        * The two readers never saw half a drain.
        """
        if self.log is None:
            self.note_start()
            return
        positions = self.positions()
        self.assert_rows()
        if not self.goes_back:
            back = {tp: (self._positions[tp], at) for tp, at in positions.items() if at < self._positions.get(tp, 0)}
            assert not back, f"positions went back: {back}"
        self._positions, self.goes_back = positions, False
        self.readers.check(self.wanted, self.given_up, seed=self.seed)

    def check_at_the_end(self) -> None:
        """Drain the rest; then every produced message is there, and the audit is complete."""
        for _ in range(9):  # a loss is decided first, and a decision is not a drain
            if report := self.drain():
                break
        assert report is not None, "the drain was refused nine times"
        assert report.backlog_after == 0, f"{report.backlog_after} offsets still wait"
        self.check()
        self.assert_complete()
        wait_until(lambda: len(self.readers.looks) == len(READERS))  # a run of few steps is soon over

    @abstractmethod
    def turn(self) -> None:
        """Another step begins."""

    @abstractmethod
    def end(self) -> None:
        """Nothing else happens, except drains."""

    @property
    @abstractmethod
    def messages(self) -> int:
        """How many messages were produced."""

    @abstractmethod
    def positions(self) -> Mapping[TopicPartition, int]:
        """Next offset of every topic partition, for the current rows."""

    @abstractmethod
    def waits(self) -> bool:
        """Whether a drain has something to do."""

    @abstractmethod
    def note_start(self) -> None:
        """There is no table yet: remember where one would begin."""

    @abstractmethod
    def assert_rows(self) -> None:
        """Each message below the positions is a row or a dead letter once; nothing else is there."""

    @abstractmethod
    def wanted(self, entries: Sequence[LedgerEntry]) -> Counter[At]:
        """How often the message of each offset must be there, if these are the live entries, the oldest first."""

    @abstractmethod
    def decide(self, refusal: KdiError) -> None:
        """Decide as the refusal proposes.

        Raises:
            AssertionError: The decision gives up messages that the source still holds.
        """

    @abstractmethod
    def assert_complete(self) -> None:
        """All that the source holds is drained, and the audit is complete."""
