"""A log that has moved on is told from one that has not, without opening the table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kdi_assets.ledger.marks import LogMarks
from tests.unit.test_reconcile_table_log import commit


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "orders")


def test_an_address_gives_the_same_answers_as_a_path(uri: str) -> None:
    commit(uri)
    commit(uri)

    by_path, by_address = LogMarks().of(uri, since=0), LogMarks().of(Path(uri).as_uri(), since=0)

    assert by_path is not None
    assert by_address is not None
    assert (by_address.version, by_address.size) == (by_path.version, by_path.size)
    assert by_address.written == pytest.approx(os.stat(f"{uri}/_delta_log/{1:020}.json").st_mtime, abs=1e-3)
