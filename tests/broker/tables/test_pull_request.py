"""The job of a pull request that `examples/environments` has: what it lets through, refuses and leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree

import pytest

from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import Broker
from tests.conftest import CHECKOUT, TopicFactory
from tests.documents import written
from tests.kafka_log import Publisher
from tests.typed import Kdi

EXAMPLE = CHECKOUT / "examples" / "environments"
COPIED = "KDI_LAKE KDI_KAFKA DAGSTER_HOME KAFKA_BROKERS START_AT".split()
RETURNS = """type: kdi_assets.components.TopicTable
attributes:
  topic: {topic}
  table: bronze/returns
  lake: "{{{{ env.FINANCE_LAKE }}}}"
  schema: "id bigint"
  date: current_date()
  start: "{{{{ env('START_AT', 'earliest') }}}}"
---
type: kdi_assets.components.RefinedTable
attributes: {{table: silver/returns, from: bronze/returns}}
"""


@pytest.fixture
def project(tmp_path: Path, topic: TopicFactory, producer: Publisher) -> Path:
    """A copy of the example, with a new stream of another lake and a refined table; both topics have a few messages."""
    project = copytree(EXAMPLE, tmp_path / "project")
    orders, returns = topic(), topic()
    written(project / "streams", returns=RETURNS.format(topic=returns))
    producer.produce(returns, json.dumps({"id": 1}))
    edit(project, "topic: orders", f"topic: {orders}")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    for number in range(40):
        producer.produce(orders, json.dumps({"id": number, "customer": "c", "amount": "3.50", "at": at}))
    producer.flush()
    return project


def edit(project: Path, was: str, is_now: str) -> None:
    document = project / "streams" / "orders" / "defs.yaml"
    assert was in document.read_text()
    document.write_text(document.read_text().replace(was, is_now))


def pull_request(project: Path, broker: Broker, lake: str, settings: Settings) -> subprocess.CompletedProcess[str]:
    """The job's script, in an environment of nothing but its own variables."""
    environment = {name: value for name, value in os.environ.items() if name not in COPIED}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT),
        "KDI_HOME": str(settings.home),
        "KDI_DEFS": str(project / "streams"),
        "KDI_SPARK_MASTER": settings.spark_master,
        "STAGING_BROKERS": broker.bootstrap_servers,
        "PRODUCTION_BROKERS": broker.bootstrap_servers,
        "PRODUCTION_LAKE": lake,
    }
    return subprocess.run(
        ["./pull_request.sh"], cwd=project, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


def files_of(lake: str) -> dict[Path, int]:
    """Every file of the lake, and when it was written."""
    return {path: path.stat().st_mtime_ns for path in Path(lake).rglob("*") if path.is_file()}


def test_the_job_lets_a_document_through_that_production_can_take_and_refuses_another_type_of_a_column(
    project: Path,
    broker: Broker,
    lake: str,
    settings: Settings,
    environment: Settings,
    kdi: Kdi,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Purpose: what a company copies must work, and must not write into production.
    Procedure: drain production's table; run the job; change the type of a column; run it again.
    Pass: the first job drains the messages into a lake of its own and ends with 0, although the refined table has no
    upstream table yet; the second one ends with 1 and names the column, although all checks of its own drain passed;
    production has the same files as before, and none in the lake that the new document names.
    """
    finance = project / "finance"
    monkeypatch.setenv("FINANCE_LAKE", str(finance))
    monkeypatch.setenv("KDI_DEFS", str(project / "streams"))
    monkeypatch.setenv("KAFKA_BROKERS", broker.bootstrap_servers)
    assert kdi("drain", "bronze/orders").code == 0
    before = files_of(lake)

    passed = pull_request(project, broker, lake, settings)
    edit(project, "amount decimal(12,2)", "amount string")
    refused = pull_request(project, broker, lake, settings)

    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "40 offsets drained" in passed.stdout and "bronze/orders: nothing to drain" in passed.stdout
    assert "1 offset drained" in passed.stdout
    assert "silver/returns: not begun: bronze/returns does not exist yet" in passed.stdout
    assert "40 offsets drained" in refused.stdout
    assert refused.returncode == 1
    assert "column amount is decimal(12,2) in the table and string in the stream" in refused.stdout + refused.stderr
    assert before and files_of(lake) == before
    assert not finance.exists()
