"""A lake in an S3 bucket: the same drains, with commits by conditional put."""

from __future__ import annotations

import pytest

from tests.conftest import DrivenFactory


@pytest.fixture
def lake(s3_lake: str) -> str:
    """The lake of these tests' streams."""
    return s3_lake


@pytest.mark.core
def test_each_message_is_once_in_the_table_or_the_dead_letters_of_a_lake_on_s3(driven: DrivenFactory) -> None:
    web = driven()
    web.produce(200, bad=0.1, seed=1)

    first = web.drain()
    produced = web.produce(100, bad=0.1, seed=2)
    second = web.drain()

    web.assert_each_offset_once(produced)
    assert first.rows_added > second.rows_added > 0
    assert first.dead_letters > 0 < second.dead_letters
    assert web.uri.startswith("s3://")
