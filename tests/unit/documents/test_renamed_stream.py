"""A stream whose document was renamed, and whose tables are at the old place."""

from __future__ import annotations

import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kdi_assets.delta.errors import TableNotMoved
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Cluster, Stream, TopicPartition
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.streams.drain.snapshot import fresh_ledger


def test_the_commands_of_the_refusal_move_all_tables_and_the_streams_own_last(tmp_path: Path) -> None:
    """As long as the stream's table is at the old place, a drain refuses and names what is left to move."""
    main = Cluster("main", "nowhere:1")
    renamed = Stream("orders", "bronze/new", "a int", "x", main, renamed_from="bronze/old")
    former = ("", "_dead_letters", "_erased")
    for end in former:
        write_deltalake(tmp_path / f"bronze/old{end}", pa.table({"id": [1]}))

    with pytest.raises(TableNotMoved) as refused:
        fresh_ledger(
            renamed,
            str(tmp_path),
            TopicState("orders", "topic-id", {TopicPartition("orders", 0): BrokerOffsets(0, 3, 3)}),
        )
    commands = refused.value.message_parts()[2].split("; then ")
    for command in commands:
        _, old, new = shlex.split(command)
        Path(old).rename(new)

    assert [Path(command).name for command in commands] == ["new_dead_letters", "new_erased", "new"]
    assert all(TableLog.open(renamed.table_uri(str(tmp_path)) + end) for end in former)
