"""The machine: packages, Java, jars, the warm driver."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from kdi_assets.messages.kinesis.errors import KinesisReaderMissing
from kdi_assets.operate.doctor.finding import Finding, Trouble, fine, warning, wrong
from kdi_assets.runtime.driver.control import DriverAddress, driver_status
from kdi_assets.runtime.driver.drivers import driver_folder
from kdi_assets.runtime.errors import JarMissing
from kdi_assets.runtime.jars import JARS_LOCK, locked_jars, refuse_unlocked, spark_groups
from kdi_assets.runtime.java import OLDEST_JAVA, find_java, java_version
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

DRIVER_SECONDS = 4.0
"""For the connection, and again for the answer: together less than an examination may take, so that the error is the
driver's and not the time limit's."""

DISTRIBUTION = "kdi-assets"
JARS_OF = {"pyspark": "spark-sql-kafka-0-10_", "delta-spark": "delta-spark_"}
"""Packages, and the start of the name of the jar that must be of the same minor version: 4.2.1 fits a jar of 4.2.0."""


def packages(requirements: Sequence[str] | None = None, *, lock: Path = JARS_LOCK) -> Iterator[Finding]:
    """Whether the installed packages fit the release, and the locked jars fit the packages.

    Args:
        requirements: Needed packages (PEP 508); by default those of this release.
    """
    try:
        needed = requirements if requirements is not None else metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        needed = [DISTRIBUTION]
    if differing := (*_unfit(needed), *_unfit_jars(lock)):
        trouble = Trouble(
            kind="packages differ",
            happened=f"Python packages do not fit this release: {'; '.join(differing)}.",
            safe="nothing was started; tables and positions stay as they are.",
            run="kdi doctor    (first install this release with its requirements, in an environment of its own)",
        )
        yield wrong("packages", "Python", trouble, differing=differing)
    else:
        versions = {name: metadata.version(name) for name in ("pyspark", "delta-spark", "deltalake", "dagster")}
        yield fine("packages", "Python", ", ".join(map(" ".join, versions.items())), versions=versions)


def _unfit(requirements: Iterable[str]) -> Iterator[str]:
    from packaging.requirements import Requirement

    for line in requirements:
        required = Requirement(line)
        if required.marker and not required.marker.evaluate({"extra": ""}):
            continue
        installed = _installed(required.name)
        if installed is None or not required.specifier.contains(installed, prereleases=True):
            yield f"{required.name}{required.specifier} is needed, {installed or 'none'} is installed"


def _unfit_jars(lock: Path) -> Iterator[str]:
    coordinates = [jar.coordinate.split(":") for jar in locked_jars("spark", lock=lock)]
    for package, prefix in JARS_OF.items():
        locked, installed = next((v for _, m, v in coordinates if m.startswith(prefix)), None), _installed(package)
        if not (locked and installed) or _minor(locked) != _minor(installed):
            yield f"{package} {installed} is installed, the locked jar is of {locked}"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def java(home: Path, *, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """The Java that a drain would use, and whether it starts; raises ``JavaMissing`` if there is none."""
    java_home = find_java(home, environment=environment)
    version = java_version(java_home)
    if version is None or version < OLDEST_JAVA:
        silent = Trouble(
            kind="java silent",
            happened=f"the Java of {java_home} is not a Java {OLDEST_JAVA} or newer.",
            safe="nothing was started.",
            run=f"{java_home}/bin/java -version    (or install a Java {OLDEST_JAVA}+ and set JAVA_HOME)",
        )
        yield wrong("java", str(java_home), silent)
    else:
        yield fine("java", str(java_home), f"Java {version}", version=version)


def jars(settings: Settings, *, lock: Path = JARS_LOCK) -> Iterator[Finding]:
    """Whether every locked jar is there and has the locked hash.

    Raises:
        JarMissing: Some of Spark's are missing; only ``kdi broker run`` needs the broker's.
        JarDiffers: Some are not the locked ones.
    """
    directory = settings.home / "jars"
    for group in spark_groups(settings):
        verified = refuse_unlocked(directory, group, lock=lock)
        yield fine("jars", group, f"{counted(verified, 'jar')}, hashes as locked", jars=verified)
    try:
        verified = refuse_unlocked(directory, "broker", lock=lock)
    except JarMissing as missing:
        yield warning("jars", "broker", missing)
    else:
        yield fine("jars", "broker", f"{counted(verified, 'jar')}, hashes as locked", jars=verified)


def kinesis_jars(settings: Settings, stream: str) -> Iterator[Finding]:
    """Whether the jars of Kinesis were fetched; if they were, ``jars`` has a line for them.

    Raises:
        KinesisReaderMissing: They were not.
    """
    if "kinesis" not in spark_groups(settings):
        raise KinesisReaderMissing(stream=stream)
    return iter(())


def driver_name(number: int) -> str:
    """What the table calls a warm driver."""
    return "shared" if number == 1 else f"shared {number}"


def driver(settings: Settings, number: int = 1) -> Iterator[Finding]:
    """Whether a warm driver answers, and is one for this installation.

    Raises:
        DriverGone, DriverHangs: It does not answer.
        DriverDiffers, DriverOfOtherS3: As ``DriverAddress.refuse_other``.
    """
    folder, of = driver_folder(settings.home, number), driver_name(number)
    status, address = driver_status(folder, within_seconds=DRIVER_SECONDS), DriverAddress.read(folder)
    address.refuse_other(settings)
    attached, jobs = len(status["clients"]), status["jobs"]
    found = f"process {status['pid']}, {attached} attached, {counted(jobs, 'job')} running"
    yield fine("driver", of, found, pid=status["pid"], attached=attached, jobs=jobs)
