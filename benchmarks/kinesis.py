"""The benchmark's own server of Kinesis, in a process of its own, and streams that are filled in steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import IO, Any, cast

from benchmarks.contents import CONTENTS
from benchmarks.topic import PARTITIONS, Topic
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.kinesis_stream import Consumer, KinesisStream
from kdi_assets.documents.model.stream import Stream
from kdi_assets.tools.local.kinesis.server import start_kinesis

BATCH = 500  # entries of PutRecords
MOST_BYTES = 4 << 30
HASH_KEYS = 1 << 128


@contextmanager
def benchmark_kinesis() -> Iterator[None]:
    """A server; the environment leads this process and those it starts to it."""
    command = [sys.executable, "-m", "benchmarks.kinesis"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        os.environ |= json.loads(cast(IO[str], process.stdout).readline())
        yield
        process.communicate()  # no more input: it ends


def serve() -> None:
    """The server's process: it says how to reach it, and ends with its input."""
    server = start_kinesis(most_bytes=MOST_BYTES)
    sys.stdout.write(json.dumps(server.environment()) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()


def of_kinesis(stream: Stream, content: str) -> KinesisStream:
    """The same stream, if its messages are records of Kinesis."""
    given = {field.name: getattr(stream, field.name) for field in fields(stream) if field.init}
    of_source = {"cluster": KinesisRegion("main", os.environ["AWS_REGION"]), "coordinates": "kinesis"}
    return KinesisStream(**given | of_source, consumer=Consumer(CONTENTS[content].consumer or "polling"))


class KinesisTopic(Topic):
    """A stream; its shards take the same messages as the topic partitions of a topic."""

    def publish(self, count: int) -> None:
        """Put this many messages, in turn into all shards."""
        for values in self._batches(count):
            for shard in range(PARTITIONS):
                whole = [self._entry(value, shard) for value in values[shard::PARTITIONS] if value is not None]
                for start in range(0, len(whole), BATCH):
                    batch = whole[start : start + BATCH]
                    if self._client.put_records(StreamName=self.name, Records=batch)["FailedRecordCount"]:
                        sys.exit("the server of Kinesis keeps no more records")

    def _entry(self, value: bytes, shard: int) -> dict[str, Any]:
        return {"Data": value, "PartitionKey": "1", "ExplicitHashKey": str(HASH_KEYS // PARTITIONS * shard)}

    def _create(self) -> None:
        import boto3

        self._client: Any = boto3.client("kinesis")
        self._client.create_stream(StreamName=self.name, ShardCount=PARTITIONS)


if __name__ == "__main__":
    serve()
