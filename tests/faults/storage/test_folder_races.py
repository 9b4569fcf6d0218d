"""Two JVMs that write the same versions of a log in a folder."""

from __future__ import annotations

import errno
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from kdi_assets.runtime.jars import jar_paths
from kdi_assets.runtime.java import OLDEST_JAVA, find_java
from kdi_assets.runtime.kernel import pyspark_jars
from kdi_assets.settings import Settings
from tests.storage.refused_links import links_refused

STORE = "kdi.storage.LinkLogStore"
DELTAS_STORE = "io.delta.storage.HDFSLogStore"
SOURCE = Path(__file__).with_name("LogRacer.java")
SECONDS = 50.0


@dataclass(frozen=True)
class Racers:
    """Runs both JVMs.

    Attributes:
        java: The program.
        class_path: With the compiled racer.
    """

    java: Path
    class_path: str

    def race(self, store: str, log: Path, versions: int, *, links: int = 0, ends: int = 0) -> list[set[int]]:
        """Write the versions from 1 on in both JVMs; which of them each JVM was told to have won.

        Args:
            links: The error by which the system answers every hard link; 0: it makes them.
            ends: The exit code of both JVMs.
        """
        log.mkdir(parents=True)
        flags = ["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", self.class_path]
        told = [[store, str(log), str(log.parent / "reached"), str(number), str(versions)] for number in range(2)]
        command = [str(self.java), *flags, "kdi.tests.LogRacer"]
        refuse = links_refused(links) if links else None
        children = [
            subprocess.Popen([*command, *args], stdout=subprocess.PIPE, text=True, preexec_fn=refuse) for args in told
        ]
        try:
            outputs = [child.communicate(timeout=SECONDS)[0] for child in children]
        finally:
            for child in children:
                child.kill()
        assert [child.returncode for child in children] == [ends, ends], outputs
        return [set(map(int, output.split())) for output in outputs]


def not_as_announced(log: Path, won: list[set[int]], versions: int) -> list[int]:
    """Versions that not one JVM alone has won, or whose file is not the winner's."""
    found = []
    for version in range(1, versions + 1):
        winners = [number for number, mine in enumerate(won) if version in mine]
        content = (log / f"{version:020}.json").read_text()
        if [content] != [f"{number} wrote {version}\n" for number in winners]:
            found.append(version)
    return found


@pytest.fixture(scope="module")
def racers(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Racers:
    """The racer, compiled as the kernel is."""
    java, jars = find_java(settings.home) / "bin" / "java", settings.home / "jars"
    used = [*jar_paths(jars, "spark"), *sorted(pyspark_jars().glob("*.jar"))]
    classes = tmp_path_factory.mktemp("racer")
    class_path, release = os.pathsep.join(map(str, [classes, *used])), str(OLDEST_JAVA)
    (compiler,) = (jars / "build").glob("ecj-*.jar")
    options = ["-source", release, "-target", release, "-nowarn", "-cp", class_path, "-d", str(classes)]
    subprocess.run([str(java), "-jar", str(compiler), *options, str(SOURCE)], check=True)
    return Racers(java, class_path)


@pytest.mark.scenario("two drivers at once")
def test_a_version_in_a_folder_has_the_content_of_the_jvm_that_was_told_to_have_won(
    racers: Racers, tmp_path: Path
) -> None:
    """Purpose: several warm drivers share a folder, and a rename on a local disk replaces another driver's commit.
    Procedure: two JVMs write 400 versions of one log; each time both come to the end of the content at the same moment.
    Pass: one of them was told to have won each version, and the file has its content; nothing else is in the log.
    """
    log, versions = tmp_path / "table/_delta_log", 400

    won = racers.race(STORE, log, versions)

    assert not_as_announced(log, won, versions) == []
    assert len(list(log.iterdir())) == versions
    assert all(won), "one JVM won everything: this was no race"


def test_deltas_own_store_lets_a_jvm_replace_the_commit_of_another(racers: Racers, tmp_path: Path) -> None:
    """Both JVMs have looked for the file before one of them renames. If this fails, Delta's store may have become safe,
    and ours may be superfluous; or the race would see no loss.
    """
    log, versions = tmp_path / "table/_delta_log", 10

    won = racers.race(DELTAS_STORE, log, versions)

    assert not_as_announced(log, won, versions) == list(range(1, versions + 1))


@pytest.mark.parametrize("answer", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EXDEV], ids=errno.errorcode.get)
def test_a_link_that_fails_on_a_disk_with_links_is_an_error_in_both_jvms(
    racers: Racers, tmp_path: Path, answer: int
) -> None:
    """Purpose: taken for a disk without links, the commit would go Delta's way, and one JVM replace that of the other.
    Pass: both JVMs end with an error; the log has no version, and no other file.
    """
    log = tmp_path / "table/_delta_log"

    assert racers.race(STORE, log, 10, links=answer, ends=1) == [set(), set()]

    assert list(log.iterdir()) == []


@pytest.mark.parametrize("answer", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get)
def test_on_a_disk_without_links_commits_go_deltas_way(racers: Racers, tmp_path: Path, answer: int) -> None:
    """So both JVMs are told to have won every version: only one driver at a time may commit there."""
    log, versions = tmp_path / "table/_delta_log", 10

    won = racers.race(STORE, log, versions, links=answer)

    assert not_as_announced(log, won, versions) == list(range(1, versions + 1))
    assert len(list(log.iterdir())) == versions
