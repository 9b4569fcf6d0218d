"""The jars of Spark, the broker and the clients of S3 and Kinesis: locked by coordinate and SHA-256, fetched once.

Every jar is resolved by name, without its dependencies: only what the lock lists is fetched.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, get_args

from kdi_assets.runtime.environment import environment_set
from kdi_assets.runtime.errors import JarDiffers, JarHashDiffers, JarMissing, JarsNotFetched
from kdi_assets.runtime.java import find_java, proxy_options
from kdi_assets.runtime.kernel import KernelGroup, compile_kernel, kernel_path, pyspark_jars, sources_digest
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.spark_internals import resolved_by_ivy
from kdi_assets.runtime.whole_files import replace_file
from kdi_assets.settings import Settings

JarGroup = Literal["build", "spark", "broker", "s3", "kinesis"]
JAR_GROUPS: tuple[JarGroup, ...] = get_args(JarGroup)
JARS_LOCK = Path(__file__).with_name("jars.lock.json")
KERNELS: Mapping[KernelGroup, tuple[JarGroup, ...]] = {"spark": ("spark",), "kinesis": ("s3", "kinesis")}
"""The groups whose jars a kernel is compiled with, besides PySpark's own, by the group that it belongs to."""
SIGNED = ("commons-compiler", "janino")
"""PySpark's own jars that are signed: the compiler of Spark's queries. Java checks the signature of each class, at each
start, and no class-data archive may have them. Copies without signatures come first on the driver's class path."""
UNSIGNED = "-unsigned.jar"
_SIGNATURE = re.compile(r"META-INF/[^/]+\.(SF|DSA|RSA|EC)")
LOG = "ivy.log"
UNREACHABLE = re.compile(r"Server access error .*|Host \S+ not found")
JARS_AT_ONCE = 8  # a resolution takes 0.8 s, each further jar in it 0.3 s; few, to show progress


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar of the lock; ``coordinate`` is Maven's ``group:module:version``."""

    group: str
    coordinate: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the folder of its group."""
        _, module, version = self.coordinate.split(":")
        return f"{module}-{version}.jar"


@cache
def release_digest() -> str:
    """A digest of what a driver's JVM has of a release: the locked jars, and the sources of the kernels."""
    return sources_digest(JARS_LOCK.read_text())


def locked_jars(group: str | None = None, *, lock: Path = JARS_LOCK) -> list[Jar]:
    """The jars of one group, or all."""
    jars = [Jar(**line) for line in json.loads(lock.read_text())]
    return [jar for jar in jars if group in (None, jar.group)]


def jar_paths(directory: Path, group: JarGroup) -> list[Path]:
    """The jars of a group below ``directory``, for a class path.

    Raises:
        JarMissing: Some are missing. Hashes are not checked again: ``fetch_jars`` stores only locked files.
    """
    paths = [directory / group / jar.file_name for jar in locked_jars(group)]
    if missing := tuple(path for path in paths if not path.is_file()):
        raise JarMissing(group=group, paths=missing)
    if group == "broker":
        # PySpark's own: Ivy in Spark leaves this one out of what it fetches.
        return [*paths, next(pyspark_jars().glob("scala-library-*.jar"))]
    copies = [copy for _, copy in _unsigned(directory) if copy.is_file()] if group == "spark" else []
    return [*paths, *_kernel(directory, group), *copies]


def spark_class_path(settings: Settings) -> list[Path]:
    """The jars that Spark needs besides its own, with those of the clients of S3 and Kinesis where they are needed.

    Raises:
        JarMissing: Some are missing.
    """
    return [path for group in spark_groups(settings) for path in jar_paths(settings.home / "jars", group)]


def spark_groups(settings: Settings) -> tuple[JarGroup, ...]:
    """The groups of Spark's class path; those of Kinesis once they were fetched, with the SDK's jars of S3."""
    if (settings.home / "jars" / "kinesis").is_dir():
        return ("spark", "s3", "kinesis")
    return ("spark", "s3") if settings.uses_s3 else ("spark",)


def _kernel(directory: Path, group: JarGroup, lock: Path = JARS_LOCK) -> Iterator[Path]:
    """The compiled kernel of the group, if it has one; raises ``JarMissing`` if it was not compiled."""
    for of_group in (each for each in KERNELS if each == group):
        for compiler in locked_jars("build", lock=lock):
            path = _kernel_of(directory, of_group, compiler, lock)
            if not path.is_file():
                raise JarMissing(group=group, paths=(path,))
            yield path


def _kernel_of(directory: Path, group: KernelGroup, compiler: Jar, lock: Path) -> Path:
    hashes = (jar.sha256 for jar in (compiler, *_compiled_with(group, lock)))
    return kernel_path(directory, *hashes, group=group)


def _compiled_with(group: KernelGroup, lock: Path) -> list[Jar]:
    return [jar for used in KERNELS[group] for jar in locked_jars(used, lock=lock)]


def _unsigned(directory: Path) -> Iterator[tuple[Path, Path]]:
    """PySpark's signed jars, each with its copy, which need not exist."""
    for name in SIGNED:
        for jar in pyspark_jars().glob(f"{name}-*.jar"):
            yield jar, directory / "spark" / f"{jar.stem}{UNSIGNED}"


def _copy_unsigned(jar: Path, copy: Path) -> None:
    """Copy a jar without signatures, and without the digests of its files in the manifest."""
    content = BytesIO()
    with zipfile.ZipFile(jar) as signed, zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as unsigned:
        for entry in (each for each in signed.infolist() if not _SIGNATURE.fullmatch(each.filename)):
            data = signed.read(entry)
            if entry.filename == "META-INF/MANIFEST.MF":
                data = re.split(rb"\r?\n\r?\n", data, maxsplit=1)[0] + b"\r\n\r\n"
            unsigned.writestr(entry, data, zipfile.ZIP_DEFLATED)
    replace_file(copy, content.getvalue())


def refuse_unlocked(directory: Path, group: JarGroup, *, lock: Path = JARS_LOCK) -> int:
    """Check the hash of every jar, and that the kernel belongs to the sources.

    Returns:
        The number of jars.

    Raises:
        JarMissing: Some are missing.
        JarDiffers: Some are not the locked ones.
    """
    jars = {directory / group / jar.file_name: jar for jar in locked_jars(group, lock=lock)}
    if missing := tuple(path for path in jars if not path.is_file()):
        raise JarMissing(group=group, paths=missing)
    if differing := tuple(path for path, jar in jars.items() if not _is_there(jar, directory)):
        raise JarDiffers(group=group, paths=differing)
    return len(jars) + len(list(_kernel(directory, group, lock)))


def fetch_jars(
    directory: Path,
    *,
    home: Path,
    report: Callable[[str], None],
    groups: Collection[str] = JAR_GROUPS,
    lock: Path = JARS_LOCK,
) -> None:
    """Fetch and verify the missing jars, compile the kernels that are missing, and copy ``SIGNED`` jars unsigned.

    Args:
        directory: Gets one folder per group.
        home: Folder for the shim around the wheel's Java (``find_java``).
        report: Called with a line about all jars that are there, and one for each portion that is fetched.
        groups: The groups to fetch.

    Raises:
        JarHashDiffers: A registry serves another file; it was not kept.
        JarsNotFetched: The registry does not answer, or lacks a jar.
        KernelNotCompiled: The compiler refuses the sources.
    """
    directory = directory.absolute()  # Ivy needs an absolute path
    jars = [jar for jar in locked_jars(lock=lock) if jar.group in groups]
    missing = [jar for jar in jars if not _is_there(jar, directory)]
    report(f"jars    {len(jars) - len(missing)} of {len(jars)} are there, verified")
    if missing:
        _fetch(missing, directory, home=home, report=report)
    for compiler in (jar for jar in jars if jar.group == "build"):
        for group in (each for each in KERNELS if each == "spark" or any(jar.group == each for jar in jars)):
            kernel = _kernel_of(directory, group, compiler, lock)
            if kernel.is_file():
                report(f"{group:7} {kernel.name}  is there")
                continue
            compiler_jar, *used = (
                directory / jar.group / jar.file_name for jar in (compiler, *_compiled_with(group, lock))
            )
            with announced(WorkStep(name="jars", doing=f"compiling {kernel.name}")):
                compile_kernel(kernel, compiler=compiler_jar, jars=used, home=home, group=group)
            report(f"{group:7} {kernel.name}  compiled")
    for jar, copy in _unsigned(directory) if "spark" in groups else ():
        if not copy.is_file():
            _copy_unsigned(jar, copy)


def _fetch(missing: Sequence[Jar], directory: Path, *, home: Path, report: Callable[[str], None]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    # Ivy's cache is temporary: a wrong file must not be served again from it.
    with tempfile.TemporaryDirectory(dir=directory, prefix=".ivy-") as cache, ivy_jvm(Path(cache), home) as jvm:
        total, arrived = len(missing), partial(_files_in, Path(cache))
        for start in range(0, len(missing), JARS_AT_ONCE):
            some = missing[start : start + JARS_AT_ONCE]
            step = WorkStep(name="jars", doing="fetching", total=total, before=start, unit="jar", done=arrived)
            with announced(step), _refusals_translated(some, Path(cache) / LOG):
                served = _resolve(jvm, some)
            for jar in some:
                _take(jar, served, directory)
            report(f"jars    {min(start + JARS_AT_ONCE, len(missing))} of {len(missing)} fetched")


def _files_in(cache: Path) -> int:
    """How many jars Ivy has fetched so far."""
    return sum(1 for _ in cache.rglob("*.jar"))


def _resolve(jvm: Any, jars: Sequence[Jar]) -> dict[str, Path]:
    """The registry's files by name."""
    return {Path(path).name: Path(path) for path in resolved_by_ivy(jvm, [jar.coordinate for jar in jars])}


def _take(jar: Jar, served: Mapping[str, Path], directory: Path) -> None:
    """Store the jar in ``directory`` if it is the locked one."""
    name = "{}_{}-{}.jar".format(*jar.coordinate.split(":"))
    if name not in served:
        raise JarsNotFetched(coordinates=(jar.coordinate,), reason="Ivy answered without it")
    content = served[name].read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != jar.sha256:
        raise JarHashDiffers(coordinate=jar.coordinate, expected=jar.sha256, found=found)
    replace_file(directory / jar.group / jar.file_name, content)


def _is_there(jar: Jar, directory: Path) -> bool:
    path = directory / jar.group / jar.file_name
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


@contextmanager
def _refusals_translated(jars: Sequence[Jar], log: Path) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        reason = str(error.java_exception.toString())
        named = tuple(jar.coordinate for jar in jars if "{}#{};{}".format(*jar.coordinate.split(":")) in reason)
        if "not found" in reason:  # Ivy says this also if a registry does not answer; its log has the difference
            unreachable = UNREACHABLE.search(log.read_text(errors="replace"))
            reason = "not found" + (f"; not every registry answers: {unreachable[0]}" if unreachable else "")
        raise JarsNotFetched(coordinates=named or tuple(jar.coordinate for jar in jars), reason=reason) from error


@contextmanager
def ivy_jvm(cache: Path, home: Path) -> Iterator[Any]:
    """A JVM without a session; its Ivy fetches into ``cache`` and logs to ``cache / LOG``."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).set("spark.jars.ivy", str(cache))
    conf.set("spark.driver.extraJavaOptions", " ".join(proxy_options()))
    with (cache / LOG).open("wb") as log, environment_set({"JAVA_HOME": str(find_java(home))}):
        try:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            reason = f"no JVM: {(cache / LOG).read_text()[-1000:]}"
            raise JarsNotFetched(coordinates=("jars",), reason=reason) from error
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when its standard input is closed
        gateway.proc.wait()
