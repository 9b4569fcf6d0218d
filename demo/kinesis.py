"""`make demo-kinesis`: a stream of Kinesis becomes a table, refined tables, and a table in PostgreSQL, on real parts.

The server of Kinesis is this project's own; Spark, Delta and PostgreSQL are real. A drain polls the shards. More
records arrive, a shard is split, and a second drain reads on by enhanced fan-out. At the end every row is compared with
what was put. Everything is gone at the end.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import boto3

from demo.kafka import daily_usage
from demo.parts import CHECKOUT, PartFailed, State, say, shown_progress, start_database, stopped_at_the_end
from demo.scene import Scene, compare, open_spark
from kdi_assets.documents.loading.loader import load_folder
from kdi_assets.documents.model.kinesis_stream import Consumer, KinesisStream
from kdi_assets.errors import KdiError
from kdi_assets.follow.serve.postgres.embedded import FOLDER
from kdi_assets.follow.serve.serve import serve
from kdi_assets.messages.kinesis.shards import id_of, list_shards
from kdi_assets.settings import Settings
from kdi_assets.streams.audit.audit import audit
from kdi_assets.tools.local.generator import Traffic, WebRequests
from kdi_assets.tools.local.kinesis.producer import put_web_requests
from kdi_assets.tools.local.kinesis.server import KinesisServer, start_kinesis

FIRST, MORE, SHARDS, BAD = 20_000, 5_000, 2, 0.01
PLACE = ("shard_id", "sequence_number", "subsequence_number")


def main() -> None:
    """Run the demo; exit code 0 if every record is exactly once a row or a dead letter."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else secrets.randbits(32)
    try:
        with stopped_at_the_end() as stack, shown_progress():
            play(stack, seed)
    except (KdiError, PartFailed) as failure:
        sys.exit(f"{failure}\nSeed: {seed}")


def play(stack: ExitStack, seed: int) -> None:
    """Two drains, one in each mode, and a split between them."""
    logs = State.of_checkout().logs  # of the checkout: the home of the parts is gone at the end
    server, database = start_parts(stack)
    settings = Settings.from_environment()
    spark = open_spark(stack, "demo-kinesis", logs)
    on = Scene(load_folder(CHECKOUT / "examples" / "kinesis"), settings.lake, spark)
    put = Records(on.stream.topic, seed)
    put.some(FIRST, shards=SHARDS)
    follow(on, server, "polling")
    put.some(MORE)
    split_first_shard(on.stream.topic)
    put.some(MORE, aggregate=True)
    follow(on, server, "efo")
    prove(on, put)
    if database:
        show_served(on, settings)


def start_parts(stack: ExitStack) -> tuple[KinesisServer, bool]:
    """The server, an empty lake and PostgreSQL, which the environment names; false: there is no PostgreSQL."""
    home = Path(stack.enter_context(TemporaryDirectory(prefix="kdi-kinesis-")))
    (home / "jars").symlink_to(Settings.from_environment().home / "jars")
    server = start_kinesis()
    stack.callback(server.stop)
    os.environ |= {**server.environment(), "KDI_HOME": str(home), "KDI_LAKE": str(home / "lake"), "KDI_DRIVER": "own"}
    os.environ.setdefault("KDI_SPARK_MASTER", "local[*]")
    say(f"Kinesis answers on {server.endpoint}")
    return server, start_database(home / FOLDER, str(home / "lake"), stack)


class Records:
    """What was put into the stream.

    Attributes:
        good: The uuid of each message that must become a row.
        bad: The number of the others.
    """

    def __init__(self, stream: str, seed: int) -> None:
        self._stream, self._seed = stream, seed
        self.good: list[str] = []
        self.bad = 0

    def some(self, count: int, *, shards: int | None = None, aggregate: bool = False) -> None:
        """Put more, of 3 dates, some of them bad; the uuids of messages that are not damaged are known by the seed."""
        traffic = Traffic(bad=BAD, seed=self._seed)
        self._seed += 1
        done = put_web_requests(self._stream, traffic, count=count, aggregate=aggregate, shards=shards)
        inside = f" in {done.records} aggregates" if aggregate else ""
        say(f"put {done.user_records:,} messages into {self._stream}{inside}")
        now = datetime.now(UTC)
        undamaged = WebRequests(replace(traffic, bad=0)).batch(count, now=now)
        pairs = zip(undamaged, WebRequests(traffic).batch(count, now=now), strict=True)
        good = [json.loads(value)["uuid"] for value, as_put in pairs if value and value == as_put]
        self.good += good
        self.bad += done.user_records - len(good)


def split_first_shard(stream: str) -> None:
    """Split it in the middle of its hash keys; it still has records that were not read."""
    client = boto3.client("kinesis")
    first = list_shards(client, stream)[0]
    client.split_shard(
        StreamName=stream, ShardToSplit=id_of(first.number), NewStartingHashKey=str(sum(first.hash_keys) // 2)
    )
    say(f"split {id_of(first.number)}: {', '.join(id_of(shard.number) for shard in list_shards(client, stream))}")


def follow(on: Scene, server: KinesisServer, mode: Literal["polling", "efo"]) -> None:
    """Drain in this mode, and refine what came."""
    (stream,) = on.tables.streams.values()
    if not isinstance(stream, KinesisStream):
        raise PartFailed(f"{stream.name} is not a table of Kinesis")
    before = server.calls("SubscribeToShard")
    in_mode = replace(stream, consumer=Consumer(mode=mode))
    replace(on, tables=replace(on.tables, streams={stream.name: in_mode})).follow()
    subscribed = server.calls("SubscribeToShard") - before
    if (mode == "efo") != (subscribed > 0):
        raise PartFailed(f"{mode}, and {subscribed} subscriptions")
    say(f"read by enhanced fan-out: {subscribed} subscriptions" if subscribed else "read by polling")


def prove(on: Scene, put: Records) -> None:
    """Compare the rows with what was put, one by one, and the dead letters by their number.

    Raises:
        PartFailed: A message is missing or twice, or the audit found a mistake.
    """
    rows = on.rows(on.stream.table)
    places = {tuple(row["kinesis"][part] for part in PLACE) for row in rows}
    report = audit(on.stream, lake=on.lake, session=lambda: on.spark)
    say(report.line())
    if not report.complete:
        raise PartFailed("the audit is not complete")
    compare(f"{len(put.good) + put.bad:,} messages put", report.rows + report.dead_letters, len(put.good) + put.bad)
    compare(f"uuids of {len(rows):,} rows", Counter(row["uuid"] for row in rows), Counter(put.good))
    compare("places of the rows on the stream", len(places), len(rows))


def show_served(on: Scene, settings: Settings) -> None:
    """Serve gold, and print what PostgreSQL has."""
    for served in on.tables.served.values():
        done = serve(served, lake=on.lake, session=lambda: on.spark)
        say(f"{done.target}: {done.upserted} rows upserted")
    usage = daily_usage(settings)
    for day, requests, sessions, rate in usage:
        say(f"{day}: {requests:,} requests in {sessions:,} sessions, {rate:.1%} of them errors")
    by_date = Counter(str(row["date"]) for row in on.rows(on.stream.table))
    compare("requests in PostgreSQL", {day: requests for day, requests, _, _ in usage}, dict(by_date))


if __name__ == "__main__":
    main()
