"""How long an audit takes, and whether its memory grows with the table: a tenth of the offsets, and all of them.

The table is made without Kafka: Spark writes rows and dead letters, committed as by a drain, with the counts and
digests that a drain would have recorded.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psutil

from benchmarks.harness import console, hold, option_parser, own_folder
from benchmarks.usage import Meter, Usage
from kdi_assets.delta.transaction import stage_rows
from kdi_assets.documents.model.stream import Cluster, OffsetRange, Stream, TopicPartition
from kdi_assets.runtime.spark import close_session, open_session
from kdi_assets.settings import Settings
from kdi_assets.streams.ledger.commit import commit, create_table
from kdi_assets.streams.ledger.entry import LedgerEntry, RangeCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Session = Callable[[], "SparkSession"]
PARTITIONS, COMMITS, WARM_ROUNDS = 4, 10, 3
LETTER_EVERY, TOMBSTONE_EVERY = 97, 101
STREAM = Stream(
    topic="audited",
    table="bronze/audited",
    record_ddl="id bigint, name string",
    date_expression="date'2026-01-01'",
    cluster=Cluster("main", "localhost:9092"),
    properties={"delta.enableChangeDataFeed": "true", "delta.enableExpiredLogCleanup": "false"},
)
DOCUMENT = """
type: kdi_assets.components.TopicTable
attributes: {topic: audited, table: bronze/audited, schema: "id bigint, name string", date: "date'2026-01-01'"}
"""
COLUMNS = (
    "id",
    "concat('a name of some length, number ', id) AS name",
    "named_struct('topic', 'audited', 'partition', partition, 'offset', offset, 'timestamp', now()) AS kafka",
    "date'2026-01-01' AS date",
)
KIND = f"(CASE WHEN offset % {LETTER_EVERY} = 0 THEN 'letter' WHEN offset % {TOMBSTONE_EVERY} = 0 THEN 'tombstone' END)"


def main(arguments: Sequence[str] | None = None) -> None:
    """Make both tables, and audit each warm, in one process, and cold, as a command."""
    parser = option_parser("audit", __doc__)
    parser.add_argument("--offsets", type=int, default=10_000_000)
    parser.add_argument("--delete", type=int, default=0, help="delete so many offsets of each topic partition first")
    options = parser.parse_args(arguments)
    with own_folder() as folder:
        for offsets in (options.offsets // 10, options.offsets):
            lake = folder / str(offsets)
            in_process(_make, lake, offsets, options.delete)
            warm = in_process(_audit, lake, offsets, options.delete)
            show(offsets, "warm process", Usage(*(median(figure) for figure in zip(*warm, strict=True))))
            show(offsets, "`kdi audit`, cold", command(lake))


def show(offsets: int, how: str, usage: Usage) -> None:
    """One line."""
    figures = (
        f"{usage.wall_seconds:.1f} s, CPU {usage.cpu_seconds:.1f} s, peak RSS {usage.peak_rss_bytes / 1e6:,.0f} MB"
    )
    console.print(f"{offsets:,} offsets, {how}: {figures}")


def _make(session: Session, lake: Path, offsets: int, delete: int) -> None:
    """A table of this many offsets in ten commits over four topic partitions; some letters, some tombstones."""
    spark = session()
    uri, each = STREAM.table_uri(str(lake)), offsets // PARTITIONS // COMMITS
    tps = [TopicPartition(STREAM.topic, n) for n in range(PARTITIONS)]
    entry = LedgerEntry(-1, "start", STREAM.app_id, "start", STREAM.topic, "topic", "", dict.fromkeys(tps, 0))
    schema = _messages(spark, 0, 1).selectExpr(*COLUMNS).schema
    created = create_table(spark, schema, uri, properties=STREAM.properties, entry=entry)
    for number in range(COMMITS):
        first = number * each
        drained = _drained(spark, lake, created, first, each, tps)
        rows = _messages(spark, first, each).where(f"{KIND} IS NULL").selectExpr(*COLUMNS)
        commit(spark, stage_rows(spark, rows, uri), uri, read_version=number, entry=drained)
    if delete:
        from deltalake import DeltaTable

        DeltaTable(uri).delete(f"kafka.offset < {delete}")


def _drained(
    spark: SparkSession, lake: Path, created: LedgerEntry, first: int, each: int, tps: Sequence[TopicPartition]
) -> LedgerEntry:
    """Write the letters of one commit, and return what a drain would have recorded."""
    messages, attempt = _messages(spark, first, each), f"attempt-{first}"
    letters = messages.where(f"{KIND} = 'letter'").selectExpr("partition", "offset", f"'{attempt}' AS attempt_id")
    letters.write.format("delta").mode("append").save(STREAM.dead_letters_uri(str(lake)))
    [sums] = messages.selectExpr(
        "bit_xor(xxhash64(partition, offset)) AS every",
        f"bit_xor(CASE WHEN {KIND} = 'tombstone' THEN xxhash64(partition, offset) END) AS tombstones",
    ).collect()
    counts = {
        (r["partition"], r["kind"]): r["count"]
        for r in messages.selectExpr("partition", f"{KIND} AS kind").groupBy("partition", "kind").count().collect()
    }
    ranges = tuple(
        RangeCounts(
            OffsetRange(tp, first, first + each),
            *(counts.get((tp.partition, kind), 0) for kind in (None, "letter", "tombstone")),
        )
        for tp in tps
    )
    return LedgerEntry(
        -1,
        "drain",
        STREAM.app_id,
        attempt,
        STREAM.topic,
        "topic",
        created.table_id,
        dict.fromkeys(tps, first + each),
        ranges=ranges,
        digest=sums["every"],
        tombstone_digest=sums["tombstones"] or 0,
    )


def _messages(spark: SparkSession, first: int, each: int) -> DataFrame:
    """``id, partition, offset`` of one commit's messages, in the order of their offsets."""
    ids = spark.range(0, PARTITIONS * each, 1, PARTITIONS)
    return ids.selectExpr("id", f"CAST(id div {each} AS int) AS partition", f"{first} + id % {each} AS offset")


def _audit(session: Session, lake: Path, offsets: int, delete: int) -> list[tuple[float, float, int]]:
    """Audit some rounds after a first one, and check the reports."""
    from kdi_assets.streams.audit.audit import audit

    usages = []
    for number in range(WARM_ROUNDS + 1):
        meter = Meter()
        report = audit(STREAM, lake=str(lake), session=session)
        hold(report.complete and report.offsets == offsets and bool(report.deleted) == bool(delete), report.line())
        if number == 0:
            console.print(report.line())
            continue
        used = meter.read()
        usages.append((used.wall_seconds, used.cpu_seconds, used.peak_rss_bytes))
    return usages


def in_process(work: object, lake: Path, offsets: int, delete: int) -> list[tuple[float, float, int]]:
    """Do a piece of work in its own process, with its own Spark if it asks for one."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(work, lake, offsets, delete, theirs))
    process.start()
    theirs.close()
    try:
        result: list[tuple[float, float, int]] = ours.recv()
    finally:
        process.join()
    return result


def _serve(work: object, lake: Path, offsets: int, delete: int, connection: Connection) -> None:
    @cache
    def session() -> SparkSession:
        return open_session(Settings.from_environment(), app_name="kdi benchmark")

    connection.send(work(session, lake, offsets, delete) if callable(work) else None)
    if session.cache_info().currsize:
        close_session(session())


@dataclass
class Watched:
    """CPU seconds and memory of a process and its children, as last seen of each."""

    cpu: dict[int, float]
    peak: int = 0

    def look(self, process: psutil.Process) -> None:
        """Look once more."""
        held = 0
        for one in (process, *process.children(recursive=True)):
            try:
                self.cpu[one.pid] = sum(one.cpu_times()[:2])
                held += one.memory_info().rss
            except psutil.Error:
                continue
        self.peak = max(self.peak, held)


def command(lake: Path) -> Usage:
    """The whole command from a cold start, watched from outside: its JVM ends before it does."""
    defs = lake / "defs" / "audited"
    defs.mkdir(parents=True, exist_ok=True)
    (defs / "defs.yaml").write_text(DOCUMENT)
    environment = {**os.environ, "KDI_LAKE": str(lake), "KDI_DEFS": str(lake / "defs"), "KDI_KAFKA": "nowhere:1"}
    started = time.monotonic()
    kdi = [str(Path(sys.executable).with_name("kdi")), "audit", STREAM.name]
    process = subprocess.Popen(kdi, env=environment, stdout=subprocess.DEVNULL)
    watched, tree = Watched({}), psutil.Process(process.pid)
    while process.poll() is None:
        try:
            watched.look(tree)
        except psutil.Error:
            break
        time.sleep(0.05)
    if process.wait():
        sys.exit(f"kdi audit ended with {process.returncode}")
    return Usage(time.monotonic() - started, sum(watched.cpu.values()), watched.peak)


if __name__ == "__main__":
    main()
