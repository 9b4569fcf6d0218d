"""Decisions as functions of topic and ledger: positions, fields carried over, and refusals."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from socket import gethostname
from typing import Any

import pytest

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.topic_state import AtPosition, BrokerOffsets, LastRead, TopicState
from kdi_assets.streams.drain.snapshot import truncation
from kdi_assets.streams.ledger.commit import may_follow, next_entry, rebase
from kdi_assets.streams.ledger.entry import DeadLettersAt, LedgerEntry
from kdi_assets.streams.ledger.errors import PositionWithoutBookmark
from kdi_assets.streams.ledger.positions import RETIRED, LedgerState, read_ledger
from kdi_assets.streams.ledger.routes import Routes
from kdi_assets.streams.resolve.accept_loss import accept_loss, losses
from kdi_assets.streams.resolve.adopt import adopt, adopt_dead_letters
from kdi_assets.streams.resolve.context import Action, ProposedPositions, ResolveContext
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.resolve import new_topic
from kdi_assets.streams.resolve.rewind import Target, rewind
from tests.faults.chaos.decisions import Walk, steps_of
from tests.faults.chaos.model import Model
from tests.table_by_hand import TOPIC, TableByHand, orders
from tests.unit.ledger.plans import ledger

P0, P1, P2 = (TopicPartition(TOPIC, n) for n in range(3))
LETTERS = DeadLettersAt("letters", 4)
ROUTES = Routes({"bronze/orders": "a > 1"})


def nobody() -> Any:
    raise AssertionError("no session is needed")


def held(offsets: Mapping[TopicPartition, tuple[int, int]], topic_id: str = "topic") -> TopicState:
    return TopicState(
        TOPIC, topic_id, {tp: BrokerOffsets(earliest, end, end) for tp, (earliest, end) in offsets.items()}
    )


def case_of(
    lake: str, action: Action, offsets: Mapping[TopicPartition, tuple[int, int]], state: LedgerState | None = None
) -> ResolveContext:
    """A decision about the table of ``orders`` in the lake, by its ledger or another state of it."""
    topic, stream = held(offsets), orders()
    found = state or read_ledger(stream, lake, topic_id=topic.topic_id, topic_partitions=len(offsets))
    log = TableLog.open(stream.table_uri(lake)) or TableLog.existing(TableByHand(lake).log.parent.as_posix())
    assert found is not None
    return ResolveContext(stream=stream, lake=lake, topic=topic, log=log, ledger=found, action=action, session=nobody)


def entry(positions: dict[TopicPartition, int], **fields: Any) -> LedgerEntry:
    return LedgerEntry(7, "drain", TOPIC, "v7", TOPIC, "topic", "table", positions, **fields)


def state(positions: dict[TopicPartition, int], **fields: Any) -> LedgerState:
    fields.setdefault("entry", entry(positions, dead_letters_at=LETTERS, routes=ROUTES))
    return ledger(positions, **fields)


def test_an_entry_names_host_and_folder_of_the_process_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without_dagster = next_entry(orders(), None, kind="start", topic_id="t")
    monkeypatch.setenv("DAGSTER_HOME", "/srv/dagster")

    with_dagster = next_entry(orders(), None, kind="start", topic_id="t")

    home = Path(os.environ.get("KDI_HOME", ".kdi")).absolute()
    assert without_dagster.deployment == f"{gethostname()}:{home}"
    assert with_dagster.deployment == f"{gethostname()}:/srv/dagster"


def test_an_entry_states_every_topic_partition_that_the_log_knows_and_carries_what_later_ones_rest_on() -> None:
    known = state({P0: 10, P1: 5}, transactions={"orders-0": 9, "orders-1": 4, "orders-2": RETIRED - 1})

    made = next_entry(orders(), known, kind="resolve", topic_id="topic", positions={P0: 4})

    assert made.positions == {P0: 4, P1: 5, P2: RETIRED}
    assert (made.dead_letters_at, made.routes, made.table_id) == (LETTERS, ROUTES, "table")
    assert next_entry(orders(), known, kind="resolve", topic_id="t", routes=None).routes is None
    assert next_entry(orders(), None, kind="start", topic_id="t", positions={P0: 0}).positions == {P0: 0}


def test_behind_a_drain_a_replay_has_its_positions_and_routes_and_the_newest_letters() -> None:
    went_over = replace(ROUTES, conditions={"bronze/orders": "a > 2"})
    newer = DeadLettersAt("letters", 6)
    replay = next_entry(orders(), state({P0: 10}), kind="replay", topic_id="topic")
    drain = entry({P0: 20, P1: 3}, routes=went_over, dead_letters_at=newer)

    landed, other_way = rebase(replay, drain), rebase(drain, replace(replay, dead_letters_at=LETTERS))

    assert (landed.positions, landed.routes, landed.dead_letters_at) == ({P0: 20, P1: 3}, went_over, newer)
    assert (other_way.positions, other_way.routes, other_way.dead_letters_at) == ({P0: 20, P1: 3}, went_over, newer)
    assert replay.attempt_id.startswith("replay-")


@pytest.mark.parametrize(
    ("kind", "other", "may"),
    [
        ("drain", "replay", True),
        ("drain", "drain", False),
        ("replay", "drain", True),
        ("discard", "renewal", True),
        ("replay", "resolve", False),
        ("resolve", "replay", False),
        ("renewal", "drain", False),
        ("drain", "routes", False),
        ("replay", "routes", False),
    ],
)
def test_drains_and_replays_pass_each_other_and_nothing_else_does(kind: Any, other: Any, may: bool) -> None:
    said = entry({P0: 1})

    assert may_follow(replace(said, kind=kind), replace(said, kind=other)) is may
    assert not may_follow(replace(said, kind=kind), None)


@pytest.fixture
def restored(lake: str) -> TableByHand:
    """Version 2 drained topic partition 0, version 3 also one that had appeared; a RESTORE to 2."""
    table = TableByHand(lake)
    table.ledger_commit("start")
    table.ledger_commit("drain", at={P0: 10})
    table.ledger_commit("drain", at={P0: 13, P1: 10})
    table.restore(2)
    return table


def test_a_decision_after_a_restore_begins_where_the_restore_left_it(lake: str, restored: TableByHand) -> None:
    case = case_of(lake, "rewind", {P0: (0, 13), P1: (0, 10)})

    proposal = rewind(case, Target(P0, offset=5))
    made = next_entry(case.stream, case.ledger, kind="resolve", topic_id="topic", positions=proposal.after)

    assert (case.positions, proposal.after) == ({P0: 10, P1: 0}, {P0: 5})
    assert made.positions == {P0: 5, P1: 0}


STRANGERS: tuple[dict[str, bool], ...] = (
    {"topic_id_matches": False},
    {"table_id_matches": False},
    {"topic_id_matches": False, "table_id_matches": False},
    {},
)
DECIDING: Mapping[str, tuple[str, str, str, str]] = {
    "accept-loss": ("new-topic", "adopt", "new-topic", ""),
    "rewind": ("new-topic", "adopt", "new-topic", ""),
    "adopt-dead-letters": ("new-topic", "adopt", "new-topic", ""),
    "adopt": ("new-topic", "", "new-topic", ""),
    "new-topic": ("", "adopt", "", ""),
}


@pytest.mark.parametrize("action", DECIDING)
def test_no_decision_passes_over_another_topic_or_another_table(lake: str, action: Any) -> None:
    """And each of them has a decision that applies."""
    for fields, decides in zip(STRANGERS, DECIDING[action], strict=True):
        case = case_of(lake, action, {P0: (0, 10)}, state({P0: 5}, **fields))
        if decides:
            with pytest.raises(NothingToResolve, match=f"{decides} decides that"):
                case.refuse_other_topic_or_table()
        else:
            case.refuse_other_topic_or_table()


@pytest.mark.parametrize(("gap", "fields"), [(True, {}), (False, {"table_id_matches": False})])
def test_a_table_of_kinesis_that_cannot_be_continued_is_answered_by_a_new_path(
    lake: str, gap: bool, fields: Mapping[str, bool]
) -> None:
    case = case_of(lake, "rewind", {P0: (0, 10)}, state({P0: 5}, **fields))
    of_kinesis = replace(case, topic=replace(case.topic, as_of=datetime.now(UTC)), gap=gap)

    with pytest.raises(NothingToResolve, match="a new path") as refused:
        of_kinesis.refuse_gap()
        of_kinesis.refuse_other_topic_or_table()
    assert not re.search("adopt|rewind to", str(refused.value)), "they are refused, too"


def test_a_topic_made_again_begins_at_0_and_what_it_lacks_is_retired(lake: str) -> None:
    case = case_of(lake, "new-topic", {P0: (3, 10), P2: (0, 0)}, state({P0: 5, P1: 7}, topic_id_matches=False))

    assert new_topic(case).after == {P0: 0, P1: RETIRED, P2: 0}
    same = case_of(lake, "new-topic", {P0: (0, 10)}, state({P0: 5}))
    with pytest.raises(NothingToResolve, match="is the one that the positions belong to"):
        new_topic(same)


def test_what_retention_deleted_is_given_up_and_no_more_unless_offsets_are_named(lake: str) -> None:
    case = case_of(lake, "accept-loss", {P0: (8, 20), P1: (0, 9)}, state({P0: 5, P1: 2}))

    gone, named = accept_loss(case, None, None), accept_loss(case, P1, 4)

    def lost(proposal: ProposedPositions) -> list[tuple[TopicPartition, int, int]]:
        return [(r.topic_partition, r.start, r.end) for r in losses(case, proposal.after)]

    assert lost(gone) == [(P0, 5, 8)]
    assert lost(named) == [(P1, 2, 4)]
    assert lost(accept_loss(case, P1, 4, start=2)) == [(P1, 2, 4)]
    assert named.reason == "2 offsets are given up and recorded as lost; the broker still holds up to 2 of them"
    for until, start, said in (
        (10, None, "ends at 9"),
        (4, 3, "drain the offsets between them first"),
        (4, 1, "offsets before the position cannot be given up"),
    ):
        with pytest.raises(NothingToResolve, match=said):
            accept_loss(case, P1, until, start=start)


def test_without_known_positions_only_what_goes_by_the_rows_applies(lake: str) -> None:
    case = replace(case_of(lake, "rewind", {P0: (0, 10)}, state({P0: 5})), gap=True)

    unknown = r"positions are unknown[^\n]*\n.*\n.*rewind"
    with pytest.raises(NothingToResolve, match=unknown):
        accept_loss(case, None, None)
    with pytest.raises(NothingToResolve, match=unknown):
        rewind(case, Target(P0, offset=2))
    with pytest.raises(NothingToResolve, match=unknown):
        adopt_dead_letters(case)


def test_dead_letters_are_adopted_only_where_they_are_others_and_positions_stay(lake: str) -> None:
    dropped = adopt_dead_letters(case_of(lake, "adopt-dead-letters", {P0: (0, 10)}, state({P0: 5})))

    assert (dropped.after, dropped.fields) == ({}, {"dead_letters_at": None})
    none = state({P0: 5}, entry=entry({P0: 5}))
    with pytest.raises(NothingToResolve, match="are those that the ledger counts on"):
        adopt_dead_letters(case_of(lake, "adopt-dead-letters", {P0: (0, 10)}, none))
    with pytest.raises(NothingToResolve, match="the ledger knows the table"):
        adopt(case_of(lake, "adopt", {P0: (0, 10)}, state({P0: 5})))


READ = {P0: LastRead(9, 1_700_000_000_000, "ab"), P1: LastRead(4, 1_700_000_000_000, "cd")}


@pytest.mark.parametrize(
    ("positions", "kept"),
    [
        ({P0: 10, P1: 5}, READ),
        ({P0: 3, P1: 5}, {P1: READ[P1]}),  # set back: the message will be read again
        ({P0: 20, P1: 5}, {P1: READ[P1]}),  # given up: the offset belongs to no message any more
    ],
)
def test_the_last_message_is_known_while_its_position_stays(
    positions: dict[TopicPartition, int], kept: dict[TopicPartition, LastRead]
) -> None:
    known = state({P0: 10, P1: 5}, entry=entry({P0: 10, P1: 5}, last_read=READ))

    made = next_entry(orders(), known, kind="resolve", topic_id="topic", positions=positions)

    assert made.last_read == kept
    assert next_entry(orders(), known, kind="resolve", topic_id="another").last_read == {}


def test_a_position_of_kinesis_is_not_moved_without_its_bookmark() -> None:
    known = state({P0: 10, P1: 5}, entry=entry({P0: 10, P1: 5}, bookmarks={P0: Bookmark("9"), P1: Bookmark("4")}))

    with pytest.raises(PositionWithoutBookmark, match="orders/0 cannot be set to 4"):
        next_entry(orders(), known, kind="resolve", topic_id="topic", positions={P0: 4, P1: 5})
    assert next_entry(orders(), known, kind="resolve", topic_id="topic", positions={P0: 10, P1: 5}).bookmarks
    assert next_entry(orders(), known, kind="resolve", topic_id="another", positions={P0: 0}).positions[P0] == 0


@pytest.mark.parametrize("before", [{}, {P1: RETIRED}], ids=["no position yet", "that of an earlier stream"])
def test_a_shard_that_was_marked_before_it_had_a_position_begins_at_0(before: dict[TopicPartition, int]) -> None:
    marks = {P0: Bookmark("9"), P1: Bookmark(seen_at=1)}
    known = state({P0: 10, P1: 0}, entry=entry({P0: 10, **before}, bookmarks=marks))

    made = next_entry(orders(), known, kind="restore", topic_id="topic", positions={P0: 10, P1: 0})

    assert (made.positions[P1], made.bookmarks) == (0, marks)


def test_an_entry_carries_the_bookmarks_of_the_positions_that_it_does_not_move() -> None:
    known = state({P0: 10, P1: 5}, entry=entry({P0: 10, P1: 5}, bookmarks={P0: Bookmark("9"), P1: Bookmark("4")}))

    made = next_entry(orders(), known, kind="drain", topic_id="topic", bookmarks={P0: Bookmark("19")})
    replay = next_entry(orders(), known, kind="replay", topic_id="topic")

    assert made.bookmarks == {P0: Bookmark("19"), P1: Bookmark("4")}
    assert rebase(replay, made).bookmarks == made.bookmarks
    assert next_entry(orders(), known, kind="resolve", topic_id="another").bookmarks == {}


@pytest.mark.parametrize(
    ("there", "refused"),
    [
        (READ[P0], False),
        (None, False),  # deleted by retention, or compacted
        (replace(READ[P0], timestamp=1_700_000_000_001), True),
        (replace(READ[P0], digest="ac"), True),
        (replace(READ[P0], timestamp=1_700_000_000_000_000_000), True),  # no time that can be a date
    ],
)
def test_another_message_at_the_last_offset_is_a_truncation(there: LastRead | None, refused: bool) -> None:
    refusal = truncation(orders(), READ, {P0: AtPosition(there), P1: AtPosition(READ[P1])})

    assert (refusal is not None) == refused
    if refusal:
        assert "kdi resolve bronze/orders rewind --topic-partition orders/0 --to" in str(refusal)


@pytest.mark.parametrize("seed", range(20))
def test_no_sequence_of_accidents_and_decisions_loses_a_message(seed: int) -> None:
    walk = Walk(Model(2), Random(seed))

    done = [walk.step() for _ in range(300)]

    assert {step.partition(":")[0] for step in done} >= {"drain", "restore", "decide"}, steps_of(done)
