"""`make demo` and `make demo-s3`: a topic becomes a table, on real parts.

Kafka, Spark, Delta and Dagster are real. Messages are published, the lag sensor notices them and starts a run, more
arrive during the run, and at the end the audit accounts for every offset. It ends by itself. With `--s3` the table lies
in a bucket of an S3 server on the loopback.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from examples.parts import (
    BIN,
    WORKSPACE,
    PartFailed,
    State,
    WarmDriver,
    check_running,
    say,
    start_command,
    start_kafka,
    start_s3,
    stopped_at_the_end,
    write,
)
from examples.watch import BEGINNING, Seen, Watch, cancel_orphans
from kdi_assets.audit.audit import audit
from kdi_assets.config.loader import load_streams
from kdi_assets.dev.generator import Traffic
from kdi_assets.dev.publisher import publish
from kdi_assets.errors import KdiError
from kdi_assets.runtime.spark import close_session, open_session
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Stream

FIRST, MORE, MORE_PER_SECOND, BAD = 200_000, 50_000, 10_000, 0.01
LIMIT_SECONDS = 600.0
QUIET_SECONDS = 10.0  # after which a line says that it is still running

QUERY = (
    "from deltalake import DeltaTable, QueryBuilder;"
    " print(QueryBuilder().register('requests', DeltaTable('{table}')).execute("
    "'SELECT host, count(*) AS requests FROM requests GROUP BY host ORDER BY host').read_all())"
)


def main() -> None:
    """Run the demo; exit code 0 if every offset is accounted for."""
    state = State.of_checkout(on_s3="--s3" in sys.argv[1:])
    state.refuse_if_used(then="make demo-s3" if state.on_s3 else "make demo")
    state.prepare()
    cancel_orphans()
    try:
        with stopped_at_the_end() as stack:
            if state.on_s3:
                start_s3(state, stack)
            driver = WarmDriver(state, stack)
            start_kafka(state, stack)
            daemon = start_command(state, stack, "dagster", "dagster-daemon", "run", "-w", str(WORKSPACE))
            driver.await_ready()
            stream = load_streams()["bronze/web_requests"]
            watch = Watch(stream, lake=state.lake)
            stack.callback(watch.close)
            publish_some(stream, FIRST)
            wait_until_drained(watch, stream, alive=lambda: check_running(driver=driver.child, dagster=daemon))
            prove(stream, watch)
            show_how_to_go_on(stream, state)
    except (KdiError, PartFailed) as failure:
        sys.exit(f"{failure}\nLogs: {state.logs}/*.log and {state.broker}/broker.log")


def publish_some(stream: Stream, count: int, *, rate: float | None = None) -> None:
    """Publish over 4 topic partitions and 3 dates, some of it bad; every time other messages."""
    traffic = Traffic(bad=BAD, dates=3, seed=random.randrange(1 << 32))  # noqa: S311
    done = publish(stream.cluster, stream.topic, traffic, count=count, rate=rate, partitions=4)
    bad = done.acknowledged - done.counts["good"]
    say(f"published {done.acknowledged:,} messages to {stream.topic}, {bad:,} of them bad")


def wait_until_drained(watch: Watch, stream: Stream, *, alive: Callable[[], None]) -> None:
    """Report progress; publish more during the first run; return when nothing is left to drain.

    Raises:
        PartFailed: It takes too long, or a process ended.
    """
    say("waiting for the lag sensor, which looks at the topic every five seconds")
    progress, published_more, deadline = Progress(), False, time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        alive()
        seen = watch.look()
        progress.tell(seen)
        if seen.started and not published_more:
            publish_some(stream, MORE, rate=MORE_PER_SECOND)  # slow enough to continue after the run has planned
            published_more = True
        elif published_more and not seen.busy and not seen.backlog:
            return
        time.sleep(0.5)
    reason = watch.last_failure() or f"the lag sensor says: {watch.sensor_says()}"
    raise PartFailed(f"not drained after {LIMIT_SECONDS:.0f} s; {reason}")


class Progress:
    """Reports changes, and sometimes that there are none."""

    def __init__(self) -> None:
        self._before, self._spoke = Seen({}, 0), time.monotonic()

    def tell(self, now: Seen) -> None:
        """A line for each change."""
        lines = [
            f"run {run_id[:8]}: {status.value.lower()}"
            for run_id, status in now.runs.items()
            if status != self._before.runs.get(run_id) and status not in BEGINNING
        ]
        if now.backlog != self._before.backlog:
            lines.append(f"backlog: {now.backlog:,} offsets")
        if not lines and time.monotonic() > self._spoke + QUIET_SECONDS:
            lines.append("draining" if now.busy else "waiting")
        for line in lines:
            say(line)
            self._spoke = time.monotonic()
        self._before = now


def prove(stream: Stream, watch: Watch) -> None:
    """Print the table's content, and compare it with the offsets and with Dagster.

    Raises:
        PartFailed: The audit found a mistake, or Dagster does not show every date of the table.
    """
    settings = Settings.from_environment()
    spark = open_session(settings, app_name="kdi demo")
    dates = spark.read.format("delta").load(stream.table_uri(settings.lake)).groupBy("date").count().sort("date")
    rows = {str(row["date"]): int(row["count"]) for row in dates.collect()}
    report = audit(stream, lake=settings.lake, session=lambda: spark)
    close_session(spark)
    for day, count in rows.items():
        say(f"{day}: {count:,} rows")
    say(report.line())
    shown = watch.dates()
    say(f"Dagster shows {len(shown)} dates of {stream.name} as materialized")
    if not report.complete or rows.keys() - shown:
        raise PartFailed("the audit is not complete, or Dagster does not show every date")


def show_how_to_go_on(stream: Stream, state: State) -> None:
    """The table's path, and commands to paste."""
    if state.on_s3:
        say(f"The table lies in {stream.table_uri(state.lake)}; {shortest(state.objects)} keeps the server's objects.")
        say("A bucket of your own, with your usual AWS credentials:")
        write("KDI_LAKE=s3://BUCKET/lake kdi doctor")
        return
    table = shortest(Path(stream.table_uri(state.lake)))
    say(f"The table lies in {table}, its dead letters in {table}_dead_letters. A query to try:")
    write(f'{shortest(BIN / "python")} -c "{QUERY.format(table=table)}"')
    say("Dagster's UI, with this history and with messages that keep coming:")
    write("make dev")


def shortest(path: Path) -> Path:
    """The path as a person would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    main()
