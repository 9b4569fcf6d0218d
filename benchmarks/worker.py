"""The measured process: it owns a Spark session and executes runs, one after the other.

It may run over the code of another checkout: its input and output are JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from inspect import signature
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, cast

import psutil

from benchmarks.contents import CONTENTS, Fields
from benchmarks.engines import ENGINES, STREAMING, Work
from benchmarks.usage import Meter, StageMeter, Usage
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.runtime.spark import open_session
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER = "benchmark: "
HERE = Path(__file__).resolve().parent.parent
PLAN_RECORDS = 1_000_000  # offsets of one plan: with more, memory would show whether it grows with the number of plans


@dataclass(frozen=True, slots=True)
class Run:
    """A measured run: one engine over this many messages of one content, with the code of one checkout.

    Attributes:
        kind: ``warm``, in a session that has drained before; or ``cold``, from the start of a process.
        engine: Of ``ENGINES``.
        content: Of ``CONTENTS``.
    """

    messages: int
    kind: str
    engine: str
    content: str
    checkout: str = str(HERE)

    @property
    def topic(self) -> str:
        """The name of the topic, and of the table."""
        return f"{self.content}_{self.messages}"

    @property
    def folder(self) -> str:
        """The folder of its tables below a checkout's lake: stages read the table of their drain."""
        return f"{'streaming' if self.engine == STREAMING else 'drain'}_{self.topic}"


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """The cost of a run, and the state of its tables.

    Attributes:
        stages: CPU seconds of a drain by its stages.
        rows: Of all tables; ``None`` for an engine that writes none.
    """

    usage: Usage
    stages: Mapping[str, float]
    rows: int | None
    dead_letters: int


class Worker:
    """A process with a session over the code of a checkout; it ends with the context."""

    def __init__(self, servers: str, lake: Path, checkout: Path) -> None:
        self._lake = lake / str(checkout).strip("/").replace("/", "_")
        # Our benchmarks over their package: nothing else of this checkout is importable.
        self._modules = TemporaryDirectory()
        for package in ("benchmarks", "tests"):
            Path(self._modules.name, package).symlink_to(HERE / package)
        python, path = checkout / ".venv/bin/python", os.pathsep.join([self._modules.name, str(checkout)])
        command = [str(python) if python.exists() else sys.executable, "-P", "-m", "benchmarks.worker"]
        self._process = subprocess.Popen(
            [*command, servers, str(self._lake)],
            cwd=checkout,
            env={"KDI_SPARK_MASTER": "local[*]", **os.environ, "PYTHONPATH": path, "KDI_HOME": str(checkout / ".kdi")},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def carry_out(self, run: Run, *, anew: bool) -> RunAnswer:
        """Wait for a run; the program ends if the worker does.

        Args:
            anew: Whether to start with new tables.
        """
        if anew:
            rmtree(self._lake / run.folder, ignore_errors=True)
        asked, answers = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        asked.write(json.dumps(asdict(run)) + "\n")
        asked.flush()
        for line in answers:
            if line.startswith(ANSWER):
                found = json.loads(line.removeprefix(ANSWER))
                return RunAnswer(**{**found, "usage": Usage(**found["usage"])})
        sys.exit(f"a worker ended during {run}")

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        started = psutil.Process(self._process.pid).children(recursive=True)
        self._process.communicate()  # no more input: it ends
        psutil.wait_procs(started, timeout=30)  # stopping its JVM would be work during the next one
        self._modules.cleanup()


def serve(servers: str, lake: str) -> None:
    """The worker's side: execute the runs, line by line."""
    spark: SparkSession | None = None
    for line in sys.stdin:
        run = Run(**json.loads(line))
        # Only a drain knows its backlog before it starts Spark; a checkout before that does not take it.
        takes = run.kind == "cold" and run.engine != STREAMING and "only_messages" in signature(open_session).parameters
        only: Any = {"only_messages": run.messages} if takes else {}
        spark = spark or open_session(Settings.from_environment(), app_name="kdi benchmark", **only)
        answer = measured(run, servers, lake, spark)
        sys.stdout.write(f"{ANSWER}{json.dumps(asdict(answer))}\n")
        sys.stdout.flush()


def measured(run: Run, servers: str, lake: str, spark: SparkSession) -> RunAnswer:
    """Execute a run, and read what it wrote."""
    names: Fields = {"topic": run.topic, "table": f"bronze/{run.topic}", "app_id": run.topic}
    names |= {"cluster": Cluster("main", servers), "max_records": PLAN_RECORDS}
    stream = replace(load_streams()["bronze/web_requests"], **names)
    stream, lake = replace(stream, **CONTENTS[run.content].stream()), f"{lake}/{run.folder}"
    if CONTENTS[run.content].consumer:
        from benchmarks.kinesis import of_kinesis  # here: a checkout before Kinesis has nothing of it

        stream = of_kinesis(stream, run.content)
    meter = Meter(from_process_start=run.kind == "cold")
    stages = StageMeter(meter)
    tables = ENGINES[run.engine](Work(stream, lake, run.messages, spark, stages))
    usage = meter.read()
    stages.at("the end")
    rows = sum(_rows(table.table_uri(lake)) for table in tables) if tables else None
    return RunAnswer(usage, stages.seconds, rows, sum(_rows(table.dead_letters_uri(lake)) for table in tables))


def _rows(uri: str) -> int:
    """The rows that another reader than Spark finds; 0 without a table."""
    from deltalake import DeltaTable

    return int(DeltaTable(uri).to_pyarrow_dataset().count_rows()) if DeltaTable.is_deltatable(uri) else 0


if __name__ == "__main__":
    serve(*sys.argv[1:])
