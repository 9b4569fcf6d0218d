"""The processes of a deployment, as the unit files describe them: command, stop, restart."""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import psutil
import psycopg2
import yaml
from dagster import DagsterInstance

from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import free_port
from tests.conftest import CHECKOUT

DEPLOY = CHECKOUT / "deploy"
BIN = Path(sys.executable).parent
INSTALLED_BIN = Path("/opt/kdi/venv/bin")
WORKSPACE = "/etc/kdi/workspace.yaml"
CODE_SERVER, WEBSERVER, METRICS = USUAL_PORTS = ("4266", "3000", "9464")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit file says, as far as it works without systemd."""

    name: str
    section: Mapping[str, str]
    order: Mapping[str, str]

    @classmethod
    def read(cls, name: str) -> Unit:
        said = _ini(DEPLOY / "systemd" / f"kdi-{name}.service")
        return cls(name, dict(said["Service"]), dict(said["Unit"]))

    @property
    def command(self) -> list[str]:
        return shlex.split(self.section["ExecStart"])

    @property
    def stop_seconds(self) -> float:
        return float(self.section["TimeoutStopSec"])

    @property
    def restart_seconds(self) -> float:
        return float(self.section["RestartSec"])


def unit_names() -> list[str]:
    """The names of all units, without prefix and suffix."""
    return sorted(path.stem.removeprefix("kdi-") for path in (DEPLOY / "systemd").glob("*.service"))


def example_environment() -> dict[str, str]:
    """The environment of the example file."""
    lines = (DEPLOY / "kdi.env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def _ini(path: Path) -> ConfigParser:
    # One value for each name, names case-sensitive: our units set nothing twice.
    parser = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(path.read_text())
    return parser


class Service:
    """A unit's process under a small supervisor that does what the unit requests of systemd.

    It restarts the process whenever it ends (``Restart=always``), sends SIGTERM only to the main process, and kills the
    rest of its group when that ended or took too long (``KillMode=mixed``).
    """

    def __init__(self, unit: Unit, command: Sequence[str], *, environment: Mapping[str, str], folder: Path) -> None:
        self.unit = unit
        self.log = folder / f"{unit.name}.log"
        self.starts = 0
        self._command, self._environment, self._folder = command, environment, folder
        self._stopping, self._started = threading.Event(), threading.Event()
        self._child: Child | None = None
        self._thread = threading.Thread(target=self._supervise, name=unit.name, daemon=True)
        self._thread.start()
        assert self._started.wait(30)

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def running(self) -> bool:
        return self._child is not None and self._child.exit_code() is None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill_group(self) -> None:
        """End it and what it started at once (SIGKILL)."""
        os.killpg(self.pid, signal.SIGKILL)

    def ask_to_stop(self) -> None:
        """Begin like `systemctl stop`: no restart, and SIGTERM to the main process."""
        self._stopping.set()
        with suppress(ProcessLookupError):
            self.send(signal.SIGTERM)

    def exit_code(self) -> int | None:
        """The exit code after a stop: none if it took longer than the unit allows, and was killed."""
        self._thread.join(self.unit.stop_seconds)
        late = self._thread.is_alive()
        assert self._child is not None
        self._child.kill()
        self._thread.join(10)
        return None if late else self._child.exit_code()

    def stop(self) -> int | None:
        self.ask_to_stop()
        return self.exit_code()

    def _supervise(self) -> None:
        # The child ends with the thread that started it: this one lasts until it is stopped.
        while not self._stopping.is_set():
            command = ["/usr/bin/env", f"--chdir={self._folder}", *self._command]
            self._child = Child(command, log=self.log, environment=self._environment)
            self.starts += 1
            self._started.set()
            while self._child.exit_code() is None:
                time.sleep(0.02)
            self._child.kill()
            self._stopping.wait(self.unit.restart_seconds)


class Deployment:
    """The processes of one deployment in its own folder, started from the units' command lines."""

    def __init__(
        self,
        folder: Path,
        *,
        postgres: Mapping[str, str],
        environment: Mapping[str, str],
        monitoring_seconds: int | None = None,
    ) -> None:
        """Write the files that the processes read.

        Args:
            postgres: How its clients find the database.
            monitoring_seconds: Time between two searches for dead runs; by default as deployed.
        """
        self.folder, self.home, self.streams = folder, folder / "home", folder / "streams"
        self.ports = {usual: str(free_port()) for usual in USUAL_PORTS}
        self.environment = {
            **example_environment(),
            "KDI_HOME": str(folder / "home"),
            "KDI_DEFS": str(folder / "streams"),
            "KDI_LAKE": str(folder / "lake"),
            "DAGSTER_HOME": str(folder / "dagster"),
            **postgres,
            **environment,
        }
        self.services: dict[str, Service] = {}
        for made in (self.home, self.streams, folder / "dagster"):
            made.mkdir()
        (self.home / "jars").symlink_to(CHECKOUT / ".kdi" / "jars")
        settings = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
        if monitoring_seconds:
            settings["run_monitoring"]["poll_interval_seconds"] = monitoring_seconds
        (folder / "dagster" / "dagster.yaml").write_text(yaml.safe_dump(settings))
        workspace = (DEPLOY / "workspace.yaml").read_text()
        (folder / "workspace.yaml").write_text(workspace.replace(CODE_SERVER, self.ports[CODE_SERVER]))

    def start(self, *names: str) -> None:
        """Start units."""
        for name in names:
            self._start(Unit.read(name))

    def start_second_driver(self) -> None:
        """Start the unit that docs/many-streams.md makes of the driver's."""
        unit = Unit.read("driver")
        command = unit.section["ExecStart"].replace("driver run", "driver run --number 2")
        self._start(replace(unit, name="driver-2", section={**unit.section, "ExecStart": command}))

    def _start(self, unit: Unit) -> None:
        command = [self._here(word) for word in unit.command]
        self.services[unit.name] = Service(unit, command, environment=self.environment, folder=self.folder)

    def forking_process(self) -> psutil.Process:
        """The process from which the code server forks runs."""
        server = psutil.Process(self.services["code-server"].pid)
        return next(child for child in server.children() if "forkserver" in " ".join(child.cmdline()))

    def run_workers(self) -> list[psutil.Process]:
        """The processes of runs."""
        return list(self.forking_process().children())

    def run(self, program: str, *arguments: str) -> str:
        """A command of the deployment's administrator, to its end; its output."""
        command, environment = [str(BIN / program), *arguments], {**os.environ, **self.environment}
        return subprocess.check_output(command, env=environment, cwd=self.folder, text=True)

    def stop(self) -> dict[str, int | None]:
        """Stop all, the last started first; their exit codes, none for one that had to be killed."""
        return {name: self.services.pop(name).stop() for name in reversed(tuple(self.services))}

    @contextmanager
    def instance(self) -> Iterator[DagsterInstance]:
        """Dagster's instance of the deployment, opened in this process."""
        with (
            patch.dict(os.environ, self.environment),
            DagsterInstance.from_config(self.environment["DAGSTER_HOME"]) as instance,
        ):
            yield instance

    def _here(self, word: str) -> str:
        """A word of a command line, translated to this machine."""
        if word == WORKSPACE:
            return str(self.folder / "workspace.yaml")
        return self.ports.get(word, word.replace(str(INSTALLED_BIN), str(BIN)))


@contextmanager
def running_postgres() -> Iterator[Mapping[str, str]]:
    """An empty database of a real server; the environment by which clients find it. It ends with the body.

    Its folder is not pytest's: as root it runs under a user that pgserver makes, and every start of pytest takes its
    own folders back from other users.
    """
    with TemporaryDirectory(prefix="kdi-postgres-") as folder:
        # pgserver keeps its own lock there, and warns if the folder does not exist.
        with patch.dict(os.environ, {"XDG_RUNTIME_DIR": folder}):
            from pgserver import postgres_server

            server = postgres_server.get_server(Path(folder) / "data")
        try:
            host = str(server.get_postmaster_info().socket_dir)
            with closing(psycopg2.connect(host=host, user="postgres", dbname="postgres")) as connection:
                connection.autocommit = True
                connection.cursor().execute("CREATE DATABASE dagster")
            yield {"PGHOST": host, "PGUSER": "postgres", "PGDATABASE": "dagster"}
        finally:
            server.cleanup()
            atexit.unregister(server._cleanup)  # otherwise it would create its lock's folder again at exit
