"""A driver of a Spark cluster in its own process, which does what a test asks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.storage import table_file_system
from kdi_assets.documents.model.stream import OffsetRange, Stream
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.reader import read_ranges
from kdi_assets.messages.kafka.topic import read_topic
from kdi_assets.runtime.spark import is_open, open_session
from kdi_assets.settings import Settings
from kdi_assets.streams.audit.audit import AuditReport, audit
from kdi_assets.streams.audit.source_comparison import Comparison, compare
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.rules.judge import judge
from kdi_assets.streams.rules.records import stream_decoder
from kdi_assets.streams.rules.tally import Counts, PassTally
from kdi_assets.tools.local.broker import QUICK_START
from tests.driven import DrivenStream
from tests.faults.doomed_drain import processes
from tests.faults.race import drain_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES_PER_TASK = 50
"""So that a few hundred messages are tasks for every executor."""
JVM_OPTIONS = {"SPARK_DRIVER_MEMORY": "1g", "SPARK_SUBMIT_OPTS": " ".join(QUICK_START)}
CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": " ".join(QUICK_START),
    "spark.default.parallelism": "8",
}
"""What the owner of such a cluster sets in ``spark-defaults.conf``; more tasks than cores, so that one can be lost."""


class ClusterDriver:
    """The process; it has a session from its first call on, and another one once the cluster has ended the first.

    Args:
        settings: With the master of the cluster.
        config: For its JVM.
        environment: Variables of the process.
        messages_per_task: ``None``: as many as without a test.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        config: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        messages_per_task: int | None = MESSAGES_PER_TASK,
    ) -> None:
        context = processes()
        self._calls, theirs = context.Pipe()
        arguments = (settings, dict(config), dict(environment or {}), messages_per_task, theirs)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The result of ``function(*arguments, session=…, **named)`` there; raises our errors as there."""
        self.start(function, *arguments, **named)
        return self.result()

    def start(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Begin a call; ``result`` waits for it."""
        self._calls.send((function, arguments, named))

    def is_busy(self) -> bool:
        """Whether the call has not ended."""
        return not self._calls.poll()

    def result(self) -> Any:
        """What the call came to."""
        try:
            found = self._calls.recv()
        except EOFError:
            raise AssertionError(f"the driver ended with {self._process.exitcode} and said nothing") from None
        if isinstance(found, KdiError):
            raise found
        assert not isinstance(found, _Failed), found.said
        return found

    def stop(self) -> None:
        """Let it end its JVM, and end it; nothing if it has ended."""
        if self._process.is_alive():
            self._calls.send(None)
            self._process.join(30)
        self._process.kill()
        self._process.join()


@dataclass(frozen=True)
class _Failed:
    said: str


def _serve(
    settings: Settings,
    config: Mapping[str, str],
    environment: Mapping[str, str],
    messages_per_task: int | None,
    calls: Connection,
) -> None:
    import traceback

    from kdi_assets.messages.kafka import reader
    from kdi_assets.runtime.spark_jvm import stop_spark

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update({**JVM_OPTIONS, **environment})
    if messages_per_task:
        vars(reader)["OFFSETS_PER_TASK"] = messages_per_task
    opened: list[SparkSession] = []

    def session() -> SparkSession:
        if not opened or not is_open(opened[-1]):
            opened[:] = [open_session(settings, config=config, app_name="kdi on a cluster")]
        return opened[0]

    while call := calls.recv():
        function, arguments, named = call
        try:
            calls.send(function(*arguments, session=session, **named))
        except KdiError as refusal:
            calls.send(refusal)
        except Exception:  # noqa: BLE001 - the test shall show it
            calls.send(_Failed(traceback.format_exc()))
    for spark in opened:
        stop_spark(spark)


def drain_with_signal(
    stream: Stream, *, lake: str, session: Callable[[], SparkSession], process: int, number: int
) -> DrainReport:
    """Drain, and send a process a signal once the plan is made: an executor that gets SIGSTOP never ends its tasks."""

    def at(point: str) -> None:
        if point == "before reading":
            os.kill(process, number)

    return drain(stream, lake=lake, session=session, at=at)


def judge_with_lost_executor(
    stream: Stream, *, lake: str, session: Callable[[], SparkSession], executor: int
) -> tuple[int, int, Counts]:
    """Judge the topic's messages before a shuffle, and read it twice; an executor is killed in between."""
    spark, now = session().newSession(), datetime.now(UTC)
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # otherwise each read plans the shuffle again
    topic = read_topic(stream.kafka, stream.topic)
    ranges = [OffsetRange(tp, 0, offsets.end) for tp, offsets in sorted(topic.partitions.items())]
    tally = PassTally(spark, stream, now)
    rows = judge(read_ranges(spark, stream.kafka, ranges), stream_decoder(stream), now=now, tally=tally)
    shuffled: Any = rows.repartition(4)._jdf.queryExecution().toRdd()

    before = shuffled.count()
    os.kill(executor, signal.SIGKILL)
    after = shuffled.count()

    return before, after, replace(tally.counts(stream), letters=None)


@dataclass(frozen=True, slots=True)
class Seen:
    """What an executor's Python finds on its machine.

    Attributes:
        folder: Its working folder.
        python: Its environment.
        found: Of the files that were asked for, of this package and its variables, those that are there.
    """

    folder: str
    python: str
    found: str


def seen_by_executors(paths: Sequence[str], *, session: Callable[[], SparkSession]) -> set[Seen]:
    """What each executor finds of these files, this package and its variables."""

    def look(_: int) -> tuple[str, str, str]:
        import importlib
        import os
        import sys

        found = [path for path in paths if os.path.exists(path)]
        found += [name for name in os.environ if name.startswith("KDI_")]
        try:
            importlib.import_module("kdi_assets.messages.formats.framing")
            found.append("kdi_assets")
        except ImportError:
            pass  # an answer too: it does not find this package
        return os.getcwd(), sys.prefix, " ".join(found)

    return {Seen(*each) for each in session().sparkContext.parallelize(range(16), 16).map(look).collect()}


def run_sql(statement: str, *, session: Callable[[], SparkSession]) -> None:
    """Run one statement in the driver."""
    session().sql(statement).collect()


def race(stream: Stream, *, lake: str, session: Callable[[], SparkSession]) -> Sequence[DrainReport | KdiError]:
    """Two drains of the stream in two sessions; both have planned before one reads."""
    return drain_at_once(_Raced(lake, session), [stream, stream])


@dataclass
class _Raced:
    lake: str
    session: Callable[[], SparkSession]


@dataclass
class DrivenByCluster(DrivenStream):
    """A stream that a cluster drains: as the others, and the test process has no Spark."""

    drives: Callable[[], ClusterDriver] | None = None

    @property
    def driver(self) -> ClusterDriver:
        """Its driver, as it is now."""
        assert self.drives
        return self.drives()

    def there(self, function: Callable[..., Any], **named: Any) -> Any:
        """The result of ``function(stream, lake=…, session=…)`` in the driver."""
        return self.driver.call(function, self.stream, lake=self.lake, **named)

    def drain(self, stream: Stream | None = None, *, at: Callable[[str], None] = lambda point: None) -> DrainReport:
        assert stream is None
        report: DrainReport = self.there(drain)
        return report

    def audit(self) -> AuditReport:
        report: AuditReport = self.there(audit)
        return report

    def compare(self) -> Comparison:
        found: Comparison = self.there(compare)
        return found

    def data_files(self) -> set[str]:
        """The files of the table's rows, whether a version names them or not; also those under way."""
        from pyarrow.fs import FileSelector

        every = FileSelector("", recursive=True, allow_not_found=True)
        listed = table_file_system(self.uri).get_file_info(every)
        return {info.path for info in listed if Path(info.path).name.startswith("part-")}


def no_session() -> Any:
    """In place of a session: only the driver has one."""
    raise AssertionError("the test process has no Spark")
