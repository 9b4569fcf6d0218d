"""`make demo` and `make demo-s3`: a topic becomes a table, refined tables, and a table in PostgreSQL, on real parts.

Kafka, Spark, Delta, Dagster and PostgreSQL are real. Messages are published, the lag sensor notices them and starts a
run, more arrive during the run, and the sensor `follow` starts the runs of silver, gold and the database. At the end
the audit accounts for every offset. It ends by itself. With `--s3` the tables lie in a bucket of an S3 server on the
loopback.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from demo.parts import (
    BIN,
    WORKSPACE,
    PartFailed,
    State,
    WarmDriver,
    check_running,
    say,
    shown_progress,
    start_command,
    start_database,
    start_kafka,
    start_s3,
    stopped_at_the_end,
    write,
)
from demo.watch import BEGINNING, Seen, Watch, cancel_orphans
from kdi_assets.documents.loading.loader import LoadedFolder, load_folder
from kdi_assets.documents.loading.refined_documents import upstream_first
from kdi_assets.documents.model.served_table import Postgres
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.serve.postgres.connection import database_of
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.spark import close_session, open_session
from kdi_assets.settings import Settings
from kdi_assets.streams.audit.audit import audit
from kdi_assets.tools.local.generator import Traffic
from kdi_assets.tools.local.publisher import publish

FIRST, MORE, MORE_PER_SECOND, BAD = 200_000, 50_000, 10_000, 0.01
LIMIT_SECONDS = 600.0
QUIET_SECONDS = 10.0  # after which a line says that it is still running

QUERY = (
    "from deltalake import DeltaTable, QueryBuilder;"
    " print(QueryBuilder().register('requests', DeltaTable('{table}')).execute("
    "'SELECT host, count(*) AS requests FROM requests GROUP BY host ORDER BY host').read_all())"
)


USAGE = (
    "SELECT date, sum(requests) AS requests, sum(unique_sessions) AS sessions,"
    " round((sum(error_rate * requests) / sum(requests))::numeric, 3) AS error_rate"
    " FROM daily_usage GROUP BY date ORDER BY date"
)
BRONZE = "bronze/web_requests"


def main() -> None:
    """Run the demo; exit code 0 if every offset is accounted for."""
    state = State.of_checkout(on_s3="--s3" in sys.argv[1:])
    state.refuse_if_used(then="make demo-s3" if state.on_s3 else "make demo")
    state.prepare()
    cancel_orphans()
    try:
        with stopped_at_the_end() as stack:
            stack.enter_context(shown_progress())
            if state.on_s3:
                start_s3(state, stack)
            driver = WarmDriver(state, stack)
            start_kafka(state, stack)
            database = start_database(state.postgres, state.lake, stack)
            daemon = start_command(state, stack, "dagster", "dagster-daemon", "run", "-w", str(WORKSPACE))
            driver.await_ready()
            tables = load_folder() if database else replace(load_folder(), served={})
            watch = Watch(tables)
            stack.callback(watch.close)
            stream = tables.streams[BRONZE]
            publish_some(stream, FIRST)
            wait_until_served(watch, stream, alive=lambda: check_running(driver=driver.child, dagster=daemon))
            say("everything is up to date; counting rows, and auditing every offset")
            prove(tables, watch)
            if database:
                show_query(state)
            show_how_to_go_on(stream, state)
    except (KdiError, PartFailed) as failure:
        sys.exit(f"{failure}\nLogs: {state.logs}/*.log and {state.broker}/broker.log")


def publish_some(stream: Stream, count: int, *, rate: float | None = None) -> None:
    """Publish over 4 topic partitions and 3 dates, some of it bad; every time other messages."""
    traffic = Traffic(bad=BAD, dates=3, seed=random.randrange(1 << 32))  # noqa: S311
    sent = [0]
    step = WorkStep(name=stream.topic, doing="publishing", total=count, unit="message", done=lambda: sent[-1])
    with announced(step):
        done = publish(stream.kafka, stream.topic, traffic, count=count, rate=rate, partitions=4, report=sent.append)
    bad = done.acknowledged - done.counts["good"]
    say(f"published {done.acknowledged:,} messages to {stream.topic}, {bad:,} of them bad")


def wait_until_served(watch: Watch, stream: Stream, *, alive: Callable[[], None]) -> None:
    """Report progress; publish more during the first run; return when every level has everything.

    Raises:
        PartFailed: It takes too long, or a process ended.
    """
    say("waiting for the lag sensor, which looks at the topic every five seconds")
    progress, published_more, deadline = Progress(), False, time.monotonic() + LIMIT_SECONDS
    with announced(WorkStep(doing="sensors and runs bring the tables up to date")):
        while time.monotonic() < deadline:
            alive()
            seen = watch.look()
            progress.tell(seen)
            if seen.started and not published_more:
                publish_some(stream, MORE, rate=MORE_PER_SECOND)  # slow enough to continue after the run has planned
                published_more = True
            elif published_more and not seen.running and not seen.backlog and not seen.behind:
                return
            time.sleep(0.5)
    reason = watch.last_failure() or f"the sensor says: {watch.sensor_says()}"
    raise PartFailed(f"not up to date after {LIMIT_SECONDS:.0f} s; {reason}")


class Progress:
    """Reports changes, and sometimes that there are none."""

    def __init__(self) -> None:
        self._before, self._spoke = Seen({}, 0, {}), time.monotonic()

    def tell(self, now: Seen) -> None:
        """A line for each change."""
        lines = [
            f"run {run_id[:8]} ({now.does[run_id]}): {status.value.lower()}"
            for run_id, status in now.runs.items()
            if status != self._before.runs.get(run_id) and status not in BEGINNING
        ]
        if now.backlog != self._before.backlog:
            lines.append(f"backlog: {now.backlog:,} offsets")
        if not lines and time.monotonic() > self._spoke + QUIET_SECONDS:
            lines.append(f"still running: {now.running}" if now.running else "waiting for the sensors")
        for line in lines:
            say(line)
            self._spoke = time.monotonic()
        self._before = now


def prove(tables: LoadedFolder, watch: Watch) -> None:
    """Print what the tables have, and compare it with the offsets, with PostgreSQL and with Dagster.

    Raises:
        PartFailed: The audit found a mistake, PostgreSQL has other requests than bronze, or Dagster does not show every
            date.
    """
    settings, stream = Settings.from_environment(), tables.streams[BRONZE]
    spark = open_session(settings, app_name="kdi demo")
    dates = spark.read.format("delta").load(stream.table_uri(settings.lake)).groupBy("date").count().sort("date")
    rows = {str(row["date"]): int(row["count"]) for row in dates.collect()}
    report = audit(stream, lake=settings.lake, session=lambda: spark)
    close_session(spark)
    for day, count in rows.items():
        say(f"{day}: {count:,} rows")
    say(report.line())
    usage = daily_usage(settings) if tables.served else []
    if usage:
        say("silver/sessions and gold/daily_usage followed; daily_usage in PostgreSQL:")
    for day, requests, sessions, rate in usage:
        say(f"{day}: {requests:,} requests in {sessions:,} sessions, {rate:.1%} of them errors")
    levels = [stream.name, *(table.name for table in upstream_first(tables.refined.values()))]
    shown = {name: watch.dates(name) for name in levels}
    say("Dagster shows as materialized: " + ", ".join(f"{name} {len(shown[name])} dates" for name in levels))
    if not report.complete or any(rows.keys() - dates for dates in shown.values()):
        raise PartFailed("the audit is not complete, or Dagster does not show every date")
    if tables.served and {day: requests for day, requests, _, _ in usage} != rows:
        raise PartFailed("PostgreSQL has other requests than bronze has rows")


def daily_usage(settings: Settings) -> list[tuple[str, int, int, float]]:
    """Date, requests, unique sessions of the hosts and share of errors, as PostgreSQL has them."""
    served = Postgres(table="daily_usage")
    with database_of(served, home=settings.home).connected() as connection:
        return [(str(day), int(n), int(sessions), float(rate)) for day, n, sessions, rate in connection.execute(USAGE)]


def show_query(state: State) -> None:
    """A query of PostgreSQL to paste."""
    home = "" if state.home == Path.cwd() / ".kdi" else f"KDI_HOME={state.home} "
    say("The same query of PostgreSQL, which `kdi psql` starts and stops:")
    write(f'{home}{shortest(BIN / "kdi")} psql -c "{USAGE}"')


def show_how_to_go_on(stream: Stream, state: State) -> None:
    """The table's path, and commands to paste."""
    if state.on_s3:
        say(f"The tables lie in {state.lake}; {shortest(state.objects)} keeps the server's objects.")
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
