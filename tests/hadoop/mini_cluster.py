"""A YARN and an HDFS on the loopback: Hadoop's own servers in one JVM, containers as processes of this machine."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from kdi_assets.runtime.jars import fetch_jars, jar_paths, locked_jars
from kdi_assets.runtime.java import find_java
from kdi_assets.runtime.kernel import pyspark_jars
from kdi_assets.runtime.processes import Child
from kdi_assets.settings import Settings
from tests.waiting import wait_until

FOLDER = Path(__file__).parent
LOCK = FOLDER / "jars.lock.json"
JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
NARROW_QUEUE = "narrow"
"""A queue in which no application fits."""


class MiniCluster:
    """A running cluster.

    Attributes:
        folder: Of its data and logs, by which other processes tell it what to do (``tell``).
        hdfs: The URI of its file system.
        configuration: The folder for ``HADOOP_CONF_DIR``. The file system of paths without a scheme is HDFS.

    Args:
        folder: Gets its data, its logs and the compiled program.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.configuration, self._data = folder / "configuration", folder / "data"
        for each in (self.configuration, self._data):
            each.mkdir()
        java = find_java(settings.home)
        class_path = os.pathsep.join(map(str, [*hadoop_jars(settings), *hadoop_client_jars()]))
        (compiler,) = jar_paths(settings.home / "jars", "build")
        options = ["-source", "17", "-target", "17", "-nowarn", "-cp", class_path, "-d", str(folder / "classes")]
        subprocess.run([java / "bin" / "java", "-jar", compiler, *options, FOLDER / "MiniCluster.java"], check=True)
        places = os.pathsep.join(map(str, [self.configuration, class_path, folder / "classes"]))
        self._java: list[str | Path] = [java / "bin" / "java", *JVM_OPTIONS, "-cp", places]
        self.folder, log = folder, folder / "log"
        os.mkfifo(folder / "commands")
        # The servers write to the folder `target` of their working folder.
        within: list[str | Path] = ["sh", "-c", 'cd "$0" && exec "$@"', folder]
        command = [*within, *self._java, "MiniCluster", self._data, self.configuration, folder / "commands"]
        self._child = Child(command, log=log, environment={"JAVA_HOME": str(java)})
        try:
            self.hdfs = self._ready(log)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The process id of the servers; containers are its descendants."""
        return self._child.pid

    def executors(self) -> list[psutil.Process]:
        """The JVMs of executors of all drivers, the oldest first."""
        return self._java_containers("YarnCoarseGrainedExecutorBackend")

    def application_masters(self) -> list[psutil.Process]:
        """The JVMs of the applications' masters."""
        return self._java_containers("ExecutorLauncher")

    def waiting_applications(self) -> list[str]:
        """The ids of applications that YARN has accepted and not started."""
        return self.applications("NEW,NEW_SAVING,SUBMITTED,ACCEPTED")

    def applications(self, states: str) -> list[str]:
        """The ids of applications in these states, as `yarn application -list` prints them."""
        listed = self._yarn("-list", "-appStates", states)
        assert "Total number of applications" in listed, listed
        return re.findall(r"^application_\S+", listed, re.MULTILINE)

    def kill_application(self, application: str) -> None:
        """`yarn application -kill`."""
        self._yarn("-kill", application)

    def put(self, file: Path) -> str:
        """Copy a file to HDFS, as `hadoop fs -put` does; returns its URI."""
        found = f"{self.hdfs}/{file.name}"
        subprocess.run([*self._java, "org.apache.hadoop.fs.FsShell", "-put", file, found], check=True, timeout=120)
        return found

    def stop(self) -> None:
        """End the servers and all containers."""
        containers = psutil.Process(self._child.pid).children(recursive=True) if self._child.exit_code() is None else []
        self._child.stop()
        for left in containers:
            if left.is_running():
                left.kill()

    def _java_containers(self, program: str) -> list[psutil.Process]:
        found = psutil.Process(self._child.pid).children(recursive=True)
        return sorted((p for p in found if _runs(p, program)), key=lambda process: process.pid)

    def _yarn(self, *words: str) -> str:
        command = [*self._java, "org.apache.hadoop.yarn.client.cli.ApplicationCLI", "application", *words]
        return subprocess.run(command, check=True, timeout=120, capture_output=True, text=True).stdout

    def _ready(self, log: Path) -> str:
        found: list[str] = []

        def ready() -> bool:
            text = log.read_text(errors="replace") if log.exists() else ""
            assert self._child.exit_code() is None, text[-5000:]
            found[:] = re.findall(r"^ready (\S+)$", text, re.MULTILINE)
            return bool(found)

        wait_until(ready, seconds=120)
        return found[0]


def hadoop_jars(settings: Settings) -> list[Path]:
    """The jars of Hadoop's servers; fetched once."""
    directory = settings.home / "jars"
    fetch_jars(directory, home=settings.home, report=lambda _: None, groups=("hadoop",), lock=LOCK)
    return [directory / jar.group / jar.file_name for jar in locked_jars("hadoop", lock=LOCK)]


def hadoop_client_jars() -> Iterator[Path]:
    """Of PySpark's jars those of Hadoop, and what these log and serve by."""
    return pyspark_jars().glob("*.jar")


def tell(folder: Path, command: str) -> None:
    """Let the cluster of a folder carry out a command of ``MiniCluster.java``; returns when it has."""
    log, done = folder / "log", f"done {command}\n"
    before = log.read_text(errors="replace").count(done)
    (folder / "commands").write_text(f"{command}\n")
    wait_until(lambda: log.read_text(errors="replace").count(done) > before, seconds=60)


def _runs(process: psutil.Process, program: str) -> bool:
    try:
        words = process.cmdline()
    except (psutil.ZombieProcess, psutil.NoSuchProcess):
        return False
    return Path(words[0] if words else "").name == "java" and any(program in word for word in words)
