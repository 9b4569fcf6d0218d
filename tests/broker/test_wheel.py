"""The wheel in an empty environment, as `docs/install.md` says it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from deltalake import DeltaTable

from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import Broker
from tests.conftest import CHECKOUT
from tests.deployment.installed import build_wheel, build_wheel_of_sdist, install_alone

DONE_BEFORE = ("python3 -m venv", "venv/bin/pip install", "kdi broker run")
"""Commands of the page that the test replaces: no network, and its own broker."""


def commands() -> Iterator[str]:
    """The page's commands, from the empty environment to the first drain."""
    page = (CHECKOUT / "docs" / "install.md").read_text()
    section = page.partition("## In an empty environment")[2].partition("\n## ")[0]
    for block in re.findall(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
        yield "".join(line for line in block.splitlines(True) if not line.startswith(DONE_BEFORE))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_one_package_with_all_files_and_no_documents(wheel: Path, tmp_path: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    of_sdist = set(ZipFile(build_wheel_of_sdist(tmp_path)).namelist())

    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"kdi_assets"}
    assert names == of_sdist
    assert {"kdi_assets/sensors/lag.py", "kdi_assets/resources/code_server.py", "kdi_assets/py.typed"} <= names
    sources = {str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "kdi_assets" / "jvm").rglob("*.java")}
    assert sources <= names
    assert [name for name in names if name.startswith("kdi_assets/defs")] == []


def test_the_page_leads_from_an_empty_environment_to_the_first_drain(
    wheel: Path, tmp_path: Path, settings: Settings, own_broker: Broker
) -> None:
    install_alone(wheel, tmp_path / "venv")
    (tmp_path / ".kdi").mkdir()
    shutil.copytree(settings.home / "jars", tmp_path / ".kdi" / "jars", copy_function=os.link)
    variables = {name: os.environ[name] for name in ("HOME", "LANG", "JAVA_HOME") if name in os.environ}
    variables |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "KDI_KAFKA": own_broker.bootstrap_servers}

    ran = subprocess.run(
        ["bash", "-e"],
        input="".join(commands()).replace("kdi jars", "kdi jars --no-archive"),
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (
        DeltaTable(str(tmp_path / ".kdi" / "lake" / "bronze" / "web_requests")).to_pyarrow_dataset().count_rows()
        == 10_000
    )
