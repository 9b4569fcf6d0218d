"""Engines that read Kinesis with one bug each: the oracle catches every one, and never the real engine.

If seams or the ledger would stop a mutant, it has no seams: the oracle must not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kinesis import capture, shards, source
from kdi_assets.messages.kinesis.errors import SeamOpen, ShardTrimmed
from kdi_assets.messages.kinesis.look_ahead import Ahead, look_ahead
from kdi_assets.messages.kinesis.reader import read_shards
from kdi_assets.messages.kinesis.shards import ListedShard, id_of
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import HOUR, Put
from tests.kinesis.kpl import UserRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Mutant:
    """An engine with a bug, a stream's fields, and what reveals it: the table is compared after the last good drain."""

    name: str
    mutate: Callable[[pytest.MonkeyPatch], None]
    scenario: Callable[[Put], None]
    fields: Mapping[str, Any]


# What happens


def _drain(orders: Put) -> None:
    """A drain that may be refused: what is left of the engine may notice the bug."""
    with suppress(KdiError):
        orders.drain()
    orders.server.advance(6)


def drained_three_times(orders: Put) -> None:
    for _ in range(3):
        orders.put(10, bad=1)
        _drain(orders)


def closed_with_a_backlog(orders: Put) -> None:
    """A shard is closed while it has more records than a plan takes."""
    orders.put(30)
    orders.split_any()
    orders.put(10)
    _drain(orders)


def retention_passed(orders: Put) -> None:
    """The oldest of the unread records are gone before they are drained."""
    orders.put(10)
    _drain(orders)
    orders.put(10)
    orders.server.advance(30 * HOUR)
    orders.put(10)
    _drain(orders)


def aggregates_put(orders: Put) -> None:
    for _ in range(5):
        ids = range(len(orders.ids), len(orders.ids) + 3)
        orders.put_aggregate(*(UserRecord(f"key {i}", b'{"id": %d}' % i) for i in ids))
        orders.ids += ids
    _drain(orders)


def started_at_latest(orders: Put) -> None:
    orders.put(5)
    orders.log.clear()
    _drain(orders)
    for _ in range(2):
        orders.put(10)
        orders.server.advance(30)
        _drain(orders)


# What is wrong with the engine


def ended_too_early(read: Callable[..., DataFrame], *arguments: Any, **options: Any) -> DataFrame:
    """Of a reader that stops at the most records it may read, and calls this the end of the shard."""
    from pyspark.sql import functions as F

    stop = F.when(F.col("stop") == "most", "ended").otherwise(F.col("stop"))
    return read(*arguments, **options).withColumn("stop", stop)


def _reads(patch: pytest.MonkeyPatch, change: Callable[..., DataFrame]) -> None:
    """Another reader, whose seams nobody looks at; ``change`` gets the real one first."""
    patch.setattr(capture, "read_shards", lambda *arguments, **options: change(read_shards, *arguments, **options))
    seams_not_looked_at(patch)


def seams_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(source, "_refuse_open_seams", lambda client, read, ahead: None)


def begins_one_record_too_late(patch: pytest.MonkeyPatch) -> None:
    """As a reader that begins AFTER the first record instead of AT it."""
    seen: dict[str, str] = {}

    def look(client: Any, stream: str, shard: str, bookmark: Bookmark, **options: Any) -> Ahead:
        found = look_ahead(client, stream, shard, bookmark, **options)
        seen[shard] = found.first.sequence if found.first else ""
        return found

    def late(read: Any, session: Any, access: Any, stream: str, starts: Sequence[Any], **options: Any) -> DataFrame:
        marks = [replace(s.bookmark, sequence=seen[id_of(s.topic_partition.partition)]) for s in starts]
        begun = [replace(s, bookmark=m) for s, m in zip(starts, marks, strict=True)]
        return read(session, access, stream, begun, **options)  # type: ignore[no-any-return]

    patch.setattr(source, "look_ahead", look)
    _reads(patch, late)


def begins_at_the_last_record(patch: pytest.MonkeyPatch) -> None:
    """AT instead of AFTER the bookmark: the first ten records are read again."""

    def early(read: Any, session: Any, access: Any, stream: str, starts: Sequence[Any], **options: Any) -> DataFrame:
        begun = [replace(s, bookmark=replace(s.bookmark, sequence="", at=None)) for s in starts]
        return read(session, access, stream, begun, **options)  # type: ignore[no-any-return]

    _reads(patch, early)


def closed_is_ended(patch: pytest.MonkeyPatch) -> None:
    """A shard that ListShards calls closed is ended with its first plan."""
    _reads(patch, ended_too_early)


def child_before_parent(patch: pytest.MonkeyPatch) -> None:
    def ready(listed: Collection[ListedShard], bookmarks: Mapping[int, Bookmark]) -> list[ListedShard]:
        return [shard for shard in listed if shard.number not in bookmarks or not bookmarks[shard.number].ended]

    patch.setattr(shards, "ready", ready)


def trim_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """Reading goes on at the oldest record that is left."""

    def look(client: Any, stream: str, shard: str, bookmark: Bookmark, **options: Any) -> Ahead:
        try:
            return look_ahead(client, stream, shard, bookmark, **options)
        except ShardTrimmed:
            return replace(look_ahead(client, stream, shard, Bookmark(), **options), horizon=True)

    patch.setattr(source, "look_ahead", look)


def position_inside_an_aggregate(patch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import functions as F

    real = capture.Capture._cut
    patch.setattr(capture.Capture, "edges", lambda self, offsets: {tp: (at, at) for tp, at in offsets.items()})
    patch.setattr(
        capture.Capture,
        "_cut",
        lambda self, ranges: real(replace(self, rows=self.rows.withColumn("user_records", F.lit(0))), ranges),
    )


def latest_not_committed(patch: pytest.MonkeyPatch) -> None:
    """Each drain of a shard of which nothing was read begins at its own moment."""
    real = shards.bookmarks_of

    def bookmarks(ledger: Any, topic: Any, listed: Any, **names: Any) -> dict[TopicPartition, Bookmark]:
        now = source._until(topic) - 2_000  # the plan's moment is rounded up
        found = real(ledger, topic, listed, **names)
        return {tp: m if m.sequence else replace(m, at=now) for tp, m in found.items()}

    patch.setattr(source, "bookmarks_of", bookmarks)


MUTANTS = (
    Mutant("a reader that skips a record, seams not looked at", begins_one_record_too_late, drained_three_times, {}),
    Mutant("AT instead of AFTER, seams not looked at", begins_at_the_last_record, drained_three_times, {}),
    Mutant("closed is ended", closed_is_ended, closed_with_a_backlog, {"max_records": 10}),
    Mutant("child before parent", child_before_parent, closed_with_a_backlog, {}),
    Mutant("horizon after a trim unnoticed", trim_unnoticed, retention_passed, {}),
    Mutant("position inside an aggregate", position_inside_an_aggregate, aggregates_put, {"max_bytes": 40_000}),
    Mutant("`latest` not committed", latest_not_committed, started_at_latest, {"start": "latest"}),
)
REFUSED = (retention_passed,)
"""The engine refuses what is lost there: its table is not complete."""
SCENARIOS = {(m.scenario.__name__, *m.fields): m for m in MUTANTS if m.scenario not in REFUSED}


@pytest.mark.parametrize("mutant", SCENARIOS.values(), ids=[name for name, *_ in SCENARIOS])
def test_the_engine_as_it_is_passes_where_the_mutants_fail(
    spark: SparkSession, lake: str, server: KinesisServer, mutant: Mutant
) -> None:
    """Purpose: an oracle that always fails catches nothing.
    Procedure: each mutant's scenario, with the real engine; a last drain.
    """
    orders = Put(spark, lake, server, shards=1, **mutant.fields)

    mutant.scenario(orders)
    orders.drain()

    orders.assert_each_record_once()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_of_the_engine_is_caught(
    spark: SparkSession, lake: str, server: KinesisServer, mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a check that cannot fail proves nothing.
    Procedure: the engine with one bug; the scenario that reveals it.
    Pass: the oracle says that something is missing, twice, changed or out of order.
    """
    orders = Put(spark, lake, server, shards=1, **mutant.fields)
    mutant.mutate(monkeypatch)

    mutant.scenario(orders)

    noticed = r"missing|twice|never produced|row:|dead letter:|out of order|bookmark"
    with pytest.raises(AssertionError, match=noticed):
        orders.assert_each_record_once()


def test_an_end_of_a_shard_that_the_second_client_does_not_see_stops_a_drain(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a shard that has ended is never read again, so a wrong end is a loss for good.
    Procedure: a reader says after the first plan that a closed shard has ended; then the real one.
    """
    orders = Put(spark, lake, server, shards=1, max_records=10)
    orders.put(30)
    orders.split_any()

    with monkeypatch.context() as mutated:
        mutated.setattr(capture, "read_shards", partial(ended_too_early, read_shards))
        with pytest.raises(SeamOpen, match="the reader read the end"):
            orders.drain()
    assert orders.drained() == []
    server.advance(6)
    orders.drain()

    orders.assert_each_record_once()
