"""Walks over decisions and accidents beside a real broker, Spark and Delta: ``make chaos`` makes them too.

``python -m tests.faults.chaos.walk --seconds 600 --seed 1`` takes walks of 25 steps with seeds 1, 2, …
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

from kdi_assets.runtime.broker import JVM_OPTIONS, QUICK_START, start_broker
from kdi_assets.runtime.launch import stop_spark
from kdi_assets.runtime.session import open_session
from kdi_assets.settings import Settings
from tests.faults.chaos.decision_parts import KafkaAndDelta
from tests.faults.chaos.decisions import Walk, steps_of
from tests.faults.chaos.model import Model
from tests.faults.chaos.run import say
from tests.interpreted import INTERPRETED

STEPS = 25
CONFIG = {
    **INTERPRETED,
    "spark.driver.memory": "1500m",
    "spark.driver.extraJavaOptions": " ".join(QUICK_START),
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}


def main() -> int:
    """Walk for a while; the exit code is 1 if anything did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30, help="in all, and to the end of a walk (30)")
    parser.add_argument("--seed", type=int, default=1, help="of the first walk (1)")
    given = parser.parse_args()
    home, steps, violations, seed = Settings.from_environment().home, 0, [], given.seed
    with tempfile.TemporaryDirectory(prefix="kdi-walk-") as folder:
        broker = start_broker(Path(folder) / "broker", home=home, jvm_options=(*JVM_OPTIONS, *QUICK_START))
        settings = Settings(home=home, lake=f"{folder}/lake", spark_master="local[2]", driver="own")
        spark = open_session(settings, config=CONFIG, app_name="kdi walk")
        began = time.monotonic()
        while time.monotonic() - began < given.seconds:
            parts = KafkaAndDelta(broker, f"walk_{seed}", f"{folder}/lake{seed}", lambda: spark, partitions=2)
            done, violation = _walked(Walk(Model(2), Random(seed), parts, truncates=1))
            steps += len(done)
            say(f"seed {seed}: {len(done)} steps: {violation or 'no violation'}")
            if violation:
                violations.append(seed)
                say(steps_of(done), f"again: python -m tests.faults.chaos.walk --seconds 1 --seed {seed}")
            seed += 1
        minutes = (time.monotonic() - began) / 60
        stop_spark(spark)
        broker.stop()
    say(f"{steps} steps, {steps / minutes:.0f} a minute, {len(violations)} walks with a violation {violations or ''}")
    return 1 if violations else 0


def _walked(walk: Walk) -> tuple[list[str], str]:
    """The steps, and what did not hold; empty if everything did."""
    done: list[str] = []
    try:
        for _ in range(STEPS):
            done.append(walk.step())
    except Exception:  # noqa: BLE001  whatever it is, nothing that happens to a stream may raise it
        return done, traceback.format_exc()
    return done, ""


if __name__ == "__main__":
    sys.exit(main())
