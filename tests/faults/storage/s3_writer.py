"""A process that appends rows to one table in S3 until it is killed: ``python -m tests.faults.storage.s3_writer …``.

Its journal has a line before and a line after each append, so that the race knows which appends were acknowledged.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import QUICK_START

CLASS_PATH = "spark.driver.extraClassPath"
PAUSE_SECONDS = 1.0
Append = Callable[[str, int], object]


def appending_by_spark(uri: str, log_store: str) -> Append:
    """Appends of one row each by Spark; ``log_store`` is a class in place of ours, empty for ours."""
    from kdi_assets.runtime.jars import jar_paths
    from kdi_assets.runtime.spark import open_session
    from kdi_assets.runtime.spark_config import lake_config

    settings = Settings(home=Path(os.environ["KDI_HOME"]), lake=uri.rpartition("/")[0], spark_master="local[1]")
    config = {
        "spark.driver.extraJavaOptions": " ".join(QUICK_START),
        "spark.driver.memory": "768m",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    if log_store:  # a lake on S3 refuses it, so this session has the settings of S3 without such a lake
        jars = os.pathsep.join(map(str, jar_paths(settings.home / "jars", "s3")))
        config |= {**lake_config(settings), "spark.delta.logStore.s3.impl": log_store, CLASS_PATH: jars}
        settings = replace(settings, lake=str(settings.home / "lake"))
    spark = open_session(settings, config=config)
    return lambda writer, number: spark.sql(f"INSERT INTO delta.`{uri}` VALUES ('{writer}', {number}L)")


def appending_by_delta_rs(uri: str) -> Append:
    """Appends of one row each by delta-rs, slowly: it is ten times as fast as Spark, which would win no version."""
    import pyarrow as pa
    from deltalake import write_deltalake

    def append(writer: str, number: int) -> None:
        time.sleep(PAUSE_SECONDS)
        write_deltalake(uri, pa.table({"writer": [writer], "number": pa.array([number], pa.int64())}), mode="append")

    return append


def write(writer: str, uri: str, journal: Path, log_store: str) -> None:
    """Append rows with growing numbers, beyond those of the journal."""
    tried = [int(line.split()[1]) for line in journal.read_text().splitlines()] if journal.exists() else []
    append = appending_by_spark(uri, log_store) if writer.startswith("spark") else appending_by_delta_rs(uri)
    number = max(tried, default=0)
    with journal.open("a", buffering=1) as lines:
        while True:
            number += 1
            lines.write(f"try {number}\n")
            try:
                append(writer, number)
            except Exception as failed:  # noqa: BLE001 - whatever it is, the row may be there or not
                lines.write(f"failed {number} {type(failed).__name__} {' '.join(str(failed).split())[:300]}\n")
            else:
                lines.write(f"done {number}\n")


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
