"""RESTORE brings rows back and leaves newer positions standing: during a drain, while nothing runs, once and twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree

import pytest
from deltalake import DeltaTable

from kdi_assets.drain.resolve import Action, carry_out_decision, decide
from kdi_assets.stream import TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults import others
from tests.faults.topics import add_topic_partitions

pytestmark = pytest.mark.scenario("RESTORE and time travel")


@pytest.mark.parametrize(
    ("restore", "point"),
    [
        (others.restore_by_spark, "before reading"),
        pytest.param(others.restore, "files written", marks=pytest.mark.core),
        (others.restore_by_spark, "dead letters written"),
        (others.restore, "accounted for"),
        (others.restore, "commit sent"),
    ],
)
def test_a_restore_during_a_drain_drains_the_lost_rows_again(
    driven: DrivenFactory, restore: Callable[[DrivenStream], None], point: str
) -> None:
    """Purpose: a RESTORE removes rows and leaves their positions standing.
    Procedure: two drains of six; while the third runs, the table is restored to the version after the first.
    Pass: the third drain answers the RESTORE, and drains the second and third six: every offset exactly once.
    """
    web = driven(partitions=1)
    for seed in (1, 2):
        web.produce(6, bad=0.2, seed=seed)
        web.drain()
    produced = web.produce(6, bad=0.2, seed=3)
    restored: list[str] = []

    def at(reached: str) -> None:
        if reached == point and not restored:
            restored.append(reached)
            restore(web)

    report = web.drain(at=at)

    assert report.settled == ("the table was restored to version 1",)
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize(
    ("targets", "answered"),
    [
        ((1, 2, 3), "1"),  # to a version that is itself a RESTORE
        ((1, 2), "2"),  # back to where the drain had planned: positions and rows agree, and yet it must look again
        ((1, 0), "0"),
    ],
)
def test_restores_between_plan_and_commit_are_answered_as_one(
    driven: DrivenFactory, targets: tuple[int, ...], answered: str
) -> None:
    """Purpose: what holds is where the last RESTORE went, through every RESTORE before it.
    Procedure: two drains; before the third commits, the table is restored twice or three times.
    Pass: the answer names the version whose positions hold; every offset exactly once.
    """
    web = driven(partitions=1)
    for seed in (1, 2):
        web.produce(6, seed=seed)
        web.drain()
    produced = web.produce(6, seed=3)
    left = list(targets)

    def at(reached: str) -> None:
        while reached == "accounted for" and left:
            others.restore(web, left.pop(0))

    report = web.drain(at=at)

    assert report.settled == (f"the table was restored to version {answered}",)
    web.assert_each_offset_once(produced)


def test_a_restore_under_each_try_of_a_drain_is_answered_each_time(driven: DrivenFactory) -> None:
    """Purpose: someone who tries versions out does so several times, and the answer to one is undone by the next.
    Procedure: two drains; the first try of the third is met by a RESTORE before its commit, the second by another one
    between its files and its commit, and a third one comes right behind the commit.
    Pass: each is answered, and every offset is there exactly once.
    """
    web = driven(partitions=1)
    for seed in (1, 2):
        web.produce(6, seed=seed)
        web.drain()
    produced = web.produce(6, seed=3)
    left = [("accounted for", 1), ("files written", 2), ("commit sent", 0)]

    def at(reached: str) -> None:
        if left and reached == left[0][0]:
            others.restore(web, left.pop(0)[1])

    report = web.drain(at=at)

    assert left == []
    assert [why[-1] for why in report.settled] == ["1", "2", "0"]
    web.assert_each_offset_once(produced)


@pytest.mark.core
def test_an_idle_restore_is_answered_before_anything_is_read(driven: DrivenFactory) -> None:
    """Purpose and procedure: as above, with nobody draining; to a version that is itself a RESTORE.
    Pass: the positions are those of the version restored to, resolved through both; every offset exactly once.
    """
    web = driven(partitions=2)
    for seed in (1, 2, 3):
        produced = web.produce(10, bad=0.2, seed=seed)
        web.drain()

    others.restore_by_spark(web)  # to version 1, becomes version 4
    DeltaTable(web.uri).restore(3)  # 5: all rows are back
    DeltaTable(web.uri).restore(4)  # 6: which is version 1
    report = web.drain()

    assert report.settled == ("the table was restored to version 1",)
    assert report.rows_added + report.dead_letters == 20
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_a_restore_by_delta_rs_is_answered_too(driven: DrivenFactory) -> None:
    """delta-rs spells the parameters otherwise: ``version: '1'``, or ``datetime`` in milliseconds."""
    web = driven(partitions=1)
    for seed in (1, 2):
        produced = web.produce(10, seed=seed)
        web.drain()

    DeltaTable(web.uri).restore(1)
    first = web.drain()
    made = (Path(web.uri) / "_delta_log" / f"{2:020}.json").stat().st_mtime
    DeltaTable(web.uri).restore(datetime.fromtimestamp(made, UTC) + timedelta(milliseconds=10))
    second = web.drain()

    assert first.settled == ("the table was restored to version 1",)
    assert second.settled == ("the table was restored to version 2",)
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize("action", ["rewind", "adopt-dead-letters"])
def test_a_decision_behind_a_restore_leaves_out_no_topic_partition(driven: DrivenFactory, action: Action) -> None:
    """Purpose: what appeared since the version restored to has no position there; a decision must answer for it too.
    Procedure: drain ten; a topic partition is added; drain ten more of both; a RESTORE to the first drain; decide,
    before any drain; drain.
    Pass: every offset exactly once, but for a dead letter that someone dropped.
    """
    web = driven(partitions=1)
    web.produce(10, bad=0.2)
    web.drain()
    first, dropped = TopicPartition(web.stream.topic, 0), set[int]()
    add_topic_partitions(web, total=2)
    produced = web.produce(10, seed=1)
    web.drain()
    DeltaTable(web.uri).restore(1)
    if action == "adopt-dead-letters":
        dropped = {letter["offset"] for letter in web.found().dead_letters}
        rmtree(web.stream.dead_letters_uri(web.lake))
    target = {"topic_partition": first, "to": 5} if action == "rewind" else {}

    decision = decide(web.stream, web.lake, action, session=web.session, **target)  # type: ignore[arg-type]
    carry_out_decision(web.session(), decision, web.stream, web.lake)
    web.drain()

    assert decision.before == {first: 10, TopicPartition(web.stream.topic, 1): 0}
    web.assert_each_offset_once([m for m in produced if m.topic_partition != first or m.offset not in dropped])
    assert action != "rewind" or web.audit().complete
