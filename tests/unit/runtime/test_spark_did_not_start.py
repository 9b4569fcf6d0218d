"""What the error of a JVM that ended before it answered quotes of the JVM's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.runtime.spark_jvm import last_line

REFUSED = 'Exception in thread "main" org.apache.spark.SparkException: HADOOP_CONF_DIR must be set.'
CAUSE = "Caused by: java.lang.ClassNotFoundException: no.such.Class"
FRAMES = "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)\n"


@pytest.mark.parametrize(
    ("output", "quoted"),
    [
        (f"WARN Utils: a warning\n{REFUSED}\n{FRAMES}{FRAMES}", REFUSED),
        (f"{REFUSED}\n{FRAMES}{CAUSE}\n{FRAMES}\t... 12 more\n\n", CAUSE),
        ("Error occurred during initialization of VM\nToo small maximum heap\n", "Too small maximum heap"),
        ("", "no output"),
    ],
)
def test_the_error_is_quoted_and_not_a_line_of_its_stack_trace(tmp_path: Path, output: str, quoted: str) -> None:
    log = tmp_path / "drain.log"
    log.write_text(output)

    with log.open("rb") as written:
        assert last_line(written) == f"{quoted} ({log} has all of it)"
