"""Errors of Java, jars and Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kdi_assets.errors import Terminal, Transient
from kdi_assets.settings import DriverMode


class OtherDriverOpen(Terminal):
    """PySpark speaks to one JVM per process, and this process has the other kind."""

    wanted: DriverMode

    def message_parts(self) -> tuple[str, str, str]:
        have = "owns a JVM" if self.wanted == "shared" else "is attached to the warm driver"
        return (
            f"a session with driver {self.wanted!r} was asked for, but this process already {have}.",
            "nothing was read or written.",
            "stop the open session first, or use one kind of driver in a process: KDI_DRIVER=own or KDI_DRIVER=shared",
        )


class JarMissing(Terminal):
    """A locked jar is not in the folder."""

    group: str
    paths: tuple[Path, ...]

    def message_parts(self) -> tuple[str, str, str]:
        lacking = f"{self.paths[0].parent} lacks jars of the group {self.group}"
        return f"{lacking}: {jars_in_words([path.name for path in self.paths])}.", "nothing was started.", "kdi jars"


class JarHashDiffers(Terminal):
    """What a registry served is not what the lock names."""

    coordinate: str
    expected: str
    found: str

    what_happened = "{coordinate}: the file served has SHA-256 {found}, the lock says {expected}."
    what_is_safe = "the file was not kept; jars that are in the folder are the locked ones."
    what_to_run = "kdi jars    (once the registry, mirror or proxy in between serves the file that was locked)"


class JarDiffers(Terminal):
    """A file in the folder is not the jar that the lock names."""

    group: str
    paths: tuple[Path, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{', '.join(map(str, self.paths))}: the content is not what the lock names.",
            "nothing was started; a Spark that runs with it may do anything.",
            "kdi jars    (it fetches what differs anew)",
        )


class JarsNotFetched(Transient):
    """Ivy could not fetch some of the jars."""

    coordinates: tuple[str, ...]
    reason: str

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"could not fetch {jars_in_words(self.coordinates)}: {self.reason}",
            "jars that are in the folder are whole and are not fetched again.",
            "kdi jars    (a proxy: HTTPS_PROXY; a mirror: spark.jars.ivySettings in "
            "$SPARK_CONF_DIR/spark-defaults.conf; a ~/.m2 that holds a jar's POM without the jar hides the registry: "
            "move it away)",
        )


def jars_in_words(jars: Sequence[str]) -> str:
    more = f" and {len(jars) - 3} more" if len(jars) > 3 else ""
    return ", ".join(jars[:3]) + more


class SparkDidNotStart(Terminal):
    """The JVM ended before it answered."""

    java_home: Path
    output: str

    what_happened = "Spark's JVM ended before it answered (Java of {java_home}); {output} says why."
    what_is_safe = "nothing was read or written."
    what_to_run = "{java_home}/bin/java -version    (does it start, and is there memory for it?)"
