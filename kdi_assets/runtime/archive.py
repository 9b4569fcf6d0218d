"""The class-data archive: Spark's classes as a JVM holds them in memory, so that no start reads and verifies them anew.

Only the Java that wrote it can use it, over the same jars: its name says both. `kdi jars` makes it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from kdi_assets.runtime.jars import jar_paths

# An archive that does not fit is passed over, and the JVM would say so on standard output.
WITHOUT_A_WORD = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_name(home: Path, java_home: Path) -> str | None:
    """What the archive's name begins with; ``None``: this Java has no archive of its own to build upon.

    The wheel's Java is of that kind.

    Raises:
        JarMissing: The locked jars are not there.
    """
    if not (java_home / "lib" / "server" / "classes.jsa").is_file():
        return None
    digest = hashlib.sha256()
    for path in _classes(home, java_home):
        about = path.stat()
        digest.update(f"{path}\0{about.st_size}\0{int(about.st_mtime)}\n".encode())
    return f"classes-{digest.hexdigest()[:16]}"


def whole_archive(home: Path, java_home: Path) -> Path | None:
    """The archive, if it is there with all the bytes that its name tells: Java 17 dies of one that was cut off."""
    name = archive_name(home, java_home)
    found = (home / "jars").glob(f"{name}-*.jsa") if name else ()
    return next((path for path in found if path.name == f"{name}-{path.stat().st_size}.jsa"), None)


def archive_options(home: Path, java_home: Path) -> list[str]:
    """What a JVM is told to use the archive, as Spark reads options; nothing where there is none."""
    path = whole_archive(home, java_home)
    return [f"-XX:SharedArchiveFile={shlex.quote(str(path))}", *WITHOUT_A_WORD] if path else []


def _classes(home: Path, java_home: Path) -> Iterator[Path]:
    """The Java, and the files of Spark's class path in its order."""
    yield java_home / "lib" / "modules"
    yield from jar_paths(home / "jars", "spark")
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark and pyspark.origin:
        # Not sorted: Java takes them as the folder lists them, and an archive holds for one order.
        with os.scandir(Path(pyspark.origin).with_name("jars")) as found:
            yield from (Path(entry.path) for entry in found if entry.name.endswith(".jar"))
