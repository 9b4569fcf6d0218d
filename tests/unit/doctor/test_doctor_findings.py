"""Findings of `kdi doctor`: packages, Java, jars, the warm driver, disk space, retention and registries."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import threading
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from unittest.mock import Mock

import pytest

from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import Cluster, Stream, TopicPartition
from kdi_assets.messages.formats.registry.schemas import Schemas
from kdi_assets.messages.topic_state import Retention
from kdi_assets.operate.doctor import machine
from kdi_assets.operate.doctor.disk import JAVAS_TEMPORARY, Space, disk, places, space_finding, spark_local_dirs
from kdi_assets.operate.doctor.doctor import ALONE_SECONDS, Examination, _of_machine, side_by_side
from kdi_assets.operate.doctor.doctor import registry as look
from kdi_assets.operate.doctor.finding import Verdict
from kdi_assets.operate.doctor.kafka import retention
from kdi_assets.operate.doctor.machine import driver, jars, java, packages
from kdi_assets.runtime.driver.control import ControlServer, DriverAddress, only_driver
from kdi_assets.runtime.errors import JarDiffers, JarMissing
from kdi_assets.runtime.jars import release_digest
from kdi_assets.settings import DriverMode, Settings
from tests.formats.fake_registry import RunningRegistry
from tests.unit.monitoring.backlogs import waits
from tests.unit.runtime.java_homes import told_java

GIB = 1 << 30
ROOMY = Space("/lake", 100 * GIB, 50 * GIB, 1_000_000, 500_000)


def test_a_package_of_another_release_or_missing_is_named_with_what_is_needed() -> None:
    (finding,) = packages(["pyspark==3.5.0", "no-such-package>=2", "pytest", "absent==1; extra == 'dev'"])

    assert finding.found == "packages differ"
    assert finding.facts["differing"] == (
        f"pyspark==3.5.0 is needed, {version('pyspark')} is installed",
        "no-such-package>=2 is needed, none is installed",
    )


def locked(directory: Path, *modules: tuple[str, str]) -> Path:
    """A lock of jars, and the jars below ``directory``; each is ``group, coordinate``."""
    lines = []
    for group, coordinate in modules:
        _, module, version = coordinate.split(":")
        jar = directory / group / f"{module}-{version}.jar"
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.write_text(coordinate)
        digest = hashlib.sha256(coordinate.encode()).hexdigest()
        lines.append({"group": group, "coordinate": coordinate, "sha256": digest})
    lock = directory / "lock.json"
    lock.write_text(json.dumps(lines))
    return lock


def test_a_package_that_its_locked_jar_does_not_fit_is_named(tmp_path: Path) -> None:
    kafka, delta = "org.apache.spark:spark-sql-kafka-0-10_2.13:3.5.0", "io.delta:delta-spark_2.13:1"
    lock = locked(tmp_path, ("spark", kafka), ("spark", delta))

    (finding,) = packages(["pytest"], lock=lock)

    assert "pyspark 4.2.0 is installed, the locked jar is of 3.5.0" in str(finding.trouble)


def test_a_package_fits_a_locked_jar_of_its_minor_version(tmp_path: Path) -> None:
    kafka, delta = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.99", "io.delta:delta-spark_2.13:4.4.99"
    lock = locked(tmp_path, ("spark", kafka), ("spark", delta))

    (finding,) = packages(["pytest"], lock=lock)

    assert finding.verdict is Verdict.OK


def test_jars_of_spark_must_be_whole_and_missing_ones_of_the_local_broker_are_a_warning(tmp_path: Path) -> None:
    directory, settings = tmp_path / "jars", Settings(home=tmp_path, lake="lake")
    directory.mkdir()
    lock = locked(directory, ("spark", "g:one:1"), ("spark", "g:two:1"), ("broker", "g:three:1"))
    shutil.rmtree(directory / "broker")
    assert [f.verdict for f in jars(settings, lock=lock)] == [Verdict.OK, Verdict.WARNING]

    (directory / "spark" / "one-1.jar").write_text("something else")
    with pytest.raises(JarDiffers, match="one-1.jar"):
        list(jars(settings, lock=lock))
    (directory / "spark" / "two-1.jar").unlink()
    with pytest.raises(JarMissing, match="two-1.jar"):
        list(jars(settings, lock=lock))


@pytest.mark.parametrize(("lake", "needed"), [("/a/lake", False), ("s3://bucket/lake", True), ("s3a://bucket", True)])
def test_the_jars_of_s3_are_needed_for_a_lake_on_s3(tmp_path: Path, lake: str, needed: bool) -> None:
    (tmp_path / "jars").mkdir()
    lock = locked(tmp_path / "jars", ("spark", "g:one:1"), ("s3", "g:two:1"))
    settings = Settings(home=tmp_path, lake=lake)
    assert ("s3" in [f.of for f in jars(settings, lock=lock)]) == needed

    shutil.rmtree(tmp_path / "jars" / "s3")
    if needed:
        with pytest.raises(JarMissing, match="group s3: two-1.jar"):
            list(jars(settings, lock=lock))
    else:
        assert [f.verdict for f in jars(settings, lock=lock)] == [Verdict.OK, Verdict.OK]


@pytest.mark.parametrize("lies_at", ["java", "gone"])
def test_the_java_that_would_be_taken_is_named_and_must_lie_where_it_says(tmp_path: Path, lies_at: str) -> None:
    java_home = told_java(tmp_path / "java", "21", home=tmp_path / lies_at)

    (finding,) = java(tmp_path, environment={"JAVA_HOME": str(java_home), "PATH": ""})

    assert (finding.found == "java silent") == (lies_at == "gone")
    if not finding.trouble:
        assert (finding.verdict, finding.of, finding.found) == (Verdict.OK, str(java_home), "Java 21")
    else:
        assert f"{tmp_path}/gone/bin/java -version" in str(finding.trouble)


@pytest.mark.parametrize(("version", "verdict"), [("4.2.0", Verdict.OK), ("3.5.0", Verdict.WRONG)])
def test_a_warm_driver_must_run_the_spark_that_is_installed(tmp_path: Path, version: str, verdict: Verdict) -> None:
    idle = Mock()  # no client is attached
    idle.on_connect.return_value = {"pid": os.getpid(), "clients": [], "jobs": 0, "served": 0, "idle_seconds": 1.0}
    with ControlServer(idle, secret="known") as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        there = DriverAddress(os.getpid(), server.port, server.port, "known", version, kernel=release_digest())
        there.publish(tmp_path)
        look_at = partial(driver, Settings(home=tmp_path, lake="", driver="shared"))

        (finding,) = side_by_side([Examination("driver", "shared", look_at)], seconds=60)

        server.close_all()
    assert finding.verdict is verdict
    assert (finding.found == "driver differs") == (verdict is Verdict.WRONG)


@pytest.mark.parametrize(("mode", "runs", "asked"), [("auto", True, 1), ("auto", False, 0), ("own", True, 0)])
def test_with_auto_a_driver_that_runs_is_asked_too_because_sessions_may_do_without_it(
    tmp_path: Path, mode: DriverMode, runs: bool, asked: int
) -> None:
    with only_driver(tmp_path) if runs else nullcontext():
        found = [e for e in _of_machine(Settings(home=tmp_path, lake="/lake", driver=mode), ()) if e.name == "driver"]

    assert len(found) == asked


def test_a_warm_driver_that_hangs_is_named_before_its_examination_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 * machine.DRIVER_SECONDS < ALONE_SECONDS
    monkeypatch.setattr(machine, "DRIVER_SECONDS", 0.1)
    settings = Settings(home=tmp_path, lake="", driver="shared")
    with only_driver(tmp_path), socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        DriverAddress(os.getpid(), port, port, "known", version("pyspark"), kernel=release_digest()).publish(tmp_path)

        (finding,) = side_by_side([Examination("driver", "shared", partial(driver, settings))], seconds=ALONE_SECONDS)

    assert (finding.found, finding.verdict) == ("driver hangs", Verdict.WRONG)
    assert f"kill -KILL {os.getpid()}" in str(finding.trouble)


@pytest.mark.parametrize(
    ("space", "needed_bytes", "verdict"),
    [
        (ROOMY, 0, Verdict.OK),
        (ROOMY, 30 * GIB, Verdict.WARNING),
        (ROOMY, 51 * GIB, Verdict.WRONG),
        (replace(ROOMY, free_bytes=9 * GIB), 0, Verdict.WARNING),
        (replace(ROOMY, free_bytes=GIB // 2), 0, Verdict.WRONG),
        (replace(ROOMY, free_inodes=9_000), 0, Verdict.WRONG),
        (replace(ROOMY, inodes=0, free_inodes=0), 0, Verdict.OK),
    ],
)
def test_room_is_judged_by_share_by_inodes_and_by_what_waits(space: Space, needed_bytes: int, verdict: Verdict) -> None:
    assert space_finding("lake", space, needed_bytes).verdict is verdict


def test_a_lake_too_small_for_what_waits_is_wrong_on_its_own_file_system(tmp_path: Path) -> None:
    (finding,) = disk({"lake": tmp_path / "not" / "made", "home": tmp_path}, needed_bytes=1 << 60)

    assert finding.of == "lake, home"
    assert finding.verdict is Verdict.WRONG
    assert "the backlog is about 1,048,576.0 TiB" in str(finding.trouble)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_further_root_too_small_for_what_waits_is_wrong_however_it_is_written(tmp_path: Path, scheme: str) -> None:
    settings, further = Settings(home=tmp_path / "home", lake="s3://bucket/lake"), f"{scheme}{tmp_path}/more"
    found = places(settings, [settings.lake, further], {})

    (finding,) = disk({name: path for name, path in found.items() if path == tmp_path / "more"}, needed_bytes=1 << 60)

    assert finding.verdict is Verdict.WRONG


def test_the_places_are_the_lake_if_local_the_home_and_sparks_scratch(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# none\nspark.master local\nspark.local.dir  /scratch/a,/scratch/b\n"
    )
    here = Settings(home=tmp_path / "home", lake=f"file://{tmp_path}/la%20ke")
    conf = {"SPARK_CONF_DIR": str(tmp_path)}

    assert places(here, [here.lake], {}) == {
        "lake": tmp_path / "la ke",
        "home": tmp_path / "home",
        "spark": JAVAS_TEMPORARY,
    }
    assert "lake" not in places(Settings(home=tmp_path, lake="s3a://bucket/lake"), ["s3a://bucket/lake"], {})
    assert places(replace(here, driver="shared"), [], {})["spark"] == tmp_path / "home" / "spark"
    assert places(replace(here, driver="shared"), [], {"SPARK_LOCAL_DIRS": "/first"})["spark"] == Path("/first")
    assert spark_local_dirs(conf) == [Path("/scratch/a"), Path("/scratch/b")]
    assert spark_local_dirs({**conf, "SPARK_LOCAL_DIRS": "/first"}) == [Path("/first")]


TP = TopicPartition("orders", 0)
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", Cluster("main", "localhost:9092"))
DAY = 86_400.0
WEEK = Retention(7 * DAY, None)


@pytest.mark.parametrize(
    ("lag_seconds", "time_to_loss_seconds", "verdict", "found"),
    [
        (DAY, 6 * DAY, Verdict.OK, "kept for 7 d; the backlog is"),
        (8 * DAY, float("inf"), Verdict.OK, "kept for 7 d; the backlog is"),
        (4 * DAY, 3 * DAY, Verdict.WARNING, "retention near"),
        (7 * DAY, 1.0, Verdict.WRONG, "retention near"),
        (None, None, Verdict.WARNING, "lag unknown"),
    ],
)
def test_the_verdict_is_by_the_time_that_is_left(
    lag_seconds: float | None, time_to_loss_seconds: float | None, verdict: Verdict, found: str
) -> None:
    finding = retention(STREAM, waits(100, lag_seconds, rate=1.0, loss=time_to_loss_seconds), WEEK)

    assert finding.verdict is verdict
    assert finding.found.startswith(found)


@pytest.mark.parametrize(("lag_seconds", "left"), [(4 * DAY, 3 * DAY), (None, None)])
def test_what_to_run_for_a_stream_of_kinesis_is_nothing_that_only_topics_have(
    lag_seconds: float | None, left: float | None
) -> None:
    """`kdi peek` is refused there, and no setting is called retention.ms."""
    told = [
        str(retention(stream, waits(100, lag_seconds, rate=1.0, loss=left), WEEK).trouble)
        for stream in (STREAM, replace(STREAM, cluster=KinesisRegion("eu", "eu-central-1")))
    ]

    words = ("kdi peek", "retention.ms")
    assert [any(word in text for word in words) for text in told] == [True, False]


def test_where_nothing_waits_the_retention_is_told() -> None:
    nothing = waits()

    assert retention(STREAM, nothing, WEEK).found == "kept for 7 d; no backlog"
    assert retention(STREAM, nothing, Retention(None, 3 << 30)).found == (
        "kept for ever, at most 3.0 GiB per topic partition; no backlog"
    )


def test_a_registry_that_answers_is_fine(registry: RunningRegistry, tmp_path: Path) -> None:
    (finding,) = look(registry.described(), tmp_path)

    assert (finding.examination, finding.of, finding.verdict) == ("registry", "main", Verdict.OK)
    assert finding.found.startswith("AVRO, JSON, PROTOBUF, ")
    assert finding.facts["known_schemas"] == 0


@pytest.mark.parametrize(("known", "verdict"), [(0, Verdict.WRONG), (1, Verdict.WARNING)])
def test_a_registry_that_is_down_is_a_warning_where_schemas_are_known(
    registry: RunningRegistry, tmp_path: Path, known: int, verdict: Verdict
) -> None:
    for n in range(known):
        Schemas(registry.described(), home=tmp_path).by_id(registry.register("a", f'"{n}"'))
    registry.stop()

    (finding,) = look(registry.described(), tmp_path)

    assert (finding.verdict, finding.facts) == (verdict, {"known_schemas": known})
    assert finding.found == f"registry unavailable; {known} schema{'' if known == 1 else 's'} known"
