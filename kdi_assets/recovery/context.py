"""The inputs of a decision: a stream's topic and table at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kdi_assets.audit.audit import highest_offsets
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.positions import LedgerState, read_ledger
from kdi_assets.recovery.errors import NothingToResolve
from kdi_assets.sources.kafka.topic import TopicState
from kdi_assets.stream.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Action = Literal["accept-loss", "new-topic", "rewind", "adopt", "adopt-dead-letters"]


class ProposedPositions(NamedTuple):
    """What an action comes to.

    Attributes:
        after: Next offset of the topic partitions whose positions it sets.
        reason: What that means, in a sentence.
        fields: Of the ledger entry, where the decision changes what it carries on.
    """

    after: Mapping[TopicPartition, int]
    reason: str
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class ResolveContext:
    """A stream about which something is to be decided.

    Attributes:
        log: Of its table.
        ledger: As a drain would read it; a RESTORE that nobody answered yet is answered by the decision as well.
        gap: Whether the log no longer says which positions are those of the rows: the ledger has those that it names.
        session: Called where rows must be read.
    """

    stream: Stream
    lake: str
    topic: TopicState
    log: TableLog
    ledger: LedgerState
    gap: bool = False
    action: Action
    session: Callable[[], SparkSession]

    @property
    def before(self) -> dict[TopicPartition, int]:
        """Next offset of every topic partition that was ever resolved."""
        return dict(self.ledger.positions)

    def ledger_at(self, version: int) -> LedgerState | None:
        """The ledger at a version of the table; raises as ``read_ledger``."""
        topic, count = self.topic.topic_id, len(self.topic.partitions)
        return read_ledger(self.stream, self.lake, topic_id=topic, topic_partitions=count, version=version)

    def refuse_strangers(self) -> None:
        """Refuse to pass over a topic or a table that is not the one that the positions were made for.

        Raises:
            NothingToResolve: Another action decides that first.
        """
        ledger = self.ledger
        if ledger.ledger_version is None:
            return
        if not ledger.topic_id_matches and self.action != "new-topic":
            raise self.no("the topic is another one; new-topic decides that")
        if not ledger.table_id_matches and self.action != "adopt" and ledger.topic_id_matches:
            raise self.no("the table is another one; adopt decides that")

    def refuse_gap(self) -> None:
        """Refuse what needs the positions.

        Raises:
            NothingToResolve: Nobody knows them.
        """
        if self.gap:
            rewind = f"kdi resolve {self.stream.name} rewind   (proposes the highest offset in the rows, plus one)"
            raise self.no("the positions are unknown; rewind first, behind the rows", then=rewind)

    def behind_rows(self) -> dict[TopicPartition, int]:
        """The offset behind the highest in the rows; where there is no row, an explicit start, or the earliest.

        Raises:
            NothingToResolve: Rows do not say where their messages stood, and these may be of a topic partition that no
                other row tells of.
        """
        highest = highest_offsets(self.session(), self.stream, self.log.uri)
        start, held = self.stream.start_offsets, self.topic.partitions
        untold = sorted(held.keys() - highest.keys() - start.keys())
        if untold and highest.keys() - held.keys():
            names = ", ".join(map(str, untold))
            raise self.no(
                f"rows of {self.log.uri} do not say where their messages stood, and no row says where {names} goes on",
                then=f"write `start:` with the next offset of {names} into the stream's document, then the same "
                f"command once more; or {another_table(self.stream)}",
            )
        behind = {tp: highest[tp] + 1 for tp in held.keys() & highest.keys()}
        return {tp: behind.get(tp, start.get(tp, offsets.earliest)) for tp, offsets in held.items()}

    def no(self, detail: str, *, then: str = "") -> NothingToResolve:
        """The refusal."""
        return NothingToResolve(stream=self.stream.name, action=self.action, detail=detail, then=then)


def another_table(stream: Stream) -> str:
    """What to run where nothing of a table can go on."""
    return f"kdi drain {stream.name}   (with another `table` in its document: this one stays as it is)"


def told(moment: datetime) -> str:
    """A moment as messages name it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
