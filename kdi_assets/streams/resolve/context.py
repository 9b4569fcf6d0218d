"""The state that a decision is based on: a stream's topic, table and ledger at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.streams.audit.audit import highest_offsets
from kdi_assets.streams.ledger.errors import another_table
from kdi_assets.streams.ledger.positions import LedgerState, read_ledger
from kdi_assets.streams.resolve.errors import NothingToResolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = "an offset of Kinesis is the number of a record in this table's reading, and nobody can set one"
Action = Literal["accept-loss", "new-topic", "rewind", "adopt", "adopt-dead-letters"]


class ProposedPositions(NamedTuple):
    """What an action proposes.

    Attributes:
        after: Next offset of each topic partition whose position the action sets.
        reason: The effect, in one sentence.
        fields: Fields of the ledger entry that the action sets; all others are carried on.
        notes: Other effects, one sentence each.
    """

    after: Mapping[TopicPartition, int]
    reason: str
    fields: Mapping[str, Any] = {}
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ResolveContext:
    """The state of a stream before a decision.

    Attributes:
        log: The log of the stream's table.
        ledger: As a drain reads it. The decision also answers a RESTORE that no drain has answered yet.
        gap: Whether the log no longer shows which positions belong to the rows; then ``ledger`` has the logged ones.
        session: Called only if rows must be read.
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
    def positions(self) -> dict[TopicPartition, int]:
        """Next offset of every topic partition that the ledger has resolved."""
        return dict(self.ledger.positions)

    def ledger_at(self, version: int) -> LedgerState | None:
        """The ledger at a version of the table; raises as ``read_ledger``."""
        topic, end = self.topic.topic_id, self.topic.numbers_end
        return read_ledger(self.stream, self.lake, topic_id=topic, topic_partitions=end, version=version)

    def refuse_other_topic_or_table(self) -> None:
        """Refuse a topic or a table that the positions do not belong to, unless the action decides exactly that.

        Raises:
            NothingToResolve: Another action decides that first.
        """
        ledger = self.ledger
        if ledger.ledger_version is None:
            return
        if not ledger.topic_id_matches and self.action != "new-topic":
            raise self.refusal("the topic is another one; new-topic decides that")
        if not ledger.table_id_matches and self.action != "adopt" and ledger.topic_id_matches:
            then = another_table(self.stream.name) if self.topic.as_of else ""
            raise self.refusal(f"the table is another one{'' if then else '; adopt decides that'}", then=then)

    def refuse_unknown_offsets(self) -> None:
        """Refuse to set positions whose messages the source cannot name.

        Raises:
            NothingToResolve: Its offsets are numbers of the table's own reading.
        """
        if self.topic.as_of and self.action == "adopt":
            detail = f"{NUMBERS}: only the log of the table that is gone says which records its numbers belong to"
            raise self.refusal(detail, then=another_table(self.stream.name))

    def refuse_gap(self) -> None:
        """Refuse an action that needs the positions if they are unknown.

        Raises:
            NothingToResolve: The log no longer shows them.
        """
        if self.gap and self.topic.as_of:
            raise self.refusal("the positions are unknown", then=another_table(self.stream.name))
        if self.gap:
            rewind = f"kdi resolve {self.stream.name} rewind   (proposes the highest offset in the rows, plus one)"
            raise self.refusal("the positions are unknown; rewind to the offsets after the rows first", then=rewind)

    def positions_after_rows(self) -> dict[TopicPartition, int]:
        """The highest offset in the rows plus one; without rows the explicit start, or else the earliest offset.

        Raises:
            NothingToResolve: Some rows have no coordinates. They may belong to a topic partition that has no other
                rows.
        """
        highest = highest_offsets(self.session(), self.stream, self.log.uri)
        start, partitions = self.stream.start_offsets, self.topic.partitions
        unknown = sorted(partitions.keys() - highest.keys() - start.keys())
        if unknown and highest.keys() - partitions.keys():
            names = ", ".join(map(str, unknown))
            raise self.refusal(
                f"some rows of {self.log.uri} have no coordinates, and no row has the position of {names}",
                then=f"write `start:` with the next offset of {names} into the stream's document, then the same "
                f"command again; or {another_table(self.stream.name)}",
            )
        after = {tp: highest[tp] + 1 for tp in partitions.keys() & highest.keys()}
        return {tp: after.get(tp, start.get(tp, offsets.earliest)) for tp, offsets in partitions.items()}

    def refusal(self, detail: str, *, then: str = "") -> NothingToResolve:
        """The error: the action does not apply."""
        return NothingToResolve(stream=self.stream.name, action=self.action, detail=detail, then=then)


def in_utc(moment: datetime) -> str:
    """A moment as messages show it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
