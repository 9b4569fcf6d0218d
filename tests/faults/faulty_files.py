"""Storage that fails as it is told to: a layer under Spark's files in a warm driver of the tests' own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdi_assets.runtime.broker import QUICK_START
from kdi_assets.runtime.control import DriverGone, driver_status
from kdi_assets.runtime.processes import Child
from tests.conftest import CHECKOUT
from tests.driven import WEB_REQUESTS, DrivenStream
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(__file__).with_name("storage") / "FaultyFiles.java"
SLOW_DOWN = "503 Slow Down"
DISK_FULL = "No space left on device"
READ_ONLY = "Read-only file system"

_SITE = """<configuration>
  <property><name>fs.file.impl</name><value>kdi.tests.FaultyFiles</value></property>
  <property><name>fs.AbstractFileSystem.file.impl</name><value>kdi.tests.FaultyFiles$Context</value></property>
  <property><name>kdi.tests.faults</name><value>{rules}</value></property>
</configuration>
"""
_DOCUMENT = """
type: kdi_assets.components.TopicTable
attributes:
  topic: {topic}
  table: bronze/{topic}
  schema: "{schema}"
  date: "{date}"
  columns: {columns}
  coordinates: {coordinates}
"""


@dataclass(frozen=True)
class Fault:
    """One rule: operations on matching paths fail, or wait.

    Attributes:
        operation: ``create``, ``write``, ``close``, ``open``, ``rename``, ``after rename``, ``list``, ``delete`` or
            ``mkdirs``.
        path: A regular expression that is found in the path.
        what: The error's text, or ``delay`` and milliseconds.
        probability: That an operation meets it.
        times: How often at most; -1 for ever.
    """

    operation: str
    path: str
    what: str = SLOW_DOWN
    probability: float = 1.0
    times: int = -1

    def line(self) -> str:
        return "\t".join((self.operation, self.path, self.what, str(self.probability), str(self.times)))


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str


class FaultyStorage:
    """A warm driver over faulty files, and a process that runs `kdi` commands on it."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        """Compile the layer in the JVM of ``spark``, and start driver and commands.

        Args:
            folder: Empty; everything of them lies there.
        """
        self.home, self.rules = folder / "home", folder / "rules"
        self.local = folder / "local"
        classes = folder / "classes"
        for made in (self.home, self.local, classes):
            made.mkdir()
        (self.home / "jars").symlink_to(CHECKOUT / ".kdi" / "jars")
        _compile(spark, classes)
        (classes / "core-site.xml").write_text(_SITE.format(rules=self.rules))
        self._environment = {
            "KDI_HOME": str(self.home),
            "KDI_DRIVER": "shared",
            "KDI_SPARK_MASTER": "local[2]",
            "HADOOP_CONF_DIR": str(classes),
            "SPARK_LOCAL_DIRS": str(self.local),
            "SPARK_DRIVER_MEMORY": "1g",
            "SPARK_SUBMIT_OPTS": " ".join(QUICK_START),
        }
        log = folder / "log"
        kdi = Path(sys.executable).with_name("kdi")
        self._driver = Child([kdi, "driver", "run"], environment=self._environment, log=log)
        self._commands = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.commands"],
            cwd=CHECKOUT,
            env={**os.environ, **self._environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: self._answers(log), seconds=120)

    def fails(self, *faults: Fault, seed: int = 0, name: str = "") -> None:
        """From now on, by these rules and no others.

        Args:
            name: Sets rules apart that are otherwise the same: what was met before does not count for them.
        """
        log = self.rules.with_name("rules.log")
        log.unlink(missing_ok=True)
        told = "\n".join([f"{seed}\t{name}", *(fault.line() for fault in faults)])
        self.rules.with_suffix(".new").write_text(told)
        self.rules.with_suffix(".new").replace(self.rules)  # whole, or not at all: it is read all the time

    def heals(self) -> None:
        """From now on nothing fails."""
        self.rules.unlink(missing_ok=True)

    def met(self) -> list[str]:
        """What happened under the newest rules: operation, path and fault of each."""
        log = self.rules.with_name("rules.log")
        return log.read_text().splitlines() if log.exists() else []

    def drain(self, web: DrivenStream) -> Answer:
        """`kdi drain`, as a person types it."""
        return self.kdi(web, "drain", web.stream.name)

    def kdi(self, web: DrivenStream, *arguments: str) -> Answer:
        """Any command about the stream."""
        defs = Path(web.lake).with_name("defs")
        (defs / "web").mkdir(parents=True, exist_ok=True)
        (defs / "web" / "defs.yaml").write_text(_document(web))
        variables = {
            "KDI_LAKE": web.lake,
            "KDI_KAFKA": web.stream.cluster.bootstrap_servers,
            "KDI_DEFS": str(defs),
        }
        return self._ask(variables, arguments)

    @contextmanager
    def without_local_folder(self) -> Iterator[None]:
        """While the body runs, Spark finds files where its folders for shuffles and spills should be."""
        folders = [f for f in self.local.rglob("blockmgr-*") if f.is_dir()]
        assert folders
        for folder in folders:
            folder.rename(folder.with_name(f"away-{folder.name}"))
            folder.write_text("not a folder")
        try:
            yield
        finally:
            for folder in folders:
                folder.unlink()
                folder.with_name(f"away-{folder.name}").rename(folder)

    def stop(self) -> None:
        """End both processes."""
        self._commands.communicate(timeout=30)
        self._driver.stop()

    def _ask(self, variables: Mapping[str, str], arguments: tuple[str, ...]) -> Answer:
        assert self._commands.stdin is not None
        assert self._commands.stdout is not None
        self._commands.stdin.write(json.dumps([variables, arguments]) + "\n")
        self._commands.stdin.flush()
        return Answer(**json.loads(self._commands.stdout.readline()))

    def _answers(self, log: Path) -> bool:
        assert self._driver.exit_code() is None, log.read_text()
        try:
            return bool(driver_status(self.home))
        except DriverGone:
            return False


def _compile(spark: SparkSession, into: Path) -> None:
    """Compile the layer without a JDK: Spark brings a compiler for the code that it generates itself."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(SOURCE.read_text())
    for name, code in compiler.getBytecodes().items():
        file = into / f"{name.replace('.', '/')}.class"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(code))


def _document(web: DrivenStream) -> str:
    return _DOCUMENT.format(
        topic=web.stream.topic,
        schema=WEB_REQUESTS,
        date=web.stream.date_expression,
        columns=json.dumps(dict(web.stream.columns)),
        coordinates=web.stream.coordinates,
    )
