"""Chaos: seeded runs of load, faults and operator actions in any order; what must hold is checked after every step.

``make chaos SECONDS=600 SEED=1`` makes runs of half a minute with seeds 1, 2, …; ``SECONDS=30`` makes the one of the
seed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from kdi_assets.runtime.broker import JVM_OPTIONS, QUICK_START, Broker, start_broker
from kdi_assets.runtime.control import DriverGone, driver_status
from kdi_assets.runtime.processes import Child
from kdi_assets.runtime.session import open_session
from kdi_assets.settings import Settings
from kdi_assets.stream import KafkaCluster
from tests.driven import DrivenStream, web_requests
from tests.faults.chaos.actions import PRODUCING, UPKEEP, Action
from tests.faults.chaos.drains import DRAINS
from tests.faults.chaos.readers import Readers
from tests.faults.chaos.world import World
from tests.kafka_log import Publisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_SECONDS = 30
START_SECONDS = 120


@dataclass(frozen=True)
class Parts:
    """What the runs of one process share: a broker that may be killed, and a warm driver."""

    broker: Broker
    home: Path
    session: SparkSession


@dataclass
class Outcome:
    """One run.

    Attributes:
        violation: What did not hold; empty if everything did.
    """

    seed: int
    steps: list[str] = field(default_factory=list)
    messages: int = 0
    looks: int = 0
    unread: int = 0
    violation: str = ""

    def line(self) -> str:
        """The run in one line."""
        kinds = Counter(step.partition(":")[0] for step in self.steps)
        done = ", ".join(f"{times} × {kind}" for kind, times in kinds.most_common(6))
        verdict = f"VIOLATION: {self.violation}" if self.violation else "no violation"
        return (
            f"seed {self.seed}: {len(self.steps)} steps ({done}, …), {self.messages:,} messages, "
            f"{self.looks} looks by readers ({self.unread} in vain): {verdict}"
        )


def chaos(parts: Parts, lake: str, *, seed: int, seconds: float) -> Outcome:
    """One run: steps until the time is used up, then a last drain; what must hold is checked after each."""
    random, outcome = Random(seed), Outcome(seed)
    world = _world(parts, lake, random, seed)
    until = time.monotonic() + seconds
    world.readers.start()
    try:
        while time.monotonic() < until:
            action = _next(world)
            outcome.steps.append(f"{action.name}: under way")
            outcome.steps[-1] = f"{action.name}: {action.run(world)}"
            world.check()
        if world.transaction:
            world.transaction.client.abort_transaction(30)
        outcome.steps.append("the last drain: ")
        world.check_at_the_end()
    except Exception:  # noqa: BLE001  whatever it is, nothing that happens to a stream may raise it
        outcome.violation = traceback.format_exc()
    finally:
        world.readers.stop()
    outcome.messages, outcome.looks = len(world.web.publisher.log), world.readers.looks.total()
    outcome.unread = len(world.readers.failed)
    return outcome


def _next(world: World) -> Action:
    possible = [a for a in (*PRODUCING, *DRAINS, *UPKEEP) if a.requires(world)]
    return world.random.choices(possible, [a.weight for a in possible])[0]


def _world(parts: Parts, lake: str, random: Random, seed: int) -> World:
    topic, partitions = f"chaos_{seed}_{int(time.time())}", random.randint(1, 3)
    admin = AdminClient({"bootstrap.servers": parts.broker.bootstrap_servers, "log_level": 2})
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic].result(30)
    cluster = KafkaCluster(name="main", bootstrap_servers=parts.broker.bootstrap_servers)
    stream = web_requests(topic, cluster, start=random.choice(("earliest", "latest")))
    session = parts.session.newSession()
    web = DrivenStream(stream, lake, Publisher(parts.broker.bootstrap_servers), lambda: session, seed=seed)
    watching = parts.session.newSession()
    return World(web, parts.broker, parts.home, random, Readers(stream, lake, lambda: watching))


@contextmanager
def started_parts(folder: Path) -> Iterator[Parts]:
    """A broker and a warm driver of our own."""
    jars, home = Settings.from_environment().home / "jars", folder / "home"
    home.mkdir()
    (home / "jars").symlink_to(jars)
    broker = start_broker(folder / "broker", home=home, jvm_options=(*JVM_OPTIONS, *QUICK_START))
    environment = {"KDI_HOME": str(home), "KDI_SPARK_MASTER": "local[2]", "SPARK_DRIVER_MEMORY": "1500m"}
    environment["SPARK_SUBMIT_OPTS"] = " ".join(QUICK_START)
    kdi = Path(sys.executable).with_name("kdi")
    driver = Child([kdi, "driver", "run", "--idle-exit", "0"], environment=environment, log=folder / "driver.log")
    try:
        _await(home, driver)
        session = open_session(Settings(home=home, lake=str(folder / "lake"), driver="shared"))
        yield Parts(broker, home, session)
        session.stop()
    finally:
        driver.stop()
        broker.stop()


def _await(home: Path, driver: Child) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            driver_status(home)
            return
        except DriverGone:
            assert driver.exit_code() is None and time.monotonic() < until, f"no driver; see {driver.log}"
            time.sleep(0.1)


def say(*lines: str) -> None:
    """Write lines at once, for whoever watches."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> int:
    """Run for a while; the exit code is 1 if anything did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=RUN_SECONDS, help=f"in all; a run takes {RUN_SECONDS} (30)")
    parser.add_argument("--seed", type=int, default=1, help="of the first run (1)")
    given = parser.parse_args()
    runs, violations = max(1, given.seconds // RUN_SECONDS), []
    with tempfile.TemporaryDirectory(prefix="kdi-chaos-") as folder, started_parts(Path(folder)) as parts:
        for seed in range(given.seed, given.seed + runs):
            with tempfile.TemporaryDirectory(prefix="lake-", dir=folder) as lake:
                outcome = chaos(parts, lake, seed=seed, seconds=RUN_SECONDS)
            say(outcome.line())
            if outcome.violation:
                violations.append(seed)
                say(*(f"  {n}. {step}" for n, step in enumerate(outcome.steps, 1)))
                say(f"  again: make chaos SECONDS={RUN_SECONDS} SEED={seed}")
    say(f"{runs} runs, {len(violations)} with a violation{': seeds ' + str(violations) if violations else ''}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
