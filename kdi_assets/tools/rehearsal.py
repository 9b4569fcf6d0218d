"""Makes the class-data archive (``runtime.archive``): the JVM of a drain of generated messages writes it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.kinesis_stream import Consumer, KinesisStream
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.runtime.archive import QUIET_OPTIONS, archive_name, whole_archive
from kdi_assets.runtime.jars import spark_groups
from kdi_assets.runtime.java import find_java
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.spark import open_session
from kdi_assets.runtime.spark_jvm import stop_spark
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from kdi_assets.tools.local.broker import QUICK_START, start_broker
from kdi_assets.tools.local.generator import Traffic
from kdi_assets.tools.local.kinesis.producer import put_web_requests
from kdi_assets.tools.local.kinesis.server import start_kinesis
from kdi_assets.tools.local.publisher import publish

MESSAGES, BAD, SECONDS = 100, 0.1, 600
FIELDS: Mapping[str, Any] = {
    "record_ddl": "meta struct<producer: struct<timestamp: string>>, method string, status int, url string",
    "columns": {"host": "parse_url(url, 'HOST')"},
    "date_expression": "to_date(substr(meta.producer.timestamp, 1, 10))",
}
"""Of a stream of the messages that the generators make."""
OF_A_CLUSTER = frozenset({"HADOOP_CONF_DIR", "SPARK_CONF_DIR", "YARN_CONF_DIR"})
"""Spark puts their folders on the class path, and Java makes no archive with a folder there."""


def make_archive(settings: Settings, report: Callable[[str], None]) -> None:
    """Make the class-data archive of this Java and these jars, and remove others; a failure only costs speed.

    Args:
        report: Called with one line on the result.

    Raises:
        JarMissing: The locked jars are not there.
        JavaMissing: There is no Java.
    """
    home = settings.home
    java_home = find_java(home)
    if (name := archive_name(settings, java_home)) is None:
        report("spark   no class-data archive: this Java lacks the base archive")
        return
    if path := whole_archive(settings, java_home):
        report(f"spark   {path.name}  is there")
        return
    report("spark   making a class-data archive from a drain of generated messages: up to a minute")
    # In a temporary folder, then renamed: so it is whole, and two processes can make it at the same time.
    with TemporaryDirectory(dir=home / "jars", prefix=".archive-") as folder:
        with announced(WorkStep(name="spark", doing="making the class-data archive")):
            new, problem = Path(folder) / "new.jsa", _rehearse_in_process(settings, Path(folder))
        if not new.is_file():
            report(f"spark   no class-data archive, starts of Spark take longer: {problem}")
            return
        path = new.rename(home / "jars" / f"{name}-{new.stat().st_size}.jsa")
    for other in path.parent.glob("classes-*.jsa"):
        if other != path:
            other.unlink(missing_ok=True)
    report(f"spark   {path.name}  made")


def _rehearse_in_process(settings: Settings, folder: Path) -> str:
    """Run ``rehearse`` in a process of its own; returns the end of its errors, in case there is no archive."""
    command = [sys.executable, "-m", __name__, str(folder)]
    ours = {"KDI_HOME": str(settings.home), "KDI_LAKE": settings.lake, "KDI_DRIVER": "own"}
    environment = {name: value for name, value in os.environ.items() if name not in OF_A_CLUSTER} | ours
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"not done within {SECONDS} seconds"
    return done.stderr.strip()[-300:]


def made_up(cluster: Cluster) -> Stream:
    """A stream of the messages of ``publish``."""
    return Stream(
        topic="rehearsal",
        table="rehearsal",
        cluster=cluster,
        **FIELDS,
    )


@contextmanager
def _of_kinesis(settings: Settings) -> Iterator[list[Stream]]:
    """Streams of Kinesis with the same messages, one for each way to read them; none without Kinesis' jars."""
    if "kinesis" not in spark_groups(settings):
        yield []
        return
    server = start_kinesis()
    try:
        os.environ.update(server.environment())
        modes: tuple[Literal["polling", "efo"], ...] = ("polling", "efo")
        for mode in modes:
            put_web_requests(mode, Traffic(bad=BAD, seed=1), count=MESSAGES, aggregate=False, shards=1)
        region = KinesisRegion("main", server.environment()["AWS_REGION"])
        yield [KinesisStream(topic=m, table=m, cluster=region, consumer=Consumer(mode=m), **FIELDS) for m in modes]
    finally:
        server.stop()


def rehearse(folder: Path) -> None:
    """Drain some messages in a JVM that writes its archive ``new.jsa`` into the folder at its end."""
    settings = replace(Settings.from_environment(), spark_master="local[1]")
    broker = start_broker(folder / "broker", home=settings.home, jvm_options=("-Xmx256m", *QUICK_START))
    try:
        stream = made_up(Cluster("main", broker.bootstrap_servers))
        publish(stream.kafka, stream.topic, Traffic(bad=BAD, seed=1), count=MESSAGES, partitions=2)
        options = [*QUICK_START, *QUIET_OPTIONS, f"-XX:ArchiveClassesAtExit={shlex.quote(str(folder / 'new.jsa'))}"]
        spark = open_session(settings, config={"spark.driver.extraJavaOptions": " ".join(options)})
        with _of_kinesis(settings) as others:
            for each in (stream, *others):
                drain(each, lake=str(folder / "lake"), session=lambda: spark)
        stop_spark(spark, within_seconds=SECONDS)
    finally:
        broker.stop()


if __name__ == "__main__":
    rehearse(Path(sys.argv[1]))
