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
    JarHashDiffers,
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


def names(directory: Path) -> set[str]:
    """Every file below, hidden ones too."""
    return {path.name for path in directory.rglob("*") if path.is_file()}


def test_a_wrong_hash_is_refused_by_name_and_not_kept(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "served", wrong=[JARS[1]])

    with pytest.raises(JarHashDiffers, match="org.example:thing-1:1.0") as refused:
        fetch_with(registry, JARS[:3], directory=tmp_path / "jars", report=lambda _: None)

    assert refused.value.expected == JARS[1].sha256
    assert names(tmp_path / "jars") == {JARS[0].file_name}


def test_a_fetch_that_is_cut_off_leaves_whole_jars_only(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "served", cut_off_after=JARS_AT_ONCE)

    with pytest.raises(ConnectionResetError):
        fetch_with(registry, JARS, directory=tmp_path / "jars", report=lambda _: None)

    there = {path.name: path.read_bytes() for path in (tmp_path / "jars").rglob("*") if path.is_file()}
    assert there == {jar.file_name: content for jar, content in list(zip(JARS, CONTENTS, strict=True))[:JARS_AT_ONCE]}


def test_every_jar_is_reported_on_a_line_of_its_own(tmp_path: Path) -> None:
    lines: list[str] = []

    fetch_with(Registry(tmp_path / "served"), JARS, directory=tmp_path / "jars", report=lines.append)

    assert lines == [f"spark   {jar.coordinate}  fetched" for jar in JARS]


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


def test_spark_and_broker_have_each_their_kafka_client() -> None:
    clients = {jar.group: jar.coordinate for jar in locked_jars() if ":kafka-clients:" in jar.coordinate}

    assert clients == {
        "spark": "org.apache.kafka:kafka-clients:3.9.2",
        "broker": "org.apache.kafka:kafka-clients:4.3.1",
    }
