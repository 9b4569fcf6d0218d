"""`make check-assets`: the gate of a pipeline from nothing: a broker, messages, a drain, every check; ends by itself.

With `KDI_KAFKA` set, the gate alone, over the environment's brokers, lake and documents.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

from demo.parts import BIN, CHECKOUT, PartFailed, say, stopped_at_the_end, temporary_lake
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.tools.local.generator import Traffic
from kdi_assets.tools.local.publisher import publish

MESSAGES, BAD = 2_000, 0.002


def main() -> None:
    """Exit code 0 if every run succeeded and no check found an error."""
    if os.environ.get("KDI_KAFKA"):
        sys.exit(gate())
    try:
        with stopped_at_the_end() as stack:
            code = from_nothing(stack)
    except (KdiError, PartFailed) as failure:
        sys.exit(str(failure))
    sys.exit(code)


def from_nothing(stack: ExitStack) -> int:
    """The gate over the checkout's documents, its own broker and an empty lake."""
    temporary_lake(stack, "check-assets")
    os.environ.pop("KDI_DEFS", None)
    for stream in load_streams().values():
        publish_to(stream)
    return gate()


def publish_to(stream: Stream) -> None:
    """Some web requests over two topic partitions, a few of them bad."""
    done = publish(stream.kafka, stream.topic, Traffic(bad=BAD, dates=2, seed=1), count=MESSAGES, partitions=2)
    say(f"published {done.acknowledged:,} messages to {stream.topic}, {done.acknowledged - done.counts['good']} bad")


def gate() -> int:
    """`kdi check-assets` with the arguments of the command line; its exit code."""
    return subprocess.run([BIN / "kdi", "check-assets", *sys.argv[1:]], cwd=CHECKOUT, check=False).returncode


if __name__ == "__main__":
    main()
