"""Engines that order changes wrongly, or store what a connector did not send: the tests of the order catch each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.delta.log import TableLog
from kdi_assets.follow.refine import envelope as opening
from kdi_assets.follow.refine import plan as planning
from kdi_assets.follow.refine import refine as refining
from kdi_assets.follow.refine import upstream_bookmarks
from kdi_assets.follow.refine.modes import states
from kdi_assets.follow.refine.modes import upsert as ordering
from kdi_assets.follow.upstream import OpenedUpstream
from tests.refined import Lakeside
from tests.spark.followers import test_followers as followers
from tests.spark.followers import test_refine_debezium as debezium
from tests.spark.followers import test_refine_order as order

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pytest import MonkeyPatch


def _ties_the_other_way(patch: MonkeyPatch) -> None:
    from pyspark.sql import functions as F

    real = opening.coordinates_of

    def backwards(rows: DataFrame) -> Any:
        place = real(rows)
        return F.struct(place["partition"].alias("partition"), (-place["offset"]).alias("offset"))

    patch.setattr(ordering, "coordinates_of", backwards)


def _offsets_across_partitions(patch: MonkeyPatch) -> None:
    patch.setattr(states, "is_by_offset", lambda spark, sql: False)


def _key_change_ignored(patch: MonkeyPatch) -> None:
    from pyspark.sql import functions as F

    patch.setattr(opening, "_with_ended_keys", lambda rows, old_keys: (rows, F.lit(False)))


def _placeholder_stored(patch: MonkeyPatch) -> None:
    patch.setattr(opening, "_is_placeholder", lambda column, kind, mode: "")


def _own_state_read_last(patch: MonkeyPatch) -> None:
    module: Any = upstream_bookmarks
    real = planning.plan_refinement

    def plan(table: Any, lake: str, **options: Any) -> Any:
        opened = {upstream.table_uri(lake): TableLog.existing(upstream.table_uri(lake)) for upstream in table.upstreams}
        before = module.open_upstream

        def opened_before(uri: str, consumed: Callable[[str], int | None]) -> OpenedUpstream:
            return OpenedUpstream(opened[uri], consumed(opened[uri].table_id))

        module.open_upstream = opened_before
        try:
            return real(table, lake, **options)
        finally:
            module.open_upstream = before

    patch.setattr(refining, "plan_refinement", plan)


def ties(lakeside: Lakeside, **_: Any) -> None:
    order.test_of_changes_with_one_sequence_the_later_in_kafka_counts(lakeside, 1)


def two_partitions(lakeside: Lakeside, **_: Any) -> None:
    order.test_without_a_sequence_a_key_in_two_topic_partitions_is_refused_and_a_sequence_helps(
        lakeside, 1, deleted_first=False
    )


def keys_that_change(lakeside: Lakeside, *, config: pytest.Config, **_: Any) -> None:
    debezium.test_a_table_of_changes_is_the_database_after_every_portion(lakeside, config, "full", "email", 1)


def unchanged_values(lakeside: Lakeside, **_: Any) -> None:
    debezium.test_a_value_that_was_never_seen_is_null_and_not_the_placeholder_until_it_arrives(lakeside)


def overtaken_runs(lakeside: Lakeside, *, folder: Path, patch: MonkeyPatch, **_: Any) -> None:
    follower = followers.Follower(lakeside, "", folder, "append")
    followers.test_a_run_that_is_overtaken_between_its_reads_never_puts_older_rows_over_newer_ones(
        lakeside, follower, patch
    )


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (_ties_the_other_way, ties),
        (_offsets_across_partitions, two_partitions),
        (_key_change_ignored, keys_that_change),
        (_placeholder_stored, unchanged_values),
        (_own_state_read_last, overtaken_runs),
    ],
    ids=lambda value: value.__name__.strip("_"),
)
def test_an_engine_that_orders_changes_wrongly_is_caught(
    mutant: Callable[[MonkeyPatch], None],
    test: Callable[..., None],
    spark: SparkSession,
    lake: str,
    tmp_path: Path,
    monkeypatch: MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    """Pass: the test fails with the mutant, and passes without it (as everywhere else)."""
    mutant(monkeypatch)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(Lakeside(spark, lake), config=pytestconfig, folder=tmp_path, patch=monkeypatch)
