"""Replay of dead letters while others commit, decide, restore, or kill it: each message stays exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from shutil import copytree
from threading import Barrier, Thread

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.drain.refusals import DeadLettersReplaced
from kdi_assets.drain.resolve import carry_out_decision, decide
from kdi_assets.ledger.commit import OvertakenCommit
from kdi_assets.ledger.history import entries
from kdi_assets.ledger.log import TableLog
from kdi_assets.replay.chosen import Chosen
from kdi_assets.replay.replay_letters import discard_letters, replay_letters
from kdi_assets.stream import OffsetRange, TopicPartition
from tests.condemned import WRONG, states, with_letters
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream


def dying_at(*points: str) -> Callable[[str], None]:
    """Ends a replay at the first of these points."""

    def at(point: str) -> None:
        if point in points:
            raise KeyboardInterrupt

    return at


def test_a_replay_that_is_killed_anywhere_is_done_once_and_again_where_a_restore_took_its_rows(
    driven: DrivenFactory,
) -> None:
    """Procedure: replays are killed when their messages are read, when their files are written, when what becomes of
    letters is, and behind the commit; then the table is restored to the version before that.
    """
    web = with_letters(driven)

    for point in ("messages read", "files written", "letters written", "commit sent"):
        with pytest.raises(KeyboardInterrupt):
            replay_letters(web.stream, lake=web.lake, session=web.session, at=dying_at(point))
    done = replay_letters(web.stream, lake=web.lake, session=web.session)

    assert ("row" in done.outcomes, done.commit) == (False, None)
    web.assert_each_offset_once(web.produce(0))
    assert states(web)["resolved"] == len(web.found().rows) > 30
    assert web.audit().complete
    DeltaTable(web.uri).restore(1)
    assert states(web) == {"open": 60}

    replay_letters(web.stream, lake=web.lake, session=web.session)

    web.assert_each_offset_once(web.produce(0))
    assert web.audit().complete


@pytest.mark.core
def test_two_replays_and_a_drain_at_once_lose_nothing_and_double_nothing(driven: DrivenFactory) -> None:
    """Procedure: two replays have written their outcomes when a drain commits new messages; then both go on."""
    web = with_letters(driven)
    both = Barrier(2, timeout=120)
    met: list[str] = []

    def at(point: str) -> None:
        if point == "letters written" and len(met) < 2:
            met.append(point)
            if not both.wait():
                web.produce(40, seed=1)
                web.drain()
            both.wait()

    outcomes = []

    def replay(own: SparkSession) -> None:
        outcomes.append(replay_letters(web.stream, lake=web.lake, session=lambda: own, at=at).outcomes)

    threads = [Thread(target=replay, args=(web.session().newSession(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    web.assert_each_offset_once(web.produce(0))
    assert len(outcomes) == 2
    found = entries(web.uri, web.stream.app_id)
    assert [entry.kind for entry in found] == ["start", "drain", "drain", "replay"]
    assert found[-1].positions == found[-2].positions
    assert [o.get("row", 0) > 0 for o in outcomes].count(True) == 1
    assert web.audit().complete


def test_letters_behind_the_position_are_left_to_the_drain(driven: DrivenFactory) -> None:
    """What was rewound is drained again: replayed as well, it would be there twice.

    Procedure: decide to rewind, and let a replay of a part commit before the decision does; delete its rows, rewind;
    replay; drain; give up what is still open.
    """
    web = with_letters(driven, bad=0.0, partitions=1)
    tp = TopicPartition(web.stream.topic, 0)
    early = decide(web.stream, web.lake, "rewind", topic_partition=tp, to=20, session=web.session)
    first = replay_letters(
        web.stream, lake=web.lake, session=web.session, chosen=Chosen(offsets=OffsetRange(tp, 50, 60))
    )
    with pytest.raises(OvertakenCommit):
        carry_out_decision(web.session(), early, web.stream, web.lake)
    DeltaTable(web.uri).delete("meta.kafka.offset >= 50")
    back = decide(web.stream, web.lake, "rewind", topic_partition=tp, to=20, session=web.session)
    carry_out_decision(web.session(), back, web.stream, web.lake)

    done = replay_letters(web.stream, lake=web.lake, session=web.session)
    web.drain()
    given_up = discard_letters(
        web.stream, lake=web.lake, session=web.session, decided_by="ann", because="they are rows"
    )

    assert first.outcomes == {"row": 10}
    assert (done.outcomes, done.waiting) == ({"row": 20}, 40)
    assert given_up.outcomes == {}  # the drain's word counts, and it made rows of them
    assert Counter(r["meta"]["kafka"]["offset"] for r in web.found().rows) == Counter(range(60))
    assert states(web) == {"resolved": 60}
    assert web.audit().complete


def test_letters_that_are_restored_before_a_commit_counts_on_them_stop_it(driven: DrivenFactory) -> None:
    """Purpose: an older letter that is gone is not seen by who looks only for what it wrote itself.
    Procedure: two drains with letters; under a replay, and in a copy of the tables under a third drain, between the
    look and the letters of its own, the dead letters are restored to the first drain's.
    Pass: it is said, and nothing is committed.
    """
    web = with_letters(driven, 20)
    web.produce(20, seed=1)
    web.drain(replace(web.stream, columns=WRONG))
    web.produce(20, bad=0.5, seed=2)
    copy = replace(web, lake=f"{web.lake}_copy")
    copytree(web.lake, copy.lake)

    for each, act in ((web, replay), (copy, drain)):
        with pytest.raises(DeadLettersReplaced):
            act(each, restoring_letters(each))
        assert [e.kind for e in entries(each.uri, each.stream.app_id)] == ["start", "drain", "drain"]


def replay(web: DrivenStream, at: Callable[[str], None]) -> None:
    replay_letters(web.stream, lake=web.lake, session=web.session, at=at)


def drain(web: DrivenStream, at: Callable[[str], None]) -> None:
    web.drain(at=at)


def restoring_letters(web: DrivenStream) -> Callable[[str], None]:
    """Restores the dead letters to the first version, once, when files are written."""
    letters = web.stream.dead_letters_uri(web.lake)

    def at(point: str) -> None:
        if point == "files written" and TableLog.existing(letters).version == 1:
            DeltaTable(letters).restore(0)

    return at
