"""The typed description of a stream: one topic feeding one table. No I/O.

Its fields, and how documents write them, are in ``documents.model.stream_fields``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from hashlib import sha256
from typing import NamedTuple, get_args

from kdi_assets.documents.model.connections.connections import Cluster, Registry
from kdi_assets.documents.model.in_lake import InLake
from kdi_assets.documents.model.limits import (
    COSTLY,
    READING_ROWS,
    CheckName,
    Checks,
    DateWindow,
    DrainWhen,
    FreshnessLimits,
)
from kdi_assets.documents.model.message_format import MOST_FILE_MESSAGES, AvroContainer, FileRows, Files, Framed
from kdi_assets.documents.model.source_struct import SourceStruct
from kdi_assets.documents.model.stream_fields import Status, StreamFields
from kdi_assets.documents.model.upkeep import USUAL_FILE_BYTES, first_kept_date

__all__ = [
    "COSTLY",
    "READING_ROWS",
    "CheckName",
    "Checks",
    "DateWindow",
    "DrainWhen",
    "FreshnessLimits",
    "Cluster",
    "OffsetRange",
    "Status",
    "Stream",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def offsets_digest(offsets: Mapping[TopicPartition, int | None]) -> str:
    """A short text that changes with any offset."""
    text = ",".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items()))
    return sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one topic partition; ``end`` is exclusive."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def offset_count(self) -> int:
        """Offsets in the range; gaps make this more than the messages in it."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Stream(StreamFields, InLake):
    """One topic feeding one Delta table; the table's path names the stream and its asset."""

    def __post_init__(self) -> None:
        if not self.app_id:
            object.__setattr__(self, "app_id", self.topic)  # frozen: the one place where a default depends on a field

    @property
    def name(self) -> str:
        """The table's path: the stream's name in commands, messages and metadata."""
        return self.table

    @property
    def kafka(self) -> Cluster:
        """The cluster of a topic of Kafka, for what only Kafka has.

        Raises:
            TypeError: The stream is fed by another source.
        """
        if not isinstance(self.cluster, Cluster):
            raise TypeError(f"{self.name} is not fed by Kafka")
        return self.cluster

    @property
    def source_struct(self) -> SourceStruct:
        """What the source says of a message besides its value: the struct that expressions and rows have."""
        return self.cluster.struct

    @property
    def route_group(self) -> tuple[str, str] | None:
        """Cluster and topic of the stream's route group; ``None`` if it has no route."""
        return (self.cluster.name, self.topic) if self.route else None

    @property
    def registry(self) -> Registry | None:
        """The registry of the topic's schemas, if the format has one."""
        return self.format.schemas.registry if isinstance(self.format, Framed) else None

    @property
    def explodes(self) -> bool:
        """Whether a message may become several rows."""
        return self.explode is not None or isinstance(self.format, AvroContainer | Files)

    @property
    def rescued_column(self) -> str:
        """The name of the column of ``rescued``; empty if there is none."""
        return self.rescued.removesuffix(" variant")

    @property
    def rescues_variant(self) -> bool:
        """Whether that column is a variant and not a string."""
        return self.rescued != self.rescued_column

    @property
    def offsets_per_plan(self) -> int:
        """``max_records``, or less if messages name files."""
        return min(self.max_records, MOST_FILE_MESSAGES) if isinstance(self.format, Files) else self.max_records

    @property
    def of_file_rows(self) -> Stream:
        """Of a stream whose messages name files: the stream whose messages are the rows of these files.

        Raises:
            TypeError: The messages of this stream name no files.
        """
        if not isinstance(self.format, Files):
            raise TypeError(f"the messages of {self.name} name no files")
        return replace(
            self,
            format=FileRows(self.format.of),
            filter="",
            tombstones="dead_letter",
            compression="none",
            dead_letter_payload="keep",
        )

    @property
    def start_offsets(self) -> dict[TopicPartition, int]:
        """The next offsets that an explicit start names; none under another policy."""
        given = self.start if isinstance(self.start, Mapping) else {}
        offsets = ((number, offset) for number, offset in given.items() if isinstance(number, int))
        return {TopicPartition(self.topic, number): int(offset) for number, offset in sorted(offsets)}

    def kept_from(self, now: datetime) -> date | None:
        """The oldest date (UTC) that is kept at ``now``; ``None``: all are."""
        return first_kept_date(self.keep_days, now)

    def first_date(self, now: datetime) -> date:
        """The oldest date that a new row may have: the start of the date window, or the oldest date that is kept."""
        return max(self.date_window.first, self.kept_from(now) or self.date_window.first)

    def patience_seconds(self, now: datetime) -> float | None:
        """How long a message may wait until it is drained; ``None`` if no limit is a time, or the stream is paused."""
        return self.drain_when.patience_seconds(now) if self.status == "active" else None

    @property
    def compacted_file_bytes(self) -> int:
        """The size of files that compaction aims at."""
        return self.target_file_size or USUAL_FILE_BYTES

    @property
    def check_names(self) -> tuple[CheckName, ...]:
        """The checks that the stream can have; a retired stream has those that need no broker.

        The costly ones are last: they take minutes on a large table, and the others show the state of now.
        """
        without = {"fresh", "backlog_after_drain"} if self.status == "retired" else set()
        without |= set() if self.freshness else {"fresh"}
        without |= set() if self.expectations else {"expectations"}
        without |= set() if self.checks.cpu_seconds_a_day else {"cpu_seconds_a_day"}
        return tuple(sorted((name for name in get_args(CheckName) if name not in without), key=COSTLY.__contains__))

    def dead_letters_uri(self, lake: str) -> str:
        """Path or URI of the dead-letter table."""
        return f"{self.table_uri(lake)}_dead_letters"

    def archive_uri(self, lake: str) -> str:
        """Path or URI of the table that keeps ledger entries after a clean-up of the log."""
        return f"{self.table_uri(lake)}_ledger"

    def removed_uri(self, lake: str) -> str:
        """Path or URI of the table that keeps rows which a decision removed and Kafka no longer has."""
        return f"{self.table_uri(lake)}_removed"

    def erased_uri(self, lake: str) -> str:
        """Path or URI of the table that keeps the offsets of erased messages."""
        return f"{self.table_uri(lake)}_erased"

    def beside_uris(self, lake: str) -> tuple[str, ...]:
        """Paths or URIs of the tables that drains and decisions make beside the stream's table."""
        return self.dead_letters_uri(lake), self.archive_uri(lake), self.removed_uri(lake), self.erased_uri(lake)
