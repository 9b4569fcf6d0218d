"""`kdi doctor` looks for the files that Spark's settings for YARN name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.operate.doctor.finding import Verdict
from kdi_assets.operate.doctor.yarn_files import yarn_files


def environment(folder: Path, *settings: str) -> dict[str, str]:
    (folder / "spark-defaults.conf").write_text("".join(f"{line}\n" for line in settings))
    return {"SPARK_CONF_DIR": str(folder)}


def test_each_missing_file_of_this_machine_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "there.jar").touch()
    there, gone = tmp_path / "there.jar", tmp_path / "gone.tar.gz"

    found = list(
        yarn_files(environment(tmp_path, f"spark.jars {there}", f"spark.archives file://{gone}#kdi, {there}#it"))
    )

    assert [(f.verdict, f.facts) for f in found] == [
        (Verdict.WRONG, {"setting": "spark.archives", "uri": f"file://{gone}"})
    ]
    assert f"spark.archives names file://{gone}, which is not there." in str(found[0].trouble)


@pytest.mark.parametrize(("pattern", "verdict"), [("*.jar", Verdict.OK), ("*.zip", Verdict.WRONG)])
def test_a_pattern_needs_one_file(tmp_path: Path, pattern: str, verdict: Verdict) -> None:
    (tmp_path / "there.jar").touch()

    (found,) = yarn_files(environment(tmp_path, f"spark.yarn.jars {tmp_path}/{pattern}"))

    assert found.verdict is verdict


@pytest.mark.parametrize("settings", [(), ("spark.yarn.jars local:/opt/spark/jars/*",), ("spark.files s3://b/f",)])
def test_files_that_only_the_cluster_sees_are_not_looked_for(tmp_path: Path, settings: tuple[str, ...]) -> None:
    assert list(yarn_files(environment(tmp_path, *settings))) == []
