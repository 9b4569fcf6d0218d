"""The clients of a warm driver: processes that attach, work beside each other, end and are killed."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from kdi_assets.runtime.driver.control import DriverAddress, driver_status
from kdi_assets.settings import Settings
from tests.spark.warm_driver import ENDLESS, KDI, Client, Driver
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def _lasting_driver(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    driver = Driver(tmp_path_factory.mktemp("warm") / "home", jars=settings.home / "jars")
    yield driver
    driver.stop()


@pytest.fixture
def driver(_lasting_driver: Driver) -> Iterator[Driver]:
    """One for all tests that do not stop it; each test leaves it without clients."""
    yield _lasting_driver
    _lasting_driver.end_clients()
    # It counts a client when it has noticed its end: that must not happen during the next test.
    wait_until(lambda: driver_status(_lasting_driver.home)["clients"] == [])


def test_a_command_uses_the_warm_driver_of_its_lake_unasked(driver: Driver) -> None:
    body = "spark = open_session(settings)\nsay(settings.driver, spark.sparkContext.__class__.__name__)\n"
    unasked = {name: value for name, value in driver.environment.items() if name != "KDI_DRIVER"}

    client = Client(body, unasked)

    assert client.says() == "auto AttachedContext"
    client.end()


@pytest.mark.core
def test_two_clients_at_once_have_their_own_settings_and_do_not_end_each_others_jobs(driver: Driver) -> None:
    body = "spark = open_session(settings, config={{'spark.sql.shuffle.partitions': '{0}'}})\n"
    body += "say(spark.conf.get('spark.sql.shuffle.partitions'))\n"
    one, other = driver.client(body.format(3) + ENDLESS), driver.client(body.format(5) + ENDLESS)

    assert (one.says(), other.says()) == ("3", "5")
    wait_until(lambda: driver.jobs() == 2)
    one.end(signal.SIGINT)

    wait_until(lambda: driver.jobs() == 1)
    assert other.process.poll() is None
    other.end()
    wait_until(lambda: driver.jobs() == 0)


IN_THE_MAIN_THREAD = ENDLESS
IN_A_THREAD_THAT_NOBODY_MARKED = f"threading.Thread(target=lambda: {ENDLESS}).start()"
BESIDE_SQL = "import time; spark.sparkContext.parallelize([1], 1).foreach(lambda _: time.sleep(600))"
# The filter: Spark's range looks for a kill only where the last row of one of its batches is not written.
INTO_A_DELTA_TABLE = "spark.range(1 << 60).where('id % 7 > 0').write.format('delta').save(settings.lake + '/endless')"


@pytest.mark.parametrize(
    "job", [IN_THE_MAIN_THREAD, IN_A_THREAD_THAT_NOBODY_MARKED, BESIDE_SQL, INTO_A_DELTA_TABLE], ids=range(4)
)
def test_a_killed_client_takes_its_job_with_it_and_leaves_the_driver(driver: Driver, job: str) -> None:
    client = driver.client(f"spark = open_session(settings)\n{job}")
    wait_until(lambda: driver.jobs() > 0)

    client.end()

    wait_until(lambda: driver.jobs() == 0, seconds=10)
    assert driver.answer("say(open_session(settings).range(10).count())") == "10"
    assert not list(driver.home.glob("lake/endless/_delta_log/*.json"))


def test_rows_that_a_killed_client_had_cached_are_released(driver: Driver) -> None:
    client = driver.client("""
from kdi_assets.streams.drain.cached_messages import cached
spark = open_session(settings)
with cached(spark.range(10)) as rows:
    say(rows.count(), spark.sparkContext._jsc.getPersistentRDDs().size())
    threading.Event().wait()
""")
    assert client.says() == "10 1"

    client.end()

    wait_until(lambda: driver_status(driver.home)["clients"] == [])
    assert driver.answer("say(open_session(settings).sparkContext._jsc.getPersistentRDDs().size())") == "0"


def test_a_client_finds_what_it_needs_and_changes_nothing_for_others(driver: Driver) -> None:
    """Pass: its files for Spark are below the home, because its /tmp may be another; it imports neither pandas nor
    numpy, and takes values of numpy from a process that has imported it.
    """
    answer = driver.answer("""
spark = open_session(settings)
from pyspark.sql import functions as F
spark.range(1).select(F.lit(1))
say({'numpy', 'pandas'} & sys.modules.keys())
import numpy
say(spark.range(1).select(F.lit(numpy.int16(3))).dtypes)
say(spark._jvm.System.getProperty("https.proxyHost"))
say(*spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect())
from pyspark.sql import SparkSession
say(SparkSession.builder.config('spark.sql.shuffle.partitions', '99').getOrCreate() is spark)
say(spark.createDataFrame([(1,), (2,)], 'id bigint').count(), spark.sparkContext._temp_dir)
""")

    *others, folder = answer.splitlines()
    assert others == ["set()", "[('3', 'smallint')]", "proxy.example", sys.executable, "True"]
    assert folder.startswith(f"2 {driver.home}/spark/")
    assert not list(driver.home.glob("spark/left by a killed JVM")), "a driver begins with an empty one"
    assert driver.answer("say(open_session(settings).conf.get('spark.sql.shuffle.partitions'))") == "16"


def test_a_process_detaches_and_attaches_again_and_the_driver_stays(driver: Driver) -> None:
    served = driver_status(driver.home)["served"]

    answer = driver.answer("""
first = open_session(settings, config={"spark.sql.shuffle.partitions": "3"})
first.range(1).createOrReplaceTempView("mine")
first.stop()
second = open_session(settings)
say(second.conf.get("spark.sql.shuffle.partitions"), second.catalog.tableExists("mine"), second.range(3).count())
close_session(second)
second.sparkContext.stop()
""")

    assert answer == "16 False 3"
    wait_until(lambda: driver_status(driver.home)["served"] == served + 2)
    assert not driver.ended()


def test_a_process_detaches_without_waiting_for_the_end_of_pysparks_server_of_accumulators(driver: Driver) -> None:
    """Pass: the session is closed before the server may end, and then the server ends."""
    answer = driver.answer("""
import time
spark = open_session(settings)
server, may_end = spark.sparkContext._accumulatorServer, threading.Event()
shut_down = server.shutdown
server.shutdown = lambda: may_end.wait() and shut_down()
close_session(spark)
say("runs" if server.socket.fileno() != -1 else "has ended")
may_end.set()
while server.socket.fileno() != -1:
    time.sleep(0.01)
""")

    assert answer == "runs"


def test_attaching_does_not_ask_for_each_setting_of_the_driver_and_takes_its_variables_of_executors(
    driver: Driver,
) -> None:
    """A setting would be five calls, two of them the halves of a pair."""
    answer = driver.answer("""
from py4j.clientserver import ClientServerConnection

send, asked = ClientServerConnection.send_command, []
def counted(self, command, *more):
    asked.append("\\n_1\\n" in command)
    return send(self, command, *more)
ClientServerConnection.send_command = counted

spark = open_session(settings)
say(len(asked) > 10, sum(asked))
from kdi_assets.runtime.gateway import gateway_of, shared_context
_, conf = shared_context(gateway_of(spark))
conf.set("spark.executorEnv.REGION", "eu")
say(conf.getAll())
""")

    assert answer.splitlines() == ["True 0", "[('spark.executorEnv.REGION', 'eu')]"]


def test_a_check_of_many_topics_asks_once_whether_the_driver_runs_and_loads_no_pandas(
    driver: Driver, tmp_path: Path
) -> None:
    """The JVM lets few connections wait: of hundreds within a second, some are made after a second or three."""
    attributes = "{name: many, topics: [a, b, c], table: 'many/{topic}', schema: id bigint, date: current_date()}"
    cluster = "type: kdi_assets.components.KafkaCluster\nattributes: {name: main, bootstrap_servers: 'b:9092'}\n"
    many = f"type: kdi_assets.components.TopicTables\nattributes: {attributes}\n"
    (tmp_path / "defs.yaml").write_text(f"{cluster}---\n{many}")

    answer = driver.answer(f"""
from unittest.mock import patch
from kdi_assets.cli.app import app_for
from kdi_assets.runtime.driver.control import ControlConnection

with patch.object(ControlConnection, "driver_ended", autospec=True, side_effect=[False]) as asked:
    app_for(())(["--defs", "{tmp_path}", "check"], standalone_mode=False)
say(asked.call_count, {{"numpy", "pandas", "pyarrow"}} & sys.modules.keys())
""")

    assert answer.splitlines() == ["streams: 3, mistakes: 0", "0 set()"]


def test_a_run_attaches_once_and_leaves_nothing_attached(driver: Driver) -> None:
    served = driver_status(driver.home)["served"]

    answer = driver.answer("""
import dagster as dg
from kdi_assets.resources.spark import SparkResource

@dg.asset
def one(spark: SparkResource):
    say(spark.session().range(1).count())

for _ in range(2):
    dg.materialize([one], resources={"spark": SparkResource()})
""")

    assert answer.split() == ["1", "1"]
    wait_until(lambda: driver_status(driver.home)["served"] == served + 2)


def test_deltas_commit_takes_the_settings_of_the_session_that_is_in_use_in_the_thread(driver: Driver) -> None:
    driver.answer("""
spark = open_session(settings, config={"spark.databricks.delta.commitInfo.userMetadata": "ours"})
path = settings.lake + "/settings"
spark.range(1).write.format("delta").save(path)

def commit():
    none = spark._jvm.scala.Option.apply(None)
    transaction = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path).startTransaction(
        none, none)
    transaction.updateSetTransaction("app", 1, none)
    manual = getattr(spark._jvm, "org.apache.spark.sql.delta.DeltaOperations$ManualUpdate$")
    transaction.commit(spark._jvm.PythonUtils.toSeq([]), getattr(manual, "MODULE$"))

def commit_in_thread(*before):
    def run():
        for step in before:
            step(spark)
        commit()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

commit()
commit_in_thread(use_in_thread)
commit_in_thread()
""")

    log = driver.home / "lake" / "settings" / "_delta_log"
    commits = [json.loads(file.read_text().splitlines()[0])["commitInfo"] for file in sorted(log.glob("*.json"))]
    assert [commit.get("userMetadata") for commit in commits] == ["ours", "ours", "ours", None]


def test_attached_clients_never_share_a_pool_and_pools_are_used_again(driver: Driver) -> None:
    """Purpose: within a pool, Spark's jobs wait for each other. Procedure: three clients; the second one leaves."""
    tells = (
        "say(open_session(settings).sparkContext.getLocalProperty('spark.scheduler.pool'))\nthreading.Event().wait()"
    )
    clients = [driver.client(tells) for _ in range(3)]
    pools = [client.says() for client in clients]

    clients[1].end()
    wait_until(lambda: len(driver_status(driver.home)["clients"]) == 2)
    again = driver.client(tells).says()

    assert sorted(pools) == ["pool 0", "pool 1", "pool 2"]
    assert again == pools[1]


def test_a_client_takes_its_turn_beside_a_longer_job(driver: Driver) -> None:
    many_small_tasks = "open_session(settings).range(0, 1 << 38, 1, 1 << 14).selectExpr('max(id % 7)').collect()"
    client = driver.client(many_small_tasks)
    wait_until(lambda: driver.jobs() == 1)

    assert driver.answer("say(open_session(settings).range(10).count())") == "10"

    assert driver.jobs() == 1
    assert client.process.poll() is None


@pytest.mark.scenario("two drivers at once")
def test_a_second_driver_on_the_same_home_is_refused(driver: Driver) -> None:
    second = subprocess.run([KDI, "driver", "run"], env=driver.environment, capture_output=True, text=True, check=False)

    assert second.returncode == 1
    assert f"a warm driver of {driver.home} runs already" in second.stderr
    assert not driver.ended()


def test_status_says_who_is_attached(driver: Driver) -> None:
    client = driver.client("spark = open_session(settings)\nsay('attached')\n" + ENDLESS)
    assert client.says() == "attached"

    told = subprocess.run([KDI, "driver", "status", "--json"], env=driver.environment, capture_output=True, check=True)

    assert json.loads(told.stdout)["clients"] == [client.process.pid]
    client.end()
    wait_until(lambda: driver_status(driver.home)["clients"] == [])


def test_other_users_of_the_machine_reach_neither_the_secret_nor_the_messages(driver: Driver) -> None:
    """Purpose: the driver works with messages, and listens on ports that every user of the machine can connect to.
    Pass: files are their owner's alone; what Spark writes lies in a folder that only its owner may enter; no command
    line and no environment has the secret; every port is on the loopback, and Spark's own ports ask for a password.
    """
    body = "spark = open_session(settings)\nspark.range(1000).repartition(4).count()\n"
    client = driver.client(body + "say(spark.sparkContext.getConf().get('spark.authenticate'))\n" + ENDLESS)

    said = client.says()
    processes = [psutil.Process(driver.process.pid), *psutil.Process(driver.process.pid).children(recursive=True)]
    shown, listening = "", list[str]()
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a command of the JVM that has ended
            shown += f"{process.cmdline()} {process.environ()}"
            listening += [c.laddr.ip for c in process.net_connections() if c.status == psutil.CONN_LISTEN]
    secret = DriverAddress.read(driver.home).secret

    def mode(name: str) -> int:
        return stat.S_IMODE((driver.home / name).stat().st_mode)

    modes = {name: mode(name) for name in ("driver.json", "driver.lock", "driver.log", "spark")}
    assert modes == {"driver.json": 0o600, "driver.lock": 0o600, "driver.log": 0o600, "spark": 0o700}
    assert [*(driver.home / "spark").rglob("shuffle_*.data")]
    assert len(listening) > 3
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}
    assert "driver" in shown
    assert secret not in shown
    assert said == "true"


ENDLESS_ON_ONE_CORE = "spark.range(0, 1 << 60, 1, 1).selectExpr('max(id % 7)').collect()"


def test_a_client_counts_its_own_cpu_seconds_and_not_those_of_another(driver: Driver) -> None:
    """Procedure: one client runs a job without end; another runs a job and then waits until the JVM has used 3 s more.

    Pass: it counts its own tasks, and none of the seconds that it waited for.
    """
    other = driver.client(f"spark = open_session(settings)\n{ENDLESS_ON_ONE_CORE}")
    wait_until(lambda: driver.jobs() == 1)

    answer = driver.answer("""
import time
from kdi_assets.runtime.cpu_clock import CpuClock
from kdi_assets.runtime.spark_internals import TaskSeconds, jvm_cpu_seconds
spark = open_session(settings)
clock, tasks = CpuClock(), TaskSeconds(spark, spark.sparkContext.group)
clock.watching(spark)
spark.range(20_000_000).selectExpr('bit_xor(xxhash64(id))').collect()
before, own, jvm = clock.seconds(), tasks.seconds(), jvm_cpu_seconds(spark)
while jvm_cpu_seconds(spark) - jvm < 3:
    time.sleep(0.5)  # asking more often would use what is measured
say(before, own, clock.seconds() - before)
""")

    counted, in_tasks, while_it_waited = map(float, answer.split())
    other.end()
    assert counted >= in_tasks > 0
    assert while_it_waited < 1.5
