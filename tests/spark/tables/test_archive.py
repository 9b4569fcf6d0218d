"""A start of Spark over the class-data archive that `kdi jars` makes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kdi_assets.runtime.archive import archive_name, whole_archive
from kdi_assets.runtime.java import find_java
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import QUICK_START
from kdi_assets.tools.rehearsal import make_archive

COUNT = """
from kdi_assets.runtime.spark import open_session
from kdi_assets.settings import Settings
print(open_session(Settings.from_environment()).range(3).count())
"""


@pytest.fixture
def home_of_its_own(settings: Settings, tmp_path: Path) -> Settings:
    """A home with the shared jars, and without an archive."""
    (tmp_path / "jars").mkdir()
    for group in ("spark", "broker"):
        (tmp_path / "jars" / group).symlink_to(settings.home / "jars" / group)
    return replace(settings, home=tmp_path)


@pytest.fixture
def shared(home_of_its_own: Settings, tmp_path: Path) -> Callable[[], int]:
    """Starts Spark; how many of its classes came from the archive. It prints nothing about archives."""

    def start() -> int:
        loaded = tmp_path / "loaded.txt"
        environment = {
            "KDI_HOME": str(home_of_its_own.home),
            "KDI_SPARK_MASTER": "local[1]",
            "PATH": os.environ["PATH"],
            "SPARK_SUBMIT_OPTS": " ".join([*QUICK_START, f"-Xlog:class+load:file={loaded}::filecount=0"]),
        }
        command = [sys.executable, "-c", COUNT]
        told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert told.stdout == "3\n"
        assert "archive" not in told.stderr and "cds" not in told.stderr
        return loaded.read_text().count("source: shared objects file (top)")

    return start


def test_spark_starts_with_the_archive_and_all_the_same_with_a_damaged_one(
    home_of_its_own: Settings, shared: Callable[[], int]
) -> None:
    java_home, lines = find_java(home_of_its_own.home), list[str]()
    if archive_name(home_of_its_own, java_home) is None:
        pytest.skip("this Java has no archive of its own to build upon")

    make_archive(home_of_its_own, lines.append)

    path = whole_archive(home_of_its_own, java_home)
    assert path is not None
    assert lines[-1] == f"spark   {path.name}  made"
    assert shared() > 8000
    whole = path.read_bytes()
    path.unlink()  # it cannot be written
    for damaged in (whole[: len(whole) // 2], b"\0" * 4096 + whole[4096:], b""):
        path.write_bytes(damaged)
        assert shared() == 0, "it was taken all the same"
