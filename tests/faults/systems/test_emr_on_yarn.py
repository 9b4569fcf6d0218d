"""A batch on EMR from end to end: EMR's calls on a server of the tests, the steps' own command lines on a real YARN."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from kdi_assets.components.names import table_key
from kdi_assets.delta.storage import open_delta_table
from kdi_assets.documents.loading.loader import load_folder
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.sensors.emr_batch import emr_batch
from kdi_assets.sensors.lag import lag_sensors
from tests.conftest import CHECKOUT, TopicFactory
from tests.driven import web_requests_document
from tests.emr.control_plane import ControlPlane, in_a_process, serving
from tests.emr.declared import batch, environment
from tests.faults.systems.cluster_driver import JVM_OPTIONS, DrivenByCluster, no_session
from tests.faults.systems.test_yarn import ON_YARN, hadoop, lake  # noqa: F401
from tests.hadoop.mini_cluster import MiniCluster
from tests.kafka_log import Publisher

HOSTS = """type: kdi_assets.components.RefinedTable
attributes:
  table: gold/hosts
  from: {table}
  mode: {{aggregate: {{by: [date, host], measures: {{n: count}}}}}}
"""


@pytest.fixture
def primary_node(hadoop: MiniCluster, topic: TopicFactory, cluster: Cluster, tmp_path: Path) -> Path:  # noqa: F811
    """The folder that the bootstrap action unpacks, with the documents of a stream and of a table made of it."""
    node, name = tmp_path / "opt", topic(2)
    (node / "spark").mkdir(parents=True)
    shutil.copy(CHECKOUT / "deploy" / "emr" / "kdi", node)
    (node / "venv").symlink_to(sys.prefix)
    (node / "home").symlink_to(CHECKOUT / ".kdi")
    settings = {**ON_YARN, "spark.executor.instances": "1"}
    (node / "spark" / "spark-defaults.conf").write_text("".join(f"{k} {v}\n" for k, v in settings.items()))
    broker = f"{{name: main, bootstrap_servers: '{cluster.bootstrap_servers}'}}"
    documents = {
        "main": f"type: kdi_assets.components.KafkaCluster\nattributes: {broker}\n",
        "web": web_requests_document(name),
        "hosts": HOSTS.format(table=f"bronze/{name}"),
    }
    for folder, document in documents.items():
        (node / "documents" / folder).mkdir(parents=True)
        (node / "documents" / folder / "defs.yaml").write_text(document)
    return node


@pytest.fixture
def plane(lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:  # noqa: F811
    """EMR, whose steps run here."""
    with serving(ControlPlane(run_step=in_a_process(tmp_path / "steps.log"))) as plane:
        for name, value in {**environment(plane.endpoint), "KDI_LAKE": lake}.items():
            monkeypatch.setenv(name, value)
        yield plane


def test_a_batch_drains_and_refines_on_the_yarn_of_its_cluster_and_dagster_shows_what_it_committed(
    hadoop: MiniCluster,  # noqa: F811
    primary_node: Path,
    plane: ControlPlane,
    lake: str,  # noqa: F811
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    """Purpose: nothing but the asset of the batch is run, and every message is in its table once, with its event.
    Procedure: produce good and bad messages; materialize the batch, whose cluster carries out the steps' command
    lines; once more with more messages; a tick of the lag sensor.
    Pass: each offset exactly once, byte for byte; the refined table has all rows; two clusters, both ended; the
    table's dates have materializations, which say that no run of Dagster made them.
    """
    (stream,) = load_folder(primary_node / "documents").streams.values()
    web = DrivenByCluster(stream, lake, Publisher(cluster.bootstrap_servers), no_session)
    variables = {"HADOOP_CONF_DIR": str(hadoop.configuration), **JVM_OPTIONS}
    on_yarn = batch(kdi=str(primary_node / "kdi"), environment=variables, most_minutes=10)
    job = emr_batch(on_yarn, poll_seconds=0.5).get_repository_def().get_implicit_global_asset_job_def()
    (lag,) = lag_sensors([stream])

    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        for seed in (1, 2):
            produced = web.produce(200, bad=0.1, tombstones=0.02, seed=seed)
            ran = job.execute_in_process(instance=instance, raise_on_error=False)
            assert ran.success, (tmp_path / "steps.log").read_text()[-5000:]
        ticked = lag(dg.build_sensor_context(instance=instance))

    assert plane.states() == ["TERMINATED", "TERMINATED"]
    web.assert_each_offset_once(produced)
    counted = open_delta_table(f"{lake}/gold/hosts").to_pyarrow_table()
    assert sum(counted["n"].to_pylist()) == len(web.rows()) > 0
    assert isinstance(ticked, dg.SensorResult)
    materialized = [
        e for e in ticked.asset_events if isinstance(e, dg.AssetMaterialization) and e.asset_key == table_key(stream)
    ]
    days = open_delta_table(web.uri).to_pyarrow_table(columns=["date"])["date"].to_pylist()
    assert Counter(e.partition for e in materialized) == {day.isoformat(): 2 for day in set(days)}
    assert {e.metadata["drained_by"].value for e in materialized} == {"a drain without Dagster"}
    assert hadoop.waiting_applications() == []
