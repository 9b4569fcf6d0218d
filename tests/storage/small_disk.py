"""A small disk of its own, which can really be full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOUNT_AND_WAIT = 'mount -t tmpfs -o "$1" none "$2" && echo mounted && exec cat'


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """The root of an empty tmpfs during the body; it needs no rights of this process.

    Args:
        folder: An empty folder, at which a process with a mount namespace of its own sees the disk.
        options: Of the mount, e.g. ``size=64k`` or ``nr_inodes=4``.
    """
    alone = ("unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT_AND_WAIT, "sh", options, folder)
    holder = subprocess.Popen(alone, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin and holder.stdout
    try:
        assert holder.stdout.readline() == b"mounted\n"
        yield Path(f"/proc/{holder.pid}/root{folder}")
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait()
