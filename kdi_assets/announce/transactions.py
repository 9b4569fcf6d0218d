"""Transactions of a Kafka producer: several messages, all of them or none, from one announcer of a table at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.announce.errors import AnotherAnnouncerActive, NotAnnounced
from kdi_assets.sources.kafka.access import authorization_error
from kdi_assets.sources.kafka.client import REQUEST_SECONDS, ClientErrors, client_config
from kdi_assets.stream.stream import Cluster, Stream

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

TRANSACTION_SECONDS = 20
"""The brokers abort the transaction of a process that died after so long; until then it hides later messages."""
_CONFIG = {
    "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
    "delivery.timeout.ms": int(REQUEST_SECONDS * 1000),
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # the Java client's: a table's announcements stay in one topic partition
}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send."""

    topic: str
    key: str
    value: str


class Transactions:
    """Sends messages in transactions. Raises ``AnotherAnnouncerActive`` once another process has begun to announce."""

    def __init__(self, producer: Producer, errors: ClientErrors, stream: Stream, topic: str) -> None:
        self._producer, self._errors, self._stream, self._topic = producer, errors, stream, topic

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send all messages in one transaction.

        If the answer to the commit is lost, the messages may be there: the next announcer reads the bookmark.

        Raises:
            NotAnnounced, AnotherAnnouncerActive, AccessRefused: They are not sent, or nobody knows.
        """
        with self._translated():
            self._producer.begin_transaction()
            try:
                for message in messages:
                    self._producer.produce(message.topic, message.value.encode(), message.key.encode())
                    self._producer.poll(0)
                self._producer.commit_transaction(REQUEST_SECONDS)
            except BaseException:
                with suppress(Exception):  # the broker aborts it too, only later
                    self._producer.abort_transaction(REQUEST_SECONDS)
                raise

    def begin(self) -> None:
        """From now on no other announcer of the table can commit, and what they had open is aborted.

        Raises:
            NotAnnounced, AnotherAnnouncerActive, AccessRefused: The brokers do not answer, or refuse.
        """
        with self._translated():
            self._producer.init_transactions(REQUEST_SECONDS)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except (KafkaException, BufferError) as refused:
            error = self._error(refused)
            if isinstance(error, NotAnnounced):
                self._producer.poll(0)
                self._errors.refuse(answer_came_late=True)
            raise error from refused

    def _error(self, refused: Exception) -> Exception:
        from confluent_kafka import KafkaError

        error: KafkaError | None = refused.args[0] if refused.args and isinstance(refused.args[0], KafkaError) else None
        stream, topic = self._stream.name, self._topic
        if error and error.code() in _fenced():
            return AnotherAnnouncerActive(stream=stream, topic=topic)
        if error and error.code() in _unauthorized():
            return authorization_error(self._errors.cluster, f"Write on {topic}: {error.str()}")
        return NotAnnounced(stream=stream, topic=topic, detail=error.str() if error else str(refused))


@contextmanager
def transactions(stream: Stream, cluster: Cluster, topic: str) -> Iterator[Transactions]:
    """A transactional producer of a table's announcements, not begun yet."""
    from confluent_kafka import Producer

    errors = ClientErrors(cluster)
    own = {"transactional.id": f"kdi-announce-{topic}-{stream.name}", "error_cb": errors, **_CONFIG}
    producer = Producer(client_config(cluster, **own))
    try:
        yield Transactions(producer, errors, stream, topic)
    finally:
        producer.purge()


def _fenced() -> tuple[int, ...]:
    from confluent_kafka import KafkaError

    return (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


def _unauthorized() -> tuple[int, ...]:
    from confluent_kafka import KafkaError

    return (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
