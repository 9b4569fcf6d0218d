"""When a start of Spark uses a class-data archive, and which."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kdi_assets.runtime import archive
from kdi_assets.runtime.archive import archive_name, archive_options
from kdi_assets.settings import Settings
from kdi_assets.tools.rehearsal import make_archive


@pytest.fixture
def java_home(tmp_path: Path) -> Path:
    """A Java with its own archive."""
    home = tmp_path / "java"
    for part in ("lib/modules", "lib/server/classes.jsa"):
        (home / part).parent.mkdir(parents=True, exist_ok=True)
        (home / part).write_bytes(part.encode())
    return home


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only jar of the group; PySpark's jars come after it."""
    jar = tmp_path / "jars" / "spark" / "one.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"a jar")
    monkeypatch.setattr(archive, "spark_class_path", lambda settings: [jar])
    return jar


def at(home: Path) -> Settings:
    """The settings of an installation in this home."""
    return Settings(home=home, lake=str(home / "lake"))


def written(home: Path, java_home: Path, content: bytes) -> Path:
    """An archive that fits, with this content."""
    path = home / "jars" / f"{archive_name(at(home), java_home)}-{len(b'an archive')}.jsa"
    path.write_bytes(content)
    return path


def test_another_java_and_another_jar_have_another_archive(tmp_path: Path, java_home: Path, jar: Path) -> None:
    names = [archive_name(at(tmp_path), java_home), archive_name(at(tmp_path), java_home)]
    jar.write_bytes(b"a longer jar")
    names.append(archive_name(at(tmp_path), java_home))
    os.utime(jar, (0, 0))
    names.append(archive_name(at(tmp_path), java_home))
    (java_home / "lib" / "modules").write_bytes(b"a newer Java")
    names.append(archive_name(at(tmp_path), java_home))

    assert names[0] == names[1]
    assert len(set(names)) == 4


def test_a_lake_on_s3_has_another_archive_because_more_jars_are_on_the_class_path(
    tmp_path: Path, java_home: Path, jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = tmp_path / "more.jar"
    more.write_bytes(b"a jar of S3's client")
    by_lake = {"lake": [jar], "s3://bucket/lake": [jar, more]}
    monkeypatch.setattr(archive, "spark_class_path", lambda settings: by_lake[settings.lake])

    names = {archive_name(Settings(home=tmp_path, lake=lake), java_home) for lake in by_lake}

    assert len(names) == 2


@pytest.mark.usefixtures("jar")
def test_a_start_is_told_of_a_whole_archive_and_says_nothing_of_one_that_does_not_fit(
    tmp_path: Path, java_home: Path
) -> None:
    assert archive_options(at(tmp_path), java_home) == []

    path = written(tmp_path, java_home, b"an archive")
    quiet = ["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    assert archive_options(at(tmp_path), java_home) == [f"-XX:SharedArchiveFile={path}", *quiet]

    (tmp_path / "a home").mkdir()
    (tmp_path / "a home" / "jars").symlink_to(tmp_path / "jars")
    assert (
        archive_options(at(tmp_path / "a home"), java_home)[0]
        == f"-XX:SharedArchiveFile='{tmp_path}/a home/jars/{path.name}'"
    )

    written(tmp_path, java_home, b"an arch")
    assert archive_options(at(tmp_path), java_home) == []


@pytest.mark.usefixtures("jar")
def test_a_java_without_an_archive_of_its_own_goes_without(tmp_path: Path, java_home: Path) -> None:
    written(tmp_path, java_home, b"an archive")
    (java_home / "lib" / "server" / "classes.jsa").unlink()

    assert archive_options(at(tmp_path), java_home) == []


@pytest.mark.usefixtures("jar")
def test_an_archive_that_is_there_is_not_made_again(
    tmp_path: Path, java_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdi_assets.tools.rehearsal.find_java", lambda home: java_home)
    path, lines = written(tmp_path, java_home, b"an archive"), list[str]()

    make_archive(at(tmp_path), lines.append)

    assert lines == [f"spark   {path.name}  is there"]
    assert path.read_bytes() == b"an archive"


@pytest.mark.usefixtures("jar")
def test_what_keeps_an_archive_from_being_made_is_said_and_leaves_the_old_one(
    tmp_path: Path, java_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdi_assets.tools.rehearsal.find_java", lambda home: java_home)
    monkeypatch.setattr("sys.executable", "/bin/false")
    old, lines = tmp_path / "jars" / "classes-0123456789abcdef-15.jsa", list[str]()
    old.write_bytes(b"of another Java")

    make_archive(at(tmp_path), lines.append)

    assert lines[-1].startswith("spark   no class-data archive, starts of Spark take longer:")
    assert sorted(path.name for path in old.parent.iterdir()) == [old.name, "spark"]


@pytest.mark.usefixtures("jar")
def test_an_archive_is_made_without_the_configuration_of_a_cluster(
    tmp_path: Path, java_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\n")
    python.chmod(0o755)
    monkeypatch.setattr("kdi_assets.tools.rehearsal.find_java", lambda home: java_home)
    monkeypatch.setattr("sys.executable", str(python))
    for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "YARN_CONF_DIR", "PROXY_OF_OURS"):
        monkeypatch.setenv(name, "/etc/somewhere")

    make_archive(at(tmp_path), lambda _: None)

    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert "PROXY_OF_OURS" in names
    assert not {name for name in names if name.endswith("_CONF_DIR")}
