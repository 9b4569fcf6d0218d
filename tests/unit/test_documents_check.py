"""`kdi check` before Spark comes in."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from kdi_assets.cli.check import check

WRONG = """type: kdi_assets.components.TopicTable
attributes:
  topic: orders
  tabel: bronze/orders
  schema: id bigint
  date: current_date()
"""


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(check)
    return CliRunner().invoke(app, arguments)


def test_wrong_documents_are_said_line_by_line_with_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "defs.yaml").write_text(WRONG, encoding="utf-8")

    result = run("--defs", str(tmp_path))

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{tmp_path}/defs.yaml:2 cluster: no KafkaCluster document is named 'main'; add one, or set KDI_KAFKA for main",
        f"{tmp_path}/defs.yaml:2 table: is missing; e.g. table: bronze/web_requests",
        f"{tmp_path}/defs.yaml:4 tabel: no such field; did you mean table?",
        "streams: 0, mistakes: 3",
    ]


def test_json_holds_file_line_field_and_what_would_be_right(tmp_path: Path) -> None:
    (tmp_path / "defs.yaml").write_text(WRONG.replace("tabel", "table"), encoding="utf-8")

    result = run("--defs", str(tmp_path), "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "streams": [],
        "mistakes": [
            {
                "file": f"{tmp_path}/defs.yaml",
                "line": 2,
                "field": "cluster",
                "message": "no KafkaCluster document is named 'main'",
                "right": "add one, or set KDI_KAFKA for main",
            }
        ],
    }
