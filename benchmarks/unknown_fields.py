"""What it costs to count the unknown fields of JSON: messages judged and written with and without, in one process."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.topic import DATES
from benchmarks.usage import jvm_cpu_seconds
from kdi_assets.components.load import load_streams
from kdi_assets.drain.judge import counted, judge
from kdi_assets.drain.records import stream_decoder
from kdi_assets.formats.decoder import Decoder
from kdi_assets.formats.of_stream import StreamDecoder
from kdi_assets.formats.rules import Rule
from kdi_assets.runtime.session import open_session
from kdi_assets.settings import Settings
from kdi_assets.sources.generator import Traffic, WebRequests
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

DIFFERENT, WARM_UP_ROUNDS = 3_000, 2
console = Console(highlight=False)

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """What is done to a document, the fields that are declared beside the demo's, and how many messages have some."""

    change: Callable[[Document, int], Document]
    fields: int = 0
    share: float = 1.0


def _three(document: Document, number: int) -> Document:
    return {**document, "plan": "gold", "attempt": number % 3, "region": "eu-central"}


def _with_object(document: Document, number: int) -> Document:
    return {**document, "plan": "gold", "trace": {"id": f"{number:016x}", "sampled": True}, "attempt": number % 3}


def _with_null(document: Document, number: int) -> Document:
    return {**document, "plan": "gold", "attempt": number % 3, "region": None if number % 2 else "eu-central"}


def _null_alone(document: Document, number: int) -> Document:
    return {**document, **({"region": None} if number % 2 else {})}


def _below(document: Document, number: int) -> Document:
    return {**document, "meta": {**document["meta"], "host": f"host-{number % 7}"}}


CASES: Mapping[str, Case] = {
    "none": Case(lambda document, number: document, share=0.0),
    "none; null in every second message": Case(_null_alone, share=0.0),
    "three": Case(_three),
    "three, one an object": Case(_with_object),
    "three, one null in every second message": Case(_with_null),
    "one inside a declared field": Case(_below),
    "three beside 60 declared": Case(lambda d, n: {**_three(d, n), **{f"c{i}": f"v{i}" for i in range(54)}}, fields=54),
}


@dataclass(frozen=True, slots=True)
class Silent:
    """A decoder that tells of no unknown fields."""

    inner: Decoder

    def record_type(self, ddl: str) -> StructType:
        """Of the decoder inside, as the others."""
        return self.inner.record_type(ddl)

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        """Of the decoder inside."""
        return self.inner.decode(messages, record)

    def rules(self, record: StructType) -> list[Rule]:
        """Of the decoder inside."""
        return self.inner.rules(record)


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge and write every case with and without counting in turn, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unknown_fields", description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000, help="of each case")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    options = parser.parse_args(arguments)
    settings = Settings.from_environment()
    folder = settings.home / "benchmark"
    spark = open_session(settings, app_name="unknown-fields")
    table = Table("unknown fields", "CPU s without", "with", "ratio")
    try:
        for name in options.only:
            without, with_ = measured(spark, CASES[name], folder, options.messages, options.rounds)
            table.add_row(name, f"{without:.2f}", f"{with_:.2f}", f"{with_ / without:.2f}")
            console.print(f"{name}: {without:.2f} s without, {with_:.2f} s with: {with_ / without:.2f}")
    finally:
        spark.stop()
        rmtree(folder, ignore_errors=True)
    console.print(table)


def measured(spark: SparkSession, case: Case, folder: Path, messages: int, rounds: int) -> tuple[float, float]:
    """Medians of the CPU seconds without and with counting, in turn."""
    stream = load_streams()["bronze/web_requests"]
    more = "".join(f", c{n} string" for n in range(case.fields))
    stream = replace(stream, record_ddl=f"{stream.record_ddl}{more}")
    frame = published(spark, case, messages).cache()
    frame.count()
    decoder = stream_decoder(stream)
    silent = replace(decoder, of_payloads=Silent(decoder.of_payloads))
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for number in range(1 - WARM_UP_ROUNDS, rounds + 1):
        for counting, used in ((False, silent), (True, decoder)):
            cost = written(frame, stream, used, folder, expected=round(messages * case.share) if counting else 0)
            if number > 0:
                seconds[counting].append(cost)
    frame.unpersist()
    return median(seconds[False]), median(seconds[True])


def published(spark: SparkSession, case: Case, messages: int) -> DataFrame:
    """So many messages, of some thousand different ones."""
    requests = WebRequests(Traffic(dates=DATES, seed=1)).batch(DIFFERENT, now=datetime.now(UTC))
    values = [json.dumps(case.change(json.loads(v), n)).encode() for n, v in enumerate(requests) if v is not None]
    few = spark.createDataFrame([(n, value) for n, value in enumerate(values)], "n int, value binary")
    many = spark.range(messages).selectExpr("id AS offset", f"CAST(id % {DIFFERENT} AS INT) AS n").join(few, "n")
    headers = "CAST(NULL AS array<struct<key: string, value: binary>>) AS headers"
    coordinates = ("'t' AS topic", "0 AS partition", "offset", "current_timestamp() AS timestamp", "0 AS timestampType")
    return many.selectExpr("CAST(NULL AS binary) AS key", "value", *coordinates, headers)


def written(frame: DataFrame, stream: Stream, decoder: StreamDecoder, folder: Path, *, expected: int) -> float:
    """CPU seconds of the JVM for rows in Parquet files; as many messages as expected have unknown fields."""
    from pyspark.sql import Observation

    observation, before = Observation(), jvm_cpu_seconds(frame.sparkSession)
    rows = judge(frame, stream, decoder, now=datetime.now(UTC), topic_partitions=1, counts=observation)
    rows.write.mode("overwrite").parquet(str(folder / "rows"))
    cost = jvm_cpu_seconds(frame.sparkSession) - before
    counts = counted(observation, stream)
    if counts.dead_letters or counts.unknown.fields.messages != expected:
        sys.exit(f"{counts.dead_letters} dead letters, {counts.unknown.fields.messages} with unknown fields")
    return cost


if __name__ == "__main__":
    main()
