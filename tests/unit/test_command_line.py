"""The `kdi` command as a shell sees it."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("confluent_kafka", "dagster", "deltalake", "pandas", "pyarrow", "pyspark")


def test_help_loads_none_of_the_heavy_packages() -> None:
    """They are what would push `kdi --help` beyond its half second."""
    script = f"import sys; import kdi_assets.cli.main; print([m for m in {HEAVY} if m in sys.modules])"

    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert answer.stdout == "[]\n"


def test_help_names_the_exit_codes() -> None:
    script = "from kdi_assets.cli.main import main; main()"

    answer = subprocess.run(
        [sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=True, timeout=60
    )

    assert "0 done, 1 someone must decide, 2 usage, 75 a retry helps" in " ".join(answer.stdout.split())
