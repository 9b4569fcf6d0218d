"""What a source needs of a table's ledger; the classes of ``kdi_assets.streams.ledger`` have it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.shard_bookmarks import Bookmark, Span


class RecordedRange(Protocol):
    """A range that one commit read."""

    @property
    def range(self) -> OffsetRange: ...


class RecordedEntry(Protocol):
    """One ledger commit: how far it read, and where its messages are in the source; see ``LedgerEntry``."""

    @property
    def version(self) -> int: ...
    @property
    def topic_id(self) -> str: ...
    @property
    def ranges(self) -> Sequence[RecordedRange]: ...
    @property
    def positions(self) -> Mapping[TopicPartition, int]: ...
    @property
    def declared_losses(self) -> Sequence[OffsetRange]: ...
    @property
    def bookmarks(self) -> Mapping[TopicPartition, Bookmark]: ...
    @property
    def spans(self) -> Mapping[TopicPartition, Span]: ...


class RecordedState(Protocol):
    """How far a table has read now; see ``LedgerState``."""

    @property
    def positions(self) -> Mapping[TopicPartition, int]: ...
    @property
    def entry(self) -> RecordedEntry | None: ...
    def vanished(self, found: Collection[TopicPartition]) -> Sequence[TopicPartition]:
        """The topic partitions with a position that are not among those that were found."""
        ...
