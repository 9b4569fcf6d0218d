"""The cost of replaying dates, compared with draining them: one of thirty, all in one pass, one row in a hundred moved.

Each step is checked: files of other dates stay, each offset is there once, the audit adds up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.harness import JvmCost, console, hold, measured, option_parser, own_broker, own_folder, own_session
from benchmarks.topic import PARTITIONS
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.audit.audit import AuditReport, audit
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.replay.report import ReplayReport
from kdi_assets.tools.local.generator import Traffic
from kdi_assets.tools.local.publisher import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, DAYS = date(2026, 1, 1), 30


@dataclass(frozen=True, slots=True)
class Lake:
    """A stream with its table, and the session for it."""

    stream: Stream
    uri: str
    spark: SparkSession

    def replayed(self, first: date, last: date) -> ReplayReport:
        """Replay dates."""
        return replay_dates(self.stream, lake=self.uri, session=lambda: self.spark, first=first, last=last)

    def looked_at(self, first: date, last: date) -> ReplayReport:
        """Dry-run a replay."""
        return replay_dates(
            self.stream, lake=self.uri, session=lambda: self.spark, first=first, last=last, dry_run=True
        )

    def drained(self) -> DrainReport:
        """All that waits."""
        return drain(self.stream, lake=self.uri, session=lambda: self.spark)

    def audited(self) -> AuditReport:
        """Every offset."""
        return audit(self.stream, lake=self.uri, session=lambda: self.spark)

    def with_definition(self, *, host: str, day: str) -> Lake:
        """The same with another document."""
        return replace(self, stream=replace(self.stream, columns={"host": host}, date_expression=day))

    @property
    def files(self) -> frozenset[str]:
        """Addresses of the table's files."""
        return TableLog.existing(self.stream.table_uri(self.uri)).file_uris

    def by_date(self) -> Counter[date]:
        """Rows of each date, as another reader finds them."""
        from deltalake import DeltaTable

        dates = DeltaTable(self.stream.table_uri(self.uri)).to_pyarrow_table(columns=["date"])["date"]
        return Counter(dates.to_pylist())


@dataclass(frozen=True, slots=True)
class Step:
    """A step with this many messages, and its cost."""

    name: str
    messages: int
    cost: JvmCost


def main(arguments: Sequence[str] | None = None) -> None:
    """Drain, replay, print."""
    parser = option_parser("replay_dates", __doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    table = Table("step", "messages", "wall s", "CPU s", "messages/s")
    with own_folder() as folder, own_broker(folder) as cluster, own_session(folder) as spark:
        stream = replace(load_streams()["bronze/web_requests"], cluster=cluster, max_records=options.messages)
        publish(cluster, stream.topic, Traffic(seed=1), count=options.messages, partitions=PARTITIONS)
        for step in steps(Lake(stream, str(folder), spark), options.messages):
            seconds, cpu = step.cost.seconds, step.cost.cpu_seconds
            console.print(f"{step.name}: {seconds:.1f} s, {cpu:.1f} CPU s")
            speed = f"{step.messages / seconds:,.0f}"
            table.add_row(step.name, f"{step.messages:,}", f"{seconds:.1f}", f"{cpu:.1f}", speed)
    console.print(table)


def steps(lake: Lake, messages: int) -> Iterator[Step]:
    """Drain twice, the second time warm; replay one date, all dates, and with a document that moves rows; audit."""
    day = f"date_add(DATE'{FIRST}', CAST((kafka.offset * {PARTITIONS} * {DAYS}) DIV {messages} AS INT))"
    moved = f"CASE WHEN kafka.offset % 100 = 7 THEN date_add({day}, 1) ELSE {day} END"
    host, last = "parse_url(url, 'HOST')", FIRST + timedelta(days=DAYS - 1)
    was = lake.with_definition(host=f"concat('old ', {host})", day=day)
    anew, moving = lake.with_definition(host=host, day=day), lake.with_definition(host=host, day=moved)

    warm = replace(was, stream=replace(was.stream, table="bronze/warm", app_id="warm"))
    for name, table in ((f"drain, {DAYS} dates", was), ("drain of the same, warm", warm)):
        report, cost = measured(was.spark, table.drained)
        yield Step(name, report.rows_added, cost)

    before, files, middle = was.by_date(), was.files, FIRST + timedelta(days=DAYS // 2)
    done, cost = measured(was.spark, partial(anew.replayed, middle, middle))
    hold(done.changes == {"changed": before[middle]}, f"one date: {done.changes}")
    hold({f for f in files if f"date={middle}" not in f} <= anew.files, "a file of another date was touched")
    yield Step("replay of one date", done.messages, cost)

    looked, cost = measured(was.spark, partial(anew.looked_at, FIRST, last))
    yield Step(f"look at {DAYS} dates", looked.messages, cost)
    done, cost = measured(was.spark, partial(anew.replayed, FIRST, last))
    hold(done.changes == looked.changes, f"all dates: {done.changes}, and {looked.changes} were to be expected")
    hold(anew.by_date() == before, "rows are missing or twice")
    yield Step(f"replay of {DAYS} dates, in one pass", done.messages, cost)

    done, cost = measured(was.spark, partial(moving.replayed, FIRST, last))
    hold(set(done.changes) == {"moved", "same"}, f"one in a hundred: {done.changes}")
    hold(moving.by_date().total() == messages, "rows are missing or twice")
    yield Step(f"replay that moves {done.changes['moved']:,} rows", done.messages, cost)

    found, cost = measured(was.spark, moving.audited)
    hold(found.complete and found.rows == messages, f"the audit: {found}")
    yield Step("audit", messages, cost)


if __name__ == "__main__":
    main()
