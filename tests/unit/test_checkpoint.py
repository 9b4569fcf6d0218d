"""What is read of a Structured Streaming query's checkpoint, and what is refused there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kdi_assets.sources.checkpoint import Checkpoint, CheckpointUnfit
from kdi_assets.stream import TopicPartition

BATCH = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two batches done, a third one planned; other files beside them, as Hadoop leaves them."""
    (tmp_path / "metadata").write_text('{"id":"5f0c"}')
    for batch, end in ((8, 10), (9, 20), (10, 25)):
        write(tmp_path, batch, json.dumps({"orders": {"0": end, "1": 3}}))
        if batch < 10:
            (tmp_path / "commits").mkdir(exist_ok=True)
            (tmp_path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (tmp_path / "offsets" / ".11.0b1c.tmp").write_text("v1\n")
    return tmp_path


def write(folder: Path, batch: int, *sources: str, form: str = "v1") -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / str(batch)).write_text("\n".join((form, BATCH, *sources)))


def test_the_offsets_of_a_batch_are_where_the_next_one_begins(folder: Path) -> None:
    checkpoint = Checkpoint.read(str(folder))

    assert (checkpoint.query_id, checkpoint.planned, checkpoint.committed) == ("5f0c", 10, 9)
    assert checkpoint.offsets_behind(9) == {TopicPartition("orders", 0): 20, TopicPartition("orders", 1): 3}


def test_a_query_that_did_no_batch_yet_has_none_committed(folder: Path) -> None:
    for done in (folder / "commits").iterdir():
        done.unlink()
    (folder / "commits").rmdir()

    assert Checkpoint.read(str(folder)).committed == -1


@pytest.mark.parametrize(
    ("sources", "form", "said"),
    [
        (['{"orders":{"0":1}}'], "v2", "begins with 'v2'"),
        ([], "v1", "reads 0 sources"),
        (['{"orders":{"0":1}}', '{"orders":{"0":1}}'], "v1", "reads 2 sources"),
        (['{"logOffset":3}'], "v1", "is not Kafka"),
        (["17"], "v1", "is not Kafka"),
        (["-"], "v1", "is not Kafka"),
        (['{"orders":{"first":1}}'], "v1", "is not Kafka"),
        (['{"orders":{"0":-2}}'], "v1", "is not Kafka"),  # "latest", which is no offset
    ],
)
def test_offsets_that_are_not_understood_are_refused(folder: Path, sources: list[str], form: str, said: str) -> None:
    write(folder, 9, *sources, form=form)

    with pytest.raises(CheckpointUnfit, match=said):
        Checkpoint.read(str(folder)).offsets_behind(9)


def test_what_is_no_checkpoint_is_said_to_be_none(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnfit, match="nowhere cannot be opened"):
        Checkpoint.read(str(tmp_path / "nowhere"))
    with pytest.raises(CheckpointUnfit, match="holds no checkpoint with offsets"):
        Checkpoint.read(str(folder / "commits"))
    with pytest.raises(CheckpointUnfit, match="offsets/7 is not there"):
        Checkpoint.read(str(folder)).offsets_behind(7)

    (folder / "metadata").write_text("{}")
    with pytest.raises(CheckpointUnfit, match="does not say the query's id"):
        Checkpoint.read(str(folder))
