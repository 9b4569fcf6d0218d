"""The kernel: what is done to every message, in Java (``kdi_assets/jvm``), compiled by the locked Eclipse compiler."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

from kdi_assets.errors import Terminal
from kdi_assets.runtime.java import OLDEST_JAVA, find_java
from kdi_assets.runtime.whole_files import replace_file

SOURCES = Path(__file__).parents[1] / "jvm"


class KernelNotCompiled(Terminal):
    """The compiler refuses the sources: they are not those of this release, or not for this Spark."""

    output: str

    what_happened = f"the kernel in {SOURCES} does not compile: {{output}}"
    what_is_safe = "nothing was started; jars that are in the folder are the locked ones."
    what_to_run = "pip install --force-reinstall kdi-assets    (the sources and Spark of one release)"


def kernel_path(directory: Path, compiler: str) -> Path:
    """Where the kernel of these sources lies below the folder of jars, or would.

    Args:
        compiler: Its hash.
    """
    digest = hashlib.sha256(compiler.encode())
    for source in _sources():
        digest.update(source.read_bytes())
    return directory / "spark" / f"kdi-kernel-{digest.hexdigest()[:16]}.jar"


def compile_kernel(kernel: Path, *, compiler: Path, home: Path) -> None:
    """Make the kernel.

    Args:
        compiler: Its jar.
        home: Where a Java may be set up.

    Raises:
        JavaMissing: There is no Java.
        KernelNotCompiled: The sources are refused.
    """
    java, release = find_java(home) / "bin" / "java", str(OLDEST_JAVA)
    with tempfile.TemporaryDirectory() as classes:
        options = ["-source", release, "-target", release, "-nowarn", "-cp", _class_path(), "-d", classes]
        command = [str(java), "-jar", str(compiler), *options, *map(str, _sources())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KernelNotCompiled(output=(done.stdout + done.stderr).strip()[-2000:])
        replace_file(kernel, _packed(Path(classes)))


def _sources() -> list[Path]:
    return sorted(SOURCES.rglob("*.java"))


def _class_path() -> str:
    """PySpark's own jars, found without importing it."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    return ":".join(map(str, sorted(Path(pyspark.origin).parent.glob("jars/*.jar"))))


def _packed(classes: Path) -> bytes:
    held = BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.write(path, path.relative_to(classes))
    return held.getvalue()
