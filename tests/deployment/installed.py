"""The package as users install it: built from a copy of the sources, into a folder or a virtual environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement

from tests.conftest import CHECKOUT

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
BUILD = (*PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir")
SDIST = "from setuptools import build_meta; build_meta.build_sdist('dist')"


@contextmanager
def sources() -> Iterator[Path]:
    """A copy of what the package is built from; a build writes beside it."""
    with TemporaryDirectory() as folder:
        for package in ("kdi_assets", "resources", "sensors"):
            copytree(CHECKOUT / package, Path(folder) / package, symlinks=True, ignore=ignore_patterns("__pycache__"))
        for file in ("pyproject.toml", "LICENSE", "README.md"):
            copy(CHECKOUT / file, folder)
        yield Path(folder)


def install(folder: Path) -> Path:
    """Install the package as pip does: not editable, built without a network; ``folder`` is then Python's path."""
    with sources() as source:
        options = ("--quiet", "--no-compile", "--no-deps", "--no-build-isolation")
        subprocess.run([*PIP, "install", *options, "--target", folder, source], check=True)
    return folder


def build_wheel(folder: Path) -> Path:
    """The wheel of the sources."""
    with sources() as source:
        subprocess.run([*BUILD, folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_wheel_of_sdist(folder: Path) -> Path:
    """The wheel of the source distribution, as pip builds it where it finds no wheel."""
    with sources() as source:
        subprocess.run([sys.executable, "-c", SDIST], cwd=source, check=True, capture_output=True)
        (sdist,) = (source / "dist").glob("*.tar.gz")
        subprocess.run(["tar", "-xf", sdist, "-C", folder], check=True)
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    subprocess.run([*BUILD, folder, unpacked], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path, *path: Path | str) -> Path:
    """A virtual environment without packages, whose Python also looks into the folders of ``path``."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "more.pth").write_text("".join(f"{entry}\n" for entry in path))
    return folder


def install_alone(wheel: Path, environment: Path) -> None:
    """Install a wheel and the packages that it requires, of the versions of this environment, and no others.

    They are linked: it takes a second and no network.
    """
    (site,) = make_environment(environment).glob("lib/python*/site-packages")
    subprocess.run([*PIP, "--python", environment, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    (metadata,) = site.glob("kdi_assets-*.dist-info")
    for name in _closure(Distribution.at(metadata)):
        for entry in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            if not (site / entry).exists():
                (site / entry).symlink_to(Path(sysconfig.get_path("purelib")) / entry)


def _closure(root: Distribution) -> set[str]:
    """The names of the distributions that one requires, with those that they require."""
    found: set[str] = set()
    waiting = [(root, "")]
    while waiting:
        of, extra = waiting.pop()
        for line in of.requires or ():
            required = Requirement(line)
            if required.marker and not required.marker.evaluate({"extra": extra}):
                continue
            for more in ("", *required.extras):
                if f"{required.name}[{more}]" not in found:
                    found.add(f"{required.name}[{more}]")
                    waiting.append((distribution(required.name), more))
    return {name.partition("[")[0] for name in found}
