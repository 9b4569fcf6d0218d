"""What may enter the folder of jars. That Spark's own client fetches them is in tests/spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kdi_assets.runtime.jars import (
    JARS_AT_ONCE,
    Jar,
    JarMissing,
    fetch_jars,
    fetch_with,
    jar_paths,
    locked_jars,
)

CONTENTS = [f"jar {number}".encode() for number in range(JARS_AT_ONCE + 2)]
JARS = [
    Jar("spark", f"org.example:thing-{number}:1.0", hashlib.sha256(content).hexdigest())
    for number, content in enumerate(CONTENTS)
]


class Registry:
    """Serves jars as files, a few of them wrong; ``cut_off_after`` resolutions it fails."""

    def __init__(self, directory: Path, *, wrong: Sequence[Jar] = (), cut_off_after: int | None = None) -> None:
        self.directory = directory
        self.wrong = wrong
        self.cut_off_after = cut_off_after
        self.asked: list[Jar] = []

    def __call__(self, jars: Sequence[Jar]) -> dict[Jar, Path]:
        if self.cut_off_after is not None and len(self.asked) >= self.cut_off_after:
            raise ConnectionResetError
        self.asked += jars
        self.directory.mkdir(exist_ok=True)
        paths = {jar: self.directory / jar.file_name for jar in jars}
        for jar, path in paths.items():
            path.write_bytes(b"something else" if jar in self.wrong else CONTENTS[JARS.index(jar)])
        return paths


def test_jars_that_are_there_and_verified_need_no_registry(tmp_path: Path) -> None:
    lock = tmp_path / "lock.json"
    lock.write_text(json.dumps([{"group": j.group, "coordinate": j.coordinate, "sha256": j.sha256} for j in JARS[:2]]))
    fetch_with(Registry(tmp_path / "served"), JARS[:2], directory=tmp_path / "jars", report=lambda _: None)
    lines: list[str] = []

    fetch_jars(tmp_path / "jars", home=tmp_path, report=lines.append, lock=lock)

    assert lines == [f"spark   {jar.coordinate}  is there" for jar in JARS[:2]]


def test_a_missing_jar_names_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(JarMissing, match="kdi jars") as refused:
        jar_paths(tmp_path, "spark")

    assert len(refused.value.paths) == len(locked_jars("spark"))
