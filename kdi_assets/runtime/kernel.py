"""Compiles the kernel, the Java code inside Spark (``kdi_assets/jvm``), with the locked compiler.

The readers of Kinesis are a kernel of their own: they need AWS's SDK, which only streams of Kinesis have.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Literal

from kdi_assets.runtime.errors import KernelNotCompiled
from kdi_assets.runtime.java import OLDEST_JAVA, find_java
from kdi_assets.runtime.whole_files import replace_file

SOURCES = Path(__file__).parents[1] / "jvm"


KernelGroup = Literal["spark", "kinesis"]
"""The groups of jars that a kernel belongs to."""
OF_KINESIS = SOURCES / "kdi" / "kinesis"


def kernel_path(directory: Path, *hashes: str, group: KernelGroup = "spark") -> Path:
    """The jar of the kernel of these sources; it need not exist.

    Args:
        directory: The folder of jars.
        hashes: Of the compiler, and of the jars that the kernel is compiled with.
    """
    return directory / group / f"kdi-kernel-{sources_digest(*hashes, group=group)}.jar"


def sources_digest(*hashes: str, group: KernelGroup | None = None) -> str:
    """A digest of hashes, and of the sources of one kernel, or of all."""
    digest = hashlib.sha256("".join(hashes).encode())
    for source in _sources(group):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def compile_kernel(
    kernel: Path, *, compiler: Path, jars: Iterable[Path], home: Path, group: KernelGroup = "spark"
) -> None:
    """Compile a kernel into a jar.

    Args:
        compiler: The compiler's jar.
        jars: What the kernel uses besides PySpark's own jars.
        home: Folder for the shim around the wheel's Java.

    Raises:
        JavaMissing: There is no Java.
        KernelNotCompiled: The compiler refuses the sources.
    """
    java, release = find_java(home) / "bin" / "java", str(OLDEST_JAVA)
    class_path = os.pathsep.join(map(str, [*jars, *sorted(pyspark_jars().glob("*.jar"))]))
    with tempfile.TemporaryDirectory() as classes:
        options = ["-source", release, "-target", release, "-nowarn", "-cp", class_path, "-d", classes]
        command = [str(java), "-jar", str(compiler), *options, *map(str, _sources(group))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KernelNotCompiled(sources=SOURCES, output=(done.stdout + done.stderr).strip()[-2000:])
        replace_file(kernel, _packed(Path(classes)))


def _sources(group: KernelGroup | None) -> list[Path]:
    found = sorted(SOURCES.rglob("*.java"))
    return [s for s in found if group is None or s.is_relative_to(OF_KINESIS) == (group == "kinesis")]


def pyspark_jars() -> Path:
    """The folder of PySpark's own jars, found without importing PySpark."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    return Path(pyspark.origin).with_name("jars")


def _packed(classes: Path) -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.write(path, path.relative_to(classes))
    return content.getvalue()
