"""Executors on other machines: they see neither the driver's jars nor its disk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from kdi_assets.runtime.errors import ContextDidNotStart, FolderNotWritable, LakeNotShared, LakeOfOtherFileSystem
from kdi_assets.runtime.jars import UNSIGNED
from kdi_assets.runtime.spark_failures import FailureKind, SparkFailure, translated
from kdi_assets.runtime.spark_internals import hadoop_setting

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

JARS = "spark.jars"


def runs_here(master: str | None) -> bool:
    """Whether Spark runs its tasks in the driver's JVM, by ``spark.master``."""
    return master is not None and (master == "local" or master.startswith("local["))


def send_jars(conf: SparkConf, jars: Sequence[Path]) -> None:
    """Let executors fetch our jars from the driver, beside those that Spark's own configuration names."""
    ours = [str(jar) for jar in jars if not jar.name.endswith(UNSIGNED)]  # an executor has the signed ones before ours
    conf.set(JARS, ",".join([*ours, *filter(None, [conf.get(JARS, "")])]))


def refuse_path_of_other_file_system(spark: SparkSession, lake: str) -> None:
    """Refuse a lake without a scheme where Spark would look for it elsewhere than Python does: on Hadoop's default.

    Raises:
        LakeOfOtherFileSystem: ``fs.defaultFS`` is not this machine's file system.
    """
    default = hadoop_setting(spark, "fs.defaultFS")
    if not urlsplit(lake).scheme and urlsplit(default).scheme != "file":
        raise LakeOfOtherFileSystem(lake=lake, default=default, uri=Path(lake).as_uri())


def refuse_unshared_lake(spark: SparkSession, lake: str) -> None:
    """Let an executor read a file that the driver has just written into the lake, if the lake is a folder.

    Otherwise each executor would write its data files to its own disk, where no reader finds them.

    Raises:
        FolderNotWritable: The driver cannot write it.
        LakeNotShared: The executor does not find it, or may not read it.
        NoExecutors: There is none.
        ContextDidNotStart: The executor did not look.
    """
    parts = urlsplit(lake)
    if parts.scheme not in ("", "file"):
        return
    folder = Path(unquote(parts.path) if parts.scheme else lake)
    probe = folder / f"kdi-probe-{uuid4()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_text("Is this folder shared with the executors?\n")
    except OSError as refused:
        with suppress(OSError):
            probe.unlink()
        raise FolderNotWritable.of(folder, refused) from refused

    def error_of(failure: SparkFailure) -> LakeNotShared | ContextDidNotStart:
        forbidden = failure.kind is FailureKind.STORAGE
        if (failure.is_missing_file or forbidden) and probe.name in failure.root:  # executors have other files too
            return LakeNotShared(lake=lake, detail=failure.root)
        return ContextDidNotStart(master=str(spark.sparkContext.master), detail=failure.root)

    try:
        with translated(error_of):
            spark.read.text(f"file://{probe}").count()
    finally:
        probe.unlink()
