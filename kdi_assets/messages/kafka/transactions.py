"""Transactions of a Kafka producer: several messages, all of them or none, from one producer of a name at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.access import authorization_error
from kdi_assets.messages.kafka.client import ClientErrors, client_config
from kdi_assets.messages.source import REQUEST_SECONDS

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

TRANSACTION_SECONDS = 20
"""The brokers abort the transaction of a process that died after so long; until then it hides later messages."""
_CONFIG = {
    "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
    "delivery.timeout.ms": int(REQUEST_SECONDS * 1000),
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # the Java client's: messages of one key stay in one topic partition
}


class NotSent(Exception):
    """The brokers did not take the messages, or nobody knows; the text is the client's."""


class AnotherProducerActive(Exception):
    """A later producer of the same name has begun, and the brokers refuse this one since."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send."""

    topic: str
    key: str
    value: str


class Transactions:
    """Sends messages in transactions."""

    def __init__(self, producer: Producer, errors: ClientErrors, topic: str) -> None:
        self._producer, self._errors, self._topic = producer, errors, topic

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send all messages in one transaction.

        If the answer to the commit is lost, the messages may be there.

        Raises:
            NotSent, AnotherProducerActive, AccessRefused: They are not sent, or nobody knows.
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
        """From now on no other producer of the name can commit, and what they had open is aborted.

        Raises:
            NotSent, AnotherProducerActive, AccessRefused: The brokers do not answer, or refuse.
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
            if isinstance(error, NotSent):
                self._producer.poll(0)
                self._errors.refuse(answer_came_late=True)
            raise error from refused

    def _error(self, refused: Exception) -> NotSent | AnotherProducerActive | KdiError:
        from confluent_kafka import KafkaError

        error: KafkaError | None = refused.args[0] if refused.args and isinstance(refused.args[0], KafkaError) else None
        if error and error.code() in _fenced():
            return AnotherProducerActive(error.str())
        if error and error.code() in _unauthorized():
            return authorization_error(self._errors.cluster, f"Write on {self._topic}: {error.str()}")
        return NotSent(error.str() if error else str(refused))


@contextmanager
def open_transactions(cluster: Cluster, topic: str, *, name: str) -> Iterator[Transactions]:
    """A transactional producer, not begun yet.

    Args:
        topic: The topic that an error about a missing right names.
        name: The transactional id: of the producers with one name, only the last that has begun can commit.
    """
    from confluent_kafka import Producer

    errors = ClientErrors(cluster)
    producer = Producer(client_config(cluster, **{"transactional.id": name, "error_cb": errors, **_CONFIG}))
    try:
        yield Transactions(producer, errors, topic)
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
