"""Replay of dead letters: what is good by the definition of now becomes rows, each message exactly once."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kdi_assets.drain.accept_routes import commit_routes, decide_routes
from kdi_assets.drain.expectations import ExpectationNotMet
from kdi_assets.drain.judge import verdicts
from kdi_assets.drain.refusals import AccountingMismatch
from kdi_assets.drain.resolve import carry_out_decision, decide
from kdi_assets.drain.route_change import RoutesChanged
from kdi_assets.formats.of_stream import StreamDecoder
from kdi_assets.ledger.history import entries
from kdi_assets.ledger.log import TableLog
from kdi_assets.message_rules import DeadLetterLimit, Expectation
from kdi_assets.replay import judged_again
from kdi_assets.replay.chosen import Chosen
from kdi_assets.replay.replay_letters import discard_letters, replay_dry, replay_letters
from kdi_assets.stream import OffsetRange, Stream, TopicPartition
from tests.condemned import RIGHT, WRONG, states, with_letters
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults.topics import make_again
from tests.routed import GOOD, METHODS, PATCH, group_of


def crossed(messages: DataFrame, stream: Stream, decoder: StreamDecoder, *, now: datetime) -> DataFrame:
    """``verdicts`` that takes one row for a dead letter, and one dead letter for a row."""
    told = verdicts(messages, stream, decoder, now=now)
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
    """Procedure: everything is condemned by a wrong definition, some of it by any; replay with the right one, twice."""
    web = with_letters(driven, 300, partitions=3)
    before = entries(web.uri, web.stream.app_id)[-1]

    looked = replay_dry(web.stream, lake=web.lake, session=web.session)
    done = replay_letters(web.stream, lake=web.lake, session=web.session)
    again = replay_letters(web.stream, lake=web.lake, session=web.session)

    web.assert_each_offset_once(web.produce(0))
    rows, bad = done.outcomes["row"], done.outcomes["dead_letter"]
    assert rows + bad == 300
    assert rows == len(web.found().rows) > 200
    assert looked.outcomes == done.outcomes
    assert sum(c.letters for c in looked.letter_changes) == 300
    assert (again.outcomes, again.commit) == ({"dead_letter": bad}, None)
    assert states(web) == {"resolved": rows, "open": bad}
    entry = entries(web.uri, web.stream.app_id)[-1]
    assert entry.positions == before.positions
    assert (entry.kind, sum(entry.returned.values()), entry.rows) == ("replay", rows, rows)
    audit = web.audit()
    assert (audit.complete, audit.became_rows, audit.dead_letters) == (True, rows, bad), audit.notes


def test_only_what_is_chosen_is_replayed_or_discarded_and_what_todays_filter_leaves_out_has_no_row(
    driven: DrivenFactory,
) -> None:
    """Procedure: replay by a reason that no letter has, then some offsets; discard others; somebody inserts the row of
    one by hand; replay the rest.
    """
    web = with_letters(driven, bad=0.0).with_definition(filter="kafka.offset % 2 = 0")
    tp = TopicPartition(web.stream.topic, 1)
    some = Chosen(offsets=OffsetRange(tp, 5, 15))
    others = Chosen(field="columns.host", offsets=OffsetRange(tp, 15, 30))

    none = replay_letters(web.stream, lake=web.lake, session=web.session, chosen=Chosen(reason="no_date"))
    first = replay_letters(web.stream, lake=web.lake, session=web.session, chosen=some)
    rows = {(r["meta"]["kafka"]["partition"], r["meta"]["kafka"]["offset"]) for r in web.found().rows}
    gone = discard_letters(
        web.stream, lake=web.lake, session=web.session, decided_by="ann", because="test data", chosen=others
    )
    insert(web, partition=0, offset=2)
    rest = replay_letters(web.stream, lake=web.lake, session=web.session)

    assert none.messages == 0
    assert (first.outcomes, rows) == ({"filtered": 5, "row": 5}, {(1, offset) for offset in range(6, 15, 2)})
    entry = next(e for e in entries(web.uri, web.stream.app_id) if e.kind == "discard")
    assert (entry.decided_by, entry.because, entry.outcomes) == ("ann", "test data", gone.outcomes)
    assert gone.outcomes == {"discarded": 15}
    assert rest.outcomes == {"filtered": 17, "row": 18}
    assert states(web) == {"resolved": 45, "discarded": 15}
    assert len(web.found().dead_letters) == 60 - 5 - 18  # none is taken away
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
    """Procedure: an expectation that stops a drain; then, the second pass takes a row for a letter, and a letter for a
    row, so that the counts are the same.
    """
    web = with_letters(driven)
    strict = replace(web.stream, expectations={"never": Expectation("false", "fail")})
    version = TableLog.existing(web.uri).version

    for act in (replay_dry, replay_letters):
        with pytest.raises(ExpectationNotMet):
            act(strict, lake=web.lake, session=web.session)
    monkeypatch.setattr(judged_again, "verdicts", crossed)
    for act in (replay_dry, replay_letters):
        with pytest.raises(AccountingMismatch, match="Run:  kdi dead-letters replay"):
            act(web.stream, lake=web.lake, session=web.session)
    monkeypatch.undo()

    assert TableLog.existing(web.uri).version == version
    replay_letters(web.stream, lake=web.lake, session=web.session)
    web.assert_each_offset_once(web.produce(0))
    assert web.audit().complete


def test_what_another_table_of_the_route_group_should_have_stays_open(driven: DrivenFactory) -> None:
    """Purpose: the other table passed the message long ago, as not its own: nobody else would ever look at it.
    Procedure: nothing could be decoded, by a mistake in the documents; drain both tables; mend them, and change the
    conditions; replay; accept the conditions; replay, and land behind the first drain by them.
    Pass: a replay by conditions that nobody accepted is refused; one behind a drain takes no conditions back.
    """
    web = driven(partitions=1)
    tables = group_of(web)
    messages = [GOOD, GOOD.replace("GET", "DELETE"), PATCH, "bad"]
    tables["gone"].publisher.produce_all(tables["gone"].stream.topic, messages)
    for name in ("read", "gone"):
        tables[name].with_definition(compression="gzip").drain()
    changed = group_of(web, {**METHODS, "read": (*METHODS["read"], "PATCH")})
    gone = changed["gone"]
    with pytest.raises(RoutesChanged):
        replay_letters(gone.stream, lake=gone.lake, session=gone.session)
    decision = decide_routes(gone.stream, [t.stream for t in changed.values()], gone.lake)
    commit_routes(gone.session(), decision)

    def drain_first(point: str) -> None:
        if point == "outcomes written":
            web.publisher.produce_all(web.stream.topic, [GOOD])
            gone.drain()

    looked = replay_dry(gone.stream, lake=gone.lake, session=gone.session)
    done = replay_letters(gone.stream, lake=gone.lake, session=gone.session, at=drain_first)
    again = replay_letters(gone.stream, lake=gone.lake, session=gone.session)

    assert looked.outcomes == done.outcomes == {"row": 1, "elsewhere": 2, "dead_letter": 1}
    assert (again.outcomes, again.commit) == ({"elsewhere": 2, "dead_letter": 1}, None)
    assert states(gone) == {"resolved": 1, "open": 3}
    assert gone.audit().complete
    assert entries(gone.uri, gone.stream.app_id)[-1].kind == "replay"
    assert gone.drain().backlog_after == 0


def test_letters_of_a_topic_that_was_made_anew_are_still_judged(driven: DrivenFactory) -> None:
    """Their offsets lie behind positions that begin at 0 again, and no drain reads them any more."""
    web = with_letters(driven, 40, bad=0.0)
    make_again(web, partitions=1)
    decision = decide(web.stream, web.lake, "new-topic", session=web.session)
    carry_out_decision(web.session(), decision, web.stream, web.lake)

    done = replay_letters(web.stream, lake=web.lake, session=web.session)

    assert (done.outcomes, done.waiting) == ({"row": 40}, 0)
    assert states(web) == {"resolved": 40}
    assert web.audit().complete


def test_letters_that_do_not_hold_their_message_are_left_open(driven: DrivenFactory) -> None:
    web = driven(partitions=1, columns=WRONG, dead_letter_limit=DeadLetterLimit(share=1.0))
    web = web.with_definition(dead_letter_payload="withhold")
    web.produce(20)
    web.drain()
    web = replace(web, stream=replace(web.stream, columns=RIGHT, dead_letter_payload=None))

    done = replay_letters(web.stream, lake=web.lake, session=web.session)

    assert (done.messages, done.withheld, done.commit) == (0, 20, None)
    assert states(web) == {"open": 20}
