"""Makes the table of `tests/data/release_…`: what this release leaves of a stream, for later ones to go on with.

``python -m tests.data.make_release_table FOLDER`` (needs the jars of ``make setup``; the folder must not exist). The
table, its dead letters and the log of what was published are all that is kept: ten messages of two topic partitions and
two dates, some bad, some without a value, and six more of one date; a start and two drains, a checkpoint behind the
first.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory

from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from kdi_assets.runtime.broker import start_broker
from kdi_assets.runtime.launch import stop_spark
from kdi_assets.runtime.session import open_session
from kdi_assets.settings import Settings
from kdi_assets.sources.generator import Traffic, WebRequests
from kdi_assets.stream import KafkaCluster, TopicPartition
from tests.driven import DrivenStream, web_requests
from tests.kafka_log import Produced, Publisher

TOPIC = "golden"
MESSAGES = "messages.json"
PUBLISHED_AT = datetime(2026, 1, 15, 12, tzinfo=UTC)


def make(folder: Path) -> None:
    """Publish, drain, publish, drain, copy."""
    home = Path(".kdi").absolute()
    with TemporaryDirectory() as temporary:
        broker = start_broker(Path(temporary) / "broker", home=home)
        spark = open_session(Settings(home, temporary, spark_master="local[2]"))
        try:
            cluster = KafkaCluster(name="main", bootstrap_servers=broker.bootstrap_servers)
            new = NewTopic(TOPIC, num_partitions=2, replication_factor=1)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            admin.create_topics([new])[TOPIC].result(30)
            publisher = Publisher(broker.bootstrap_servers)
            web = DrivenStream(web_requests(TOPIC, cluster), f"{temporary}/lake", publisher, lambda: spark)
            _publish_and_drain(web, 10, Traffic(bad=0.3, tombstones=0.15, dates=2, seed=11))
            DeltaTable(web.uri).create_checkpoint()
            _publish_and_drain(web, 6, Traffic(dates=1, seed=1))
            web.assert_each_offset_once(publisher.flush())
            copytree(web.lake, folder, ignore=ignore_patterns("*.crc"))
            write_messages(folder / MESSAGES, publisher.flush())
        finally:
            stop_spark(spark)
            broker.stop()


def _publish_and_drain(web: DrivenStream, count: int, traffic: Traffic) -> None:
    for number, value in enumerate(WebRequests(traffic).batch(count, now=PUBLISHED_AT)):
        key, headers = f"k{number}", [("source", b"golden")]
        web.publisher.produce(TOPIC, value, key=key, partition=number % 2, headers=headers, timestamp=PUBLISHED_AT)
    web.publisher.flush()
    web.drain()


def write_messages(file: Path, messages: Sequence[Produced]) -> None:
    """Keep what was published, a line each."""
    file.write_text("".join(json.dumps(_plain(m)) + "\n" for m in messages))


def read_messages(file: Path) -> list[Produced]:
    """What was published then."""
    return [_message(json.loads(line)) for line in file.read_text().splitlines()]


def _plain(message: Produced) -> dict[str, object]:
    return {
        "partition": message.topic_partition.partition,
        "offset": message.offset,
        "key": _text(message.key),
        "value": _text(message.value),
        "headers": [[name, _text(value)] for name, value in message.headers],
        "timestamp": message.timestamp.isoformat(),
    }


def _message(plain: dict[str, object]) -> Produced:
    partition, offset, headers = plain["partition"], plain["offset"], plain["headers"]
    assert isinstance(partition, int) and isinstance(offset, int) and isinstance(headers, list)
    return Produced(
        topic_partition=TopicPartition(TOPIC, partition),
        offset=offset,
        key=_bytes(plain["key"]),
        value=_bytes(plain["value"]),
        headers=tuple((name, _bytes(value)) for name, value in headers),
        timestamp=datetime.fromisoformat(str(plain["timestamp"])),
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: object) -> bytes | None:
    return None if value is None else base64.b64decode(str(value))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
