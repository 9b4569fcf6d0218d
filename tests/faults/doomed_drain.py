"""A drain in its own process that gets a signal at a named point: the process, or its JVM.

The points are those of ``drain(at=…)`` and four within its steps; for a decision, those around its commit; for a
replay, also its own. Processes are forked from a server that has imported their packages, so they start fast.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from kdi_assets.delta import single_commit
from kdi_assets.delta import transaction as delta_transaction
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.runtime.spark import close_session, driver_loss_named, open_session
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.resolve.resolve import commit_decision, decide
from tests.faults.warm_driver import JVM_OPTIONS, is_stopped
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MID_READ = "mid-read"
"""Some rows are in files, and the read continues."""
COMMIT_CHECKED = "commit checked"
"""All checks are done; Delta's commit is called next."""
COMMIT_UNDER_WAY = "commit under way"
"""The call of Delta's commit is sent, and the JVM has not read it."""
COMMIT_LANDED = "commit landed"
"""The version is in the log, and the JVM got no other call since."""

MISSED = 99
"""Exit code of a process that passed the point without its signal."""


def processes() -> ForkServerContext:
    """Processes forked from one that has imported everything, and holds nothing that a fork would break."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "tests.faults.systems.dagster_site"])
    return context


def in_a_process(function: Callable[..., object], *arguments: object) -> int | None:
    """Call a function in its own process; the process's exit code."""
    process = processes().Process(target=function, args=arguments)
    process.start()
    try:
        process.join(120)
        return process.exitcode
    finally:
        process.kill()
        process.join()
        process.close()


@dataclass(frozen=True)
class Doom:
    """Which signal comes at which point; to the JVM, or to the process itself."""

    point: str
    number: signal.Signals
    to_jvm: bool = False


class HasTable(Protocol):
    """A stream and its lake, of Kafka or Kinesis."""

    lake: str
    stream: Stream


@dataclass
class Doomed:
    """The process, seen from the test.

    Attributes:
        act: What it does; ``replay_letters`` and ``set_back`` can replace a drain.
    """

    web: HasTable
    doom: Doom
    home: Path
    driver: str = "shared"
    config: Mapping[str, str] = field(default_factory=dict)
    act: Callable[..., object] = drain
    master: str = "local[2]"
    environment: Mapping[str, str] = field(default_factory=dict)
    _jvm: int = 0

    def __post_init__(self) -> None:
        context = processes()
        self._answer, theirs = context.Pipe(duplex=False)
        settings = Settings(self.home, self.web.lake, "", self.master, self.driver)  # type: ignore[arg-type]
        aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}  # a fork has older ones
        environment = {**JVM_OPTIONS, **aws, **self.environment}
        arguments = (self.web.stream, settings, self.doom, dict(self.config), self.act, environment, theirs)
        self._process = context.Process(target=drain_doomed, args=arguments)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def await_stopped(self, pid: int | None = None) -> None:
        """Wait until the signal has stopped it, or its JVM."""
        assert self.stops(pid), f"it was to be stopped, and says: {self.outcome()}"

    def stops(self, pid: int | None = None) -> bool:
        """Wait until the signal has stopped it, or its JVM; false if it passed the point and ended."""
        self.jvm()
        wait_until(lambda: is_stopped(pid or self.pid) or self._answer.poll(), seconds=120)
        return is_stopped(pid or self.pid)

    def jvm(self) -> int:
        """The process id of its JVM, once it has one."""
        if not self._jvm:
            self._jvm = int(self._answer.recv())
        return self._jvm

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def exit_code(self) -> int | None:
        """As in ``subprocess`` (negative: the signal), once it has ended."""
        self._process.join(120)
        return self._process.exitcode

    def outcome(self) -> DrainReport | KdiError:
        """Its report or its refusal, once it has ended by itself."""
        try:
            self.jvm()
            told = self._answer.recv()
        except EOFError:
            raise AssertionError(f"it ended with {self.exit_code()} and said nothing") from None
        assert isinstance(told, DrainReport | KdiError)
        self._process.join(120)
        return told

    def end(self) -> None:
        """Leave no process running."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._answer.close()
        self._process.close()


def drain_doomed(
    stream: Stream,
    settings: Settings,
    doom: Doom,
    config: Mapping[str, str],
    act: Callable[..., object],
    environment: Mapping[str, str],
    answer: Connection,
) -> None:
    """In the process: drain, set positions back, or replay, up to the point, and on if possible."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(environment)
    session = open_session(settings, config=config, app_name="doomed")
    answer.send(jvm_pid(session))
    at = _hook(doom, session, Path(stream.table_uri(settings.lake)))
    try:
        with driver_loss_named(session):
            answer.send(act(stream, lake=settings.lake, session=lambda: session, at=at))
    except KdiError as refusal:
        answer.send(refusal)
    with suppress(Exception):  # a JVM that was killed cannot be stopped
        close_session(session)


def set_back(
    stream: Stream, *, lake: str, session: Callable[[], SparkSession], at: Callable[[str], None], version: int
) -> None:
    """Set the positions back to those of a version, and remove the rows after them."""
    decision = decide(stream, lake, "rewind", to_version=version, session=session)
    commit_decision(session(), decision, stream, lake)


def _hook(doom: Doom, spark: SparkSession, uri: Path) -> Callable[[str], None]:
    """The hook that a drain calls at its points; the points within its steps are prepared here."""
    victim = jvm_pid(spark) if doom.to_jvm else os.getpid()
    met: list[str] = []

    def reached(point: str) -> None:
        if point == doom.point and not met:
            met.append(point)
            os.kill(victim, doom.number)
            if doom.to_jvm and doom.number == signal.SIGSTOP:
                wait_until(lambda: is_stopped(victim))

    def at(point: str) -> None:
        if point == "before reading" and doom.point == MID_READ and not met:
            _once(_more(uri, "**/part-*.parquet"), lambda: reached(MID_READ))
        if point == "files written" and doom.point == MID_READ and not met:
            os._exit(MISSED)
        reached(point)

    def landed() -> None:
        reached(COMMIT_LANDED)
        if doom.point == COMMIT_LANDED and doom.to_jvm:
            wait_until(lambda: not _works(victim))

    real, port = delta_transaction.send_commit, gateway_port(spark)

    def send(spark: SparkSession, transaction: Any, *rest: Any) -> int:
        watched = _Transaction(transaction, lambda: _before_commit(doom, reached, victim, port), landed)
        return real(spark, watched, *rest)

    single_commit.send_commit = send  # type: ignore[attr-defined,assignment]  # the process does nothing else
    return at


def _before_commit(doom: Doom, reached: Callable[[str], None], jvm: int, port: int) -> None:
    reached(COMMIT_CHECKED)
    if doom.point == COMMIT_UNDER_WAY:
        os.kill(jvm, signal.SIGSTOP)
        _once(lambda: unread_bytes(port) > 0, lambda: reached(COMMIT_UNDER_WAY))


class _Transaction:
    """Delta's transaction, with callbacks just before and just after its commit."""

    def __init__(self, transaction: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._transaction, self._before, self._after = transaction, before, after

    def commit(self, actions: Any, operation: Any) -> Any:
        self._before()
        version = self._transaction.commit(actions, operation)
        self._after()
        return version


def _works(pid: int) -> bool:
    """Whether the process runs: neither gone, nor stopped, nor a zombie."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _more(folder: Path, pattern: str) -> Callable[[], bool]:
    """Whether the pattern matches other files than now."""
    known = set(folder.glob(pattern))
    return lambda: any(file not in known for file in folder.glob(pattern))


def _once(condition: Callable[[], bool], do: Callable[[], None]) -> None:
    """Do it once, in a thread, as soon as the condition holds; without a pause, which would come too late."""

    def watch() -> None:
        while not condition():
            pass
        do()

    Thread(target=watch, daemon=True).start()


def jvm_pid(spark: SparkSession) -> int:
    """The process id of the session's JVM."""
    jvm: Any = spark._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def gateway_port(spark: SparkSession) -> int:
    """Where the session's JVM accepts calls."""
    gateway: Any = spark.sparkContext._gateway
    return int(gateway.gateway_parameters.port)


def unread_bytes(port: int) -> int:
    """Bytes that a process on a loopback port has received and not read (Linux)."""
    tables = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    lines = (line.split() for line in tables.splitlines())
    here = (columns for columns in lines if columns[3] == "01" and int(columns[1].rpartition(":")[2], 16) == port)
    return sum(int(columns[4].partition(":")[2], 16) for columns in here)
