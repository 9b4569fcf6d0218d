"""`kdi check` asks no cluster: which Spark it opens, without opening one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kdi_assets.cli.documents import check
from kdi_assets.documents.loading.loader import read_streams


def test_spark_is_local_whatever_master_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Purpose: only Spark's analysis is needed; on YARN, `kdi check` waited for an application."""
    masters: list[str] = []

    class Opened(Exception):
        pass

    def lazy_session(command: str, *, as_json: bool, settings: Any) -> None:
        masters.append(settings.spark_master)
        raise Opened

    monkeypatch.setenv("KDI_SPARK_MASTER", "yarn")
    monkeypatch.setattr(check, "lazy_session", lazy_session)

    with pytest.raises(Opened):
        check.check_with_spark(read_streams(tmp_path), as_json=False)

    assert masters == ["local[1]"]
