"""A whole deployment: its units' processes from an installed copy, PostgreSQL, a broker, the warm driver.

A small supervisor does what the units request of systemd (`tests/deployment/deployed.py`).
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import dagster as dg
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from dagster import DagsterInstance
from dagster_postgres import PostgresRunStorage

from kdi_assets.components.names import table_key
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.runtime.driver.control import DriverAddress, address_file, driver_status
from kdi_assets.runtime.driver.drivers import driver_folder, running_drivers
from kdi_assets.runtime.errors import DriverGone
from kdi_assets.tools.local.broker import Broker
from tests.deployment.deployed import METRICS, WEBSERVER, Deployment, running_postgres
from tests.deployment.installed import install
from tests.driven import DrivenStream, web_requests_document
from tests.faults.warm_driver import JVM_OPTIONS, stopped
from tests.kafka_log import Publisher
from tests.oracle import Found
from tests.waiting import wait_until

TOPIC, OTHER_TOPIC = "deployed", "deployed_too"
LOADED_SECONDS = 240  # six processes start here, each in a second or two on an idle machine
CLUSTER = """
type: kdi_assets.components.KafkaCluster
attributes: {{name: main, bootstrap_servers: "{kafka}"}}
"""


@dataclass
class Site:
    """The deployment, its streams, and what its instance shows.

    Attributes:
        web: The stream of most tests.
    """

    deployment: Deployment
    web: DrivenStream
    other: DrivenStream
    instance: DagsterInstance

    def runs(self) -> list[dg.DagsterRun]:
        """The oldest first."""
        return list(reversed(self.instance.get_runs()))

    def running(self) -> list[dg.DagsterRun]:
        """Those that have begun and not ended."""
        return [run for run in self.runs() if run.status is dg.DagsterRunStatus.STARTED]

    def retried(self, run: dg.DagsterRun) -> bool:
        """Whether Dagster's retry of the run has succeeded."""
        return any(again.parent_run_id == run.run_id and again.is_success for again in self.runs())

    def errors(self, run: dg.DagsterRun) -> list[object]:
        """The names of the errors with which its steps failed."""
        logged = self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        failures = (entry.get_dagster_event().step_failure_data.user_failure_data for entry in logged)
        return [failure.metadata["error"].value for failure in failures if failure]

    def served(self, number: int) -> int:
        """How many clients have left a driver since it started; -1: it does not answer."""
        try:
            return int(driver_status(driver_folder(self.deployment.home, number))["served"])
        except DriverGone:
            return -1

    def works(self) -> bool:
        """Whether a run is attached to the driver; by the kernel, because a driver with a stopped JVM cannot answer."""
        port = DriverAddress.read(self.deployment.home).control_port
        talks = (one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_ESTABLISHED)
        return any(tuple(one.laddr)[1:2] == (port,) for one in talks)

    def jvm(self) -> int:
        (jvm,) = psutil.Process(self.deployment.services["driver"].pid).children()
        return jvm.pid

    @contextmanager
    def work_held(self) -> Iterator[None]:
        """During the body, a run attaches to the driver and waits for its JVM."""
        wait_until(lambda: address_file(self.deployment.home).exists(), seconds=LOADED_SECONDS)
        with stopped(self.jvm()):
            yield

    @contextmanager
    def attached_run_held(self) -> Iterator[None]:
        """During the body, a run that has attached to the driver waits for its JVM; one that asks may go elsewhere."""
        wait_until(lambda: bool(driver_status(self.deployment.home)["clients"]), seconds=LOADED_SECONDS)
        with stopped(self.jvm()):
            yield

    def wait_until_drained(self, messages: int) -> None:
        """Wait until every message has a verdict and every run has ended."""
        wait_until(lambda: verdicts(self.web.found()) >= messages, seconds=LOADED_SECONDS)
        wait_until(lambda: all(run.is_finished for run in self.runs()), seconds=LOADED_SECONDS)

    def shown_dates(self) -> list[str]:
        """What the webserver shows of the table."""
        query = "{assetNodes(assetKeys: [{path: %s}]) {assetPartitionStatuses {"
        query += "... on TimePartitionStatuses {ranges {startKey}}}}}"
        url, kind = f"http://127.0.0.1:{self.deployment.ports[WEBSERVER]}/graphql", {"Content-Type": "application/json"}
        asked = json.dumps({"query": query % json.dumps(table_key(self.web.stream).path)})
        with urlopen(Request(url, asked.encode(), kind), timeout=20) as answer:
            (node,) = json.load(answer)["data"]["assetNodes"] or [{}]
        return [found["startKey"] for found in node.get("assetPartitionStatuses", {}).get("ranges", [])]


def verdicts(found: Found) -> int:
    return len(found.rows) + len(found.dead_letters)


@pytest.fixture(scope="module")
def site(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Every unit, with two streams, on a PostgreSQL that has never seen Dagster."""
    installed, folder = install(tmp_path_factory.mktemp("installed")), tmp_path_factory.mktemp("site")
    kafka = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 2})  # a name: it ends with its last reference
    for created in admin.create_topics([NewTopic(topic, 2, 1) for topic in (TOPIC, OTHER_TOPIC)]).values():
        created.result(30)
    more = {"PYTHONPATH": str(installed), "KDI_SPARK_MASTER": "local[2]", **JVM_OPTIONS}
    with running_postgres() as postgres:
        deployment = Deployment(folder, postgres=postgres, environment=more, monitoring_seconds=1)
        documents = deployment.streams / "defs.yaml"
        due = "{backlog_messages: 1, lag_seconds: 3600}"
        both = [web_requests_document(topic, drain_when=due) for topic in (TOPIC, OTHER_TOPIC)]
        documents.write_text("---\n".join([CLUSTER.format(kafka=kafka), *both]))
        streams = {stream.topic: stream for stream in load_streams(deployment.streams).values()}
        deployment.start("driver")
        try:
            deployment.run("dagster", "instance", "migrate")
            deployment.start("code-server", "daemon", "webserver", "metrics")
            with deployment.instance() as instance:
                lake = deployment.environment["KDI_LAKE"]
                web, other = (
                    DrivenStream(streams[topic], lake, Publisher(kafka), no_session) for topic in (TOPIC, OTHER_TOPIC)
                )
                yield Site(deployment, web, other, instance)
        finally:
            deployment.stop()


def no_session() -> Any:
    raise AssertionError("the deployment drains, not the test")


@pytest.mark.scenario("killed before reading")
def test_the_units_drain_what_arrives_though_driver_and_code_server_are_killed_under_the_run(site: Site) -> None:
    """Purpose: no process is left to report such a run, and the sensor does not touch the streams of a run; the command
    lines of the units are the deployment, nothing else holds its processes together.
    Procedure: messages arrive; the run that the sensor started has attached to the warm driver; driver and code server,
    with the run, are killed (SIGKILL); their supervisor starts them again.
    Pass: Dagster shows the run as failed; the next one, its retry or one that the sensor requested, attached to the new
    driver and succeeded; every offset exactly once; the webserver shows the dates, the metrics name the stream, `kdi
    status` no backlog.
    """
    services = site.deployment.services
    with site.work_held():
        produced = site.web.produce(60, bad=0.1)
        wait_until(site.works, seconds=LOADED_SECONDS)
        for name in ("driver", "code-server"):
            services[name].kill_group()

    site.wait_until_drained(60)

    site.web.assert_each_offset_once(produced)
    killed, *later = site.runs()
    assert killed.tags["dagster/sensor_name"] == "lag_main"
    assert killed.status is dg.DagsterRunStatus.FAILURE
    assert {run.status for run in later} == {dg.DagsterRunStatus.SUCCESS}
    assert (services["driver"].starts, services["code-server"].starts) == (2, 2)
    assert isinstance(site.instance.run_storage, PostgresRunStorage)
    assert site.shown_dates()
    with urlopen(f"http://127.0.0.1:{site.deployment.ports[METRICS]}/metrics", timeout=20) as answer:
        assert site.web.stream.name in answer.read().decode()
    assert json.loads(site.deployment.run("kdi", "status", "--json", site.web.stream.name))["backlog_offsets"] == 0


def test_runs_die_with_the_process_they_were_forked_off_which_has_no_threads_and_another_takes_its_place(
    site: Site,
) -> None:
    """Purpose: a lock held by a thread of the forking process would be held for ever in every run; and without that
    process the code server does not know its runs, which are retried: two of one run would work side by side.
    Procedure: messages arrive, and a run has attached to the driver; the forking process is killed.
    Pass: it had one thread beside jemalloc's, which prepares for forks; the run is dead with it; the messages are
    drained by another run, each once.
    """
    before = verdicts(site.web.found())
    with site.work_held():
        produced = site.web.produce(10)
        wait_until(site.works, seconds=LOADED_SECONDS)
        forking = site.deployment.forking_process()
        threads, (run,) = _threads_without_jemalloc(forking), site.deployment.run_workers()
        forking.kill()
        wait_until(lambda: not run.is_running() or run.status() == psutil.STATUS_ZOMBIE)

    site.wait_until_drained(before + 10)

    site.web.assert_each_offset_once(produced)
    assert threads == 1
    assert [run.status for run in site.runs()[-2:]] == [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS]


def _threads_without_jemalloc(process: psutil.Process) -> int:
    names = [task.read_text().strip() for task in Path(f"/proc/{process.pid}/task").glob("*/comm")]
    return len([name for name in names if name != "jemalloc_bg_thd"])


@pytest.mark.scenario("killed before reading")
def test_two_drivers_share_the_runs_and_the_run_of_one_that_is_killed_is_retried_in_the_other(site: Site) -> None:
    """Purpose: what dies with one of two drivers is drained by the other, once; started again, it takes part again.
    Procedure: a run has attached to the driver, whose JVM is then stopped (SIGSTOP); a second driver starts, and
    messages of another stream arrive; these are drained; the first driver is killed (SIGKILL); once its run was
    retried, it starts again, and more messages of the first stream arrive; then the second driver is stopped.
    Pass: the second driver had the run of the other stream while the first one hung; the run of the killed driver
    failed by an error that says so, and its retry succeeded in the second driver; the first driver has the next run;
    every offset of both streams exactly once, and the audits are complete; no run, client, lock or address is left.
    """
    deployment, home, before = site.deployment, site.deployment.home, verdicts(site.web.found())
    site.web.produce(5_000, bad=0.1, seed=3)
    with site.attached_run_held():
        (held,) = site.running()
        deployment.start_second_driver()
        wait_until(lambda: site.served(2) == 0, seconds=LOADED_SECONDS)
        others = site.other.produce(60, bad=0.1)
        wait_until(lambda: verdicts(site.other.found()) == 60 and site.served(2) == 1, seconds=LOADED_SECONDS)
        hung = held.run_id in {run.run_id for run in site.running()}
        # Not started again by its supervisor: a retry that comes later would have the choice.
        deployment.services["driver"].ask_to_stop()
        deployment.services["driver"].kill_group()

    wait_until(lambda: site.retried(held) and site.served(2) > 1, seconds=LOADED_SECONDS)
    deployment.start("driver")
    wait_until(lambda: site.served(1) == 0, seconds=LOADED_SECONDS)
    produced = site.web.produce(60, bad=0.1, seed=4)
    site.wait_until_drained(before + 5_060)
    wait_until(lambda: site.served(1) == 1)
    attached = [driver_status(folder)["clients"] for folder in running_drivers(home).values()]
    code = deployment.services.pop("driver-2").stop()

    site.web.assert_each_offset_once(produced)
    site.other.assert_each_offset_once(others)
    deployment.run("kdi", "audit", site.web.stream.name, site.other.stream.name)  # fails unless both are complete
    assert (hung, site.errors(held)) == (True, ["DriverGone"])
    assert attached == [[], []]
    assert (code, [*running_drivers(home)], address_file(driver_folder(home, 2)).exists()) == (0, [1], False)


def test_processes_that_are_told_to_stop_end_in_time_and_a_run_ends_before_its_code_server(site: Site) -> None:
    """Purpose: an upgrade stops everything during runs; within the units' times nothing may have to be killed.
    Procedure: a run has attached to the driver; the code server gets SIGTERM, then metrics, webserver and daemon; once
    these have ended, the run may go on; then the driver is stopped.
    Pass: each ended by itself, none was killed; the run succeeded; every offset exactly once.
    """
    deployment = site.deployment
    with site.work_held():
        produced = site.web.produce(60, bad=0.1)
        wait_until(site.works, seconds=LOADED_SECONDS)
        deployment.services["code-server"].ask_to_stop()
        codes = {name: deployment.services.pop(name).stop() for name in ("metrics", "webserver", "daemon")}
        waited = deployment.services["code-server"].running()
    codes |= deployment.stop()

    assert codes.pop("metrics") == -signal.SIGTERM, "it has nothing to put away, and systemd takes that for a good end"
    assert codes == {"webserver": 0, "daemon": 0, "code-server": 0, "driver": 0}
    assert waited
    assert site.runs()[-1].status is dg.DagsterRunStatus.SUCCESS
    site.web.assert_each_offset_once(produced)
