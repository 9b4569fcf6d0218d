"""What the benchmarks share: console, folder, broker, session, measured work, and a section of a page."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from benchmarks.page import Measured, write_section
from benchmarks.worker import HERE
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.runtime.spark import close_session, open_session
from kdi_assets.runtime.spark_internals import jvm_cpu_seconds
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import start_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
console = Console(highlight=False, soft_wrap=True)


def option_parser(name: str, doc: str | None, *, rounds: int | None = None, write: str = "") -> argparse.ArgumentParser:
    """The options of ``python -m benchmarks.NAME``.

    Args:
        doc: Of the module; its first paragraph is the description.
        rounds: The usual number, for a benchmark with rounds.
        write: The page that the figures go into with ``--write``.
    """
    description = " ".join((doc or "").partition("\n\n")[0].split())
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="default: %(default)s")
    if write:
        parser.add_argument("--write", action="store_true", help=f"write {write}")
    return parser


def show_section(text: str, begin: str, page: str, *, write: bool) -> None:
    """Print a section of a page, and put it there if asked."""
    console.print(f"\n{text}", markup=False)
    if write:
        write_section(HERE / page, begin, text)


def beginning() -> Measured:
    """The code and the machine as they are before the first round."""
    return Measured.beginning(HERE)


@contextmanager
def own_folder(name: str = "") -> Iterator[Path]:
    """A folder below ``benchmark`` of ``KDI_HOME``: empty at first, removed at the end."""
    folder = Settings.from_environment().home / "benchmark" / name
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


@contextmanager
def own_broker(folder: Path) -> Iterator[Cluster]:
    """A broker with its data in ``broker`` of the folder."""
    broker = start_broker(folder / "broker", home=Settings.from_environment().home)
    try:
        yield Cluster("main", broker.bootstrap_servers)
    finally:
        broker.stop()


@contextmanager
def own_session(
    lake: Path | str, *, master: str = "local[*]", config: dict[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that reaches the lake; ``KDI_SPARK_MASTER`` goes before ``master``."""
    settings = Settings.from_environment()
    settings = replace(settings, lake=str(lake), spark_master=settings.spark_master or master, driver="own")
    spark = open_session(settings, config=config or {}, app_name="kdi benchmark")
    try:
        yield spark
    finally:
        close_session(spark)


@dataclass(frozen=True, slots=True)
class JvmCost:
    """Wall seconds of a piece of work, and CPU seconds of the driver's JVM."""

    seconds: float
    cpu_seconds: float


def measured(spark: SparkSession, work: Callable[[], Result]) -> tuple[Result, JvmCost]:
    """The result of a piece of work, and its cost."""
    began, used = time.monotonic(), jvm_cpu_seconds(spark)
    result = work()
    return result, JvmCost(time.monotonic() - began, jvm_cpu_seconds(spark) - used)


def medians(costs: Iterable[object], *figures: str) -> list[float]:
    """The median of each of these figures, by the names of their fields."""
    every = list(costs)
    return [median(map(attrgetter(figure), every)) for figure in figures]


def hold(promise: bool, broken: str) -> None:
    """End the benchmark if what it measures does not do what it promises."""
    if not promise:
        sys.exit(broken)
