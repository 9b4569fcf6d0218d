"""A log that has moved on is told from one that has not, without opening the table."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kdi_assets.ledger.marks import LogMarks
from tests.unit.test_reconcile_table_log import commit


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "orders")


def test_a_mark_names_the_newest_commit_however_many_came_since(uri: str) -> None:
    marks = LogMarks()
    commit(uri)
    first = marks.of(uri, since=0)
    commit(uri)
    commit(uri)

    found = marks.of(uri, since=0)

    assert first is not None
    assert found is not None
    assert (first.version, found.version) == (0, 2)
    assert marks.of(uri, since=2) == found == marks.of(uri, since=0)


def test_a_table_made_anew_has_another_mark_at_the_same_version(uri: str) -> None:
    marks = LogMarks()
    commit(uri)
    before = marks.of(uri, since=0)
    shutil.rmtree(uri)
    commit(uri, rows=2)

    assert marks.of(uri, since=0) != before


def test_a_log_that_does_not_reach_so_far_has_no_mark(uri: str) -> None:
    assert LogMarks().of(uri, since=0) is None
    commit(uri)
    assert LogMarks().of(uri, since=1) is None


def test_an_address_gives_the_same_answers_as_a_path(uri: str) -> None:
    commit(uri)
    commit(uri)

    by_path, by_address = LogMarks().of(uri, since=0), LogMarks().of(Path(uri).as_uri(), since=0)

    assert by_path is not None
    assert by_address is not None
    assert (by_address.version, by_address.size) == (by_path.version, by_path.size)
    assert by_address.written == pytest.approx(os.stat(f"{uri}/_delta_log/{1:020}.json").st_mtime, abs=1e-3)


def test_a_long_way_is_gone_a_piece_at_a_time(uri: str) -> None:
    for _ in range(5):
        commit(uri)

    found = LogMarks().of(uri, since=0, most=2)

    assert found is not None
    assert found.version == 2
