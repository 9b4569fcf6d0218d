"""Real parts for the tests: one broker and one Spark session per test process, a new topic and lake per test."""

from __future__ import annotations

import itertools
import re
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import pytest

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.follow.serve.postgres.embedded import EmbeddedPostgres
from kdi_assets.runtime.spark_config import lake_config
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import JVM_OPTIONS, QUICK_START, Broker, start_broker
from kdi_assets.tools.local.s3_server import S3Server, start_s3_server
from tests.driven import DrivenStream, web_requests
from tests.formats.registry import RealRegistry, fetched_registry
from tests.interpreted import interpreting
from tests.kafka_log import Publisher
from tests.matrix import Matrix, mark_up
from tests.receivers.webhook import Webhook, receiving
from tests.refined import Lakeside
from tests.slices import Slice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKOUT = Path(__file__).parent.parent
# Without these, tests would wait for what a broker does every ten seconds or less often.
BROKER_TURNS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500", "log.cleaner.backoff.ms": "200"}
# The session serves hundreds of tests. By default the young generation is full after a second, and the room for classes
# grows five times, each time by a full collection.
ROOM = ("-Xmn640m", "-XX:MetaspaceSize=400m")
ON_ONE_SYSTEM = (
    "browser/test_dagster_ui.py",
    "faults/systems/test_cluster.py",
    "faults/systems/test_deployment.py",
    "faults/systems/test_kubernetes.py",
    "faults/systems/test_yarn.py",
    "faults/systems/test_yarn_failures.py",
    "faults/test_soak.py",
)
INTERPRETED_FOLDERS = ("broker", "faults")
LAST_SECONDS = 60.0
also_on_s3 = pytest.mark.parametrize("lake_in", ["folder", "s3"])
"""For a test whose tables lie in a folder: once more with its tables in a bucket."""
ON_S3 = {"s3_lake", "other_bucket"}
"""Fixtures of tests that need Spark's client of S3."""
FAST_TO_SLOW = ("unit", "spark", "broker", "dagster", "browser", "faults")


@pytest.fixture(autouse=True)
def _within_one_date() -> None:
    """No test begins in the last minute of a date: the test and the engine read the clock at different moments."""
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    if (left := (midnight - now).total_seconds()) < LAST_SECONDS:
        time.sleep(left)


class TopicFactory(Protocol):
    """Creates a topic and returns its name."""

    def __call__(
        self, partitions: int = 1, *, name: str | None = None, config: dict[str, str] | None = None
    ) -> str: ...


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """A test begins with the signal handlers of a shell's foreground, and leaves none to the next test."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        signal.signal(number, usual)
    yield
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        signal.signal(number, usual)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="of everything that the tests make up (0)")
    parser.addoption("--matrix", type=Path, help="file to write the table of forced faults into")
    parser.addoption("--slice", type=Slice.parsed, help="a part of the modules, as 2/4")
    parser.addoption("--tour", type=Path, help="folder to write the pictures of docs/tour.md into")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--matrix")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Matrix(path))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A call for only the unit tests does not import the others."""
    alone = config.getoption("markexpr") == "unit" and collection_path.parent == CHECKOUT / "tests"
    return True if alone and collection_path.is_dir() and collection_path.name != "unit" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test by its folder, leave out the other slices, and run the fast ones first."""
    tests = Path(__file__).parent
    if part := config.getoption("--slice"):
        others = [item for item in items if not part.holds(item.path.relative_to(tests).as_posix())]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        if folder not in FAST_TO_SLOW:
            raise pytest.UsageError(f"{item.path} lies in none of the folders {', '.join(FAST_TO_SLOW)}")
        item.add_marker(folder)
        if _is_run_elsewhere(item):  # the first run is the core test
            item.own_markers = [mark for mark in item.own_markers if mark.name != "core"]
    items.sort(key=lambda item: FAST_TO_SLOW.index(item.path.relative_to(tests).parts[0]))
    if hasattr(config, "workerinput"):
        # Side by side, the first tests are dealt to one process and stay there: otherwise the tests of a file that
        # starts a whole system for them would be split, and start two.
        items.sort(key=lambda item: item.path.relative_to(tests).as_posix() not in ON_ONE_SYSTEM)
    mark_up(items, seed=config.getoption("--seed"))


def _is_run_elsewhere(item: pytest.Item) -> bool:
    """Whether it is a further run of a test: on a bucket, or by a module that imports it."""
    if not isinstance(item, pytest.Function):
        return False
    return _is_on_s3(item) or item.function.__module__ != item.module.__name__


def _is_on_s3(item: pytest.Item) -> bool:
    case = getattr(item, "callspec", None)
    return case is not None and case.params.get("lake_in") == "s3"


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The checkout's jars, a lake of the test process, its own driver."""
    lake = str(tmp_path_factory.mktemp("lake"))
    return Settings(home=CHECKOUT / ".kdi", lake=lake, spark_master="local[2]", driver="own")


def quick_broker(data: Path, settings: Settings, **options: Any) -> Broker:
    """A broker that starts fast at the price of throughput; the options are those of ``start_broker``."""
    return start_broker(data, home=settings.home, jvm_options=(*JVM_OPTIONS, *QUICK_START), **options)


@pytest.fixture(scope="session")
def broker(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of the test process; a test that stops a broker starts its own instead."""
    broker = quick_broker(tmp_path_factory.mktemp("broker"), settings, properties=BROKER_TURNS)
    yield broker
    broker.stop()


@pytest.fixture
def cluster(broker: Broker) -> Cluster:
    """The broker as a stream's cluster."""
    return Cluster(name="main", bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture(scope="session")
def _topic_numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Broker, _topic_numbers: Iterator[int]) -> TopicFactory:
    """Creates topics that no other test uses, named after the test."""
    from confluent_kafka.admin import AdminClient, NewTopic

    test = re.sub(r"[^A-Za-z0-9]+", "_", request.node.name)[:100].strip("_")

    def create(partitions: int = 1, *, name: str | None = None, config: dict[str, str] | None = None) -> str:
        name = name or f"{test}_{next(_topic_numbers)}"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        admin.create_topics([new])[name].result(30)
        return name

    return create


@pytest.fixture
def producer(broker: Broker) -> Publisher:
    """Publishes to the broker and keeps the log of acknowledged messages."""
    return Publisher(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, settings: Settings) -> Iterator[SparkSession]:
    """The Spark session of the test process, in a JVM of its own; with S3's client if a test of the run needs it."""
    from kdi_assets.runtime.spark import open_session
    from kdi_assets.runtime.spark_jvm import stop_spark

    config = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": " ".join((*QUICK_START, *ROOM)),
        # A test has some ten rows; drains in separate processes have as many partitions as production.
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.warehouse.dir": f"file:{settings.lake}/warehouse",
        "spark.hadoop.fs.s3a.retry.interval": "20ms",
    }
    items = request.session.items
    if any(_is_on_s3(item) or not ON_S3.isdisjoint(getattr(item, "fixturenames", ())) for item in items):
        settings = replace(settings, lake="s3://tests")
    session = open_session(settings, config=config, app_name="kdi tests")
    yield session
    stop_spark(session)


@pytest.fixture(autouse=True)
def interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests that drain a few messages at a time run Spark without code generation, unless marked ``compiled``."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    asks = folder in INTERPRETED_FOLDERS and "spark" in request.fixturenames
    if not asks or request.node.get_closest_marker("compiled"):
        yield
        return
    with interpreting(request.getfixturevalue("spark")):
        yield


@pytest.fixture(scope="session")
def real_registry(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    """The schema registry of the test process; each test has its own subjects."""
    log = tmp_path_factory.mktemp("registry") / "registry.log"
    registry = RealRegistry(fetched_registry(settings.home), home=settings.home, log=log)
    yield registry
    registry.stop()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The S3 server of the test process; its objects are only in memory."""
    server = start_s3_server(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a new bucket; boto3, delta-rs and child processes find it by the environment."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    return s3_server.create_bucket(f"lake-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def s3_lake(bucket: str, s3_server: S3Server, spark: SparkSession) -> str:
    """The root of the tables of one test, in a new bucket that the session of the test process reaches too."""
    # The JVM is older than the bucket and does not see its environment.
    of, jvm = s3_server.environment(), cast("Any", spark._jvm)
    for name, variable in (("aws.accessKeyId", "AWS_ACCESS_KEY_ID"), ("aws.secretAccessKey", "AWS_SECRET_ACCESS_KEY")):
        jvm.java.lang.System.setProperty(name, of[variable])
    for name, value in lake_config(Settings(Path(), bucket)).items():
        spark.sparkContext._jsc.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)
    return f"{bucket}/lake"


@pytest.fixture
def lake_in() -> str:
    """Where the lake of a test is: ``folder``, or ``s3`` by ``also_on_s3``."""
    return "folder"


@pytest.fixture
def lake(request: pytest.FixtureRequest, lake_in: str, tmp_path: Path) -> Iterator[str]:
    """The root of the tables of one test; those of a folder, other readers than ours can read afterwards."""
    from tests.readers import assert_others_read_tables_of

    if lake_in == "s3":
        yield request.getfixturevalue("s3_lake")
        return
    yield str(tmp_path / "lake")
    assert_others_read_tables_of(tmp_path / "lake")


@pytest.fixture
def lakeside(spark: SparkSession, lake: str) -> Lakeside:
    """The test's lake, for refined tables over tables that the test writes."""
    return Lakeside(spark, lake)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL server, for one module."""
    from tests.tables.served import running_server

    with running_server() as running:
        yield running


@pytest.fixture
def url(server: EmbeddedPostgres) -> str:
    """Of the server's database, without anything of other tests."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS test CASCADE")
    return server.url


@pytest.fixture
def defs(tmp_path: Path) -> Path:
    """The folder of the documents of one test, empty at first."""
    folder = tmp_path / "defs"
    folder.mkdir()
    return folder


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A receiver of alerts, which the environment names."""
    with receiving() as receiver:
        monkeypatch.setenv("KDI_ALERT_WEBHOOK", receiver.url)
        yield receiver


class DrivenFactory(Protocol):
    """Makes a stream of web requests over its own topic."""

    def __call__(self, partitions: int = 2, *, config: dict[str, str] | None = None, **fields: Any) -> DrivenStream: ...


@pytest.fixture
def driven(
    pytestconfig: pytest.Config,
    topic: TopicFactory,
    cluster: Cluster,
    producer: Publisher,
    lake: str,
    spark: SparkSession,
) -> DrivenFactory:
    """Streams to produce to and to drain, in the session of the test process."""

    def make(partitions: int = 2, *, config: dict[str, str] | None = None, **fields: Any) -> DrivenStream:
        stream = web_requests(topic(partitions, config=config), cluster, **fields)
        return DrivenStream(stream, lake, producer, lambda: spark, seed=pytestconfig.getoption("--seed"))

    return make
