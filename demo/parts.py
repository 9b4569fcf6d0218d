"""The real parts of demos and dev: broker, S3, PostgreSQL, warm driver, Dagster; their state is in one folder."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfile

import psutil
from rich.console import Console

from kdi_assets.cli.live_line import LIVE_SECONDS, LiveLine
from kdi_assets.follow.serve.postgres.embedded import FOLDER, start_postgres, stop_postgres
from kdi_assets.runtime.driver.control import driver_status
from kdi_assets.runtime.errors import DriverGone
from kdi_assets.runtime.processes import Child
from kdi_assets.runtime.step_watch import StepWatch
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import USUAL_PORT, Broker, free_port, is_free, start_broker
from kdi_assets.tools.local.s3_server import start_s3_server

CHECKOUT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
WORKSPACE = CHECKOUT / "workspace.yaml"
DEPLOYED_WORKSPACE = CHECKOUT / "deploy" / "workspace.yaml"
DEPLOYED_PORT = "4266"
"""Of the code server in that file."""

DRIVER_SECONDS = 120.0
CODE_SERVER_SECONDS = 120.0
BUCKET = "lake"
WITH_STATE = ("dagster", "kdi_assets.resources.code_server", "ministack")
"""Of the command lines of processes whose environment says which state they use."""

_began = time.monotonic()
_console = Console(highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """A line of progress, with the seconds since the start."""
    _console.print(f"[dim]{time.monotonic() - _began:5.1f} s[/dim]  {line}")


def shown_progress() -> AbstractContextManager[StepWatch]:
    """A line below those of ``say`` that shows how far the body's steps are; only on a terminal."""
    return StepWatch(LiveLine(_console) if _console.is_terminal else None, every=LIVE_SECONDS).watching()


class PartFailed(Exception):
    """A part did not do what it should; its log says why."""

    def __init__(self, happened: str, log: Path | None = None) -> None:
        super().__init__(happened)
        self.log = log

    def __str__(self) -> str:
        if self.log is None:
            return str(self.args[0])
        return "\n".join([f"{self.args[0]}. The end of {self.log}:", *self.log.read_text().splitlines()[-15:]])


def write(line: str) -> None:
    """A line to be copied: not wrapped, however narrow the terminal is."""
    _console.print(f"\n    {line}\n", markup=False)


@dataclass(frozen=True, slots=True)
class State:
    """The paths below ``home``; a lake on S3 has a broker, a Dagster instance and logs of its own."""

    home: Path
    on_s3: bool = False

    @property
    def folder(self) -> Path:
        """The folder of everything except jars and the warm driver's secret."""
        return self.home / "demo-s3" if self.on_s3 else self.home

    @property
    def broker(self) -> Path:
        """The broker's data."""
        return self.folder / "broker"

    @property
    def objects(self) -> Path:
        """The data of the S3 server."""
        return self.folder / "s3"

    @property
    def lake(self) -> str:
        """The root of the tables."""
        return f"s3://{BUCKET}/tables" if self.on_s3 else str(self.folder / "lake")

    @property
    def postgres(self) -> Path:
        """The data of the embedded PostgreSQL: one for both lakes, because `kdi psql` opens this one."""
        return self.home / FOLDER

    @property
    def databases(self) -> tuple[Path, Path]:
        """All folders of PostgreSQL."""
        return self.postgres, self.home / f"{FOLDER}-runtime"

    @property
    def dagster(self) -> Path:
        """Dagster's instance: runs, events, the sensor's memory."""
        return self.folder / "dagster"

    @property
    def logs(self) -> Path:
        """The logs of the processes."""
        return self.folder / "logs"

    @classmethod
    def of_checkout(cls, *, on_s3: bool = False) -> State:
        """The state of ``KDI_HOME``, ``.kdi`` of the checkout by default."""
        return cls(Path(os.environ.get("KDI_HOME", CHECKOUT / ".kdi")).absolute(), on_s3)

    def prepare(self) -> None:
        """Create the folders, and set the environment of this process and its children to them in any case."""
        for folder in (self.dagster, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        copyfile(CHECKOUT / "dagster.yaml", self.dagster / "dagster.yaml")
        os.environ |= {"KDI_HOME": str(self.home), "KDI_LAKE": self.lake, "DAGSTER_HOME": str(self.dagster)}
        os.environ |= {"KDI_DRIVER": "shared", "KDI_AUTOMATION": "on"}
        os.environ.setdefault("KDI_SPARK_MASTER", "local[*]")
        os.environ.pop("KDI_DEFS", None)

    def refuse_if_used(self, *, then: str) -> None:
        """End this process if others use the state; ``then`` is the command that the user gave."""
        if users := self.users():
            sys.exit("\n".join([f"{self.home} is in use:", *users, f"  Run:  {then}, when these have ended"]))

    def users(self) -> list[str]:
        """Processes that use this state, a line each; without this process and its parents."""
        own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
        others = (process for process in psutil.process_iter(["cmdline"]) if process.pid not in own)
        lines = [f"process {process.pid}: {part}" for process in others if (part := self._part_of(process))]
        with suppress(DriverGone):
            lines.append(f"process {driver_status(self.home)['pid']}: the warm driver")
        return lines

    def _part_of(self, process: psutil.Process) -> str:
        """The role of the process for this state; empty if none."""
        command = " ".join(process.info["cmdline"] or ())
        if str(self.broker / "server.properties") in command:
            return "the broker"
        try:
            environment = process.environ() if any(name in command for name in WITH_STATE) else {}
        except psutil.Error:
            return ""  # another user's, or it has just ended
        if environment.get("S3_DATA_DIR", "").startswith(f"{self.objects}/"):
            return "the S3 server"
        return "Dagster" if environment.get("DAGSTER_HOME") == str(self.dagster) else ""


class StopSignals:
    """SIGINT and SIGTERM end the program, but not between a process's start and the note that it must be stopped."""

    def __init__(self) -> None:
        self._held = False
        self._asked = 0

    def hear(self, number: int, _frame: object = None) -> None:
        """The handler of both."""
        self._asked = number
        if not self._held:
            sys.exit(128 + number)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Signals take effect at the end of the body."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._asked:
            sys.exit(128 + self._asked)


_signals = StopSignals()


@contextmanager
def stopped_at_the_end() -> Iterator[ExitStack]:
    """A stack of parts to stop, the last first, however the body ends: Ctrl-C and SIGTERM too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _signals.hear)
    with ExitStack() as stack:
        try:
            yield stack
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave half of them running
            say("stopping what was started")


class WarmDriver:
    """The JVM for the runs; it starts in some seconds."""

    def __init__(self, state: State, stack: ExitStack) -> None:
        self._state = state
        with _signals.held():
            self.child = self._start()
            stack.callback(lambda: self.child.stop())  # the current one: it may be another when all end

    def _start(self) -> Child:
        return Child([BIN / "kdi", "driver", "run", "--idle-exit", "0"], log=self._state.logs / "driver.log")

    def revive(self) -> None:
        """Start another one if it has ended."""
        if (code := self.child.exit_code()) is not None:
            say(f"the warm driver ended with exit code {code}; starting another")
            with _signals.held():
                self.child = self._start()

    def await_ready(self) -> None:
        """Wait until runs can attach.

        Raises:
            PartFailed: It ended, or takes too long.
        """
        deadline = time.monotonic() + DRIVER_SECONDS
        while time.monotonic() < deadline:
            check_running(driver=self.child)
            with suppress(DriverGone):
                say(f"the warm driver is ready (process {driver_status(self._state.home)['pid']})")
                return
            time.sleep(0.1)
        raise PartFailed(f"the warm driver is not ready after {DRIVER_SECONDS:.0f} s", self.child.log)


def start_kafka(state: State, stack: ExitStack) -> Broker:
    """The broker, answering; processes started from now on know it by ``KDI_KAFKA``."""
    say("starting Kafka, and Spark beside it")
    with _signals.held():
        broker = start_broker(state.broker, port=USUAL_PORT, home=state.home)
        stack.callback(broker.stop)
    os.environ["KDI_KAFKA"] = broker.bootstrap_servers
    taken = "" if broker.port == USUAL_PORT else f" (port {USUAL_PORT} is taken)"
    say(f"Kafka answers on {broker.bootstrap_servers}{taken}")
    return broker


def temporary_lake(stack: ExitStack, name: str) -> Broker:
    """A new broker and an empty lake, which end with the stack; the environment names them, and the driver is own."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"kdi-{name}-")))
    with _signals.held():
        broker = start_broker(folder / "broker", home=Settings.from_environment().home)
        stack.callback(broker.stop)
    os.environ |= {"KDI_LAKE": str(folder / "lake"), "KDI_KAFKA": broker.bootstrap_servers, "KDI_DRIVER": "own"}
    os.environ.setdefault("KDI_SPARK_MASTER", "local[*]")
    return broker


def start_s3(state: State, stack: ExitStack) -> None:
    """The S3 server with the lake's bucket; processes started from now on know it by the variables of AWS."""
    with _signals.held():
        server = start_s3_server(state.objects, keep=True)
        stack.callback(server.stop)
    os.environ |= server.environment()
    if not server.client().list_buckets()["Buckets"]:
        server.create_bucket(BUCKET)
    say(f"S3 answers on {server.endpoint}")


def start_database(data: Path, lake: str, stack: ExitStack) -> bool:
    """The embedded PostgreSQL, which would start and end with each run; false: there is none for this Python."""
    if find_spec("pgserver") is None:
        say("no embedded PostgreSQL for this version of Python: gold cannot be served, all else works")
        return False
    with _signals.held():
        server = start_postgres(data)
        stack.callback(stop_postgres, data)  # its own stop leaves it to a run that used it and was killed
    _drop_rows_of_another_lake(server.url, lake)
    return True


def _drop_rows_of_another_lake(url: str, lake: str) -> None:
    """Drop the demo's table if it has rows of another demo's lake: no run replaces these."""
    import psycopg

    forget = "DELETE FROM kdi_served WHERE target = 'daily_usage' AND NOT starts_with(source, %s)"
    with suppress(psycopg.errors.UndefinedTable), psycopg.connect(url) as connection:
        if connection.execute(forget, [lake]).rowcount:
            connection.execute("DROP TABLE daily_usage")


class CodeServer:
    """The code server of a deployment, which forks runs: a new Python would need seconds for the imports of each."""

    def __init__(self, state: State, stack: ExitStack) -> None:
        self._port = free_port()
        self.child = start_command(state, stack, "code-server", *code_server_command(self._port))
        self.workspace = state.dagster / "workspace.yaml"
        self.workspace.write_text(DEPLOYED_WORKSPACE.read_text().replace(DEPLOYED_PORT, str(self._port)))

    def await_listening(self) -> None:
        """Wait until Dagster's processes can connect.

        Raises:
            PartFailed: It ended, or takes too long.
        """
        if slow := self.child.await_answer(lambda: not is_free(self._port), seconds=CODE_SERVER_SECONDS):
            raise PartFailed(f"Dagster's code server {slow}", self.child.log)


def code_server_command(port: int) -> list[str]:
    """The program and its arguments, as in ``deploy/systemd/kdi-code-server.service``."""
    served = ["--module-name", "kdi_assets.definitions", "--location-name", "kdi_assets"]
    at = ["--host", "127.0.0.1", "--port", str(port)]
    return ["python", "-P", "-m", "kdi_assets.resources.code_server", *served, *at, "--lazy-load-user-code"]


def start_command(state: State, stack: ExitStack, name: str, program: str, *arguments: str) -> Child:
    """A command of this environment in the background; it writes to ``logs/NAME.log``."""
    with _signals.held():
        child = Child([BIN / program, *arguments], log=state.logs / f"{name}.log")
        stack.callback(child.stop)
    return child


def check_running(**parts: Child) -> None:
    """Raise ``PartFailed`` for the first that has ended."""
    for name, child in parts.items():
        if (code := child.exit_code()) is not None:
            raise PartFailed(f"{name} ended with exit code {code}", child.log)
