"""Another table in the place of the stream's: dropped, replaced, cloned, during a drain and while nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from kdi_assets.delta.errors import NotADeltaTable, PlannedTableGone
from kdi_assets.streams.drain.plan_errors import RowsWithoutPositions, TableReplaced
from kdi_assets.streams.resolve.errors import NothingToResolve
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import DrivenStream, Once
from tests.faults import others

pytestmark = pytest.mark.scenario("table replaced, dropped or cloned")


@pytest.mark.parametrize(
    ("interference", "point"),
    [
        (others.replace, "before reading"),
        pytest.param(others.replace, "accounted for", marks=pytest.mark.core),
        (others.clone, "files written"),
    ],
)
def test_a_table_that_takes_the_place_under_a_drain_gets_no_row_until_someone_adopts_it(
    driven: DrivenFactory, interference: Callable[[DrivenStream], None], point: str
) -> None:
    """Purpose: the positions belong to the former table; nobody knows what the new one contains.
    Procedure: a drain; during the next, the table is replaced, or moved away and a shallow clone put in its place; then
    someone adopts what is there.
    Pass: the active drain says so and commits nothing, and so does the next; after the decision every offset is there
    exactly once.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 10)
    produced = web.produce(10, bad=0.5)

    with pytest.raises((PlannedTableGone, TableReplaced), match="adopt"):
        web.drain(at=Once(point, lambda: interference(web)))
    version = web.version()
    with pytest.raises((TableReplaced, RowsWithoutPositions), match="adopt"):
        web.drain()
    assert web.version() == version
    web.resolve("adopt")
    web.drain()

    web.assert_spark_finds_each_offset_once(produced)


def test_rows_that_do_not_say_where_their_messages_stood_go_on_at_an_offset_that_someone_names(
    driven: DrivenFactory,
) -> None:
    """Purpose: nothing shows where such a table ends; a begin at `start` would double its rows.
    Procedure: a table of ten rows whose coordinates are null, and which has no positions; drain; adopt; adopt with the
    next offset in the document; produce; drain.
    Pass: the first two are refused and say what to do; then no message is there twice.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 10)
    Path(web.uri).rename(f"{web.uri}_moved")
    coordinates = "CAST(NULL AS struct<topic: string, partition: int, offset: bigint, timestamp: timestamp>)"
    web.session().sql(
        f"CREATE TABLE delta.`{web.uri}` USING delta PARTITIONED BY (date) AS SELECT struct(meta.producer, "
        f"{coordinates} AS kafka) AS meta, * EXCEPT (meta) FROM delta.`{web.uri}_moved`"
    )

    with pytest.raises(RowsWithoutPositions, match="adopt"):
        web.drain()
    with pytest.raises(NothingToResolve, match=r"no row has the position of .*\n.*\n.*write `start:` with the next"):
        web.resolve("adopt")
    told = web.with_definition(start={0: 10})
    told.resolve("adopt")
    web.produce(5)
    report = told.drain()

    assert (report.rows_added, len(web.found().rows)) == (5, 15)


@also_on_s3
@pytest.mark.parametrize(("point", "made_again"), [("before reading", False), ("dead letters written", True)])
def test_a_table_dropped_under_a_drain_is_said_and_what_takes_its_place_left_alone(
    driven: DrivenFactory, point: str, made_again: bool
) -> None:
    """Purpose: Delta creates a new table in an empty place, and a commit to another table would corrupt its log.
    Procedure: a table is dropped between plan and reading, or before the commit, and then another one is created in its
    place; the drain goes on; drain again.
    Pass: the first says so; its files become no half table, and the next drain says that they are where the table
    should be; or the new table has only its creator's version.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 10)
    web.produce(10)

    def drop() -> None:
        others.drop(web)
        if made_again:
            schema = Schema.from_arrow(pa.schema([("url", pa.string()), ("date", pa.date32())]))
            DeltaTable.create(web.uri, schema, partition_by=["date"])

    with pytest.raises(PlannedTableGone, match=None if made_again else "no table is there now"):
        web.drain(at=Once(point, drop))

    if made_again:
        assert web.version() == 0
    else:
        with pytest.raises(NotADeltaTable, match="move the files away"):
            web.drain()
