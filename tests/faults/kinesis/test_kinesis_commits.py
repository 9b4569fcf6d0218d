"""What meets the commits of a table of Kinesis: crashes, other drains, lost answers, RESTORE, VACUUM, lost letters."""

from __future__ import annotations

from shutil import rmtree
from typing import Any

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from kdi_assets.delta import single_commit
from kdi_assets.delta import transaction as delta_transaction
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.kinesis.errors import ConsumerTaken
from kdi_assets.streams.drain.errors import AnotherDrainActive, DeadLettersReplaced
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.driven import Once
from tests.faults.race import drain_at_once
from tests.kinesis.drains import EFO, POLLING, Crash, Put, crash_at
from tests.oracle import read_back

scenario = pytest.mark.scenario
POINTS = ("before reading", "files written", "dead letters written", "accounted for", "commit sent")


@scenario(
    "killed before reading",
    "killed after files are written",
    "killed between dead letters and commit",
    "killed after the commit, before Dagster's event",
    "Kinesis: shards split, merged, scaled",
)
@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
def test_crashes_at_every_point_lose_and_double_no_record_while_shards_split(
    spark: SparkSession, lake: str, server: KinesisServer, mode: Any
) -> None:
    """Purpose: what was captured is forgotten with a drain, and what is captured next may be other shards.
    Procedure: a drain ends at each point in turn; before each of them, records arrive, and a shard is split or two are
    merged.
    Pass: each record is a row or a dead letter once; spans, positions and bookmarks agree; the audit is complete.
    """
    orders = Put(spark, lake, server, shards=2, consumer=mode)
    orders.put(20, bad=2)
    orders.drain()

    for number, point in enumerate(POINTS):
        orders.put(20, bad=2)
        (orders.merge_any if number % 2 else orders.split_any)()
        orders.put(10)
        with pytest.raises(Crash):
            orders.drain(crash_at(point))
        server.advance(6)
    orders.drain()

    orders.assert_each_record_once()


@scenario("two drivers at once", "the same range run twice")
@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
def test_two_drains_at_once_commit_each_record_once(
    spark: SparkSession, lake: str, server: KinesisServer, mode: Any
) -> None:
    """Procedure: several times, two drains capture the same records, and wait for each other before they write them.
    With fan-out they share a consumer, and the second subscription ends the first one.
    Pass: one of them commits, the other ends with nothing or with a refusal that a retry can help.
    """
    orders = Put(spark, lake, server, shards=2, consumer=mode)
    orders.put(10)
    orders.drain()

    for _ in range(3):
        orders.put(20, bad=1)
        server.advance(6)
        ended = drain_at_once(orders, [orders.stream] * 2, refusals=(AnotherDrainActive, ConsumerTaken))
        assert len([one for one in ended if isinstance(one, DrainReport) and one.commits]) == 1, ended

    orders.assert_each_record_once()


@scenario("killed during the commit")
def test_a_commit_whose_answer_was_lost_is_found_and_its_records_are_not_read_again(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: the driver commits, and a broken connection replaces its answer; more records, drain."""
    orders = Put(spark, lake, server, shards=2)
    orders.put(10)
    orders.drain()
    orders.put(20, bad=2)
    real = delta_transaction.send_commit

    def send(*arguments: Any) -> int:
        real(*arguments)
        raise Py4JNetworkError("the connection broke")

    with monkeypatch.context() as breaking:
        breaking.setattr(single_commit, "send_commit", send)
        assert orders.drain() == 1
    orders.put(5)
    assert orders.drain() == 1

    orders.assert_each_record_once()


@scenario("RESTORE and time travel")
def test_a_restore_to_every_version_sets_bookmarks_back_with_the_rows(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Purpose: positions of Kinesis are numbers that only mean something with their bookmark.
    Procedure: three drains, with a split before the second and a merge before the third; then, back to the creation of
    the table, a RESTORE to each version by Spark or delta-rs, more records, and a drain.
    Pass: after each drain, each record is a row or a dead letter once, also those of shards that the version did not
    know.
    """
    orders = Put(spark, lake, server, shards=2)
    for reshard in (None, orders.split_any, orders.merge_any):
        orders.put(10, bad=1)
        if reshard:
            reshard()
        orders.put(10)
        orders.drain()
    newest = DeltaTable(orders.uri).version()

    for version in range(newest - 1, -1, -1):
        if version % 2:
            DeltaTable(orders.uri).restore(version)
        else:
            spark.sql(f"RESTORE TABLE delta.`{orders.uri}` TO VERSION AS OF {version}")
        orders.put(3)
        orders.drain()
        orders.assert_each_record_once()


@scenario("RESTORE and time travel")
@pytest.mark.parametrize("point", ["before reading", "accounted for", "commit sent"])
def test_a_restore_during_a_drain_is_answered(
    spark: SparkSession, lake: str, server: KinesisServer, point: str
) -> None:
    """Procedure: two drains; while the third runs, after its capture, the table is restored to the first."""
    orders = Put(spark, lake, server, shards=2)
    for _ in range(2):
        orders.put(10, bad=1)
        orders.drain()
    orders.put(10, bad=1)
    version = orders.entries()[-2].version

    restores = Once(point, lambda: DeltaTable(orders.uri).restore(version))
    orders.drain(restores)

    assert restores.happened
    orders.assert_each_record_once()


@scenario("VACUUM during a drain")
def test_a_vacuum_that_spares_no_young_file_costs_a_capture_and_no_record(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: when a drain has written its files, those that no version names are removed."""
    orders = Put(spark, lake, server, shards=2)
    orders.put(10)
    orders.drain()
    orders.put(20, bad=2)

    def vacuum() -> None:
        DeltaTable(orders.uri).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        orders.put(5)  # the second capture is not of the same moment, and yet of the same records

    once = Once("files written", vacuum)
    assert orders.drain(once) == 1
    assert once.happened
    orders.drain()

    orders.assert_each_record_once()


@scenario("dead letters cannot be written", "table replaced, dropped or cloned")
@pytest.mark.parametrize("during", [False, True], ids=["idle", "during a drain"])
def test_dropped_dead_letters_stop_a_stream_until_somebody_decides(
    spark: SparkSession, lake: str, server: KinesisServer, during: bool
) -> None:
    """Procedure: the table of dead letters is removed, while nothing runs or between letters and commit of a drain;
    adopt what is there; drain.
    Pass: refused, and nothing committed; then each record once, except the letters that someone dropped.
    """
    orders = Put(spark, lake, server, shards=2)
    orders.put(20, bad=3)
    orders.drain()
    letters = read_back(orders.stream, lake).dead_letters
    dropped = [OffsetRange(TopicPartition("orders", x["partition"]), x["offset"], x["offset"] + 1) for x in letters]
    orders.put(20, bad=3)
    version = DeltaTable(orders.uri).version()

    def drop() -> None:
        rmtree(orders.stream.dead_letters_uri(lake))

    once = Once("dead letters written", drop)
    if not during:
        drop()
    with pytest.raises(DeadLettersReplaced, match="adopt"):
        orders.drain(once if during else lambda point: None)
    assert DeltaTable(orders.uri).version() == version
    orders.resolve("adopt-dead-letters")
    orders.drain()

    assert len(dropped) == 3
    orders.assert_each_record_once(given_up=dropped)
