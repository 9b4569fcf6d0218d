"""Whether there is room: for the lake, for what is made, for what Spark spills; measured against what waits."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kdi_assets.doctor.finding import Finding, fine, warning, wrong
from kdi_assets.doctor.places import nearest_existing
from kdi_assets.errors import Terminal
from kdi_assets.wording import byte_size

LOW_SHARE, EMPTY_SHARE = 0.1, 0.01
"""Shares of a file system, or of its inodes, that are free: below the first is a warning, below the second wrong."""


@dataclass(frozen=True, slots=True)
class Space:
    """A file system.

    Attributes:
        purposes: What lies there, e.g. ``lake, home``.
        inodes: How many it can have; 0 where it does not count them.
    """

    purposes: str
    path: Path
    bytes: int
    free_bytes: int
    inodes: int
    free_inodes: int

    @property
    def free_share(self) -> float:
        return self.free_bytes / self.bytes if self.bytes else 0.0

    @property
    def free_inode_share(self) -> float:
        return self.free_inodes / self.inodes if self.inodes else 1.0


class DiskShort(Terminal):
    """A file system has little room left, or too little for what waits."""

    purposes: str
    path: Path
    free_bytes: int
    bytes: int
    free_inodes: int
    inodes: int
    needed_bytes: int

    def parts(self) -> tuple[str, str, str]:
        inodes = f" and {self.free_inodes:,} of {self.inodes:,} inodes" if self.inodes else ""
        needed = f"; what waits is about {byte_size(self.needed_bytes)}, uncompressed" if self.needed_bytes else ""
        return (
            f"{self.purposes} ({self.path}): {byte_size(self.free_bytes)} of {byte_size(self.bytes)}{inodes} are free"
            f"{needed}.",
            "what is committed stays; a drain that runs out of room commits nothing.",
            f"df -h {self.path}; df -i {self.path}    (make room, or move it: KDI_LAKE, KDI_HOME, SPARK_LOCAL_DIRS)",
        )


def disk(places: Mapping[str, Path], *, needed_bytes: int = 0) -> Iterator[Finding]:
    """Free space and inodes of every file system that something of ours lies on.

    Args:
        places: Folders by purpose; where one does not exist, what is above it counts.
        needed_bytes: What waits, uncompressed.
    """
    by_device: dict[int, list[str]] = defaultdict(list)
    paths: dict[int, Path] = {}
    for purpose, path in places.items():
        there = nearest_existing(path)
        device = there.stat().st_dev
        by_device[device].append(purpose)
        paths.setdefault(device, there)
    for device, purposes in by_device.items():
        yield judged(_space(", ".join(purposes), paths[device]), needed_bytes if "lake" in purposes else 0)


def judged(space: Space, needed_bytes: int) -> Finding:
    """The verdict of one file system."""
    inodes = f", {space.free_inode_share:.0%} of the inodes" if space.inodes else ""
    found = f"{byte_size(space.free_bytes)} free, {space.free_share:.0%}{inodes}"
    facts = {
        "path": str(space.path),
        "free_bytes": space.free_bytes,
        "bytes": space.bytes,
        "free_inodes": space.free_inodes,
        "inodes": space.inodes,
        "needed_bytes": needed_bytes,
    }
    share = min(space.free_share, space.free_inode_share)
    if share >= LOW_SHARE and 2 * needed_bytes <= space.free_bytes:
        return fine("disk", space.purposes, found, **facts)
    short = DiskShort(
        purposes=space.purposes,
        path=space.path,
        free_bytes=space.free_bytes,
        bytes=space.bytes,
        free_inodes=space.free_inodes,
        inodes=space.inodes,
        needed_bytes=needed_bytes,
    )
    verdict = wrong if share < EMPTY_SHARE or needed_bytes > space.free_bytes else warning
    return verdict("disk", space.purposes, short, found=found, facts=facts)


def _space(purposes: str, path: Path) -> Space:
    told = os.statvfs(path)
    # What is kept for root is free to nobody else.
    size, free = told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize
    return Space(purposes, path, size, free, told.f_files, told.f_favail)
