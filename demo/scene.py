"""What an example plays on: a broker, an empty lake and one Spark session, which end with it; no Dagster."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from demo.parts import CHECKOUT, PartFailed, State, say, shown_progress, stopped_at_the_end, temporary_lake
from kdi_assets.documents.loading.loader import LoadedFolder, load_folder
from kdi_assets.documents.loading.refined_documents import upstream_first
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.entry import RefineEntry
from kdi_assets.follow.refine.refine import refine
from kdi_assets.runtime.spark import close_session, open_session
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from kdi_assets.tools.local.publisher import ensure_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
Message = tuple[bytes, bytes | None]
"""Key and value; None is a tombstone."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The example's documents, and where their tables are."""

    tables: LoadedFolder
    lake: str
    spark: SparkSession

    @property
    def stream(self) -> Stream:
        """The one stream of the example."""
        (stream,) = self.tables.streams.values()
        return stream

    def publish(self, messages: Iterable[Message]) -> None:
        """Publish them in their order, by key over the topic partitions."""
        ensure_topic(self.stream.kafka, self.stream.topic, partitions=PARTITIONS)
        brokers = self.stream.kafka.bootstrap_servers
        producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "log_level": 2})
        count = 0
        for count, (key, value) in enumerate(messages, start=1):
            producer.produce(self.stream.topic, value, key=key)
            if not count % 10_000:
                producer.poll(0)
        if left := producer.flush(60):
            raise PartFailed(f"{left} messages are not acknowledged after 60 s")
        say(f"published {count:,} messages to {self.stream.topic}")

    def follow(self) -> dict[str, RefineEntry]:
        """Drain what waits, then refine every table; what was done, by table."""
        say(f"draining {self.stream.name}, then refining {', '.join(self.tables.refined)}")
        drained = drain(self.stream, lake=self.lake, session=lambda: self.spark)
        say(f"{self.stream.name}: {drained.rows_added:,} rows, {drained.tombstones:,} tombstones")
        entries = {}
        for table in upstream_first(self.tables.refined.values()):
            done = entries[table.name] = refine(table, lake=self.lake, session=lambda: self.spark).entry
            dates = f" on {', '.join(map(str, done.dates))}" if done.dates else ""
            say(f"{table.name}: {done.rows_added:,} rows added, {done.rows_removed:,} removed{dates}")
        return entries

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, as delta-rs reads them: another reader than Spark."""
        from deltalake import DeltaTable

        rows: list[dict[str, Any]] = DeltaTable(f"{self.lake}/{table}").to_pyarrow_table().to_pylist()
        return rows

    def files(self, table: str) -> list[str]:
        """The data files of a table."""
        from deltalake import DeltaTable

        return DeltaTable(f"{self.lake}/{table}").file_uris()


@contextmanager
def scene(name: str) -> Iterator[Scene]:
    """The parts of the example in the folder ``examples/NAME``; everything is gone at the end."""
    with stopped_at_the_end() as stack, shown_progress():
        say(f"Kafka answers on {temporary_lake(stack, name).bootstrap_servers}")
        spark = open_spark(stack, name, State.of_checkout().logs)
        yield Scene(load_folder(CHECKOUT / "examples" / name), Settings.from_environment().lake, spark)


def open_spark(stack: ExitStack, name: str, logs: Path) -> SparkSession:
    """A session that ends with the stack; what its JVM prints goes to ``NAME.log``."""
    log = logs / f"{name}.log"
    say(f"starting Spark, which logs to {log}")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        spark = open_session(Settings.from_environment(), app_name=f"kdi {name}", output=output)
    stack.callback(close_session, spark)
    return spark


def perform(name: str, play: Callable[[Scene, Random], None]) -> None:
    """Play the example; exit code 0 if its tables are what its computation says.

    With a seed as the command line's argument, its random messages are those of an earlier run.
    """
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else secrets.randbits(32)
    try:
        with scene(name) as on:
            play(on, Random(seed))  # noqa: S311
    except (KdiError, PartFailed) as failure:
        sys.exit(f"{failure}\nSeed: {seed}")


def compare(what: str, ours: object, theirs: object) -> None:
    """Say that both are equal.

    Raises:
        PartFailed: They are not.
    """
    if ours != theirs:
        raise PartFailed(f"{what}: the table has {str(ours)[:500]}, and the computation {str(theirs)[:500]}")
    say(f"{what}: equal")
