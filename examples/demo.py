"""`make demo`: a topic becomes a table, before your eyes and on real parts.

Kafka, Spark, Delta and Dagster are the real ones. Messages are published, the lag sensor notices and starts a run, more
arrive while it works, and at the end the audit says where every offset went. It ends by itself.
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
    await_driver,
    check_running,
    say,
    start_command,
    start_driver,
    start_kafka,
    stopped_at_the_end,
    write,
)
from examples.watch import BEGINNING, Seen, Watch
from kdi_assets.components.load import load_streams
from kdi_assets.errors import KdiError
from kdi_assets.ledger.audit import audit
from kdi_assets.runtime.session import close_session, open_session
from kdi_assets.settings import Settings
from kdi_assets.sources.generator import Traffic
from kdi_assets.sources.publisher import publish
from kdi_assets.stream import Stream

FIRST, MORE, MORE_PER_SECOND, BAD = 200_000, 50_000, 10_000, 0.01
LIMIT_SECONDS = 240.0

QUERY = (
    "from deltalake import DeltaTable, QueryBuilder;"
    " print(QueryBuilder().register('requests', DeltaTable('{table}')).execute("
    "'SELECT host, count(*) AS requests FROM requests GROUP BY host ORDER BY host').read_all())"
)


def main() -> None:
    """Run the demo; exit code 0 if every offset is accounted for."""
    state = State.of_checkout()
    if users := state.users():
        sys.exit("\n".join([f"{state.home} is in use:", *users, "  Run:  stop them, or end make dev; then make demo"]))
    state.prepare()
    try:
        with stopped_at_the_end() as stack:
            driver = start_driver(state, stack)
            start_kafka(state, stack)
            daemon = start_command(state, stack, "dagster", "dagster-daemon", "run", "-w", str(WORKSPACE))
            await_driver(state, driver)
            stream = load_streams()["bronze/web_requests"]
            watch = Watch(stream, lake=str(state.lake))
            stack.callback(watch.close)
            publish_some(stream, FIRST)
            wait_until_drained(watch, stream, alive=lambda: check_running(driver=driver, dagster=daemon))
            show(stream, watch, state)
    except (KdiError, PartFailed) as failure:
        sys.exit(f"{failure}\nLogs: {state.logs}/*.log and {state.broker}/broker.log")


def publish_some(stream: Stream, count: int, *, rate: float | None = None) -> None:
    """Publish over 4 topic partitions and 3 dates, some of it bad; every time other messages."""
    traffic = Traffic(bad=BAD, dates=3, seed=random.randrange(1 << 32))  # noqa: S311
    done = publish(stream.cluster, stream.topic, traffic, count=count, rate=rate, partitions=4)
    bad = done.acknowledged - done.counts["good"]
    say(f"published {done.acknowledged:,} messages to {stream.topic}, {bad:,} of them bad")


def wait_until_drained(watch: Watch, stream: Stream, *, alive: Callable[[], None]) -> None:
    """Say what happens; publish more while the first run works; return when nothing is left to drain.

    Raises:
        PartFailed: It takes too long, or a process ended.
    """
    say("waiting for the lag sensor, which looks at the topic every five seconds")
    seen, published_more, deadline = Seen({}, 0), False, time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        alive()
        before, seen = seen, watch.look()
        say_changes(before, seen)
        if seen.started and not published_more:
            publish_some(stream, MORE, rate=MORE_PER_SECOND)  # slow enough to go on after the run has planned
            published_more = True
        elif published_more and not seen.busy and not seen.backlog:
            return
        time.sleep(0.5)
    reason = watch.last_failure() or f"the lag sensor says: {watch.sensor_says()}"
    raise PartFailed(f"{seen.backlog:,} offsets are left after {LIMIT_SECONDS:.0f} s; {reason}")


def say_changes(before: Seen, now: Seen) -> None:
    """A line for what is new since the look before."""
    if now.backlog != before.backlog:
        say(f"backlog: {now.backlog:,} offsets")
    for run_id, status in now.runs.items():
        if status != before.runs.get(run_id) and status not in BEGINNING:
            say(f"run {run_id[:8]}: {status.value.lower()}")


def show(stream: Stream, watch: Watch, state: State) -> None:
    """Rows per date, the audit, and how to go on.

    Raises:
        PartFailed: Dagster does not show every date of the table, or the audit found a mistake.
    """
    settings = Settings.from_environment()
    spark = open_session(settings, app_name="kdi demo")
    rows = spark.read.format("delta").load(stream.table_uri(settings.lake)).groupBy("date").count().sort("date")
    counts = {str(row["date"]): int(row["count"]) for row in rows.collect()}
    report = audit(stream, lake=settings.lake, session=lambda: spark)
    close_session(spark)
    for day, count in counts.items():
        say(f"{day}: {count:,} rows")
    say(report.line())
    say(f"Dagster shows {len(watch.dates())} dates of {stream.name} as materialized")
    if missing := sorted(counts.keys() - set(watch.dates())):
        raise PartFailed(f"Dagster does not show the dates {', '.join(missing)}")
    if not report.complete:
        raise PartFailed("the audit is not complete")
    table = shortest(Path(stream.table_uri(settings.lake)))
    say(f"The table lies in {table}, its dead letters in {table}_dead_letters.")
    say("A query to try:")
    write(f'{shortest(BIN / "python")} -c "{QUERY.format(table=table)}"')
    say("Dagster's UI, with the history of this demo and messages that keep coming:")
    write("make dev")


def shortest(path: Path) -> Path:
    """The path as one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    main()
