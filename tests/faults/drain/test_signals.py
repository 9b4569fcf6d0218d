"""Signals at the points of a drain, a decision, a replay: to the process, and to its JVM."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

import pytest

from kdi_assets.errors import Transient
from kdi_assets.runtime.driver.control import DriverAddress
from kdi_assets.runtime.errors import DriverGone
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.replay.replay_letters import replay_letters
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.resolve import decide
from kdi_assets.streams.spark_errors import ReadOrWriteFailed
from tests.conftest import CHECKOUT, DrivenFactory, also_on_s3
from tests.driven import DrivenStream
from tests.faults.conftest import DoomedFactory
from tests.faults.doomed_drain import COMMIT_CHECKED, COMMIT_LANDED, COMMIT_UNDER_WAY, MID_READ, set_back, unread_bytes
from tests.faults.warm_driver import WarmDriver
from tests.kafka_log import Produced
from tests.tables.dead_letters import states, with_letters
from tests.waiting import wait_until

scenario = pytest.mark.scenario
LONG_READ = 3000
"""Messages whose read continues for a while after the first of them is in a file."""


def _drained_once(driven: DrivenFactory) -> DrivenStream:
    """A stream with a table, so that the test is one commit."""
    web = driven(partitions=2)
    web.drain_rounds(1, 4, bad=0.3)
    return web


def _produce(web: DrivenStream, point: str, *, seed: int = 2) -> list[Produced]:
    return web.produce(LONG_READ if point == MID_READ else 100, bad=0.1, tombstones=0.02, seed=seed)


READ = ("before reading", MID_READ, "files written")
BEFORE_THE_COMMIT = (*READ, "dead letters written", "accounted for", COMMIT_CHECKED)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@scenario(
    "killed before reading",
    "killed after files are written",
    "killed between dead letters and commit",
    "killed during the commit",
    "killed after the commit, before Dagster's event",
)
def test_drains_that_end_at_every_point_in_turn_leave_nothing_half_done(
    driven: DrivenFactory, doomed: DoomedFactory, number: signal.Signals
) -> None:
    """Purpose: a process may end anywhere, many in a row, also by SIGTERM: a drain handles no signal.
    Procedure: messages wait; at each point in turn, a drain in its own process, attached to the warm driver, ends
    itself by the signal: before, in the middle of and after the read, after the dead letters, after the accounting,
    just before Delta's commit is called, and just after it; drain once more, with more messages waiting.
    Pass: each died of the signal at once; only the last left a version; every offset exactly once in the table or the
    letters that count, byte for byte.
    """
    web = _drained_once(driven)
    begun = web.version()
    _produce(web, MID_READ)

    for point in BEFORE_THE_COMMIT:
        assert doomed(web, point, number).exit_code() == -number, point
        assert web.version() == begun, point
    assert doomed(web, "commit sent", number).exit_code() == -number
    left = web.version()
    produced = _produce(web, "commit sent", seed=3)
    web.drain()

    assert left == begun + 1
    web.assert_each_offset_once(produced)
    assert web.audit().complete


@also_on_s3
@pytest.mark.core
@scenario("killed during the commit")
def test_a_decision_that_is_killed_around_its_commit_did_nothing_or_all_of_it(
    driven: DrivenFactory, doomed: DoomedFactory
) -> None:
    """Purpose: a rewind removes rows and sets the positions in one commit, or does neither.
    Procedure: two drains; a rewind to between them, in its own process, is killed (SIGKILL) when its files are written
    and Delta's commit is called next; once more, killed just after the commit; the same rewind again; drain.
    Pass: the first left version, rows and positions as they were; the second left one version, without the rows and
    with the positions; the third says that nothing is left to do; every offset exactly once.
    """
    web = _drained_once(driven)
    between, few = web.version(), len(web.found().rows)
    produced = _produce(web, "rewind")
    web.drain()
    drained, rows = web.version(), len(web.found().rows)
    back = partial(set_back, version=between)

    early = doomed(web, COMMIT_CHECKED, signal.SIGKILL, act=back).exit_code()
    left_early = (web.version(), len(web.found().rows))
    late = doomed(web, COMMIT_LANDED, signal.SIGKILL, act=back).exit_code()
    left_late = (web.version(), len(web.found().rows))
    with pytest.raises(NothingToResolve, match="nothing below the positions"):
        decide(web.stream, web.lake, "rewind", to_version=between, session=web.session)
    web.drain()

    assert (early, late) == (-signal.SIGKILL, -signal.SIGKILL)
    assert (left_early, left_late) == ((drained, rows), (drained + 1, few))
    assert web.audit().complete
    web.assert_each_offset_once(produced)


@also_on_s3
@scenario("killed after files are written", "killed between dead letters and commit", "killed during the commit")
def test_letters_of_a_wrong_definition_all_come_back_whatever_is_killed(
    driven: DrivenFactory, doomed: DoomedFactory
) -> None:
    """Purpose: all messages that a wrong document rejected must come back, while the stream continues and processes
    die.
    Procedure: a document that rejects everything; drain; correct it. At each point in turn, a replay in its own
    process, attached to the warm driver, is killed (SIGKILL), and a drain follows; one is killed just after its commit;
    replay once more.
    Pass: only the last left a version; every offset exactly once; every letter is resolved, each counted as returned
    once; the audit is complete.
    """
    web = with_letters(driven, 60, bad=0.0)

    for seed, point in enumerate(("messages read", "files written", "letters written", COMMIT_CHECKED), 1):
        begun = web.version()
        assert doomed(web, point, signal.SIGKILL, act=replay_letters).exit_code() == -signal.SIGKILL, point
        assert web.version() == begun, point
        web.produce(20, seed=seed)
        web.drain()
    last = doomed(web, "commit sent", signal.SIGKILL, act=replay_letters).exit_code()
    again = replay_letters(web.stream, lake=web.lake, session=web.session)

    assert (last, again.messages, again.commit) == (-signal.SIGKILL, 0, None)
    web.assert_each_offset_once(web.publisher.flush())
    assert states(web) == {"resolved": 60}
    assert sum(sum(e.returned.values()) for e in web.entries()) == 60
    audit = web.audit()
    assert (audit.complete, audit.dead_letters) == (True, 0), audit.notes


@also_on_s3
@pytest.mark.parametrize("point", ["dead letters written", COMMIT_CHECKED, "commit sent"])
@scenario("a driver wakes after a long pause", "the same range run twice")
def test_a_drain_that_wakes_after_another_one_drained_its_range_commits_nothing_twice(
    driven: DrivenFactory, doomed: DoomedFactory, point: str
) -> None:
    """Purpose: a stopped process may resume much later, with files, letters and a plan in hand.
    Procedure: a drain is stopped (SIGSTOP) at the point; more messages come; another drain of the stream runs to its
    end; the first is resumed (SIGCONT).
    Pass: it ends by itself, with nothing left to do; the table's version is that of the other drain; every offset
    exactly once; none of its letters counts.
    """
    web = _drained_once(driven)
    _produce(web, point)
    sleeper = doomed(web, point, signal.SIGSTOP)
    sleeper.await_stopped()
    produced = _produce(web, point, seed=3)
    other = web.drain()
    version = web.version()

    sleeper.send(signal.SIGCONT)
    outcome = sleeper.outcome()

    assert other.version == version == web.version()
    assert isinstance(outcome, DrainReport), outcome
    assert len(outcome.commits) == (point == "commit sent")
    web.assert_each_offset_once(produced)


@also_on_s3
@pytest.mark.parametrize("fate", ["lands", "comes too late", "was never sent"])
@scenario("killed during the commit", "a driver wakes after a long pause")
def test_what_becomes_of_a_commit_whose_sender_was_killed_the_next_drain_sees(
    driven: DrivenFactory, doomed: DoomedFactory, warm_driver: WarmDriver, fate: str
) -> None:
    """Purpose: a shared driver continues the commit of a dead client: it lands later, or not at all.
    Procedure: the driver's JVM is held (SIGSTOP) before a drain calls Delta's commit; the client is killed when the JVM
    has received the call and not read it, or, in the last case, before it sent the call; the JVM resumes (SIGCONT)
    before the next drain, or only after it.
    Pass: the commit lands only in the first case, and the next drain finds nothing to do there; a commit that comes too
    late changes nothing; every offset exactly once.
    """
    web = _drained_once(driven)
    produced = _produce(web, COMMIT_CHECKED)
    begun = web.version()
    client = doomed(web, "accounted for" if fate == "was never sent" else COMMIT_CHECKED, signal.SIGSTOP)
    client.await_stopped()

    with warm_driver.held():
        client.send(signal.SIGCONT)
        # On a busy machine the client once took more than a minute until it sent the commit.
        wait_until(lambda: unread_bytes(DriverAddress.read(warm_driver.home).gateway_port) > 0, seconds=180)
        client.send(signal.SIGKILL)
        assert client.exit_code() == -signal.SIGKILL
        assert web.version() == begun
        if fate == "comes too late":
            web.drain()
    warm_driver.wait_until_nobody_is_attached()
    if fate == "lands":
        wait_until(lambda: web.version() == begun + 1)
    report = web.drain()

    assert len(report.commits) == (fate == "was never sent")
    assert web.version() == begun + 1
    web.assert_each_offset_once(produced)


@scenario("process paused beyond Spark's timeouts", "a driver wakes after a long pause")
def test_a_process_and_its_jvm_paused_beyond_sparks_timeouts_lose_and_double_nothing(
    driven: DrivenFactory, doomed: DoomedFactory
) -> None:
    """Purpose: after a long pause Spark may consider its own executor dead.
    Procedure: a drain with its own JVM, whose timeouts are four seconds, is stopped in the middle of its read, process
    and JVM together, until six seconds have passed; another drain runs to its end meanwhile; they are resumed.
    Pass: it ends by itself: with nothing to do, or with a refusal that a retry can help; every offset exactly once.
    """
    web = _drained_once(driven)
    produced = _produce(web, MID_READ)
    timeouts = {"spark.network.timeout": "4s", "spark.network.timeoutInterval": "1s"}
    timeouts |= {"spark.executor.heartbeatInterval": "1s"}
    sleeper = doomed(web, MID_READ, signal.SIGSTOP, to_jvm=True, driver="own", home=CHECKOUT / ".kdi", config=timeouts)
    jvm = sleeper.jvm()
    sleeper.await_stopped(jvm)
    sleeper.send(signal.SIGSTOP)
    until = time.monotonic() + 6
    other = web.drain()
    wait_until(lambda: time.monotonic() > until)  # the pause itself is the fault

    os.kill(jvm, signal.SIGCONT)
    sleeper.send(signal.SIGCONT)
    outcome = sleeper.outcome()

    assert isinstance(outcome, Transient) or (isinstance(outcome, DrainReport) and outcome.commits == ()), outcome
    assert web.drain().commits == () and other.version == web.version()
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize(
    ("point", "shared"),
    [(MID_READ, False), pytest.param(COMMIT_LANDED, False, marks=pytest.mark.core), (COMMIT_UNDER_WAY, True)],
)
@scenario("killed during the commit", "two drivers at once")
def test_a_drain_whose_jvm_is_killed_says_so_and_the_next_completes_it(
    driven: DrivenFactory, doomed: DoomedFactory, start_driver: Callable[[], WarmDriver], point: str, shared: bool
) -> None:
    """Purpose: the kernel kills a JVM for its memory without a message; the drain must look up whether its commit
    landed, and name the death of a warm driver, which serves many, as such.
    Procedure: the JVM of a drain, its own or a warm driver's, is killed (SIGKILL): in the middle of the read, just
    after the commit, when it has received the call of Delta's commit and not read it; drain once more in another one.
    Pass: a typed refusal that a retry can help and that names the JVM, or the command that starts a driver; if the
    commit was in the log by then, its report and no refusal; every offset exactly once.
    """
    web = _drained_once(driven)
    produced = _produce(web, point)
    home, driver = (start_driver().home, "shared") if shared else (CHECKOUT / ".kdi", "own")

    outcome = doomed(web, point, signal.SIGKILL, to_jvm=True, driver=driver, home=home).outcome()
    web.drain()

    if point == COMMIT_LANDED:
        assert isinstance(outcome, DrainReport) and len(outcome.commits) == 1, outcome
    elif shared:
        assert isinstance(outcome, DriverGone) and "kdi driver run" in outcome.message_parts()[2], outcome
    else:
        assert isinstance(outcome, ReadOrWriteFailed) and "the driver's JVM ended" in str(outcome), outcome
    web.assert_each_offset_once(produced)
