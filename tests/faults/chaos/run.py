"""Chaos: seeded runs of load, faults and operator actions in any order, and seeded walks over decisions and accidents.

Every step is followed by all checks. ``make chaos SECONDS=600 SEED=1`` makes runs of half a minute over a topic of
Kafka, then walks of 25 steps, then runs over a stream of Kinesis, with seeds 1, 2, …, each for this long.
``SECONDS=30`` makes those of the seed, and ``--kind`` those of one source. ``LAKE=s3`` puts the tables into buckets of
an S3 server on this machine, behind a proxy that drops answers and refuses requests of Spark.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.message_rules import DeadLetterLimit
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.tools.local.kinesis.server import KinesisServer, start_kinesis
from tests.faults.chaos.decision_parts import KafkaAndDelta
from tests.faults.chaos.decisions import Walk
from tests.faults.chaos.kafka_actions import KAFKA_ACTIONS, KAFKA_INTERFERENCES
from tests.faults.chaos.kafka_world import KafkaWorld
from tests.faults.chaos.kinesis_actions import KINESIS_ACTIONS, KINESIS_INTERFERENCES
from tests.faults.chaos.kinesis_world import KinesisWorld
from tests.faults.chaos.model import Model
from tests.faults.chaos.parts import Parts, say, started_parts
from tests.faults.chaos.readers import Readers
from tests.faults.chaos.world import Action, World
from tests.faults.topics import stream_over
from tests.kinesis.drains import Put
from tests.oracle import entries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_SECONDS = 30
WALK_STEPS = 25
NO_LIMIT = DeadLetterLimit(share=1.0)
"""Of a race, one side may reject every message of yesterday: a limit would rightly stop the drain."""


@dataclass
class Outcome:
    """One run or walk.

    Attributes:
        messages: How many the source acknowledged.
        commits: Entries of the ledger by kind, undone or not.
        violation: The check that failed; empty if none did.
    """

    name: str
    messages: int = 0
    steps: list[str] = field(default_factory=list)
    commits: Counter[str] = field(default_factory=Counter)
    seen: str = ""
    violation: str = ""

    def follow(self, world: World, actions: Sequence[Action[Any]]) -> None:
        """Steps until the time is used up, then a last drain."""
        until = time.monotonic() + RUN_SECONDS
        world.readers.start()
        try:
            while time.monotonic() < until:
                world.turn()
                action = world.choose(actions)
                assert action, "nothing can happen"
                self.steps.append(f"{action.name}: under way")
                self.steps[-1] = f"{action.name}: {action.run(world)}"
                world.check()
            world.end()
            self.steps.append("the last drain: ")
            world.check_at_the_end()
        except Exception:  # noqa: BLE001 - no fault may raise anything else
            self.violation = traceback.format_exc()
        finally:
            world.readers.stop()
        self.messages = world.messages
        made = entries(world.uri, world.stream.app_id)
        self.commits = Counter("accepted loss" if entry.declared_losses else entry.kind for entry in made)
        looks, in_vain = world.readers.looks.total(), len(world.readers.failed)
        self.seen = f", {looks} looks by readers ({in_vain} in vain)"

    @property
    def kinds(self) -> Counter[str]:
        """The steps by kind."""
        return Counter(step.partition(":")[0] for step in self.steps)

    def line(self) -> str:
        done = _counted(self.kinds, most=6)
        verdict = f"VIOLATION: {self.violation}" if self.violation else "no violation"
        return f"{self.name}: {len(self.steps)} steps ({done}, …), {self.messages:,} messages{self.seen}: {verdict}"


def run_of_drains(parts: Parts, lake: str, seed: int) -> Outcome:
    """A topic of Kafka."""
    outcome = Outcome(f"run, seed {seed}")
    outcome.follow(_kafka_world(parts, lake, seed), KAFKA_ACTIONS)
    return outcome


def run_of_kinesis(parts: Parts, lake: str, seed: int) -> Outcome:
    """A stream of Kinesis."""
    outcome = Outcome(f"run of Kinesis, seed {seed}")
    with started_kinesis() as server, tempfile.TemporaryDirectory() as folder:
        outcome.follow(_kinesis_world(parts, lake, seed, server, Path(folder)), KINESIS_ACTIONS)
    return outcome


def walk_over_decisions(parts: Parts, lake: str, seed: int) -> Outcome:
    """Steps that a model and the real parts take together."""
    outcome, session = Outcome(f"walk, seed {seed}"), parts.session.newSession()
    for option in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        session.conf.set(option, "1")
    kafka_and_delta = KafkaAndDelta(parts.kafka, f"walk_{seed}", lake, lambda: session, partitions=2)
    walk = Walk(Model(2), Random(seed), kafka_and_delta, truncates=1)
    try:
        for _ in range(WALK_STEPS):
            outcome.steps.append(walk.step())
    except Exception:  # noqa: BLE001  as above
        outcome.violation = traceback.format_exc()
    outcome.messages = walk.model.produced
    return outcome


def _kafka_world(parts: Parts, lake: str, seed: int) -> KafkaWorld:
    cluster, random = Cluster(name="main", bootstrap_servers=parts.kafka.bootstrap_servers), Random(seed)
    session = parts.session.newSession()
    web = stream_over(cluster, f"chaos_{seed}", lake, lambda: session, partitions=random.randint(1, 3))
    start = random.choice(("earliest", "latest"))
    web = replace(web.with_definition(start=start, dead_letter_limit=NO_LIMIT), seed=seed)
    shared = _of_any(parts, web.stream, lake, random, seed, session)
    return KafkaWorld(**shared, web=web, broker=parts.kafka, interferences=KAFKA_INTERFERENCES)


def _kinesis_world(parts: Parts, lake: str, seed: int, server: KinesisServer, folder: Path) -> KinesisWorld:
    random, session = Random(seed), parts.session.newSession()
    fields: dict[str, Any] = {"start": random.choice(("earliest", "latest"))}
    if most := random.choice((None, None, 15)):
        fields["max_records"] = most
    behaviour = server.behaviour
    behaviour.first_shard = random.choice((0, 1200))
    behaviour.newest_shards_first = random.random() < 0.5
    behaviour.trimmed_position = random.choice(("horizon", "refused", "empty"))
    behaviour.empty_pages = random.choice((0, 0, 2))
    if fields["start"] == "earliest":
        behaviour.arrival_jitter_ms = random.choice((0, 1500))  # a record may arrive before the moment of `latest`
    orders = Put(session, lake, server, shards=random.randint(1, 3), folder=folder, **fields)
    orders.stream = replace(orders.stream, dead_letter_limit=NO_LIMIT)
    shared = _of_any(parts, orders.stream, lake, random, seed, session)
    return KinesisWorld(**shared, orders=orders, interferences=KINESIS_INTERFERENCES)


def _of_any(
    parts: Parts, stream: Stream, lake: str, random: Random, seed: int, session: SparkSession
) -> dict[str, Any]:
    watching = parts.session.newSession()
    readers = Readers(stream, lake, lambda: watching)
    of_run = {"stream": stream, "lake": lake, "seed": seed, "random": random, "session": lambda: session}
    return {**of_run, "home": parts.home, "readers": readers}


@contextmanager
def started_kinesis() -> Iterator[KinesisServer]:
    """A server of one run, with a clock of its own."""
    server = start_kinesis()
    for name, value in server.environment().items():
        if not name.startswith("AWS_ENDPOINT"):  # the document has the address: each run has a server of its own
            os.environ.setdefault(name, value)  # any keys will do, also those of a lake on S3
    try:
        yield server
    finally:
        server.stop()


KINDS: Mapping[str, Sequence[Callable[[Parts, str, int], Outcome]]] = {
    "kafka": (run_of_drains, walk_over_decisions),
    "kinesis": (run_of_kinesis,),
}
"""By the kind of source: what is made of each seed."""


def _counted(kinds: Counter[str], *, most: int | None = None) -> str:
    return ", ".join(f"{times:,} × {kind}" for kind, times in kinds.most_common(most))


def main() -> int:
    """Run for a while; the exit code is 1 if any check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=RUN_SECONDS, help="of runs, and of walks (30)")
    parser.add_argument("--seed", type=int, default=1, help="of the first ones (1)")
    parser.add_argument("--lake", choices=("local", "s3"), default="local", help="where the tables are (local)")
    parser.add_argument("--kind", choices=tuple(KINDS), action="append", help="of source (each of them)")
    given, outcomes = parser.parse_args(), list[Outcome]()
    kinds = given.kind or tuple(KINDS)
    with (
        tempfile.TemporaryDirectory(prefix="kdi-chaos-") as folder,
        started_parts(Path(folder), on_s3=given.lake == "s3", with_broker="kafka" in kinds, seed=given.seed) as parts,
    ):
        for kind, one in ((k, one) for k in kinds for one in KINDS[k]):
            seed, until = given.seed, time.monotonic() + given.seconds
            while time.monotonic() < until:
                with parts.new_lake(f"{one.__name__.replace('_', '-')}-{seed}") as lake:
                    outcomes.append(outcome := one(parts, lake, seed))
                say(outcome.line())
                if outcome.violation:
                    say(*(f"  {n}. {step}" for n, step in enumerate(outcome.steps, 1)))
                    again = f"--kind {kind} --seconds {RUN_SECONDS} --seed {seed} --lake {given.lake}"
                    say(f"  again: python -m tests.faults.chaos.run {again}")
                seed += 1
    broken = [outcome.name for outcome in outcomes if outcome.violation]
    steps, messages = sum(len(o.steps) for o in outcomes), sum(o.messages for o in outcomes)
    done = f"{len(outcomes)} runs and walks, {steps:,} steps, {messages:,} acknowledged messages"
    say(f"{done}; {len(broken)} with a violation {broken or ''}")
    say(f"steps: {_counted(sum((o.kinds for o in outcomes), Counter()))}")
    say(f"ledger commits: {_counted(sum((o.commits for o in outcomes), Counter()))}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
