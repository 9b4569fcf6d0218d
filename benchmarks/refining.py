"""What it costs to refine what is new, beside a full rebuild; and how often to refine: 24 times a day, or once.

Usage: ``python -m benchmarks.refining [--rows 5000000] [--new 10000] [--rounds 3] [--write]``; with ``--write`` the
figures go into docs/benchmarks.md. It writes web requests into a bronze table by Spark, without Kafka, in a session
that has refined before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from benchmarks.harness import beginning, console, medians, option_parser, own_folder, own_session, show_section
from benchmarks.page import PAGE, table_lines, with_goal
from benchmarks.usage import Meter
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.refine import refine
from kdi_assets.follow.refine.report import RefineReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = "<!-- what `python -m benchmarks.refining` measured -->"
GOAL = 1 / 20
"""Refining what is new in terms of a full rebuild, of CPU seconds."""
DATES, HOSTS, SESSIONS = 30, 50, 100_000
HOURS = 24
"""Batches of a day."""
BRONZE = "bronze/requests"
HEADINGS = ("mode", "new: wall s", "CPU s", "rebuild: wall s", "CPU s", "new / rebuild, CPU")

TABLES: Mapping[str, dict[str, object]] = {
    "append": {"sql": "SELECT date, host, session, status, bytes FROM requests WHERE status < 500"},
    "aggregate": {
        "mode": {
            "aggregate": {
                "by": ["date", "host"],
                "measures": {
                    "requests": "count",
                    "bytes": {"sum": "bytes"},
                    "errors": {"sum": "int(status >= 500)"},
                    "sessions": {"approx_count_distinct": "session"},
                },
            }
        }
    },
    "upsert": {
        "partition_by": None,
        "mode": {"upsert": {"keys": ["session"], "sequence_by": "id", "column_list": ["session", "host", "status"]}},
    },
    "replace_dates": {
        "sql": "SELECT date, host, count(*) AS n, count(DISTINCT session) AS sessions FROM requests GROUP BY ALL",
        "mode": "replace_dates",
    },
    "deduplicate": {"mode": {"deduplicate": {"keys": ["session", "host"], "order_by": "id"}}},
}
"""A refined table of each mode."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU seconds of a refinement, and the rows that it wrote."""

    wall_seconds: float
    cpu_seconds: float
    rows: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the medians, and write them if asked."""
    parser = option_parser("refining", __doc__, rounds=3, write=PAGE)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--new", type=int, default=10_000)
    parser.add_argument("--modes", nargs="+", choices=TABLES, default=list(TABLES))
    options, begun = parser.parse_args(arguments), beginning()
    with own_folder("refining") as lake, own_session(lake) as spark:
        bench = Bench(spark, lake)
        bench.append(options.rows, dates=DATES)
        costs = {mode: list(bench.rounds(mode, options.new, options.rounds)) for mode in options.modes}
        text = f"{begun.where()} {cost_table(costs, options.rows, options.new)}\n\n{bench.frequency_table()}"
    show_section(text, BEGIN, PAGE, write=options.write)


@dataclass
class Bench:
    """A lake of its own, and the session that refines in it."""

    spark: SparkSession
    lake: Path
    rows: int = 0

    def append(self, rows: int, *, dates: int = 1, table: str = BRONZE) -> None:
        """Add requests to the bronze table, spread over the newest dates."""
        made = self.spark.range(self.rows, self.rows + rows).selectExpr(
            "id",
            f"date_sub(DATE'2026-06-30', int(id % {dates})) AS date",
            f"concat('host-', pmod(hash(id), {HOSTS})) AS host",
            f"concat('session-', pmod(xxhash64(id), {SESSIONS})) AS session",
            "int(200 + pmod(hash(id, 1), 4) * 100) AS status",
            "bigint(pmod(hash(id, 2), 100000)) AS bytes",
        )
        self.rows += rows
        writer = made.write.format("delta").mode("append").partitionBy("date")
        writer.option("delta.enableChangeDataFeed", "true").save(str(self.lake / table))

    def refined(self, table: RefinedTableSpec, *, rebuild: bool = False) -> tuple[Cost, RefineReport]:
        """Refine, and what it cost."""
        meter = Meter()
        report = refine(table, lake=str(self.lake), session=lambda: self.spark, rebuild=rebuild)
        used = meter.read()
        return Cost(used.wall_seconds, used.cpu_seconds, report.entry.rows_added), report

    def rounds(self, mode: str, new: int, count: int) -> Iterator[tuple[Cost, Cost]]:
        """The costs of refining new rows and of a rebuild; the first round warms up and does not count."""
        table = table_of(mode)
        # Without the new rows of the mode before, which would make this one's date larger.
        self.spark.sql(f"RESTORE delta.`{self.lake / BRONZE}` TO VERSION AS OF 0")
        self.refined(table)
        for number in range(count + 1):
            self.append(new)
            increment, report = self.refined(table)
            rebuild, _ = self.refined(table, rebuild=True)
            console.print(f"{mode}, round {number}: {report.entry.kind} {increment}, rebuild {rebuild}")
            if number:
                yield increment, rebuild

    def frequency_table(self) -> str:
        """A day in 24 batches, refined after each of them, or once: CPU seconds, aggregation ratio."""
        batch = max(self.rows // (DATES * HOURS), 10_000)
        shown = []
        for often in (HOURS, 4, 1):
            self.rows = 10**9 * often  # rows of its own
            bronze, table = f"bronze/day_{often}", replace(table_of("aggregate"), table=f"gold/day_{often}")
            table = replace(table, upstreams=(replace(table.upstreams[0], table=bronze, name="requests"),))
            self.append(batch, table=bronze)
            self.refined(table)
            costs: list[Cost] = []
            for hour in range(HOURS):
                self.append(batch, table=bronze)
                if (hour + 1) % (HOURS // often) == 0:
                    costs.append(self.refined(table)[0])
            cpu, rows = sum(c.cpu_seconds for c in costs), sum(c.rows for c in costs)
            shown.append((str(often), f"{cpu:.1f}", f"{HOURS * batch / max(rows, 1):,.0f}"))
        return "\n".join(
            [
                f"A day of {HOURS} batches of {batch:,} rows, mode aggregate:",
                "",
                *table_lines(("refined so many times", "CPU s", "new rows for each row written"), shown),
            ]
        )


def table_of(mode: str) -> RefinedTableSpec:
    """The refined table of a mode."""
    written = {"table": f"gold/{mode}", "from": {"table": BRONZE, "as": "requests"}, **TABLES[mode]}
    table: RefinedTableSpec = TypeAdapter(RefinedTableSpec).validate_python(written)
    return table


def cost_table(costs: Mapping[str, Sequence[tuple[Cost, Cost]]], rows: int, new: int) -> str:
    """Medians of each mode, and refining in terms of a rebuild."""
    shown, count = [], len(next(iter(costs.values())))
    counted = f"medians of {count} rounds" if count > 1 else "one round"
    for mode, rounds in costs.items():
        ours, all_ = (medians(costs, "wall_seconds", "cpu_seconds") for costs in zip(*rounds, strict=True))
        ratio = with_goal(ours[1] / all_[1], GOAL)
        shown.append((mode, f"{ours[0]:.1f}", f"{ours[1]:.2f}", f"{all_[0]:.1f}", f"{all_[1]:.2f}", ratio))
    return "\n".join(
        [
            f"{new:,} new rows of one date on {rows:,} rows of {DATES} dates, {counted} after one that warms up:",
            "",
            *table_lines(HEADINGS, shown),
        ]
    )


if __name__ == "__main__":
    main()
