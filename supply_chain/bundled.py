"""The jars inside PySpark's wheel: the lock names the wheel, and scanners look for what is in it."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from kdi_assets.runtime.kernel import pyspark_jars
from supply_chain.locks import Component, LockNotRead

_PROPERTIES = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
_FILE_NAME = re.compile(r"(.+?)-(\d.*)\.jar")


def with_bundled(components: Iterable[Component]) -> tuple[Component, ...]:
    """The components, and those inside PySpark's jars; a component that is locked too is named once.

    Raises:
        LockNotRead: The installed PySpark is not the locked one.
    """
    locked = {(c.ecosystem, c.name, c.version): c for c in components}
    (spark,) = (c for c in locked.values() if (c.ecosystem, c.name) == ("PyPI", "pyspark"))
    if version("pyspark") != spark.version:
        raise LockNotRead(f"pyspark {version('pyspark')} is installed, the lock has {spark.version}: run make setup")
    for component in _bundled(pyspark_jars(), f"pyspark {spark.version}"):
        locked.setdefault((component.ecosystem, component.name, component.version), component)
    return tuple(sorted(locked.values(), key=lambda c: (c.ecosystem, c.name, c.version)))


@cache
def _bundled(folder: Path, where: str) -> tuple[Component, ...]:
    return tuple(component for jar in sorted(folder.glob("*.jar")) for component in _inside(jar, where))


def _inside(jar: Path, where: str) -> Iterator[Component]:
    """What a jar says of itself: Maven writes a file for the jar, and for each library that was shaded into it."""
    content = (hashlib.sha256(jar.read_bytes()).hexdigest(),)
    with zipfile.ZipFile(jar) as archive:
        files = [archive.read(name).decode() for name in archive.namelist() if _PROPERTIES.fullmatch(name)]
    said = [dict(re.findall(r"^(groupId|artifactId|version)=(.+?)\s*$", text, re.MULTILINE)) for text in files]
    named = [one for one in said if len(one) == 3]
    for one in named:
        yield Component("Maven", f"{one['groupId']}:{one['artifactId']}", one["version"], content, "required", where)
    if not named and (found := _FILE_NAME.fullmatch(jar.name)):
        yield Component("Maven", found[1], found[2], content, "required", where)
