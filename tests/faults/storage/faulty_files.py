"""Storage that fails on request: a layer under Spark's files in the tests' own warm driver."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdi_assets.cli.main import main
from tests.documents import written
from tests.driven import DrivenStream, web_requests_document
from tests.faults.doomed_drain import in_a_process, processes
from tests.faults.warm_driver import WarmDriver
from tests.typed import Answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(__file__).with_name("FaultyFiles.java")
SLOW_DOWN = "503 Slow Down"
DISK_FULL = "No space left on device"
READ_ONLY = "Read-only file system"

_SITE = """<configuration>
  <property><name>fs.file.impl</name><value>kdi.tests.FaultyFiles</value></property>
  <property><name>fs.AbstractFileSystem.file.impl</name><value>kdi.tests.FaultyFiles$Context</value></property>
  <property><name>kdi.tests.faults</name><value>{rules}</value></property>
</configuration>
"""


@dataclass(frozen=True)
class Fault:
    """One rule: operations on matching paths fail, or wait.

    Attributes:
        operation: ``create``, ``write``, ``close``, ``open``, ``rename``, ``after rename``, ``list``, ``delete`` or
            ``mkdirs``.
        path: A regular expression that is found in the path.
        what: The error's text, or ``delay`` and milliseconds.
        probability: That the rule applies to an operation.
        times: How often at most; -1 for ever.
    """

    operation: str
    path: str
    what: str = SLOW_DOWN
    probability: float = 1.0
    times: int = -1

    def line(self) -> str:
        return "\t".join((self.operation, self.path, self.what, str(self.probability), str(self.times)))


class FaultyStorage(WarmDriver):
    """A warm driver over faulty files, for `kdi` commands in separate processes."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        """Compile the layer in the JVM of ``spark``, and start the driver.

        Args:
            folder: Empty; all of its files go there.
        """
        self.rules, self.local, classes = (folder / name for name in ("rules", "local", "classes"))
        for made in (folder / "home", self.local, classes):
            made.mkdir()
        _compile(spark, classes)
        (classes / "core-site.xml").write_text(_SITE.format(rules=self.rules))
        super().__init__(folder / "home", {"HADOOP_CONF_DIR": str(classes), "SPARK_LOCAL_DIRS": str(self.local)})

    def fails(self, *faults: Fault, seed: int = 0) -> None:
        """Apply these rules and no others from now on."""
        log = self.rules.with_name("rules.log")
        log.unlink(missing_ok=True)
        told = "\n".join([str(seed), *(fault.line() for fault in faults)])
        self.rules.with_suffix(".new").write_text(told)
        self.rules.with_suffix(".new").replace(self.rules)  # whole, or not at all: it is read all the time

    def heals(self) -> None:
        """Apply no rules from now on."""
        self.rules.unlink(missing_ok=True)

    def met(self) -> list[str]:
        """What the newest rules did: operation, path and fault of each."""
        log = self.rules.with_name("rules.log")
        return log.read_text().splitlines() if log.exists() else []

    def drain(self, web: DrivenStream) -> Answer:
        """`kdi drain`, as a person types it."""
        defs = written(Path(web.lake).with_name("defs"), web=web_requests_document(web.stream.topic))
        where = {"KDI_LAKE": web.lake, "KDI_KAFKA": web.stream.kafka.bootstrap_servers, "KDI_DEFS": str(defs)}
        answers, theirs = processes().Pipe(duplex=False)
        environment = {**self.environment, "KDI_DRIVER": "shared", **where}
        in_a_process(_run_kdi, environment, ("drain", web.stream.name), theirs)
        theirs.close()
        return Answer(*answers.recv())

    @contextmanager
    def without_local_folder(self) -> Iterator[None]:
        """During the body, Spark finds files in the place of its folders for shuffles and spills."""
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


def _run_kdi(environment: Mapping[str, str], arguments: Sequence[str], answer: Connection) -> None:
    """In the process: run the command as the shell would."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    os.environ.update(environment)
    sys.argv = ["kdi", *arguments]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        except Exception as untranslated:  # noqa: BLE001 - a user would see a traceback
            err.write(f"Traceback: {untranslated!r}")
            code = -1
    answer.send((code, out.getvalue(), err.getvalue()))
    os._exit(0)  # in any case, also after a failed command


def _compile(spark: SparkSession, into: Path) -> None:
    """Compile the layer without a JDK: Spark has a compiler for its generated code."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(SOURCE.read_text())
    for name, code in compiler.getBytecodes().items():
        file = into / f"{name.replace('.', '/')}.class"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(code))
