"""The class-data archive: Spark's classes as a JVM has them in memory, so that Spark starts faster.

Only the same Java with the same jars can use it, so its name depends on both. `kdi jars` makes it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from kdi_assets.runtime.jars import spark_class_path
from kdi_assets.runtime.kernel import pyspark_jars
from kdi_assets.settings import Settings

# The JVM ignores an archive that does not fit; without the log options it would say so on standard output.
QUIET_OPTIONS = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_name(settings: Settings, java_home: Path) -> str | None:
    """Prefix of the archive's file name; ``None`` if this Java lacks the base archive, as the wheel's does.

    Raises:
        JarMissing: The locked jars are not there.
    """
    if not (java_home / "lib" / "server" / "classes.jsa").is_file():
        return None
    digest = hashlib.sha256()
    for path in _classes(settings, java_home):
        stat = path.stat()
        digest.update(f"{path}\0{stat.st_size}\0{int(stat.st_mtime)}\n".encode())
    return f"classes-{digest.hexdigest()[:16]}"


def whole_archive(settings: Settings, java_home: Path) -> Path | None:
    """The archive, if it has the size in its name: Java 17 crashes on one that was cut off."""
    name = archive_name(settings, java_home)
    found = (settings.home / "jars").glob(f"{name}-*.jsa") if name else ()
    return next((path for path in found if path.name == f"{name}-{path.stat().st_size}.jsa"), None)


def archive_options(settings: Settings, java_home: Path) -> list[str]:
    """JVM options for the archive, quoted as Spark reads them; none without an archive."""
    path = whole_archive(settings, java_home)
    return [f"-XX:SharedArchiveFile={shlex.quote(str(path))}", *QUIET_OPTIONS] if path else []


def _classes(settings: Settings, java_home: Path) -> Iterator[Path]:
    """Java's own classes, and the files of Spark's class path in its order."""
    yield java_home / "lib" / "modules"
    yield from spark_class_path(settings)
    # Not sorted: Java takes the order of the folder's listing, and an archive is for one order.
    with os.scandir(pyspark_jars()) as found:
        yield from (Path(entry.path) for entry in found if entry.name.endswith(".jar"))
