"""Two warm drivers of one home: drains are shared between them, and one that dies is replaced by the other."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.runtime.errors import DriverGone
from kdi_assets.streams.drain.report import DrainReport
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults.conftest import DoomedFactory
from tests.faults.doomed_drain import Doomed
from tests.faults.warm_driver import WarmDriver
from tests.kafka_log import Publisher

STREAMS = 4
AT_THE_END = "the drain has ended"
"""A point that no drain reaches: it gets no signal."""


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[tuple[WarmDriver, WarmDriver]]:
    """Both drivers of one home."""
    home = tmp_path / "home"
    home.mkdir()
    started: list[WarmDriver] = []
    try:
        for number in (1, 2):
            started.append(WarmDriver(home, number=number))
        yield started[0], started[1]
    finally:
        for driver in started:
            driver.stop()


def attached(driver: WarmDriver) -> set[int]:
    """The process ids of its clients."""
    return set(driver.status()["clients"])


def drain_all(streams: list[DrivenStream], doomed: DoomedFactory, home: Path, point: str) -> list[Doomed]:
    """A drain of each stream in its process, which is stopped (SIGSTOP) at the point."""
    return [doomed(web, point, signal.SIGSTOP, home=home) for web in streams]


@pytest.mark.parametrize("killed", [0, 1], ids=["the first is killed", "the second is killed"])
def test_drains_are_shared_by_two_drivers_and_when_one_is_killed_the_other_drains_every_stream(
    driven: DrivenFactory,
    cluster: Cluster,
    doomed: DoomedFactory,
    drivers: tuple[WarmDriver, WarmDriver],
    killed: int,
) -> None:
    """Purpose: several drivers share the runs of a lake; what dies with one of them is drained by another, once.
    Procedure: a drain of each of four streams, in its process, is stopped (SIGSTOP) between dead letters and commit;
    one driver with its JVM is killed (SIGKILL); the processes go on; streams whose drain failed are drained again.
    Pass: two drains were attached to each driver; exactly those of the killed one ended, by an error that a retry can
    help; the tries after it are attached to the other one; each table has one more version; every offset exactly once.
    """
    streams = [replace(driven(), publisher=Publisher(cluster.bootstrap_servers)) for _ in range(STREAMS)]
    for web in streams:
        web.drain_rounds(1, 40)
    begun = [web.version() for web in streams]
    produced = [web.produce(100, bad=0.1, tombstones=0.02, seed=2) for web in streams]
    dying, living = drivers[killed], drivers[1 - killed]

    held = drain_all(streams, doomed, dying.home, "dead letters written")
    for drain in held:
        drain.await_stopped()
    shares = attached(dying), attached(living)
    dying.kill()
    for drain in held:
        drain.send(signal.SIGCONT)
    outcomes = [drain.outcome() for drain in held]
    again = [web for web, outcome in zip(streams, outcomes, strict=True) if isinstance(outcome, DriverGone)]
    living.wait_until_nobody_is_attached()
    served = living.status()["served"]
    tries = [drain.outcome() for drain in drain_all(again, doomed, dying.home, AT_THE_END)]
    living.wait_until_nobody_is_attached()

    assert [len(share) for share in shares] == [STREAMS // 2] * 2
    assert {d.pid for d, o in zip(held, outcomes, strict=True) if isinstance(o, DriverGone)} == shares[0]
    assert all(isinstance(outcome, DriverGone | DrainReport) for outcome in outcomes)
    assert all(isinstance(report, DrainReport) and len(report.commits) == 1 for report in tries)
    assert living.status()["served"] == served + len(tries)
    assert [web.version() for web in streams] == [version + 1 for version in begun]
    for web, messages in zip(streams, produced, strict=True):
        web.assert_each_offset_once(messages)
        assert web.audit().complete
