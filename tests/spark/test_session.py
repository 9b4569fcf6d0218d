"""Sessions in a JVM of the same process."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from kdi_assets.resources.spark import SparkResource
from kdi_assets.runtime.errors import JarMissing, OtherDriverOpen
from kdi_assets.runtime.spark import close_session, is_open, open_session, use_in_thread
from kdi_assets.runtime.spark_config import SESSION_CONFIG, lake_config
from kdi_assets.runtime.spark_internals import jvm_type, jvm_view
from kdi_assets.runtime.spark_jvm import jvm_of, start_spark
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import QUICK_START


@pytest.fixture(autouse=True)
def _session_of_the_other_tests(spark: SparkSession) -> Iterator[None]:
    """These tests open sessions beside that of the test process; afterwards that one is active again."""
    yield
    use_in_thread(spark)


@pytest.mark.core
def test_a_session_has_what_the_engine_needs(settings: Settings) -> None:
    session = open_session(settings)

    assert {key: session.conf.get(key, None) for key in SESSION_CONFIG} == dict(SESSION_CONFIG)
    assert "spark.master" not in SESSION_CONFIG
    assert session.sql("SELECT current_timezone(), try_add(2147483647, 1)").first() == ("UTC", None)


def test_the_compiler_of_queries_is_the_copy_without_a_signature(spark: SparkSession) -> None:
    """Of a signed class, Java checks the signature at each start, and no class-data archive has it."""
    java = jvm_view(spark).java.lang
    of_spark = java.Thread.currentThread().getContextClassLoader()

    spark.range(3).selectExpr("id * 2").collect()

    for name in ("org.codehaus.janino.Java", "org.codehaus.commons.compiler.Location"):
        compiler = java.Class.forName(name, False, of_spark)
        assert compiler.getSigners() is None
        assert "-unsigned.jar" in compiler.getProtectionDomain().getCodeSource().getLocation().toString()


def test_the_jvm_tells_why_in_english_whatever_the_language_of_its_user(spark: SparkSession) -> None:
    """A store of commits reads in words why a file system refuses a link."""
    said = jvm_view(spark).java.lang.System.getenv

    assert (said("LC_MESSAGES"), said("LC_ALL") or "") == ("C", "")


def test_a_callers_setting_goes_before_the_engines_and_stays_in_its_session(settings: Settings) -> None:
    theirs = open_session(settings, config={"spark.sql.shuffle.partitions": "3"})
    ours = open_session(settings)

    assert theirs.conf.get("spark.sql.shuffle.partitions") == "3"
    assert ours.conf.get("spark.sql.shuffle.partitions") == SESSION_CONFIG["spark.sql.shuffle.partitions"]


def test_a_setting_that_needs_a_new_jvm_is_warned_about(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        open_session(settings, config={"spark.sql.extensions": "another.Extension"})

    assert "spark.sql.extensions stays" in caplog.text
    assert "another.Extension" in caplog.text


def test_a_closed_session_leaves_the_jvm_to_the_next_one(settings: Settings, spark: SparkSession) -> None:
    session = open_session(settings)

    close_session(session)

    assert jvm_of(spark).poll() is None
    assert open_session(settings).range(1).count() == 1


def test_the_process_cannot_be_attached_while_it_has_a_jvm(settings: Settings) -> None:
    with pytest.raises(OtherDriverOpen, match="already owns a JVM"):
        open_session(replace(settings, driver="shared"))


def test_the_jvm_of_a_local_master_listens_on_the_loopback_alone(spark: SparkSession) -> None:
    listening = [c.laddr.ip for c in psutil.Process(jvm_of(spark).pid).net_connections() if c.status == "LISTEN"]

    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_files_of_this_machine_get_their_permissions_without_a_process(spark: SparkSession, tmp_path: Path) -> None:
    """Pass: they are those that Hadoop's own class gives, which starts ``chmod``, also below a folder whose group owns
    what is in it; and no file is replaced.
    """
    tmp_path.chmod(0o2755)
    hadoop, settings = jvm_view(spark).org.apache.hadoop.fs, hadoop_settings(spark)
    rights, uri = hadoop.permission.FsPermission, hadoop.Path(f"file:{tmp_path}").toUri()
    found, stock = [], hadoop.LocalFileSystem()
    stock.initialize(uri, settings)
    for name, files in (("ours", hadoop.FileSystem.get(uri, settings)), ("hadoop's", stock)):
        file, given = (hadoop.Path(f"{tmp_path}/{name}/new/{last}") for last in ("file", "given"))
        files.create(file).close()
        sticky = hadoop.Path(f"{tmp_path}/{name}/shared")
        files.mkdirs(sticky, rights("777"))
        files.setPermission(sticky, rights("1770"))
        files.create(given).close()
        files.setPermission(given, rights("640"))
        below = tmp_path / name
        found.append({str(path.relative_to(below)): oct(path.stat().st_mode) for path in below.rglob("*")})
        if name == "ours":
            assert files.getRaw().getClass().getName() == "kdi.storage.LocalFiles$Raw"
            assert not files.rename(file, given), "a file is replaced"

    ours, hadoops = found
    assert ours == hadoops


def test_the_file_beside_a_commit_in_a_folder_is_renamed_without_a_process(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's usual class asks a process of its own, eight times, whether the names are links."""
    path = jvm_view(spark).org.apache.hadoop.fs.Path(str(tmp_path))
    managers = jvm_view(spark).org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    for name, value in lake_config(Settings(tmp_path, lake=str(tmp_path))).items():  # the session may be one for S3
        settings.set(name, value)

    manager = managers.create(path, settings)

    assert manager.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"


def hadoop_settings(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.hadoopConfiguration()


def test_ctrl_c_stays_with_whoever_had_it(spark: SparkSession) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_jvm_is_asked_once_what_a_package_a_class_and_a_static_method_is(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pass: the second time of the same work asks for nothing that the first has asked for."""
    asked: list[str] = []

    def hear(kind: type[JVMView | JavaPackage | JavaClass]) -> None:
        ask = kind.__getattr__

        def heard(self: Any, name: str) -> object:
            asked.append(name)
            return ask(self, name)

        monkeypatch.setattr(kind, "__getattr__", heard)

    def work() -> Row | None:
        java = jvm_view(spark).java
        types = jvm_type(spark, "id bigint"), java.util.ArrayList(), java.lang.Thread.State.NEW
        assert [str(t) for t in types] == ["StructType(StructField(id,LongType,true))", "[]", "NEW"]
        return spark.range(3).where(F.col("id") > F.lit(1)).select(F.expr("id + 1 AS id")).first()

    open_session(settings)
    for kind in (JVMView, JavaPackage, JavaClass):
        hear(kind)

    assert (work(), len(asked) > 0) == ((3,), True)
    asked.clear()
    assert work() == (3,)
    assert set(asked) <= {"NEW"}, "the value of a static field may change"


def test_python_workers_run_on_the_interpreter_of_the_process(spark: SparkSession) -> None:
    executables = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("sys").executable).collect()

    assert executables == [sys.executable]


def test_without_the_locked_jars_nothing_is_started(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(JarMissing, match="kdi jars"):
        start_spark(replace(settings, home=tmp_path), config={}, app_name="none")


def run_python(settings: Settings, body: str) -> subprocess.CompletedProcess[str]:
    """A separate process that may stop its JVM."""
    imports = "from kdi_assets.runtime.spark_jvm import SparkDidNotStart, jvm_of\n"
    imports += "from kdi_assets.runtime.spark import is_open, open_session\n"
    imports += "from kdi_assets.settings import Settings\nsettings = Settings.from_environment()\n"
    environment = {
        "KDI_HOME": str(settings.home),
        "KDI_SPARK_MASTER": "local[2]",
        "PATH": os.environ["PATH"],
        "SPARK_SUBMIT_OPTS": " ".join(QUICK_START),
    }
    command = [sys.executable, "-c", imports + body]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def test_a_jvm_that_does_not_start_is_an_error_that_says_where_to_look(settings: Settings) -> None:
    told = run_python(
        settings,
        """
try:
    open_session(settings, config={"spark.driver.extraJavaOptions": "--add-modules=no.such.module"})
except SparkDidNotStart as refusal:
    print(refusal)
""",
    )

    assert "Spark's JVM ended before it answered" in told.stdout
    assert "the output above says why" in told.stdout
    assert "no.such.module" in told.stderr


def test_a_stopped_jvm_is_followed_by_a_new_one_and_a_session_ends_with_its_jvm(settings: Settings) -> None:
    told = run_python(
        settings,
        """
first = open_session(settings)
jvm = jvm_of(first)
first.stop()
second = open_session(settings)
print(jvm.poll() is not None, second.range(3).count(), is_open(second))
jvm_of(second).kill()
jvm_of(second).wait()
print(is_open(second))
""",
    )

    assert told.stdout == "True 3 True\nFalse\n"


def test_a_start_that_ends_while_it_looks_for_the_lake_leaves_no_jvm(settings: Settings) -> None:
    """Purpose: on a cluster it asks an executor; meanwhile Spark may stop, or someone press Ctrl+C."""
    told = run_python(
        settings,
        """
from kdi_assets.runtime import spark_jvm
jvms = []
def interrupted(session, lake):
    jvms.append(jvm_of(session))
    raise KeyboardInterrupt
spark_jvm.refuse_path_of_other_file_system = interrupted
try:
    open_session(settings)
except KeyboardInterrupt:
    print(jvms[0].poll() is not None)
""",
    )

    assert told.stdout == "True\n"


def test_one_run_has_one_session_and_the_next_run_another_in_the_same_jvm(spark: SparkSession) -> None:
    seen: list[SparkSession] = []

    @dg.asset
    def first(spark: SparkResource) -> None:
        seen.append(spark.session())

    @dg.asset(deps=[first])
    def second(spark: SparkResource) -> None:
        in_a_thread = threading.Thread(target=lambda: seen.append(spark.session()))
        in_a_thread.start()
        in_a_thread.join()

    resource = SparkResource(spark_config={"spark": {"sql": {"ansi": {"enabled": False}}}})
    for _ in range(2):
        dg.materialize([first, second], resources={"spark": resource})

    assert seen[0] is seen[1]
    assert seen[2] is seen[3] is not seen[0]
    assert all(is_open(session) and session.sparkContext is spark.sparkContext for session in seen)
    assert seen[0].conf.get("spark.sql.ansi.enabled") == "false"


def test_a_run_that_asks_for_no_session_opens_none(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    @dg.asset
    def needs_none(spark: SparkResource) -> None:
        assert callable(spark.session)

    monkeypatch.setenv("KDI_DRIVER", "shared")  # opening would fail: the process cannot be attached
    assert dg.materialize([needs_none], resources={"spark": SparkResource()}).success
