"""RESTORE brings rows back and does not change newer positions: during a drain, while nothing runs, once and twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.streams.resolve.resolve import Action
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import DrivenStream
from tests.faults import others
from tests.faults.topics import add_topic_partitions

pytestmark = pytest.mark.scenario("RESTORE and time travel")

Restore = Callable[[DrivenStream, int], None]


@also_on_s3
@pytest.mark.parametrize(
    ("restore", "restores", "answered"),
    [
        (others.restore_by_spark, [("before reading", 1)], ["1"]),
        pytest.param(others.restore, [("files written", 1)], ["1"], marks=pytest.mark.core),
        (others.restore_by_spark, [("dead letters written", 1)], ["1"]),
        (others.restore, [("accounted for", 1)], ["1"]),
        (others.restore, [("commit sent", 1)], ["1"]),
        # To a version that is itself a RESTORE.
        (others.restore, [("accounted for", 1), ("accounted for", 2), ("accounted for", 3)], ["1"]),
        # Back to where the drain had planned: positions and rows agree, and yet it must look again.
        (others.restore, [("accounted for", 1), ("accounted for", 2)], ["2"]),
        (others.restore, [("accounted for", 1), ("accounted for", 0)], ["0"]),
        # The next RESTORE undoes each answer.
        (others.restore, [("accounted for", 1), ("files written", 2), ("commit sent", 0)], ["1", "2", "0"]),
    ],
)
def test_restores_during_a_drain_are_answered_and_the_lost_rows_drained_again(
    driven: DrivenFactory, restore: Restore, restores: list[tuple[str, int]], answered: list[str]
) -> None:
    """Purpose: a RESTORE removes rows and does not change their positions; the version of the last one counts.
    Procedure: two drains of six; while the third runs, the table is restored at points of it, once or several times.
    Pass: the drain names each version whose positions it went back to; every offset exactly once.
    """
    web = driven(partitions=1)
    web.drain_rounds(2, 6, bad=0.2)
    produced = web.produce(6, bad=0.2, seed=3)
    left = list(restores)

    def at(reached: str) -> None:
        while left and reached == left[0][0]:
            restore(web, left.pop(0)[1])

    report = web.drain(at=at)

    assert left == []
    assert report.position_commits == tuple(f"the table was restored to version {version}" for version in answered)
    web.assert_each_offset_once(produced)


@also_on_s3
@pytest.mark.core
def test_an_idle_restore_is_answered_before_anything_is_read(driven: DrivenFactory) -> None:
    """Purpose: nothing drains, and the restored version is itself a RESTORE.
    Procedure: three drains; a RESTORE to the first, back to the third, and to the first RESTORE; drain.
    Pass: the positions are those of the restored version, resolved through both; every offset exactly once.
    """
    web = driven(partitions=2)
    produced = web.drain_rounds(3, 10, bad=0.2)

    others.restore_by_spark(web)  # to version 1, becomes version 4
    others.restore(web, 3)  # 5: all rows are back
    others.restore(web, 4)  # 6: which is version 1
    report = web.drain()

    assert report.position_commits == ("the table was restored to version 1",)
    assert report.rows_added + report.dead_letters == 20
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_a_restore_by_delta_rs_is_answered_too(driven: DrivenFactory) -> None:
    """delta-rs writes the parameters in another way: ``version: '1'``, or ``datetime`` in milliseconds."""
    web = driven(partitions=1)
    produced = web.drain_rounds(2, 10)

    others.restore(web)
    first = web.drain()
    made = (Path(web.uri) / "_delta_log" / f"{2:020}.json").stat().st_mtime
    DeltaTable(web.uri).restore(datetime.fromtimestamp(made, UTC) + timedelta(milliseconds=10))
    second = web.drain()

    assert first.position_commits == ("the table was restored to version 1",)
    assert second.position_commits == ("the table was restored to version 2",)
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize("action", ["rewind", "adopt-dead-letters"])
def test_a_decision_after_a_restore_includes_every_topic_partition(driven: DrivenFactory, action: Action) -> None:
    """Purpose: a topic partition newer than the restored version has no position there; a decision must include it.
    Procedure: drain ten; a topic partition is added; drain ten more of both; a RESTORE to the first drain; decide,
    before any drain; drain.
    Pass: every offset exactly once, except a dead letter that someone dropped.
    """
    web = driven(partitions=1)
    web.drain_rounds(1, 10, bad=0.2)
    first, dropped = web.tp(), set[int]()
    add_topic_partitions(web, total=2)
    produced = web.produce(10, seed=1)
    web.drain()
    others.restore(web)
    if action == "adopt-dead-letters":
        dropped = set(web.letters("offset"))
        rmtree(web.stream.dead_letters_uri(web.lake))

    target: dict[str, Any] = {"topic_partition": first, "to": 5} if action == "rewind" else {}
    decision = web.resolve(action, **target)
    web.drain()

    assert decision.before == {first: 10, web.tp(1): 0}
    web.assert_each_offset_once([m for m in produced if m.topic_partition != first or m.offset not in dropped])
    assert action != "rewind" or web.audit().complete
