"""The product as a person meets it: broker, warm driver and `dagster dev` on the tests' own documents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from shutil import copyfile, copytree
from tempfile import TemporaryDirectory
from urllib.error import URLError

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import free_port
from tests.conftest import CHECKOUT
from tests.faults.warm_driver import WarmDriver
from tests.kafka_log import Publisher
from tests.waiting import wait_until

DEFS = Path(__file__).parent / "defs"
TOPICS = ("orders", "clicks")
OLDEST_DAYS = 40
START_SECONDS = 180
DAGSTER_DEV = (
    str(Path(sys.executable).with_name("dagster")),
    "dev",
    f"--workspace={CHECKOUT / 'workspace.yaml'}",
    "--host=127.0.0.1",
)
QUERY = """
import sys
from kdi_assets.runtime.spark import close_session, open_session
from kdi_assets.settings import Settings
spark = open_session(Settings.from_environment())
print(*spark.sql(sys.argv[1]).toJSON().collect(), sep="\\n")
close_session(spark)
"""


@dataclass(frozen=True, slots=True)
class Site:
    """Its addresses, and what a test does to it outside of the UI."""

    url: str
    lake: str
    publisher: Publisher
    environment: Mapping[str, str]

    def publish_orders(self, days_ago: Sequence[int], *, bad: Sequence[bytes] = ()) -> date:
        """An order for each of the days, and some bad messages; the date that the days count from."""
        now = datetime.now(UTC)
        for number, days in enumerate(days_ago):
            at = (now - timedelta(days=days)).isoformat(timespec="seconds")
            order = {"id": number, "customer": f"c{number % 97}", "amount": f"{number % 500}.50", "at": at}
            self.publisher.produce("orders", json.dumps(order), partition=number % 2)
        for value in bad:
            self.publisher.produce("orders", value, partition=0)
        self.publisher.flush()
        return now.date()

    def delete_orders(self, until: Mapping[int, int]) -> None:
        """Delete everything before these offsets of the topic, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.environment["KDI_KAFKA"], "log_level": 2})
        for deleted in admin.delete_records([TopicPartition("orders", *at) for at in until.items()]).values():
            deleted.result(30)

    def publish_clicks(self, count: int, *, days_ago: int = 0, pages: int = 40) -> date:
        """Clicks of one date on so many pages; the date."""
        now = datetime.now(UTC) - timedelta(days=days_ago)
        at = now.isoformat(timespec="seconds")
        for number in range(count):
            click = {"page": f"/item/{number % pages}", "visitor": f"v{number % 300}", "at": at}
            self.publisher.produce("clicks", json.dumps(click), partition=number % 2)
        self.publisher.flush()
        return now.date()

    def publish_broken_clicks(self, count: int) -> None:
        """So many messages that are not JSON, two of five: a drain refuses more than half."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        for number in range(count * 5 // 2):
            click = {"page": "/item/1", "visitor": f"v{number}", "at": at}
            value = b"not json" if number % 5 < 2 else json.dumps(click)
            self.publisher.produce("clicks", value, partition=number % 2)
        self.publisher.flush()

    def await_date(self, table: str, day: date) -> None:
        """Wait until a table has rows of the date."""
        log = Path(self.lake) / table / "_delta_log"
        wait_until(lambda: any(log.glob("*.json")) and day in self.rows_by_date(table), seconds=START_SECONDS)

    def rows_by_date(self, table: str) -> dict[date, int]:
        """Rows by date as another reader finds them in a table."""
        days = DeltaTable(f"{self.lake}/{table}").to_pyarrow_table(columns=["date"])["date"].to_pylist()
        return dict(Counter(days))

    def query(self, sql: str) -> list[str]:
        """Spark's answer to a statement that a person copied from the UI: a line of JSON for each row."""
        command = [sys.executable, "-c", QUERY, sql]
        answer = subprocess.run(command, env={**os.environ, **self.environment}, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.splitlines()


@contextmanager
def open_site(folder: Path, *, bootstrap_servers: str) -> Iterator[Site]:
    """What `make dev` runs, without the generator and with the code server of `dagster dev`; it ends with the body."""
    create_topics(bootstrap_servers)
    copy_documents(folder / "defs")
    home, dagster, port = folder / "home", folder / "dagster", free_port()
    home.mkdir()
    dagster.mkdir()
    copyfile(CHECKOUT / "dagster.yaml", dagster / "dagster.yaml")
    with ExitStack() as stack:
        lake = stack.enter_context(TemporaryDirectory(prefix="lake-"))  # pictures show its path, so it is short
        environment = {
            "DAGSTER_HOME": str(dagster),
            "KDI_HOME": str(home),
            "KDI_DRIVER": "shared",
            "KDI_AUTOMATION": "on",
            "KDI_LAKE": lake,
            "KDI_KAFKA": bootstrap_servers,
            "KDI_DEFS": str(folder / "defs"),
            "PYTHONPATH": str(CHECKOUT),
        }
        ui = Child([*DAGSTER_DEV, f"--port={port}"], environment=environment, log=folder / "dagster.log")
        stack.callback(ui.kill)  # a slow shutdown would save nothing
        stack.callback(WarmDriver(home).stop)
        url, tables = f"http://127.0.0.1:{port}", [Path(lake) / "bronze" / topic for topic in TOPICS]
        wait_until(lambda: answers(url) or ui.exit_code() is not None, seconds=START_SECONDS)
        assert ui.exit_code() is None, (folder / "dagster.log").read_text()
        # The sensor's first run commits where the streams begin, and drains nothing yet.
        wait_until(lambda: all((table / "_delta_log").exists() for table in tables), seconds=START_SECONDS)
        yield Site(url, lake, Publisher(bootstrap_servers), environment)


def copy_documents(folder: Path) -> None:
    """The documents, with the oldest date of the orders as the first date, as `kdi new` writes it."""
    copytree(DEFS, folder)
    for document in folder.rglob("defs.yaml"):
        text = document.read_text()
        document.write_text(text.replace("2025-01-01", f"{datetime.now(UTC).date() - timedelta(days=OLDEST_DAYS)}"))


def create_topics(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    new = [NewTopic(topic, num_partitions=2, replication_factor=1) for topic in TOPICS]
    for created in admin.create_topics(new).values():
        created.result(30)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/server_info", timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
