"""`make demo` and `make demo-s3` do what they show, and leave no process behind, however they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from playwright.sync_api import Browser, Page, Route

from demo import kafka
from demo.parts import BIN, WORKSPACE, State, start_database
from demo.watch import Seen
from kdi_assets.follow.serve.postgres.embedded import start_postgres, stop_postgres
from kdi_assets.follow.serve.postgres.served_versions import prepare_schema
from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import QUICK_START, free_port
from kdi_assets.tools.local.s3_server import ACCESS_KEY, REGION, start_s3_server
from tests.browser import conftest as ui
from tests.browser.site import START_SECONDS, answers
from tests.conftest import CHECKOUT
from tests.storage.secrets import KEYS, files_with_keys
from tests.waiting import wait_until

Start = Callable[..., "subprocess.Popen[str]"]

browser = ui.browser

LOCATION = "locations/__repository__@kdi_assets"
PAGES = {
    "assets/bronze/web_requests?view=events": "drained_rows",
    "assets/bronze/web_requests?view=definition": "web_requests_dead_letters",
    f"{LOCATION}/resources/spark": "SparkResource",
    f"{LOCATION}/sensors/lag_main": "lag_main",
    "deployment/config": "QueuedRunCoordinator",
}
"""Pages of the UI, and a text that each shows, or gets from the server, once it has loaded."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state for these tests, with the checkout's jars."""
    home = tmp_path_factory.mktemp("kdi")
    (home / "jars").symlink_to(CHECKOUT / ".kdi" / "jars")
    return home


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Starts a module of the demo on that state, and ends it with the test."""
    with starting(home) as start:
        yield start


@contextmanager
def starting(home: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def start(module: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "KDI_HOME": str(home), "JDK_JAVA_OPTIONS": " ".join(QUICK_START)}
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=environment,
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with process:
            process.terminate()


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """The lines up to the first with the text."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"it ended without {text!r}:\n{''.join(lines)}")


def test_an_interrupted_demo_stops_every_process_it_started(start: Start, home: Path) -> None:
    process = start("demo.kafka")
    read_until(process, "Kafka answers")
    assert State(home).users()

    process.send_signal(signal.SIGINT)
    read_until(process, "stopping")
    process.send_signal(signal.SIGTERM)  # an impatient user
    output, _ = process.communicate(timeout=120)

    assert process.returncode == 130, output
    assert State(home).users() == []


def test_the_demo_drains_two_waves_and_the_audit_accounts_for_every_offset(start: Start, home: Path) -> None:
    """Purpose: what a newcomer sees first works, on the state that interrupted demos left, and cleans up after itself.
    Procedure: run it; try to clean the state while it runs, and after it has ended; paste the queries that it prints.
    Pass: exit code 0, three dates, 250,000 messages published, the queries' rows are the table's, in the lake and in
    PostgreSQL, no process is left.
    """
    process = start("demo.kafka")
    begin = read_until(process, "Kafka answers")
    refused, _ = (cleaning := start("demo.clean")).communicate(timeout=60)
    output, _ = process.communicate(timeout=900)
    output = "".join(begin) + output

    assert process.returncode == 0, output
    assert cleaning.returncode == 1 and ": the broker" in refused
    assert re.search(r"published 200,000 .*published 50,000 ", output, re.DOTALL)
    rows = [int(count.replace(",", "")) for count in re.findall(r"\d{4}-\d\d-\d\d: ([\d,]+) rows", output)]
    assert len(rows) == 3 and 246_000 < sum(rows) < 249_000  # one percent of 250,000 is bad, at random
    assert sum(rows) == rows_of_the_query(output)
    requests = [int(count.replace(",", "")) for count in re.findall(r": ([\d,]+) requests in [\d,]+ sessions", output)]
    assert requests == rows == requests_by_date(output)
    assert "silver/sessions 3 dates, gold/daily_usage 3 dates" in output
    assert State(home).users() == []

    cleaned, _ = (cleaning := start("demo.clean")).communicate(timeout=60)
    assert cleaning.returncode == 0, cleaned
    assert not any((home / folder).exists() for folder in ("broker", "lake", "dagster", "postgres"))


def test_cleaning_stops_the_database_that_a_killed_process_left(start: Start, home: Path) -> None:
    """Purpose: the server outlives a process that is killed, and a removed folder under it would break the next demo.
    Procedure: start the server in a process, and kill that with SIGKILL; clean the state.
    Pass: the server ran on after the kill; it has ended, and its data are gone.
    """
    begins = "from kdi_assets.follow.serve.postgres.embedded import start_postgres; from pathlib import Path"
    waits = "import sys, time; start_postgres(Path(sys.argv[1])); print('up', flush=True); time.sleep(600)"
    command = [sys.executable, "-c", f"{begins}; {waits}", str(home / "postgres")]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        read_until(process, "up")
        process.kill()
    server = int((home / "postgres" / "postmaster.pid").read_text().split()[0])
    ran_on = psutil.pid_exists(server)

    output, _ = (cleaning := start("demo.clean")).communicate(timeout=60)

    assert (ran_on, cleaning.returncode, psutil.pid_exists(server)) == (True, 0, False), output
    assert not (home / "postgres").exists()


@pytest.mark.parametrize(
    ("source", "rows"), [("/lake/gold/daily_usage", 1), ("s3://lake/tables/gold/daily_usage", None)]
)
def test_a_demo_on_another_lake_begins_without_the_rows_of_the_first_one(
    tmp_path: Path, source: str, rows: int | None
) -> None:
    """Procedure: PostgreSQL has a row of the demo's table, and one of a user's; the parts of `/lake` start.
    Pass: the demo's row is there if it is of that lake; the user's table is there in any case.
    """
    data = tmp_path / "postgres"
    with ExitStack() as stack:
        stack.callback(stop_postgres, data)
        with psycopg.connect(url := start_postgres(data).url) as connection:
            prepare_schema(connection, "public", "daily_usage")
            connection.execute("UPDATE kdi_served SET source = %s", [source])
            connection.execute("CREATE TABLE daily_usage AS SELECT 1; CREATE TABLE mine AS SELECT 1")

        start_database(data, "/lake", stack)

        with psycopg.connect(url) as connection:
            left = [count for (count,) in connection.execute("SELECT count(*) FROM kdi_served UNION ALL TABLE mine")]
            table = connection.execute("SELECT to_regclass('daily_usage')::text").fetchone()
    assert (left, table) == ([rows or 0, 1], ("daily_usage" if rows else None,))


def test_kept_buckets_are_in_their_region_when_the_s3_server_starts_again(tmp_path: Path) -> None:
    first = start_s3_server(tmp_path, keep=True)
    first.create_bucket("lake")
    first.client().put_object(Bucket="lake", Key="kept", Body=b"1")
    first.stop()

    again = start_s3_server(tmp_path, keep=True)
    found = again.client().get_bucket_location(Bucket="lake")["LocationConstraint"]
    again.stop()

    assert found == REGION


@dataclass(frozen=True)
class EndedDemo:
    """The demo on S3 after its end."""

    state: State
    exit_code: int
    output: str


@pytest.fixture(scope="module")
def demo_on_s3(home: Path) -> EndedDemo:
    """One for both tests of it."""
    with starting(home) as start:
        output, _ = (process := start("demo.kafka", "--s3")).communicate(timeout=900)
        return EndedDemo(State(home, on_s3=True), process.returncode, output)


def test_the_demo_on_s3_accounts_for_every_offset_and_writes_no_key_down(demo_on_s3: EndedDemo) -> None:
    """Purpose: everything works with the lake in a bucket, and no credentials get into a file or into the output.
    Procedure: run it; search its output, its logs, Dagster's storage and run output, and the lake for the keys.
    Pass: exit code 0, three dates, the audit is complete, no file has a key, no process is left.
    """
    state, output = demo_on_s3.state, demo_on_s3.output

    assert demo_on_s3.exit_code == 0, output
    rows = [int(count.replace(",", "")) for count in re.findall(r"\d{4}-\d\d-\d\d: ([\d,]+) rows", output)]
    assert len(rows) == 3 and 246_000 < sum(rows) < 249_000
    assert "none missing, none twice" in output
    assert ACCESS_KEY not in output
    assert (state.logs / "driver.log").stat().st_size > 0
    assert list(state.dagster.rglob("*.db"))
    assert files_with_keys(state.folder) == []
    assert state.users() == []


def test_no_page_of_the_demo_on_s3_shows_a_key(demo_on_s3: EndedDemo, browser: Browser, tmp_path: Path) -> None:
    """Purpose: the processes behind Dagster's UI have the credentials in their environment; no page may show them.
    Procedure: start S3 and the webserver on the demo's state; visit a run, the asset, its definition, a resource, the
    sensor and the instance's configuration; keep the pages and everything that the server answers.
    Pass: the lake is named there, a key nowhere.
    """
    (run_id, *_) = [run.run_id for run in runs(demo_on_s3.state)]

    with webserver(demo_on_s3.state, log=tmp_path / "webserver.log") as url:
        seen = visited(browser, url, {f"runs/{run_id}": "RUN_SUCCESS", **PAGES})

    assert any(demo_on_s3.state.lake.encode() in text for text in seen)
    assert any(text.startswith(b'{"data"') for text in seen), "answers of the server are among what was seen"
    assert [text for text in seen if any(key in text for key in KEYS)] == []


def runs(state: State) -> list[DagsterRun]:
    with DagsterInstance.from_config(str(state.dagster)) as instance:
        return list(instance.get_runs())


@contextmanager
def webserver(state: State, *, log: Path) -> Iterator[str]:
    """The webserver and the code that it loads, with the credentials; its address."""
    s3, port = start_s3_server(state.objects, keep=True), free_port()
    folders = {"KDI_HOME": str(state.home), "KDI_LAKE": state.lake, "DAGSTER_HOME": str(state.dagster)}
    command: list[str | Path] = [BIN / "dagster-webserver", "-w", WORKSPACE, "-h", "127.0.0.1", "-p", str(port)]
    child = Child(command, environment={**s3.environment(), **folders, "KDI_DRIVER": "shared"}, log=log)
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}") or child.exit_code() is not None, seconds=START_SECONDS)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.stop()
        s3.stop()


def visited(browser: Browser, url: str, pages: Mapping[str, str]) -> list[bytes]:
    """What the pages hold, and every answer and message from the server; each must have its text."""
    seen: list[bytes] = []
    with browser.new_page(viewport=ui.VIEWPORT) as page:
        # The browser forgets an answer when it leaves the page that asked, so each is kept before the page has it.
        page.route("**/graphql*", lambda route: answer(route, seen))
        page.on("websocket", lambda socket: socket.on("framereceived", lambda data: seen.append(as_bytes(data))))
        for path, text in pages.items():
            begin = len(seen)
            page.goto(f"{url}/{path}")
            wait_until(lambda: any(text.encode() in found for found in look(page, seen)[begin:]))  # noqa: B023
            page.wait_for_load_state("networkidle")
            look(page, seen)
        page.unroute_all(behavior="ignoreErrors")
    return seen


def answer(route: Route, seen: list[bytes]) -> None:
    """Answer with what the server answers, and keep it."""
    response = route.fetch()
    seen.append(response.body())
    route.fulfill(response=response)


def look(page: Page, seen: list[bytes]) -> list[bytes]:
    """Add the page as it is now."""
    page.wait_for_timeout(200)
    seen.append(page.content().encode())
    return seen


def as_bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


def rows_of_the_query(output: str) -> int:
    """Run the command that the demo printed, and add up the counts in the table that it shows."""
    (command,) = re.findall(r"^ +(\S+ -c .*)$", output, re.MULTILINE)
    shown = subprocess.run(command, shell=True, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return sum(int(count) for count in re.findall(r"\| +(\d+) +\|$", shown, re.MULTILINE))


def requests_by_date(output: str) -> list[int]:
    """Run the other command that the demo printed, which asks PostgreSQL."""
    (command,) = re.findall(r"^ +(\S*KDI_HOME=\S+ \S+ psql -c .*)$", output, re.MULTILINE)
    shown = subprocess.run(command, shell=True, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return [int(count) for count in re.findall(r"^ \d{4}-\d\d-\d\d \| +(\d+) \|", shown, re.MULTILINE)]


def test_a_run_that_takes_long_is_named_again_and_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kafka, "QUIET_SECONDS", -1.0)
    progress = kafka.Progress()
    seen = Seen(
        {"a" * 8: DagsterRunStatus.STARTED, "b" * 8: DagsterRunStatus.SUCCESS}, 7, {"a" * 8: "x/t", "b" * 8: "u"}
    )

    for one in (seen, seen, Seen({}, 7, {})):
        progress.tell(one)

    lines = [line.partition("s  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines[-2:] == ["still running: x/t", "waiting for the sensors"]
