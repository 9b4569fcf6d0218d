"""The real parts of a walk over decisions: its own Kafka broker, Spark, Delta and the engine."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from kdi_assets.delta import single_commit
from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import Cluster, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.topic import read_topic
from kdi_assets.messages.topic_state import BrokerOffsets
from kdi_assets.operate.upkeep.expiry import expire
from kdi_assets.operate.upkeep.unconsumed import Followers
from kdi_assets.streams.ledger.positions import read_ledger
from kdi_assets.streams.resolve.resolve import Action
from kdi_assets.tools.local.broker import Broker
from tests.driven import DrivenStream, web_requests
from tests.faults.chaos.decisions import BEFORE
from tests.faults.chaos.model import MOST_DAYS, Message, Model, Refused
from tests.kafka_log import Publisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = '{"meta":{"producer":{"timestamp":"%sT00:00:00Z"}},"url":"https://a.b/%d"}'
BAD = "{bad %s %d"


class Died(BaseException):
    """Ends a drain or a decision."""


class KafkaAndDelta:
    """One topic and its table.

    Args:
        broker: For this walk only: it is killed when a log loses its end.
    """

    def __init__(self, broker: Broker, topic: str, lake: str, session: Callable[[], SparkSession], *, partitions: int):
        main = Cluster(name="main", bootstrap_servers=broker.bootstrap_servers)
        stream = web_requests(topic, main, keep_days=MOST_DAYS)
        self._broker, self._stream = broker, stream
        self._web = DrivenStream(stream, lake, Publisher(broker.bootstrap_servers), session)
        self._sizes: dict[tuple[int, int], int] = {}  # of the log file before each message
        self._earliest: dict[int, int] = {}
        self._admin: AdminClient
        self._versions = {0: 0}
        self._create(partitions)

    def produce(self, messages: Sequence[Message]) -> None:
        """One by one, so that each is in its own batch, at a known position of the file."""
        options = {"linger.ms": 0, "log_level": 0, "acks": "all"}
        producer = Producer({"bootstrap.servers": self._broker.bootstrap_servers, **options})
        for message in messages:
            self._sizes[message.partition, message.offset] = self._log_file(message.partition).stat().st_size
            at = datetime.now(UTC) - timedelta(days=message.age)
            value = (BAD if message.bad else GOOD) % (at.date(), message.number)
            timestamp = int(at.timestamp() * 1000)
            producer.produce(self._stream.topic, value, partition=message.partition, timestamp=timestamp)
            assert producer.flush(30) == 0
        ends = {tp.partition: held.high_watermark for tp, held in self._held().items()}
        assert all(m.offset < ends[m.partition] for m in messages), f"{messages} are not in {ends}"

    def add_partition(self) -> None:
        """Wait until every client knows of it."""
        more = len(self._held()) + 1
        topic = self._stream.topic
        self._admin.create_partitions([NewPartitions(topic, more)])[topic].result(30)
        self._await(lambda: len(self._held()) == more)

    def delete_before(self, partition: int, offset: int) -> None:
        """Retention, accelerated."""
        self._earliest[partition] = offset
        gone = RdPartition(self._stream.topic, partition, offset)

        def deleted() -> bool:
            try:
                next(iter(self._admin.delete_records([gone]).values())).result(30)
            except KafkaException:  # the client does not know the leader of a new topic or broker
                self._admin = self._client()
                return False
            return True

        self._await(deleted)

    def truncate(self, partition: int, offset: int) -> None:
        """Kill the broker, truncate its file and start it again."""
        size = self._sizes.get((partition, offset))
        file = self._log_file(partition)
        self._broker.kill()
        if size is not None:
            with file.open("r+b") as log:
                log.truncate(size)
        for pattern in ("*.index", "*.timeindex", "*.snapshot"):
            for derived in file.parent.glob(pattern):
                derived.unlink()
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (file.parent.parent / name).unlink(missing_ok=True)
        self._broker.restart()
        tp = TopicPartition(self._stream.topic, partition)
        self._await(lambda: self._held()[tp].end == offset)
        for number, earliest in self._earliest.items():  # a killed broker may not have stored that yet
            self.delete_before(number, earliest)

    def recreate(self, partitions: int) -> None:
        """Delete the topic and create it again."""
        topic = self._stream.topic
        before = read_topic(self._stream.kafka, topic).topic_id
        self._admin.delete_topics([topic])[topic].result(30)
        self._sizes.clear()
        self._earliest.clear()
        self._create(partitions)
        self._await(lambda: read_topic(self._stream.kafka, topic).topic_id != before)

    def restore(self, version: int) -> None:
        """RESTORE to the model's version."""
        DeltaTable(self._web.uri).restore(self._versions[version])

    def drain(self, *, dies: str = "") -> None:
        """Raises ``Refused`` as the engine does."""
        with _refusals(), _dying(dies):
            self._web.drain()

    def expire(self, keep: int, *, dies: str = "") -> bool:
        """What is older than so many days leaves.

        Returns:
            Whether it waits for a drain.
        """
        self._web.stream = replace(self._web.stream, keep_days=keep)
        nobody = Followers((), (), Path())
        ending = partial(
            expire, self._web.stream, self._web.lake, nobody, session=self._web.session, now=datetime.now(UTC)
        )
        done = None
        with _dying(dies):
            done = ending()
        if dies != BEFORE:
            done = ending()  # after a death behind the commit, the letters leave now
            assert self._web.audit().complete or (done and done.waits_for)
        return bool(done and done.waits_for)

    def accept_loss(self, *, dies: str = "") -> None:
        """Give up the offsets that the engine proposes."""
        self._decide("accept-loss", dies)

    def rewind(self, partition: int, offset: int, *, dies: str = "") -> None:
        """Set a position back."""
        self._decide("rewind", dies, topic_partition=TopicPartition(self._stream.topic, partition), to=offset)

    def new_topic(self, *, dies: str = "") -> None:
        """Continue with the recreated topic."""
        self._decide("new-topic", dies)

    def _decide(self, action: Action, dies: str, **target: Any) -> None:
        with _refusals(), _dying(dies):
            self._web.resolve(action, because="a walk", **target)

    def assert_is(self, model: Model, *, drained: bool) -> None:
        """Compare with the model: rows, positions, removed rows; after a drain the dead letters too."""
        if not model.versions:
            return
        self._versions[len(model.versions) - 1] = self._web.version()
        topic = read_topic(self._stream.kafka, self._stream.topic)
        ledger = read_ledger(
            self._stream, self._web.lake, topic_id=topic.topic_id, topic_partitions=len(topic.partitions)
        )
        assert ledger is not None
        table = model.table
        positions = {tp.partition: at for tp, at in ledger.positions.items() if at}
        assert positions == {p: at for p, at in table.ledger.positions.items() if at}, "positions"
        found = self._web.found()
        assert sorted(_number(row["url"]) for row in found.rows) == sorted(m.number for m in table.rows), "rows"
        assert set(self._removed()) >= {m.number for m in model.removed}, "rows that were the only copies"
        if drained:
            letters = sorted(_number(letter["value"].decode()) for letter in found.dead_letters)
            assert letters == sorted(m.number for m in table.letters), "dead letters"

    def _held(self) -> Mapping[TopicPartition, BrokerOffsets]:
        return read_topic(self._stream.kafka, self._stream.topic).partitions

    def _removed(self) -> list[int]:
        try:
            table = DeltaTable(self._stream.removed_uri(self._web.lake))
        except TableNotFoundError:
            return []
        return [_number(url) for url in table.to_pyarrow_table(columns=["url"])["url"].to_pylist()]

    def _client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._broker.bootstrap_servers, "log_level": 0})

    def _create(self, partitions: int) -> None:
        topic = self._stream.topic
        self._admin = self._client()  # the old client takes leaders of the former topic for those of the new one

        def created() -> bool:
            new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
            try:
                self._admin.create_topics([new])[topic].result(30)
            except KafkaException:
                return False  # still being deleted
            return True

        self._await(created)
        self._await(lambda: len(self._held()) == partitions)

    def _log_file(self, partition: int) -> Path:
        return max(self._broker.data.rglob(f"{self._stream.topic}-{partition}/*.log"))

    def _await(self, happened: Callable[[], bool]) -> None:
        until = time.monotonic() + 30
        while True:
            with suppress(KdiError):  # the broker does not know it yet
                if happened():
                    return
            assert time.monotonic() < until, "the broker did not come that far in 30 s"
            time.sleep(0.1)


def _number(text: str) -> int:
    found = re.search(r"(\d+)\D*$", text)
    assert found, text
    return int(found[1])


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KdiError as refusal:
        raise Refused(type(refusal).__name__) from refusal


@contextmanager
def _dying(dies: str) -> Iterator[None]:
    """End a drain or a decision just before or just after its commit."""
    send = vars(single_commit)["send_commit"]

    def dying(spark: SparkSession, transaction: Any, staged: Staged, user_metadata: str) -> int:
        dies_here = dies and json.loads(user_metadata)["kind"] in ("drain", "resolve", "expire")
        if dies_here and dies == BEFORE:
            raise Died
        version = int(send(spark, transaction, staged, user_metadata))
        if dies_here:
            raise Died
        return version

    with patch.object(single_commit, "send_commit", dying), suppress(Died):
        yield
