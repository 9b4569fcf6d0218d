"""Random walks of change streams and of a table's followers, seed after seed, for some time.

``make chaos SECONDS=600 SEED=1`` makes those of the seeds 1, 2, …; ``SECONDS=30`` makes those of the seed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time

WALKS = (
    "tests/spark/followers/test_refine_debezium.py::test_a_table_of_changes_is_the_database_after_every_portion",
    "tests/broker/followers/test_followers_walk.py",
    "tests/broker/followers/test_kept_dates_walk.py",
)


def main() -> None:
    """Walk until the time is over; ends with 1 after the first seed of which a table was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos.followers", description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    until, seed = time.monotonic() + options.seconds, options.seed
    while seed == options.seed or time.monotonic() < until:
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-n", "2", "--dist", "worksteal", *WALKS]
        ran = subprocess.run(
            command, env={**os.environ, "KDI_WALK": str(seed)}, capture_output=True, text=True, check=False
        )
        sys.stdout.write(f"walks of followers, seed {seed}: {ran.stdout.strip().splitlines()[-1]}\n")
        sys.stdout.flush()
        if ran.returncode:
            sys.exit(f"{ran.stdout}{ran.stderr}\nrepeat with: KDI_WALK={seed} {shlex.join(command)}")
        seed += 1


if __name__ == "__main__":
    main()
