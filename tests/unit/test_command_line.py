"""The `kdi` command as a shell sees it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from kdi_assets.cli.main import app

HEAVY = {"confluent_kafka", "dagster", "deltalake", "pandas", "pyarrow", "pyspark"}
OF_NEW = (
    "import kdi_assets.cli.new, kdi_assets.proposal.document, kdi_assets.proposal.place, kdi_assets.proposal.registered"
)


@pytest.mark.parametrize(
    "program",
    [
        "import kdi_assets.cli.main",
        "from kdi_assets.components.load import load_streams; assert load_streams()",
        OF_NEW,
    ],
    ids=["help", "the documents", "kdi new"],
)
def test_what_must_answer_at_once_loads_none_of_the_heavy_packages(program: str) -> None:
    """They are what would push `kdi --help` beyond its half second."""
    script = f"import sys; {program}; print({HEAVY} & sys.modules.keys())"

    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert answer.stdout == "set()\n"


def test_help_names_the_exit_codes() -> None:
    answer = CliRunner().invoke(app, ["--help"])

    assert "0 done, 1 someone must decide, 2 usage, 75 a retry helps" in " ".join(answer.stdout.split())
