"""What `kdi peek` shows of a stream of Kinesis without reading a record."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kdi_assets.cli.streams.peeked_ranges import Wanted, searched
from tests.kinesis.drains import described
from tests.kinesis.shard import OneShard


def nobody() -> NoReturn:
    raise AssertionError("no session is needed")


def test_a_table_that_somebody_made_is_shown_as_the_first_drain_would_begin_it(
    shard: OneShard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: create a Delta table without a ledger; nothing is on the stream."""
    stream = described(tmp_path / "defs", shard.server, {"stream_name": "s"})
    monkeypatch.setenv("KDI_LAKE", str(tmp_path / "lake"))
    columns = pa.schema([("id", pa.int64()), ("date", pa.date32())])
    write_deltalake(stream.table_uri(str(tmp_path / "lake")), pa.Table.from_pylist([], columns))

    with searched(stream, nobody, Wanted(3)) as there:
        assert not there.windows
