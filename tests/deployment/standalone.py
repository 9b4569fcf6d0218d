"""A Spark cluster on the loopback: a master, and workers that see neither the checkout's jars nor its package.

It is Spark's own standalone cluster, from the jars of PySpark. Each worker has a mount namespace, a folder and an
environment of its own, so that whatever an executor would read from the driver's disk is not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pyspark

from kdi_assets.runtime.java import find_java
from kdi_assets.runtime.processes import Child
from tests.waiting import wait_until

CHECKOUT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
EXECUTOR_MB = 1024
HIDE_AND_RUN = """
IFS=:
for folder in $HIDDEN; do mount -t tmpfs none "$folder" || exit 97; done
cd "$1" && shift && exec "$@"
"""
"""Runs a command in a folder, after an empty file system lies over each of the hidden ones."""


class Standalone:
    """A running cluster.

    Attributes:
        master: Its URL, for ``KDI_SPARK_MASTER``.
        hidden: A folder that only the driver sees.
        workers: Its workers by their names, one core each.

    Args:
        environment: Variables of the workers' machines; they have none of this process.
    """

    def __init__(
        self,
        folder: Path,
        *,
        home: Path,
        workers: int = 2,
        java_options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder, self._home, self._java_options = folder, home, tuple(java_options)
        self._environment = dict(environment or {})
        self.hidden = folder / "driver"
        self.hidden.mkdir()
        self.workers: dict[str, Child] = {}
        self._master, log = self._start("master", "master.Master")
        try:
            self.master = _found(log, r"Starting Spark master at (spark://\S+)", self._master)
            for number in range(1, workers + 1):
                self.add_worker(f"worker{number}")
        except BaseException:
            self.stop()
            raise

    def add_worker(self, name: str) -> None:
        """Start a worker, and wait until the master has it."""
        options = ("--cores", "1", "--memory", f"{EXECUTOR_MB}m", "--work-dir", str(self._folder / name / "work"))
        self.workers[name], log = self._start(name, "worker.Worker", *options, self.master)
        _found(log, "Successfully (registered) with master", self.workers[name])

    def executor(self, name: str) -> psutil.Process | None:
        """The JVM of the worker's executor; none if no driver has one there."""
        return next(filter(_is_executor, psutil.Process(self.workers[name].pid).children()), None)

    def kill_worker(self, name: str) -> None:
        """End a worker and its executor at once (SIGKILL)."""
        self.workers.pop(name).kill()

    def stop(self) -> None:
        """End all its processes."""
        for child in (*self.workers.values(), self._master):
            child.kill()

    def _start(self, name: str, class_: str, *options: str) -> tuple[Child, Path]:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        hidden = [CHECKOUT / ".kdi" / "jars", CHECKOUT / "kdi_assets", self.hidden]
        variables = {
            "HIDDEN": ":".join(map(str, hidden)),
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "JAVA_HOME": str(find_java(self._home)),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(self._java_options),
            **self._environment,
        }
        alone = ("unshare", "--map-root-user", "--mount", "env", "-i", *(f"{k}={v}" for k, v in variables.items()))
        spark: list[str | Path] = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{class_}"]
        spark += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *options]
        log = folder / "log"
        log.unlink(missing_ok=True)
        return Child([*alone, "sh", "-c", HIDE_AND_RUN, "sh", folder, *spark], log=log), log


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    except (psutil.ZombieProcess, psutil.NoSuchProcess):  # an executor of an earlier driver
        return False


def _found(log: Path, pattern: str, child: Child) -> str:
    """What the pattern's group matches in the log, once it is there."""

    def matched() -> re.Match[str] | None:
        text = log.read_text(errors="replace") if log.exists() else ""
        assert child.exit_code() is None, text
        return re.search(pattern, text)

    wait_until(lambda: bool(matched()), seconds=60)
    found = matched()
    assert found
    return found[1]
