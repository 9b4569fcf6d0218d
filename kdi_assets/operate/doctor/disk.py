"""Free disk space for the lake, the home and Spark's temporary files, compared with the backlog's size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kdi_assets.delta.storage import local_path
from kdi_assets.operate.doctor.finding import Finding, Trouble, fine, warning, wrong
from kdi_assets.runtime.driver.driver import driver_scratch
from kdi_assets.runtime.driver.drivers import uses_warm_driver
from kdi_assets.settings import Settings
from kdi_assets.wording import byte_size

LOW_SHARE, EMPTY_SHARE = 0.1, 0.01
"""Free share of a file system, or of its inodes: less than the first is a warning, less than the second wrong."""

LAKE = "lake"
JAVAS_TEMPORARY = Path("/tmp")  # noqa: S108 - Java's folder on Linux, whatever TMPDIR is


@dataclass(frozen=True, slots=True)
class Space:
    """A file system.

    Attributes:
        inodes: The most it can have; 0 if it does not count them.
    """

    path: str
    bytes: int
    free_bytes: int
    inodes: int
    free_inodes: int

    @classmethod
    def of(cls, path: Path) -> Space:
        """The file system of a path."""
        stat = os.statvfs(path)
        # Without the blocks that are reserved for root.
        size, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
        return cls(str(path), size, free, stat.f_files, stat.f_favail)


def disk(places: Mapping[str, Path], *, needed_bytes: int = 0) -> Iterator[Finding]:
    """Free space and inodes of every file system that has one of the folders.

    Args:
        places: Folders by purpose; of a missing one the nearest existing parent counts.
        needed_bytes: Size of the backlog, uncompressed.
    """
    by_device: dict[int, dict[str, Path]] = {}
    for purpose, path in places.items():
        there = nearest_existing(path)
        by_device.setdefault(there.stat().st_dev, {})[purpose] = there
    for paths in by_device.values():
        space = Space.of(next(iter(paths.values())))
        yield space_finding(", ".join(paths), space, needed_bytes if any(map(_is_of_a_lake, paths)) else 0)


def space_finding(purposes: str, space: Space, needed_bytes: int) -> Finding:
    """The finding for one file system; ``purposes`` are its folders, e.g. ``lake, home``."""
    free_share = space.free_bytes / space.bytes if space.bytes else 0.0
    free_inode_share = space.free_inodes / space.inodes if space.inodes else 1.0
    inodes = f", {free_inode_share:.0%} of the inodes" if space.inodes else ""
    found = f"{byte_size(space.free_bytes)} free, {free_share:.0%}{inodes}"
    facts = {**asdict(space), "needed_bytes": needed_bytes}
    share = min(free_share, free_inode_share)
    if share >= LOW_SHARE and 2 * needed_bytes <= space.free_bytes:
        return fine("disk", purposes, found, **facts)
    verdict = wrong if share < EMPTY_SHARE or needed_bytes > space.free_bytes else warning
    return verdict("disk", purposes, _short(purposes, space, needed_bytes), found, **facts)


def _short(purposes: str, space: Space, needed_bytes: int) -> Trouble:
    path, free, size = space.path, byte_size(space.free_bytes), byte_size(space.bytes)
    inodes = f" and {space.free_inodes:,} of {space.inodes:,} inodes" if space.inodes else ""
    needed = f"; the backlog is about {byte_size(needed_bytes)}, uncompressed" if needed_bytes else ""
    return Trouble(
        kind="disk short",
        happened=f"{purposes} ({path}): {free} of {size}{inodes} are free{needed}.",
        safe="what is committed stays; a drain that runs out of space commits nothing.",
        run=f"df -h {path}; df -i {path}    (free space, or move the folder: KDI_LAKE, KDI_HOME, SPARK_LOCAL_DIRS)",
    )


def places(settings: Settings, lakes: Sequence[str], environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Folders by purpose; they need not exist.

    Args:
        lakes: Roots of tables, that of the settings first.
    """
    names = {root: f"{LAKE} {root}" if number else LAKE for number, root in enumerate(lakes)}
    folders = {name: Path(path) for root, name in names.items() if (path := local_path(root))}
    default = driver_scratch(settings.home) if uses_warm_driver(settings) else JAVAS_TEMPORARY
    scratch = spark_local_dirs(environment) or [default]
    named = {f"spark {n}" if len(scratch) > 1 else "spark": path for n, path in enumerate(scratch, 1)}
    return {**folders, "home": settings.home, **named}


def _is_of_a_lake(purpose: str) -> bool:
    return purpose == LAKE or purpose.startswith(f"{LAKE} ")


def nearest_existing(path: Path) -> Path:
    """The path, or its nearest existing parent."""
    return next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())


def spark_local_dirs(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Folders for temporary files in Spark's own configuration; may be empty.

    Source: Spark's docs, "Configuration": ``SPARK_LOCAL_DIRS`` overrides ``spark.local.dir``.
    """
    folders = environment.get("SPARK_LOCAL_DIRS") or spark_default("spark.local.dir", environment)
    return [Path(path) for path in folders.split(",")] if folders else []


def spark_default(key: str, environment: Mapping[str, str]) -> str:
    """A setting of ``spark-defaults.conf``; empty if it is not there."""
    folder = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if (home := environment.get("SPARK_HOME")) else "")
    file = Path(folder, "spark-defaults.conf")
    if not folder or not file.is_file():
        return ""
    lines = (line.split(maxsplit=1) for line in file.read_text().splitlines())
    return next((line[1].strip() for line in lines if len(line) == 2 and line[0].rstrip("=:") == key), "")
