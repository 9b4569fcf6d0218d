"""Replay of dead letters: what today's document accepts becomes rows, each message exactly once, whoever else commits,
decides, restores or kills it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kdi_assets.delta.errors import OvertakenCommit
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_rules import DeadLetterLimit, Expectation
from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.streams.drain.errors import AccountingMismatch, DeadLettersReplaced, RoutesChanged
from kdi_assets.streams.replay import judged_again
from kdi_assets.streams.replay.dead_letter_filter import DeadLetterFilter
from kdi_assets.streams.replay.report import ReplayReport
from kdi_assets.streams.resolve.accept_routes import commit_routes, decide_routes
from kdi_assets.streams.rules.errors import ExpectationNotMet
from kdi_assets.streams.rules.judge import verdicts
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import DrivenStream
from tests.faults.topics import make_again
from tests.tables.dead_letters import RIGHT, WRONG, discarded, replayed, states, with_letters
from tests.tables.routed import GOOD, METHODS, PATCH, group_of


def crossed(messages: DataFrame, decoder: StreamDecoder, *, now: datetime) -> DataFrame:
    """``verdicts`` that takes one row for a dead letter, and one dead letter for a row."""
    told = verdicts(messages, decoder, now=now)
    one_each = told.groupBy("outcome").agg(F.min(F.struct("partition", "offset")).alias("at")).collect()
    others = {"row": "dead_letter", "dead_letter": "row"}
    swapped = F.col("outcome")
    for r in one_each:
        here = (F.col("partition") == r["at"]["partition"]) & (F.col("offset") == r["at"]["offset"])
        swapped = F.when(here, others[r["outcome"]]).otherwise(swapped)
    return told.withColumn("outcome", swapped)


@pytest.mark.core
@pytest.mark.compiled
def test_what_is_good_now_becomes_rows_and_the_rest_keeps_its_new_reason(driven: DrivenFactory) -> None:
    """Procedure: a wrong document rejects all messages, some are bad anyway; replay with the right one, twice."""
    web = with_letters(driven, 300, partitions=3)
    before = web.entries()[-1]

    looked = replayed(web, dry=True)
    done = replayed(web)
    again = replayed(web)

    web.assert_each_offset_once(web.produce(0))
    rows, bad = done.outcomes["row"], done.outcomes["dead_letter"]
    assert rows + bad == 300
    assert rows == len(web.found().rows) > 200
    assert looked.outcomes == done.outcomes
    assert sum(c.letters for c in looked.letter_changes) == 300
    assert (again.outcomes, again.commit) == ({"dead_letter": bad}, None)
    assert states(web) == {"resolved": rows, "open": bad}
    entry = web.entries()[-1]
    assert entry.positions == before.positions
    assert (entry.kind, sum(entry.returned.values()), entry.rows) == ("replay", rows, rows)
    audit = web.audit()
    assert (audit.complete, audit.became_rows, audit.dead_letters) == (True, rows, bad), audit.notes


def test_only_what_is_chosen_is_replayed_or_discarded_and_what_todays_filter_leaves_out_has_no_row(
    driven: DrivenFactory,
) -> None:
    """Procedure: replay by a reason that no letter has, then some offsets; discard others; someone inserts the row of
    one by hand; replay the rest.
    """
    web = with_letters(driven, bad=0.0).with_definition(filter="kafka.offset % 2 = 0")
    some = DeadLetterFilter(offsets=OffsetRange(web.tp(1), 5, 15))
    others = DeadLetterFilter(field="columns.host", offsets=OffsetRange(web.tp(1), 15, 30))

    none = replayed(web, letter_filter=DeadLetterFilter(reason="no_date"))
    first = replayed(web, letter_filter=some)
    rows = web.rows("meta.kafka.partition", "meta.kafka.offset")
    gone = discarded(web, because="test data", letter_filter=others)
    insert(web, partition=0, offset=2)
    rest = replayed(web)

    assert none.messages == 0
    assert (first.outcomes, rows) == ({"filtered": 5, "row": 5}, [(1, offset) for offset in range(6, 15, 2)])
    entry = next(e for e in web.entries() if e.kind == "discard")
    assert (entry.decided_by, entry.because, entry.outcomes) == ("ann", "test data", gone.outcomes)
    assert gone.outcomes == {"discarded": 15}
    assert rest.outcomes == {"filtered": 17, "row": 18}
    assert states(web) == {"resolved": 45, "discarded": 15}
    assert len(web.found().dead_letters) == 60 - 5 - 18  # none is removed
    assert len(web.found().rows) == 5 + 18
    assert web.audit().complete


def insert(web: DrivenStream, *, partition: int, offset: int) -> None:
    """Write a row at the coordinates of a letter."""
    letters = {(r["partition"], r["offset"]): r for r in web.found().dead_letters}
    rows = DeltaTable(web.uri).to_pyarrow_table()
    (row,) = rows.slice(0, 1).to_pylist()
    at = {"partition": partition, "offset": offset, "timestamp": letters[partition, offset]["timestamp"]}
    row["meta"]["kafka"].update(at)
    write_deltalake(web.uri, pa.Table.from_pylist([row], rows.schema), mode="append")


def test_what_a_replay_may_not_do_it_refuses_dry_too_and_commits_nothing(
    driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: an expectation that stops a drain; then the second pass takes a row for a letter, and a letter for a
    row, so that the counts are the same.
    """
    web = with_letters(driven)
    strict = web.with_definition(expectations={"never": Expectation("false", "fail")})
    version = TableLog.existing(web.uri).version

    for dry in (True, False):
        with pytest.raises(ExpectationNotMet):
            replayed(strict, dry=dry)
    monkeypatch.setattr(judged_again, "verdicts", crossed)
    for dry in (True, False):
        with pytest.raises(AccountingMismatch, match="Run:  kdi dead-letters replay"):
            replayed(web, dry=dry)
    monkeypatch.undo()

    assert TableLog.existing(web.uri).version == version
    replayed(web)
    web.assert_each_offset_once(web.produce(0))
    assert web.audit().complete


def test_what_another_table_of_the_route_group_should_have_stays_open(driven: DrivenFactory) -> None:
    """Purpose: the other table passed the message long ago, as not its own: nothing else would ever look at it.
    Procedure: a mistake in the documents makes every message undecodable; drain both tables; correct the documents, and
    change the conditions; replay; accept the conditions; replay, and land after the first drain with them.
    Pass: a replay with conditions that nobody accepted is refused; a replay after a drain does not undo conditions.
    """
    web = driven(partitions=1)
    tables = group_of(web)
    web.send(GOOD, GOOD.replace("GET", "DELETE"), PATCH, "bad")
    for name in ("read", "gone"):
        tables[name].with_definition(compression="gzip").drain()
    changed = group_of(web, {**METHODS, "read": (*METHODS["read"], "PATCH")})
    gone = changed["gone"]
    with pytest.raises(RoutesChanged):
        replayed(gone)
    decision = decide_routes(gone.stream, [t.stream for t in changed.values()], gone.lake)
    commit_routes(gone.session(), decision)

    def drain_first(point: str) -> None:
        if point == "outcomes written":
            web.send(GOOD)
            gone.drain()

    looked = replayed(gone, dry=True)
    done = replayed(gone, at=drain_first)
    again = replayed(gone)

    assert looked.outcomes == done.outcomes == {"row": 1, "elsewhere": 2, "dead_letter": 1}
    assert (again.outcomes, again.commit) == ({"elsewhere": 2, "dead_letter": 1}, None)
    assert states(gone) == {"resolved": 1, "open": 3}
    assert gone.audit().complete
    assert gone.entries()[-1].kind == "replay"
    assert gone.drain().backlog_after == 0


def test_letters_of_a_topic_that_was_made_anew_are_still_judged(driven: DrivenFactory) -> None:
    """Their offsets are above positions that begin at 0 again, and no drain reads them any more."""
    web = with_letters(driven, 40, bad=0.0)
    make_again(web, partitions=1)
    web.carry_out(web.decide("new-topic"))

    done = replayed(web)

    assert (done.outcomes, done.waiting) == ({"row": 40}, 0)
    assert states(web) == {"resolved": 40}
    assert web.audit().complete


def test_letters_that_do_not_hold_their_message_are_left_open(driven: DrivenFactory) -> None:
    limit = DeadLetterLimit(share=1.0)
    web = driven(partitions=1, columns=WRONG, dead_letter_limit=limit, dead_letter_payload="withhold")
    web.produce(20)
    web.drain()
    web = web.with_definition(columns=RIGHT, dead_letter_payload=None)

    done = replayed(web)

    assert (done.messages, done.withheld, done.commit) == (0, 20, None)
    assert states(web) == {"open": 20}


def test_letters_whose_rows_a_restore_took_are_replayed_again(driven: DrivenFactory) -> None:
    """Procedure: a replay is killed just after its commit; then the table is restored to the version before that."""
    web = with_letters(driven)

    def die(point: str) -> None:
        if point == "commit sent":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replayed(web, at=die)
    nothing = replayed(web)
    web.assert_each_offset_once(web.produce(0))
    rows = len(web.found().rows)
    resolved = states(web)["resolved"]
    DeltaTable(web.uri).restore(1)
    restored = states(web)
    replayed(web)

    assert ("row" in nothing.outcomes, nothing.commit) == (False, None)
    assert (resolved, restored) == (rows, {"open": 60})
    web.assert_each_offset_once(web.produce(0))
    assert web.audit().complete


@also_on_s3
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

    def replay(session: SparkSession) -> ReplayReport:
        return replayed(replace(web, session=lambda: session), at=at)

    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(replay, [web.session().newSession() for _ in range(2)]))

    web.assert_each_offset_once(web.produce(0))
    entries = web.entries()
    assert [entry.kind for entry in entries] == ["start", "drain", "drain", "replay"]
    assert entries[-1].positions == entries[-2].positions
    assert [report.outcomes.get("row", 0) > 0 for report in reports].count(True) == 1
    assert web.audit().complete


def test_letters_behind_the_position_are_left_to_the_drain(driven: DrivenFactory) -> None:
    """Messages after a rewind are drained again: if they were replayed too, they would be there twice.

    Procedure: prepare a rewind, and let a replay of a part commit before it; delete the replay's rows, rewind; replay;
    drain; give up what is still open.
    """
    web = with_letters(driven, bad=0.0, partitions=1)
    early = web.decide("rewind", topic_partition=web.tp(), to=20)
    first = replayed(web, letter_filter=DeadLetterFilter(offsets=OffsetRange(web.tp(), 50, 60)))
    with pytest.raises(OvertakenCommit):
        web.carry_out(early)
    DeltaTable(web.uri).delete("meta.kafka.offset >= 50")
    web.carry_out(web.decide("rewind", topic_partition=web.tp(), to=20))

    done = replayed(web)
    web.drain()
    given_up = discarded(web, because="they are rows")

    assert first.outcomes == {"row": 10}
    assert (done.outcomes, done.waiting) == ({"row": 20}, 40)
    assert given_up.outcomes == {}  # the drain's outcome counts, and it made rows of them
    assert web.rows("meta.kafka.offset") == list(range(60))
    assert states(web) == {"resolved": 60}
    assert web.audit().complete


@pytest.mark.parametrize("act", [replayed, DrivenStream.drain])
def test_letters_that_are_restored_before_a_commit_counts_on_them_stop_it(
    driven: DrivenFactory, act: Callable[..., object]
) -> None:
    """Purpose: a writer that looks only for its own letters does not see that older letters are gone.
    Procedure: two drains with letters; during a replay or a third drain, between its look and its own letters, the dead
    letters are restored to those of the first drain.
    Pass: an error says so, and nothing is committed.
    """
    web = with_letters(driven, 20)
    web.produce(20, seed=1)
    web.drain(replace(web.stream, columns=WRONG))
    web.produce(20, bad=0.5, seed=2)
    letters = web.stream.dead_letters_uri(web.lake)

    def restore(point: str) -> None:
        if point == "files written" and TableLog.existing(letters).version == 1:
            DeltaTable(letters).restore(0)

    with pytest.raises(DeadLettersReplaced):
        act(web, at=restore)
    assert [e.kind for e in web.entries()] == ["start", "drain", "drain"]
