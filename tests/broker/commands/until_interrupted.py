"""Commands that run until they are interrupted."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

KDI = (sys.executable, "-c", "from kdi_assets.cli.main import main; main()")


@contextmanager
def kdi(*arguments: str, stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs until it is interrupted; it ends with the block in any case."""
    process = subprocess.Popen([*KDI, *arguments], stdout=stdout, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


def read_until(fd: int, seen: Callable[[str], bool], *, seconds: float = 30) -> str:
    """The output, up to where ``seen`` holds."""
    told = ""
    while not seen(told):
        ready, _, _ = select.select([fd], [], [], seconds)
        assert ready, f"nothing more came after {told!r}"
        told += os.read(fd, 65536).decode()
    return told


def served_at(stderr: IO[bytes]) -> str:
    said = read_until(stderr.fileno(), lambda told: "/metrics\n" in told)
    found = re.search(r"http://127\.0\.0\.1:\d+/metrics", said)
    assert found, said
    return found[0]
