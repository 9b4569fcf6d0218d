"""The gate of a pipeline: what stops it, and what it drains."""

from __future__ import annotations

from pathlib import Path

import pytest
from dagster import DagsterInstance
from typer.testing import CliRunner

from kdi_assets.checks import subject
from kdi_assets.cli.main import app
from kdi_assets.components import gate
from kdi_assets.drain.refusals import RetentionPassedPosition
from kdi_assets.errors import KdiError
from tests.dagster.fakes import UNREACHABLE, ScriptedDrain, a_backlog
from tests.documents import written
from tests.table_by_hand import TP, TableByHand, orders

pytestmark = pytest.mark.usefixtures("lake_in_environment")

LOST = RetentionPassedPosition(stream="bronze/orders", topic_partition=TP, position=0, earliest=7)
DOCUMENT = """
type: kdi_assets.components.TopicTable
attributes: {{topic: {table}, table: bronze/{table}, schema: id bigint, date: current_date(), status: {status}}}
"""


@pytest.mark.parametrize(("refusal", "checks_made"), [(UNREACHABLE, 0), (LOST, 5)])
def test_a_drain_that_is_refused_fails_the_gate_with_its_reason(
    table: TableByHand,
    instance: DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    refusal: KdiError,
    checks_made: int,
) -> None:
    monkeypatch.setattr(gate, "drain", ScriptedDrain(ending=refusal))
    monkeypatch.setattr(subject, "look", lambda stream, lake: a_backlog(stream, 0))

    refused = gate.through_gate(orders(), instance, drains=True, costly=False)
    checked = gate.through_gate(orders(), instance, drains=False, costly=False)

    assert not refused.passed and refused.failure == str(refusal)
    assert len(refused.outcomes) == checks_made
    assert checked.passed and [o.level for o in checked.outcomes] == ["passed"] * 5


@pytest.mark.parametrize(
    ("named", "drained"),
    [
        ([], ["bronze/runs"]),
        (["rests", "ended"], ["bronze/rests"]),
        (["runs", "--no-drain"], []),
    ],
)
def test_the_gate_drains_a_paused_stream_only_if_it_is_named_and_a_retired_one_never(
    defs: Path, lake: str, monkeypatch: pytest.MonkeyPatch, named: list[str], drained: list[str]
) -> None:
    drain = ScriptedDrain()
    monkeypatch.setattr(gate, "drain", drain)
    monkeypatch.setattr(subject, "look", lambda stream, lake: a_backlog(stream, 0))
    monkeypatch.setenv("KDI_KAFKA", "127.0.0.1:1")
    statuses = {"runs": "active", "rests": "paused", "ended": "retired"}
    written(defs, **{table: DOCUMENT.format(table=table, status=status) for table, status in statuses.items()})

    answer = CliRunner().invoke(app, ["check-assets", "--cheap", "--defs", str(defs), *named])

    assert answer.exit_code == 0, answer.output
    assert drain.streams == drained
    assert len(answer.stdout.splitlines()) > 4, "the checks of the others are made all the same"
