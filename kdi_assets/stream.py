"""The typed description of a stream: one topic feeding one table. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import Literal, NamedTuple, get_args

from kdi_assets.message_format import AvroContainer, Compression, Format, Framed, Json, SchemaRegistry
from kdi_assets.message_rules import (
    Contract,
    DeadLetterLimit,
    DeadLetterPayload,
    Expectation,
    Explode,
    Mask,
    Route,
    TombstonePolicy,
)


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


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
class KafkaCluster:
    """Brokers and how to speak to them.

    ``properties`` are librdkafka's client properties (``security.protocol``, ``sasl.username``, …); the Spark source
    gets their Java form.
    """

    name: str
    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DateWindow:
    """Event dates that rows may have: ``[start, today + ahead_days]``, both inclusive, in UTC."""

    start: date = date(2020, 1, 1)
    ahead_days: int = 2

    def last(self, now: datetime) -> date:
        """The last date allowed at ``now``; a plan pins ``now``, so that a retry judges the same way."""
        return now.astimezone(UTC).date() + timedelta(days=self.ahead_days)


@dataclass(frozen=True, slots=True)
class DrainWhen:
    """When a sensor starts a run: as soon as one of the limits is reached; ``None`` is no limit.

    Attributes:
        backlog_bytes: Keys and values that wait, uncompressed.
        cron: Times (UTC) at which whatever waits is drained.
        time_to_loss_seconds: Always a limit, and one that neither waits for the gap nor for a cron.
        min_gap_seconds: From one request to the next, so that files do not get small.
    """

    backlog_messages: int | None = 1000
    lag_seconds: float | None = 60
    backlog_bytes: int | None = None
    cron: str | None = None
    time_to_loss_seconds: float = 3600
    min_gap_seconds: float = 10

    def patience_seconds(self, now: datetime) -> float | None:
        """How long a message may have to wait; ``None`` if no limit speaks of time."""
        waits = [self.lag_seconds, longest_interval(self.cron, now) if self.cron else None]
        told = [wait for wait in waits if wait is not None]
        return min(told) + self.min_gap_seconds if told else None


def longest_interval(cron: str, now: datetime) -> float:
    """Seconds between the times of a cron expression, the longest among the next fifty: it may spare weekends."""
    from croniter import croniter

    times = islice(croniter(cron, now).all_next(float), 50)
    return max(after - before for before, after in pairwise(times))


def last_time(cron: str, now: datetime) -> datetime:
    """The last time of a cron expression at or before ``now`` (UTC)."""
    from croniter import croniter

    # From a moment later: asked at such a time itself, it answers the one before.
    last: datetime = croniter(cron, now.astimezone(UTC) + timedelta(microseconds=1)).get_prev(datetime)
    return last


Status = Literal["active", "paused", "retired"]
"""``paused``: no sensor starts a run; ``retired``: nothing is ever drained again, the table stays as it is."""


@dataclass(frozen=True, slots=True)
class FreshnessLimits:
    """How old a message may be that is not in the table yet: from ``warn_seconds`` on it is late, then it fails."""

    warn_seconds: float
    fail_seconds: float


CheckName = Literal[
    "every_offset_accounted_for",
    "no_duplicate_coordinates",
    "schema_as_declared",
    "positions_never_go_back",
    "dead_letter_rate",
    "dates_in_window",
    "backlog_after_drain",
    "table_health",
    "expectations",
    "fresh",
]
"""The checks of a table; the first three need Spark."""
COSTLY: tuple[CheckName, ...] = ("every_offset_accounted_for", "no_duplicate_coordinates", "schema_as_declared")
"""They need Spark, and the first reads the whole table."""
READING_ROWS: tuple[CheckName, ...] = ("every_offset_accounted_for", "no_duplicate_coordinates")


@dataclass(frozen=True, slots=True)
class Checks:
    """What the stream asks of its checks.

    Attributes:
        blocking: A run in which one of these finds an error fails, and nothing is built on the table.
        dead_letter_rate: Share of dead letters among the messages of a day, above which the check warns.
    """

    blocking: tuple[CheckName, ...] = ("every_offset_accounted_for",)
    dead_letter_rate: float = 0.01


StartPolicy = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""Where a stream without positions begins: a word, a point in time, or the next offset of topic partitions by number;
one that is not named begins at its earliest."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One topic feeding one Delta table.

    Attributes:
        table: Path below the lake's root, e.g. ``bronze/web_requests``; it also names the stream and its asset.
        record_ddl: Spark DDL of the message's record, verbatim; empty where the format says what the record is.
        columns: Target path (dots nest) to a Spark SQL expression over the record's fields and the ``kafka`` struct.
        filter: Spark SQL condition over the same names; a message for which it is not true becomes no row and no
            dead letter. Empty: every message is kept.
        route: Which messages of a topic that other streams share are this one's; ``None``: all of them.
        explode: What of a message becomes rows; none: the message itself is one.
        tombstones: What becomes of messages without a value.
        mask: Column (dots nest) to what stands there in place of its value; expressions see the value.
        dead_letter_payload: What dead letters hold of the message; by default nothing that is to be masked.
        expectations: What is expected of every message that is to be a row, by name.
        dead_letter_limit: Beyond it a drain stops before anything is committed.
        contract: What becomes of messages that are other than the record.
        rescued: Column that keeps, as JSON, what of a message did not fit its record; empty: none does.
        coordinates: Path of the struct column that keeps topic, partition, offset and timestamp of every row.
        date_expression: Spark SQL that gives the row's date (UTC), over the same names as ``columns``.
        app_id: Prefix of the ledger's transaction ids in the table's log.
        renamed_from: The path that the table had before; empty: none.
        max_records: At most so many offsets in one plan, gaps included, over all topic partitions.
        max_bytes: At most so many bytes of keys and values in one plan, uncompressed, by estimate; ``None``: as many as
            there are.
        target_file_size: Bytes of the files that a drain writes; ``None``: a file for each task and date.
        properties: Table properties set when the table is created.
    """

    topic: str
    table: str
    record_ddl: str
    date_expression: str
    cluster: KafkaCluster
    columns: Mapping[str, str] = field(default_factory=dict)
    filter: str = ""
    explode: Explode | None = None
    coordinates: str = "kafka"
    date_window: DateWindow = DateWindow()
    app_id: str = ""
    start: StartPolicy = "earliest"
    drain_when: DrainWhen = DrainWhen()
    status: Status = "active"
    freshness: FreshnessLimits | None = None
    checks: Checks = Checks()
    tombstones: TombstonePolicy = "skip"
    mask: Mapping[str, Mask] = field(default_factory=dict)
    dead_letter_payload: DeadLetterPayload | None = None
    expectations: Mapping[str, Expectation] = field(default_factory=dict)
    dead_letter_limit: DeadLetterLimit = DeadLetterLimit()
    contract: Contract = Contract()
    rescued: str = ""
    renamed_from: str = ""
    max_records: int = 5_000_000
    max_bytes: int | None = None
    target_file_size: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    owners: tuple[str, ...] = ()
    format: Format = Json()
    compression: Compression = "none"
    route: Route | None = None

    def __post_init__(self) -> None:
        if not self.app_id:
            object.__setattr__(self, "app_id", self.topic)  # frozen: the one place where a default depends on a field

    @property
    def name(self) -> str:
        """The stream's name in commands, messages and metadata: the table's path."""
        return self.table

    @property
    def route_group(self) -> tuple[str, str] | None:
        """Cluster and topic that the stream shares by its route: the same of a whole group; ``None``: it has none."""
        return (self.cluster.name, self.topic) if self.route else None

    @property
    def registry(self) -> SchemaRegistry | None:
        """Where the schemas of the topic's messages are kept; none: nowhere that we ask."""
        return self.format.schemas.registry if isinstance(self.format, Framed) else None

    @property
    def explodes(self) -> bool:
        """Whether a message may become several rows."""
        return self.explode is not None or isinstance(self.format, AvroContainer)

    @property
    def start_offsets(self) -> dict[TopicPartition, int]:
        """The next offsets that an explicit start names; none under another policy."""
        given = self.start if isinstance(self.start, Mapping) else {}
        return {TopicPartition(self.topic, number): given[number] for number in sorted(given)}

    def patience_seconds(self, now: datetime) -> float | None:
        """How long the stream lets a message wait; ``None`` if it says nothing about time, or is paused."""
        return self.drain_when.patience_seconds(now) if self.status == "active" else None

    @property
    def check_names(self) -> tuple[CheckName, ...]:
        """The checks that can be made of the stream: of a retired one, those that ask no broker.

        The costly ones last: they take as long as the table is large, and the others judge how things stand now.
        """
        without = {"fresh", "backlog_after_drain"} if self.status == "retired" else set()
        without |= set() if self.freshness else {"fresh"}
        without |= set() if self.expectations else {"expectations"}
        return tuple(sorted((name for name in get_args(CheckName) if name not in without), key=COSTLY.__contains__))

    def table_uri(self, lake: str) -> str:
        """Where the table lies below the lake's root, a path or URI."""
        return f"{lake.rstrip('/')}/{self.table}"

    def former_uri(self, lake: str) -> str:
        """Where the table lay before it was renamed."""
        return f"{lake.rstrip('/')}/{self.renamed_from}"

    def dead_letters_uri(self, lake: str) -> str:
        """Where the stream's dead letters lie."""
        return f"{self.table_uri(lake)}_dead_letters"

    def archive_uri(self, lake: str) -> str:
        """Where what the table's log said is kept beyond its clean-up."""
        return f"{self.table_uri(lake)}_ledger"

    def beside_uris(self, lake: str) -> tuple[str, ...]:
        """Where tables may lie that drains and decisions make beside the stream's own."""
        return self.dead_letters_uri(lake), self.archive_uri(lake), f"{self.table_uri(lake)}_removed"
