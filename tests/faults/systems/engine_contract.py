"""What every cluster keeps: a module with a fixture ``engine`` imports these tests and runs them on its cluster."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.delta.storage import open_delta_table
from kdi_assets.documents.model.message_rules import DeadLetterLimit
from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.errors import Transient
from kdi_assets.follow.refine.audit.audit import audit_refined
from kdi_assets.follow.refine.refine import refine
from kdi_assets.follow.serve.serve import serve
from kdi_assets.runtime.errors import DriverGone
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.replay.replay_letters import replay_letters
from tests.conftest import TopicFactory
from tests.driven import AS_DECODED, web_requests
from tests.faults.conftest import DoomedFactory
from tests.faults.doomed_drain import COMMIT_LANDED, MID_READ, Doomed
from tests.faults.systems.cluster_driver import (
    ClusterDriver,
    DrivenByCluster,
    drain_with_signal,
    no_session,
    race,
    run_sql,
)
from tests.faults.systems.engine import Engine
from tests.faults.systems.in_python import IN_PYTHON, reading_of
from tests.kafka_log import Publisher
from tests.refined import refined_table
from tests.tables.dead_letters import RIGHT, WRONG
from tests.waiting import wait_until

scenario = pytest.mark.scenario
AT_THE_END = "the drain has ended"
"""A point that no drain reaches: it gets no signal."""


@pytest.fixture
def ends() -> str:
    """How an executor ends in the middle of a drain; a module may have other ways."""
    return "killed"


@pytest.fixture
def by_engine(engine: Engine, topic: TopicFactory, cluster: Cluster, lake: str) -> Callable[..., DrivenByCluster]:
    """Streams that the cluster drains; each has a log of its own of what was published."""

    def make(
        partitions: int = 4, *, driver: ClusterDriver | None = None, lake: str = lake, **fields: Any
    ) -> DrivenByCluster:
        stream, publisher = web_requests(topic(partitions), cluster, **fields), Publisher(cluster.bootstrap_servers)
        return DrivenByCluster(stream, lake, publisher, no_session, drives=lambda: driver or engine.driver())

    return make


def test_a_cluster_drains_refines_serves_replays_and_audits(
    by_engine: Callable[..., DrivenByCluster], engine: Engine, tmp_path: Path
) -> None:
    """Purpose: jars, kernel and settings reach executors by Spark alone, and all that reads a log without a JVM reads
    the cluster's storage.
    Procedure: drain good and bad messages in two rounds; refine after each, and serve from a file of DuckDB; replay
    the letters of a wrong document; audit streams and the refined table; compare with Kafka.
    Pass: there were two executors; every offset exactly once, byte for byte; the refined table is its recomputation,
    and the file has all of its rows.
    """
    web = by_engine()
    wrong = by_engine(columns=WRONG, dead_letter_limit=DeadLetterLimit(share=1.0))
    by_host = {"aggregate": {"by": ["date", "host"], "measures": {"n": "count"}}}
    hosts = refined_table(**{"table": "gold/hosts", "from": web.stream.table, "mode": by_host})
    copy = ServedTableSpec(table=hosts.table, into=DuckDb(file="hosts.duckdb", table="hosts"), keys=("date", "host"))

    web.produce(400, bad=0.1, tombstones=0.02, seed=1)
    first = web.drain()
    web.driver.call(refine, hosts, lake=web.lake)
    produced = web.produce(400, bad=0.1, tombstones=0.02, seed=2)
    second = web.drain()
    web.driver.call(refine, hosts, lake=web.lake)
    served = serve(copy, lake=web.lake, session=no_session, home=tmp_path)
    wrong.produce(60)
    wrong.drain()
    right = replace(wrong, stream=replace(wrong.stream, columns=RIGHT))
    back = right.there(replay_letters)

    assert len(engine.executors()) == 2
    assert len(first.commits) == len(second.commits) == 1
    web.assert_each_offset_once(produced)
    assert back.messages == 60
    right.assert_each_offset_once(right.publisher.flush())
    assert (web.audit().complete, right.audit().complete) == (True, True)
    assert web.driver.call(audit_refined, hosts, lake=web.lake, everything=True).equal
    assert served.upserted == len(open_delta_table(f"{web.lake}/{hosts.table}").to_pyarrow_table()) > 0
    assert web.compare().agrees


def test_what_python_workers_decode_needs_nothing_of_this_package_on_the_executors(
    by_engine: Callable[..., DrivenByCluster],
) -> None:
    """Purpose: Protobuf, JSON with a schema to validate, and Avro containers need Python on the executors.
    Procedure: executors with the packages of others and without ours; drain good and bad messages of each format.
    Pass: every offset exactly once, each bad message is a dead letter; the audit is complete.
    """
    for name, (format_, encode, bad) in IN_PYTHON.items():
        rows = {encode(row): row for row in ({"id": n, "note": f"Zürich {n}"} for n in range(300))}
        stream = by_engine(**{**AS_DECODED, "format": format_})
        for n, value in enumerate([*rows, bad, bad]):
            stream.publisher.produce(stream.stream.topic, value, partition=n % 4)
        produced = stream.publisher.flush()

        stream.drain()

        stream.assert_each_offset_once(produced, reading=reading_of(rows))
        assert stream.letters("value") == [bad, bad], name
        assert stream.audit().complete, name


@scenario("a machine of the cluster dies")
def test_a_drain_goes_on_when_an_executor_ends_in_its_middle(
    by_engine: Callable[..., DrivenByCluster], engine: Engine, ends: str
) -> None:
    """Purpose: an executor may go at any time, with tasks that have begun and files that it has written.
    Procedure: an executor is stopped (SIGSTOP) when a plan is made, so that tasks begin there and do not end; when the
    other one has written a file, it is killed (SIGKILL), a standalone one with its worker; on Kubernetes also: its pod
    is evicted; drain again, with more messages.
    Pass: the drain had not ended; it ends with its commit, or with a refusal that a retry can help; another executor
    has come in its place; every offset exactly once; the audit is complete.
    """
    web = by_engine()
    web.produce(100, bad=0.1)
    web.drain()
    victim = engine.await_executors(2)[0]
    web.produce(800, bad=0.1, tombstones=0.02, seed=2)
    before = web.data_files()

    web.driver.start(drain_with_signal, web.stream, lake=web.lake, process=victim, number=signal.SIGSTOP)
    wait_until(lambda: bool(web.data_files() - before))
    busy = web.driver.is_busy()
    engine.end_executor(victim, ends)
    try:
        outcome: DrainReport | Transient = web.driver.result()
    except Transient as refused:
        outcome = refused
    produced = web.produce(100, bad=0.1, seed=3)
    web.drain()

    assert busy
    assert isinstance(outcome, Transient) or len(outcome.commits) == 1, outcome
    assert victim not in engine.await_executors(2)
    web.assert_each_offset_once(produced)
    assert web.audit().complete


@scenario("two drivers at once")
def test_one_of_two_drains_at_once_wins(by_engine: Callable[..., DrivenByCluster]) -> None:
    """Purpose: two drains of one stream share the executors, and a version has one commit.
    Procedure: two drains of one stream plan on the same version, then both read and commit; three times.
    Pass: one commit for each round; every offset exactly once.
    """
    web = by_engine(2)
    produced = web.produce(20)
    web.drain()

    for seed in range(1, 4):
        version = web.version()
        produced = web.produce(100, bad=0.1, seed=seed)
        raced = web.there(race)
        commits = sum(len(report.commits) for report in raced if isinstance(report, DrainReport))
        assert (commits, web.version()) == (1, version + 1), raced

    web.assert_each_offset_once(produced)
    assert web.audit().complete


@scenario("RESTORE and time travel")
def test_a_restore_is_answered_by_the_next_drain(by_engine: Callable[..., DrivenByCluster]) -> None:
    """Purpose: positions follow a RESTORE, which is read from the log by delta-rs.
    Procedure: two drains; RESTORE to the first; drain.
    Pass: every offset exactly once, and the audit is complete.
    """
    web = by_engine()
    web.produce(200, bad=0.1, seed=1)
    web.drain()
    before = web.version()
    produced = web.produce(200, bad=0.1, seed=2)
    web.drain()

    web.driver.call(run_sql, f"RESTORE TABLE delta.`{web.uri}` TO VERSION AS OF {before}")
    web.drain()

    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_executors_come_for_a_drain_and_leave_when_nothing_is_to_be_done(
    by_engine: Callable[..., DrivenByCluster], engine: Engine
) -> None:
    """Procedure: with dynamic allocation, twice: drain, and wait until the driver has given all executors back.
    Pass: an idle driver holds none, and the next drain ends, which it cannot without; every offset exactly once.
    """
    of_others = set(engine.executors())

    with engine.elastic_driver() as driver:
        web = by_engine(driver=driver)
        for seed in (1, 2):
            produced = web.produce(400, bad=0.1, tombstones=0.02, seed=seed)
            report = web.drain()
            wait_until(lambda: not set(engine.executors()) - of_others)
        complete = web.audit().complete

    assert len(report.commits) == 1
    web.assert_each_offset_once(produced)
    assert complete


@scenario("killed after files are written", "killed between dead letters and commit", "killed during the commit")
def test_a_driver_that_is_killed_leaves_nothing_half_done(
    by_engine: Callable[..., DrivenByCluster], doomed: DoomedFactory, engine: Engine
) -> None:
    """Purpose: executors outlive their driver for a moment, and may still write files.
    Procedure: in turn: a drain's process is killed (SIGKILL) in the middle of the read (if the lake is no folder, just
    after it) and between dead letters and commit, the JVM of one just after the commit; drain once more, with more
    messages, by another driver.
    Pass: the first two left no version, the third one; every offset exactly once; the audit is complete.
    """
    web = by_engine()
    web.produce(100, bad=0.3)
    web.drain()
    begun = web.version()
    web.produce(3000, bad=0.1, tombstones=0.02, seed=2)
    engine.make_room()
    options = engine.own_driver()

    for point in ("files written" if "://" in web.lake else MID_READ, "dead letters written"):
        assert doomed(web, point, signal.SIGKILL, **options).exit_code() == -signal.SIGKILL, point
        assert web.version() == begun, point
    last = doomed(web, COMMIT_LANDED, signal.SIGKILL, to_jvm=True, **options).outcome()
    landed = web.version()
    produced = web.produce(100, bad=0.1, seed=3)
    web.drain()

    assert isinstance(last, DrainReport) and landed == begun + 1
    web.assert_each_offset_once(produced)
    assert web.audit().complete


@scenario("killed between dead letters and commit")
def test_processes_share_a_warm_driver_and_when_it_is_killed_under_them_nothing_is_half_done(
    by_engine: Callable[..., DrivenByCluster], doomed: DoomedFactory, engine: Engine, lake: str, tmp_path: Path
) -> None:
    """Purpose: the runs of a machine share the executors of its warm driver, and lose them at once.
    Procedure: `kdi driver run` with the cluster as its master; two processes drain a stream each by it; then, with more
    messages, two that are stopped (SIGSTOP) between dead letters and commit; the driver and its JVM are killed
    (SIGKILL), and the processes go on; drain both streams by another driver.
    Pass: the first drains commit; both that were held are attached, and end by an error that a retry can help, without
    a version; the executors end by themselves; every offset exactly once; the audits are complete.
    """
    streams = [by_engine(2), by_engine(2)]
    for web in streams:
        web.produce(100, bad=0.1, seed=1)

    of_others, clients = set(engine.executors()), {"environment": engine.environment}

    with engine.warm_driver(tmp_path, lake) as warm:

        def drains(point: str) -> list[Doomed]:
            return [doomed(web, point, signal.SIGSTOP, home=warm.home, **clients) for web in streams]

        first = [drain.outcome() for drain in drains(AT_THE_END)]
        begun = [web.version() for web in streams]
        produced = [web.produce(100, bad=0.1, seed=2) for web in streams]
        held = drains("dead letters written")
        for drain in held:
            drain.await_stopped()
        attached, executors = set(warm.status()["clients"]), set(engine.executors()) - of_others
        warm.kill()
        for drain in held:
            drain.send(signal.SIGCONT)
        outcomes = [drain.outcome() for drain in held]
    wait_until(lambda: executors.isdisjoint(engine.executors()))
    left = [web.version() for web in streams]
    after = [web.drain() for web in streams]

    assert [len(report.commits) for report in first if isinstance(report, DrainReport)] == [1, 1], first
    assert attached == {drain.pid for drain in held}
    assert executors
    assert all(isinstance(outcome, DriverGone) for outcome in outcomes), outcomes
    assert (left, [len(report.commits) for report in after]) == (begun, [1, 1])
    for web, messages in zip(streams, produced, strict=True):
        web.assert_each_offset_once(messages)
        assert web.audit().complete
