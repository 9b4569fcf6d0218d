"""What a tick costs with many idle streams of Kinesis: calls by operation, seconds, what is known.

The streams are on a server of ours in this process, which refuses what is over the limits of calls as AWS does; its
seconds count too.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import boto3

from benchmarks.harness import console, option_parser, own_folder
from benchmarks.idle_streams import first_commit
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.kinesis.source import KinesisSource
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader
from kdi_assets.tools.local.kinesis.server import KinesisServer, start_kinesis

OPERATIONS = ("GetRecords", "GetShardIterator", "ListShards", "DescribeStreamSummary")
TICK_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the streams, and look at them at each tick."""
    parser = option_parser("idle_kinesis", __doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("--empty-pages", type=int, default=0, help="Empty answers of each shard before its end.")
    options = parser.parse_args(arguments)
    with own_folder("idle_kinesis") as folder:
        server = start_kinesis()
        os.environ.update(server.environment())
        try:
            streams = idle_streams(server, options.streams, options.shards, lake=folder)
            server.behaviour.empty_pages = options.empty_pages
            measure(server, streams, lake=str(folder), ticks=options.ticks)
        finally:
            server.stop()


def idle_streams(server: KinesisServer, count: int, shards: int, *, lake: Path) -> list[Stream]:
    """Streams without records, each with a table that has begun to read it."""
    connection, client = KinesisRegion("main", "us-east-1", server.endpoint), boto3.client("kinesis")
    streams = []
    for number in range(count):
        name = f"stream_{number}"
        client.create_stream(StreamName=name, ShardCount=shards)
        stream = Stream(name, f"bronze/table_{number}", "id bigint", "current_date()", connection)
        topic_id = KinesisSource(connection).topic_id(name)
        log = Path(stream.table_uri(str(lake))) / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, first_commit(stream, topic_id))))
        streams.append(stream)
        server.advance(0.1)  # an account has twenty summaries a second
    server.advance(60)
    return streams


def measure(server: KinesisServer, streams: Sequence[Stream], *, lake: str, ticks: int) -> None:
    """Look every five seconds, as the lag sensor does."""
    look, before, all_known = BacklogReader(leader_seconds=0.0), counts(server), None
    for number in range(ticks):
        began, spent = time.monotonic(), time.process_time()
        found = look(streams, lake=lake)
        seconds, spent = time.monotonic() - began, time.process_time() - spent
        calls, before = {name: n - before[name] for name, n in counts(server).items()}, counts(server)
        known, refused = sum(one.known for one in found), sum(one.refusal is not None for one in found)
        text = ", ".join(f"{name} {n}" for name, n in calls.items())
        console.print(f"tick {number}: {seconds:.2f} s, {spent:.2f} CPU s; {known} known, {refused} refused; {text}")
        all_known = number if all_known is None and known == len(streams) else all_known
        time.sleep(max(0.0, TICK_SECONDS - seconds))
    console.print(f"all known at tick {all_known}")


def counts(server: KinesisServer) -> dict[str, int]:
    """The calls so far by operation, also of those refused."""
    return {name: server.calls(name) for name in OPERATIONS}


if __name__ == "__main__":
    main()
