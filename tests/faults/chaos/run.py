"""Chaos: seeded runs of load, faults and operator actions in any order, and seeded walks over decisions and accidents.

Every step is followed by all checks. ``make chaos SECONDS=600 SEED=1`` makes runs of half a minute, and then walks of
25 steps, with seeds 1, 2, …, each kind for this long; ``SECONDS=30`` makes those of the seed. ``LAKE=s3`` puts the
tables into buckets of an S3 server on this machine, behind a proxy that drops answers and refuses requests of Spark.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from kdi_assets.dev.broker import Broker
from kdi_assets.dev.s3_server import S3Server, start_s3_server
from kdi_assets.runtime.spark import open_session
from kdi_assets.settings import Settings
from kdi_assets.stream.message_rules import DeadLetterLimit
from kdi_assets.stream.stream import Cluster
from tests.conftest import quick_broker
from tests.faults.chaos.actions import PRODUCING, UPKEEP, Action
from tests.faults.chaos.decision_parts import KafkaAndDelta
from tests.faults.chaos.decisions import Walk
from tests.faults.chaos.drains import DRAINS
from tests.faults.chaos.model import Model
from tests.faults.chaos.readers import Readers
from tests.faults.chaos.world import World
from tests.faults.s3_proxy import Fault, RandomFaults, proxy_process_to
from tests.faults.topics import stream_over
from tests.faults.warm_driver import WarmDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_SECONDS = 30
WALK_STEPS = 25
S3_FAULTS: Mapping[Fault, float] = {"answer dropped": 0.02, "conflict": 0.03, "slow down": 0.02}
"""What a request of Spark to S3 meets, and how often."""


@dataclass(frozen=True)
class Parts:
    """Shared by all runs and walks: a broker that may be killed, and a warm driver."""

    broker: Broker
    home: Path
    session: SparkSession
    s3: S3Server | None = None

    @contextmanager
    def new_lake(self, name: str) -> Iterator[str]:
        """An empty lake of one run or walk."""
        if self.s3:
            yield f"{self.s3.create_bucket(name)}/lake"
            return
        with tempfile.TemporaryDirectory(prefix=f"{name}-") as lake:
            yield lake


@dataclass
class Outcome:
    """One run or walk.

    Attributes:
        messages: How many the broker acknowledged.
        violation: The check that failed; empty if none did.
    """

    name: str
    messages: int = 0
    steps: list[str] = field(default_factory=list)
    seen: str = ""
    violation: str = ""

    def line(self) -> str:
        kinds = Counter(step.partition(":")[0] for step in self.steps)
        done = ", ".join(f"{times} × {kind}" for kind, times in kinds.most_common(6))
        verdict = f"VIOLATION: {self.violation}" if self.violation else "no violation"
        return f"{self.name}: {len(self.steps)} steps ({done}, …), {self.messages:,} messages{self.seen}: {verdict}"


def run_of_drains(parts: Parts, lake: str, seed: int) -> Outcome:
    """Steps until the time is used up, then a last drain."""
    random, outcome = Random(seed), Outcome(f"run, seed {seed}")
    world = _world(parts, lake, random, seed)
    until = time.monotonic() + RUN_SECONDS
    world.readers.start()
    try:
        while time.monotonic() < until:
            action = _next(world)
            outcome.steps.append(f"{action.name}: under way")
            outcome.steps[-1] = f"{action.name}: {action.run(world)}"
            world.check()
        if world.transaction:
            world.transaction.end(commit=False)
        outcome.steps.append("the last drain: ")
        world.check_at_the_end()
    except Exception:  # noqa: BLE001 - no fault may raise anything else
        outcome.violation = traceback.format_exc()
    finally:
        world.readers.stop()
    outcome.messages = len(world.web.publisher.log)
    looks, in_vain = world.readers.looks.total(), len(world.readers.failed)
    outcome.seen = f", {looks} looks by readers ({in_vain} in vain)"
    return outcome


def walk_over_decisions(parts: Parts, lake: str, seed: int) -> Outcome:
    """Steps that a model and the real parts take together."""
    outcome, session = Outcome(f"walk, seed {seed}"), parts.session.newSession()
    for option in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        session.conf.set(option, "1")
    kafka_and_delta = KafkaAndDelta(parts.broker, f"walk_{seed}", lake, lambda: session, partitions=2)
    walk = Walk(Model(2), Random(seed), kafka_and_delta, truncates=1)
    try:
        for _ in range(WALK_STEPS):
            outcome.steps.append(walk.step())
    except Exception:  # noqa: BLE001  as above
        outcome.violation = traceback.format_exc()
    outcome.messages = walk.model.produced
    return outcome


def _next(world: World) -> Action:
    possible = [a for a in (*PRODUCING, *DRAINS, *UPKEEP) if a.requires(world)]
    return world.random.choices(possible, [a.weight for a in possible])[0]


def _world(parts: Parts, lake: str, random: Random, seed: int) -> World:
    cluster = Cluster(name="main", bootstrap_servers=parts.broker.bootstrap_servers)
    session, watching = parts.session.newSession(), parts.session.newSession()
    web = stream_over(cluster, f"chaos_{seed}", lake, lambda: session, partitions=random.randint(1, 3))
    # Of a race, one side may reject every message of yesterday: a limit would rightly stop the drain.
    limit = DeadLetterLimit(share=1.0)
    start = random.choice(("earliest", "latest"))
    web = replace(web.with_definition(start=start, dead_letter_limit=limit), seed=seed)
    return World(web, parts.broker, parts.home, random, Readers(web.stream, lake, lambda: watching))


@contextmanager
def started_parts(folder: Path, *, on_s3: bool, seed: int) -> Iterator[Parts]:
    """Our own broker and warm driver, and an S3 server if the lake is to be there."""
    if not on_s3:
        with _started_parts(folder, str(folder / "lake"), None) as parts:
            yield parts
        return
    server = start_s3_server(folder / "s3")
    try:
        with proxy_process_to(server.port, RandomFaults(seed, S3_FAULTS)) as proxy:
            os.environ.update(server.environment(endpoint=proxy.endpoint))
            with _started_parts(folder, f"{server.create_bucket('first')}/lake", server) as parts:
                yield parts
            faults = Counter(fault for _, fault in proxy.new())
        say("requests to S3: " + ", ".join(f"{count:,} × {fault}" for fault, count in faults.most_common()))
    finally:
        server.stop()


@contextmanager
def _started_parts(folder: Path, lake: str, s3: S3Server | None) -> Iterator[Parts]:
    (home := folder / "home").mkdir()
    broker = quick_broker(folder / "broker", Settings.from_environment())
    try:
        driver = WarmDriver(home, {"SPARK_DRIVER_MEMORY": "1500m", "KDI_LAKE": lake})
        try:
            session = open_session(Settings(home=home, lake=lake, driver="shared"))
            yield Parts(broker, home, session, s3)
            session.stop()
        finally:
            driver.stop()
    finally:
        broker.stop()


def say(*lines: str) -> None:
    """Write lines at once, for a person who watches."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> int:
    """Run for a while; the exit code is 1 if any check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=RUN_SECONDS, help="of runs, and of walks (30)")
    parser.add_argument("--seed", type=int, default=1, help="of the first ones (1)")
    parser.add_argument("--lake", choices=("local", "s3"), default="local", help="where the tables are (local)")
    given, outcomes = parser.parse_args(), list[Outcome]()
    with (
        tempfile.TemporaryDirectory(prefix="kdi-chaos-") as folder,
        started_parts(Path(folder), on_s3=given.lake == "s3", seed=given.seed) as parts,
    ):
        for one in (run_of_drains, walk_over_decisions):
            seed, until = given.seed, time.monotonic() + given.seconds
            while time.monotonic() < until:
                with parts.new_lake(f"{one.__name__.replace('_', '-')}-{seed}") as lake:
                    outcomes.append(outcome := one(parts, lake, seed))
                say(outcome.line())
                if outcome.violation:
                    say(*(f"  {n}. {step}" for n, step in enumerate(outcome.steps, 1)))
                    say(f"  again: make chaos SECONDS={RUN_SECONDS} SEED={seed} LAKE={given.lake}")
                seed += 1
    broken = [outcome.name for outcome in outcomes if outcome.violation]
    steps, messages = sum(len(o.steps) for o in outcomes), sum(o.messages for o in outcomes)
    done = f"{len(outcomes)} runs and walks, {steps:,} steps, {messages:,} acknowledged messages"
    say(f"{done}; {len(broken)} with a violation {broken or ''}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
