"""Changed route conditions: who may go on, and that no interleaving of drains judges an offset by two of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import pytest

from kdi_assets.drain.route_change import Look, RouteStep, Standing, accepted, decide_routes
from kdi_assets.drain.route_refusals import RoutesChangedApart, RoutesNotAgreed
from kdi_assets.ledger.entry import LedgerEntry, entry_of
from kdi_assets.ledger.routes import Routes, after_restore, of_new_topic
from kdi_assets.message_rules import Route, RouteMember
from kdi_assets.stream import KafkaCluster, Stream, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD = {"a": "x < 1", "b": ""}
WALKS = 25
NEW = {"a": "x < 2", "b": ""}
WITH_C = {"a": "x < 1", "b": "", "c": "x > 5"}


def document(name: str, conditions: Mapping[str, str], *, retired: str = "", former: str = "") -> Stream:
    """A stream of a group in which ``b`` has the rest; without a route where the group has no such stream."""
    group = {
        stream: RouteMember(when, stream == "b", "t", former if stream == name else "", stream == retired)
        for stream, when in conditions.items()
    }
    route = Route(conditions[name], "rows" if name == "b" else None, group=group) if name in group else None
    return Stream("t", name, "x int", "current_date()", KafkaCluster("main", "nowhere:1"), route=route)


def routes(conditions: Mapping[str, str], **fields: object) -> Routes:
    return replace(Routes.of(document("b", conditions)), **fields)  # type: ignore[arg-type]


def at(offset: int) -> dict[TopicPartition, int]:
    return {P0: offset}


def nobody(name: str, app_id: str) -> Standing | None:
    raise AssertionError(f"{name} was looked at")


def looks(**others: Standing) -> Look:
    return lambda name, app_id: others.get(name)


AGREED = routes(OLD, began=True, agreed=True)


def test_nobody_else_is_looked_at_where_nothing_was_changed_or_nothing_is_shared() -> None:
    blank = {"a": "  x < 1\n", "b": ""}

    assert decide_routes(document("a", OLD), AGREED, at(7), nobody) == RouteStep(AGREED)
    assert decide_routes(document("a", blank), AGREED, at(7), nobody).says == ""
    assert decide_routes(document("z", OLD), None, at(7), nobody) == RouteStep(None)


def test_a_table_says_what_it_goes_over_to_and_waits_until_all_have_said_it() -> None:
    """Pass: in three steps, and the last one records what no later drain has to ask for again."""
    said = decide_routes(document("a", NEW), AGREED, at(7), looks(b=Standing(at(7), AGREED)))
    waits = decide_routes(document("a", NEW), said.routes, at(7), looks(b=Standing(at(7), AGREED)))
    goes_on = decide_routes(document("a", NEW), said.routes, at(7), looks(b=Standing(at(7), said.routes)))

    assert said.says == "the conditions of its route group were changed"
    assert said.routes == routes(NEW, since=at(7), former=AGREED)
    assert isinstance(waits.refusal, RoutesNotAgreed)
    assert waits.refusal.waits_for == ("b",)
    assert "kdi drain a b" in str(waits.refusal)
    assert goes_on == RouteStep(routes(NEW, since=at(7), agreed=True))
    assert decide_routes(document("a", NEW), goes_on.routes, at(9), nobody) == goes_on
    # The other one follows at the same offsets when this one has moved on already.
    late = looks(a=Standing(at(9), goes_on.routes))
    assert decide_routes(document("b", NEW), said.routes, at(7), late).routes == goes_on.routes


@pytest.mark.parametrize(
    ("other", "where"),
    [
        (Standing(at(5), AGREED), "b at t/0 5 by others"),
        (Standing({P0: 7, P1: 1}, AGREED), "b at t/0 7, t/1 1 by others"),
        (
            Standing(at(9), routes(NEW, since=at(8), agreed=True)),
            "b at t/0 9 by these from t/0 8 on",
        ),
        (Standing(at(5), None), "b at t/0 5 by others"),
        (Standing(None, AGREED), "b has positions of another topic or table"),
    ],
)
def test_a_change_is_refused_where_another_table_stands_elsewhere(other: Standing, where: str) -> None:
    step = decide_routes(document("a", NEW), AGREED, at(7), looks(b=other))

    assert isinstance(step.refusal, RoutesChangedApart)
    assert step.says == ""
    happened, safe, run = step.refusal.parts()
    assert happened.startswith("a: ") and where in happened
    assert "t/0 7" in safe
    assert run.startswith("put back what the documents said (a: `route.when` `x < 1`); kdi drain a b")
    assert "kdi resolve a accept-routes --because" in run


def test_topic_partitions_that_one_ledger_does_not_have_yet_are_at_their_first_offset() -> None:
    step = decide_routes(document("a", NEW), AGREED, at(7), looks(b=Standing({P0: 7, P1: 0}, AGREED)))

    assert step.refusal is None


def test_what_is_put_back_before_it_was_drained_by_is_as_if_it_had_not_been_changed() -> None:
    """Also where the other one has moved on by the conditions that the documents have again."""
    went_over = routes(NEW, since=at(7), former=AGREED)
    others = looks(b=Standing(at(9), AGREED))

    assert isinstance(decide_routes(document("a", NEW), went_over, at(7), others).refusal, RoutesChangedApart)
    back = decide_routes(document("a", OLD), went_over, at(7), others)
    assert back.says
    assert back.routes == routes(OLD)
    assert decide_routes(document("a", OLD), back.routes, at(7), others) == RouteStep(routes(OLD, agreed=True))


def test_a_ledger_of_a_release_that_recorded_none_has_those_of_today_unless_others_had_others() -> None:
    first = decide_routes(document("a", OLD), None, at(7), looks(b=Standing(at(5), None)))

    assert first.routes == routes(OLD)
    assert first.says
    for other in (Standing(at(5)), Standing(at(5), routes(OLD)), Standing(at(5), AGREED)):
        assert decide_routes(document("a", OLD), first.routes, at(7), looks(b=other)).routes == routes(OLD, agreed=True)
    apart = decide_routes(document("a", NEW), None, at(7), looks(b=Standing(at(5), AGREED)))
    assert isinstance(apart.refusal, RoutesChangedApart)
    together = decide_routes(document("a", NEW), None, at(7), looks(b=Standing(at(7), AGREED)))
    assert together.routes == routes(NEW, since=at(7))


def test_a_new_table_begins_anywhere_and_holds_up_nobody_but_begins_after_the_others_went_over() -> None:
    begins = routes(WITH_C, began=True)
    a = Standing(at(7), AGREED)

    waits = decide_routes(document("c", WITH_C), begins, at(0), looks(a=a, b=a))
    assert isinstance(waits.refusal, RoutesNotAgreed)
    for c in ({}, {"c": Standing(at(3), begins)}):
        step = decide_routes(document("a", WITH_C), AGREED, at(7), looks(b=a, **c))
        assert step.routes == routes(WITH_C, since=at(7), former=AGREED)
    went_over = Standing(at(7), step.routes)
    begun = decide_routes(document("c", WITH_C), begins, at(0), looks(a=went_over, b=went_over))
    assert begun == RouteStep(replace(begins, agreed=True))


def test_a_table_that_left_the_group_must_have_come_as_far_and_waits_for_nobody() -> None:
    """Pass: whether it goes on without a route, or its document is gone; one that is retired does not count."""
    agreed = routes(WITH_C, began=True, agreed=True)

    left = decide_routes(document("c", OLD), agreed, at(7), looks(a=Standing(at(7), agreed), b=Standing(at(7), agreed)))
    assert left.routes == Routes({}, since=at(7), agreed=True)
    assert left.says == "it has no route any more"
    assert decide_routes(document("c", OLD), left.routes, at(9), nobody).refusal is None
    behind = looks(a=Standing(at(5), agreed), b=Standing(at(7), agreed))
    assert isinstance(decide_routes(document("c", OLD), agreed, at(7), behind).refusal, RoutesChangedApart)

    def a_goes_over(c: Standing | None, recorded: Routes = agreed) -> RouteStep:
        others = {"b": Standing(at(7), agreed), **({"c": c} if c else {})}
        return decide_routes(document("a", OLD), recorded, at(7), looks(**others))

    assert all(a_goes_over(c).says for c in (None, Standing(at(7), agreed), Standing(at(9), left.routes)))
    refused = a_goes_over(Standing(at(5), agreed)).refusal
    assert isinstance(refused, RoutesChangedApart)
    assert "c: `route.when` `x > 5`" in str(refused)
    retired = replace(Routes.of(document("b", WITH_C, retired="c")), agreed=True)
    assert a_goes_over(Standing(at(5), agreed), retired).says


def test_a_table_that_was_renamed_with_its_condition_is_no_change() -> None:
    now = {"a": "x < 1", "b": ""}
    before = routes({"z": "x < 1", "b": ""}, agreed=True)

    step = decide_routes(document("a", now, former="z"), before, at(7), nobody)

    assert step == RouteStep(routes(now, agreed=True))


def test_a_restore_to_before_a_change_makes_the_others_be_asked_and_one_behind_it_does_not() -> None:
    now = routes(NEW, since=at(7), agreed=True)
    asked = after_restore(AGREED, now)

    assert after_restore(now, now) == now
    assert after_restore(None, now) is None
    assert asked == replace(AGREED, agreed=False, began=False)
    for conditions in (OLD, NEW):
        step = decide_routes(document("a", conditions), asked, at(5), looks(b=Standing(at(9), now)))
        assert isinstance(step.refusal, RoutesChangedApart)


def test_positions_before_the_point_where_it_went_over_are_refused_until_somebody_accepts_them() -> None:
    now = routes(NEW, since=at(7), agreed=True)
    b = looks(b=Standing(at(9), now))

    rewound = decide_routes(document("a", NEW), now, at(5), b)

    assert isinstance(rewound.refusal, RoutesChangedApart)
    assert "put back" not in str(rewound.refusal)
    vouched = accepted(document("a", NEW), at(5))
    assert decide_routes(document("a", NEW), vouched, at(5), nobody) == RouteStep(vouched)
    assert isinstance(
        decide_routes(document("b", NEW), AGREED, at(9), looks(a=Standing(at(6), vouched))).refusal, RoutesChangedApart
    )
    assert of_new_topic(now) == routes(NEW, agreed=True)


def test_routes_are_in_an_entry_where_there_are_any_and_come_back_as_they_were() -> None:
    plain = LedgerEntry(3, "drain", "t", "try", "t", "id", "table", at(7))
    kept = replace(plain, routes=routes(NEW, since=at(7), former=AGREED), decided_by="me", because="it is right")

    assert entry_of(kept.to_json(), 3, "t") == kept
    assert entry_of(plain.to_json(), 3, "t") == plain
    assert not {"routes", "decided_by", "because"} & set(plain.to_json().split('"'))


@dataclass(slots=True)
class Table:
    """A table of the model: what its log says, and by which conditions each offset was judged."""

    version: int = 0
    judged: tuple[str, ...] = ()
    routes: Routes | None = None
    before: list[tuple[tuple[str, ...], Routes | None]] = field(default_factory=list)

    def commit(self, judged: tuple[str, ...], routes: Routes | None) -> None:
        self.before.append((self.judged, self.routes))
        self.version, self.judged, self.routes = self.version + 1, judged, routes


def drains(
    name: str, tables: dict[str, Table], conditions: Mapping[str, str], end: list[int], *, waits: bool
) -> Iterator[None]:
    """Drains of one process that has read the documents once; it can be overtaken wherever it yields.

    Args:
        end: Of the topic.
        waits: As the real one; else whoever has said it goes on at once.
    """
    table, word = tables[name], conditions["a"]
    while True:
        version, judged, recorded = table.version, table.judged, table.routes
        yield
        found: dict[str, Standing] = {}
        for other in tables.keys() - {name}:
            if tables[other].version:
                found[other] = Standing(at(len(tables[other].judged)), tables[other].routes)
            yield
        stream = document(name, conditions)
        step = decide_routes(stream, recorded, at(len(judged)), looks(**found))
        if not version:
            step = RouteStep(replace(Routes.of(stream), began=True), says="it begins")
        drained = step.refusal is None or (not waits and isinstance(step.refusal, RoutesNotAgreed))
        yield
        if not drained or table.version != version:
            continue
        if step.says:
            table.commit(judged, step.routes)
        elif len(judged) < end[0]:
            agreed = replace(step.routes, agreed=True, former=None) if step.routes else None
            table.commit((*judged, word), agreed)


def walk(seed: int, *, joins: bool = False, restores: bool = False, waits: bool = True) -> list[Table]:
    """Tables of a group, each drained by processes with either documents, in a random order.

    Args:
        joins: The third one has no ledger when it begins, and is not in the answer: it begins where it likes.
        restores: Tables are set back now and then.
    """
    dice = random.Random(seed)
    both = [{"a": word, "b": "", "c": "x > 9"} for word in ("x < 1", "x < 2")]
    tables = {name: Table() for name in ("a", "b", "c")}
    begun = [tables[name] for name in ("ab" if joins else "abc")]
    for table in begun:
        table.commit((), replace(routes(both[0]), began=True))
    end = [1]
    running = [drains(name, tables, conditions, end, waits=waits) for conditions in both for name in tables]
    for _ in range(120):
        some = dice.sample(running, dice.choice((1, 2, 3, 6)))
        for _ in range(dice.choice((5, 10, 20))):
            next(dice.choice(some))
        end[0] += dice.random() < 0.2
        if restores and dice.random() < 0.02:
            table = dice.choice(begun)
            # Not to what a RESTORE has undone already: that brings rows back by itself, of whichever conditions.
            behind = [(j, live) for j, live in table.before[1:] if j == table.judged[: len(j)]]
            judged, live = dice.choice(behind or [(table.judged, table.routes)])
            table.commit(judged, after_restore(live, table.routes))
    return begun


def disagree(tables: list[Table]) -> bool:
    """Whether an offset was judged by different conditions."""
    return any(len({*words} - {""}) > 1 for words in zip_longest(*(t.judged for t in tables), fillvalue=""))


@pytest.mark.parametrize("kind", [{}, {"joins": True}, {"restores": True}], ids=["begun", "joined", "restored"])
def test_no_interleaving_of_drains_by_old_and_new_documents_judges_an_offset_by_both(kind: dict[str, bool]) -> None:
    """Purpose: a process reads the documents once, so drains by old and by new ones meet.
    Procedure: six processes for three tables, each of which reads its own log, then the others', decides and commits,
    in random orders of these steps.
    Pass: every offset was judged alike by all tables that have it; most walks did go over, some more than once; and
    processes that wait for nobody are found out by the same walks.
    """
    went_over = 0
    for seed in range(WALKS):
        tables = walk(seed, **kind)
        assert not disagree(tables), f"seed {seed}: {[t.judged for t in tables]}"
        went_over += len({*tables[0].judged}) > 1

    assert went_over > WALKS / 4
    assert any(disagree(walk(seed, waits=False, **kind)) for seed in range(WALKS))
