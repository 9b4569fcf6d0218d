"""Kafka as a source: its topics by librdkafka on the driver, its messages by Java's client on the executors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import Cluster, OffsetRange, TopicPartition
from kdi_assets.documents.model.stream_fields import StartPolicy
from kdi_assets.errors import KdiError
from kdi_assets.messages.held import Again, Held
from kdi_assets.messages.kafka import messages, reader, topic_config
from kdi_assets.messages.kafka import topic as kafka
from kdi_assets.messages.kafka.client import broker_unreachable
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.messages.kafka.watch import KafkaWatch
from kdi_assets.messages.recorded import RecordedEntry, RecordedState
from kdi_assets.messages.shard_bookmarks import Bookmark, Loss
from kdi_assets.messages.source import LEADER_SECONDS, REQUEST_SECONDS, again_by
from kdi_assets.messages.topic_state import AtPosition, LastRead, Retention, TopicState, Waiting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """The topics of a cluster; the methods are those of ``Source``."""

    cluster: Cluster

    def topic(self, name: str) -> TopicState:
        return kafka.read_topic(self.cluster, name)

    def topics(
        self, names: Collection[str], *, leader_seconds: float = LEADER_SECONDS
    ) -> dict[str, TopicState | KdiError]:
        return kafka.read_topics(self.cluster, names, leader_seconds=leader_seconds)

    def topic_id(self, name: str) -> str:
        try:
            return self.topic(name).topic_id
        except BrokerUnreachable:  # brokers gave the messages just now; a new client asks another one than the dead one
            return self.topic(name).topic_id

    def offsets_at(self, topic: TopicState, moment: datetime) -> dict[TopicPartition, int]:
        return kafka.offsets_at(self.cluster, topic, moment)

    def first_bookmarks(self, topic: TopicState, start: StartPolicy) -> Mapping[TopicPartition, Bookmark]:
        return {}

    def bookmarks_at_creation(self, topic: TopicState) -> Mapping[TopicPartition, Bookmark]:
        return {}

    def waiting(self, topic: TopicState, ledger: RecordedState) -> Waiting:
        return Waiting()

    def losses(self, topic: TopicState, ledger: RecordedState) -> Mapping[TopicPartition, Loss]:
        return {}

    def watch(self) -> KafkaWatch:
        return KafkaWatch(self.cluster)

    def around(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        before: Mapping[TopicPartition, LastRead] | None = None,
        seconds: float = REQUEST_SECONDS,
        committed: bool = True,
    ) -> dict[TopicPartition, AtPosition]:
        offsets = {tp: message.offset for tp, message in (before or {}).items()}
        return messages.around_positions(self.cluster, positions, before=offsets, seconds=seconds, committed=committed)

    def last_messages(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, LastRead]:
        return messages.last_messages(self.cluster, ranges)

    def sampled_bytes(self, positions: Mapping[TopicPartition, int]) -> float | None:
        return messages.sampled_bytes(self.cluster, positions)

    @contextmanager
    def hold(
        self, session: Callable[[], SparkSession], topic: TopicState, ledger: RecordedState, *, most: int
    ) -> Iterator[Held]:
        yield Held(topic)  # offsets are known before their messages are read

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        return reader.read_ranges(spark, self.cluster, ranges)

    def again(self, topic: TopicState, ranges: Sequence[OffsetRange], entries: Iterable[RecordedEntry]) -> Again:
        return again_by(self, topic)

    def way_back(self, topic: TopicState, entries: Sequence[RecordedEntry]) -> None:
        return None

    def failure(self, root: str) -> None:
        return None

    def can_have_gaps(self, topic: str) -> bool:
        return topic_config.can_have_gaps(self.cluster, topic)

    def message_in(
        self, ranges: Mapping[TopicPartition, Iterable[OffsetRange]], *, seconds: float = REQUEST_SECONDS
    ) -> tuple[TopicPartition, int] | None:
        return messages.message_in(self.cluster, ranges, seconds=seconds)

    def first_unreadable(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        return messages.first_unreadable(self.cluster, ranges)

    def retention(self, names: Collection[str]) -> dict[str, Retention]:
        return topic_config.read_retention(self.cluster, names)

    def unanswered(self, detail: str) -> KdiError:
        return broker_unreachable(self.cluster, detail)
