"""The process that is measured: it owns a Spark session and carries out rounds, one after the other."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.structured_streaming import ingest
from benchmarks.topic import three_tables
from benchmarks.usage import Meter, Usage
from kdi_assets.runtime.session import open_session
from kdi_assets.settings import Settings
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Engine = Callable[[Stream, Path, "SparkSession"], None]


def our_drain(stream: Stream, lake: Path, spark: SparkSession) -> None:
    """All of the topic, in as many plans as the stream's ``max_records`` asks for."""
    from kdi_assets.drain.drain import drain

    drain(stream, lake=str(lake), session=lambda: spark)


def structured_streaming(stream: Stream, lake: Path, spark: SparkSession) -> None:
    """All of the topic, in one micro-batch."""
    servers, table = stream.cluster.bootstrap_servers, Path(stream.table_uri(str(lake)))
    ingest(spark, bootstrap_servers=servers, topic=stream.topic, table=table)


def separate_drains(stream: Stream, lake: Path, spark: SparkSession) -> None:
    """Three tables of the topic, one after the other."""
    for table in three_tables(stream):
        our_drain(table, lake, spark)


def one_pass(stream: Stream, lake: Path, spark: SparkSession) -> None:
    """The same three tables in one pass."""
    from kdi_assets.drain.together import drain_together

    for drained in drain_together(three_tables(stream), lake=str(lake), session=lambda: spark).values():
        drained.result()


OURS, THEIRS = "drain", "structured streaming"
SEPARATE, ONE_PASS = "separate drains", "one pass"
ENGINES: Mapping[str, Engine] = {
    OURS: our_drain,
    THEIRS: structured_streaming,
    SEPARATE: separate_drains,
    ONE_PASS: one_pass,
}


@dataclass(frozen=True, slots=True)
class Round:
    """One engine, once over the stream's topic, into a new lake."""

    engine: str
    stream: Stream
    lake: Path
    cold: bool  # measured from the start of the process, with Python, JVM and session in it


class Worker:
    """A process with a warm or a cold Spark; ``carry_out`` waits for the round."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process would count our memory as its own
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def carry_out(self, task: Round) -> Usage:
        """Run one round.

        Raises:
            EOFError: The process died.
        """
        cluster = task.stream.cluster
        # What is sent is plain: a cluster's properties may be a view of the environment.
        plain = replace(task.stream, cluster=replace(cluster, properties=dict(cluster.properties)))
        self._connection.send(replace(task, stream=plain))
        outcome = self._connection.recv()
        if isinstance(outcome, BaseException):
            raise outcome
        usage: Usage = outcome
        return usage

    def close(self) -> None:
        """End the process, and its JVM with it."""
        self._connection.close()
        self._process.join(30)
        self._process.kill()
        self._process.join()


def serve(connection: Connection) -> None:
    """The worker's side: carry out what comes, until nothing more can come."""
    while True:
        try:
            task: Round = connection.recv()
        except EOFError:
            return
        try:
            connection.send(measured(task))
        except Exception as failure:  # noqa: BLE001 - handed to the other process, which raises it
            connection.send(RuntimeError(f"{task.engine}: {failure}"))


def measured(task: Round) -> Usage:
    """Carry out one round and say what it cost."""
    meter = Meter(from_process_start=True) if task.cold else None
    spark = open_session(Settings.from_environment(), app_name="kdi benchmark")
    meter = meter or Meter()  # a warm round begins when the session is there
    ENGINES[task.engine](task.stream, task.lake, spark)
    return meter.read()
