"""Rows behind positions that are set back: taken out in the commit of the decision, and drained again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kdi_assets.drain.resolve import Decision, carry_out_decision, decide
from kdi_assets.ledger.audit import AuditReport
from kdi_assets.ledger.commit import OvertakenCommit
from kdi_assets.ledger.history import entries
from kdi_assets.ledger.life import life
from kdi_assets.ledger.log import TableLog
from kdi_assets.replay.replay_letters import replay_letters
from tests.condemned import WRONG, states
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults.topics import delete_records, make_again


def rewound(web: DrivenStream, version: int) -> Decision:
    return decide(web.stream, web.lake, "rewind", to_version=version, session=web.session)


def carried_out(web: DrivenStream, decision: Decision) -> int:
    entry = carry_out_decision(
        web.session(), decision, web.stream, web.lake, decided_by="ann", because="a wrong column"
    )
    return entry.version


def is_closed(web: DrivenStream) -> AuditReport:
    """Nothing is missing and nothing there twice, by the audit."""
    report = web.audit()
    assert (report.complete, report.missing, report.twice) == (True, 0, 0), report.line()
    kept = report.became_rows + report.dead_letters + report.tombstones + report.filtered + report.gaps
    assert report.offsets == kept + report.declared_losses + report.deleted
    return report


def feed(web: DrivenStream, version: int) -> Counter[str]:
    """What the change feed tells of a commit."""
    reader = web.session().read.format("delta").option("readChangeFeed", "true")
    changes = reader.option("startingVersion", version).option("endingVersion", version).load(web.uri)
    return Counter(r["_change_type"] for r in changes.select("_change_type").collect())


def told(web: DrivenStream) -> list[str]:
    return [event.told for event in life(web.stream, web.lake)]


def halves(driven: DrivenFactory) -> DrivenStream:
    """Two drains with dead letters and tombstones, of two topic partitions."""
    web = driven(partitions=2)
    for seed in range(2):
        web.produce(40, bad=0.2, tombstones=0.1, seed=seed)
        web.drain()
    return web


@pytest.mark.core
def test_rows_are_removed_in_the_commit_that_sets_the_positions_back(driven: DrivenFactory) -> None:
    """Procedure: rewind to the first of two drains; once more by the same decision; audit; drain; audit."""
    web = halves(driven)
    produced, before = web.produce(0), is_closed(web)

    decision = rewound(web, 1)
    assert TableLog.existing(web.uri).version == 2  # shown is not done
    version = carried_out(web, decision)
    removed = is_closed(web)
    with pytest.raises(OvertakenCommit):
        carry_out_decision(web.session(), decision, web.stream, web.lake)
    left = len(web.found().rows)
    listed = states(web)
    web.drain()
    again = is_closed(web)

    assert decision.beyond.row_count == decision.beyond.messages == before.rows - left > 20
    assert decision.beyond.letters == before.dead_letters - removed.dead_letters > 0
    assert feed(web, version) == {"delete": decision.beyond.row_count}
    assert listed["open"] == before.dead_letters  # they wait
    assert states(web) == {"open": again.dead_letters}
    assert (again.rows, again.dead_letters, again.tombstones) == (before.rows, before.dead_letters, before.tombstones)
    web.assert_each_offset_once(produced)
    assert f"{decision.beyond.row_count} rows removed" in told(web)[1]
    assert f"{web.stream.topic}/0: 40 to 20" in told(web)[1]
    entry = entries(web.uri, web.stream.app_id)[-2]
    assert (entry.decided_by, entry.because, entry.kind) == ("ann", "a wrong column", "resolve")


def test_letters_of_what_is_given_up_stay_open_and_come_back_from_what_was_kept_of_them(driven: DrivenFactory) -> None:
    """Procedure: a drain, and one by a definition that condemns all; rewind to the start; retention takes
    the first half of the rows and of the letters; accept that; replay the letters by the right definition; drain."""
    web = driven(partitions=1)
    web.produce(20)
    web.drain()
    wrong = web.with_definition(columns=WRONG)
    wrong.produce(20, seed=1)
    wrong.drain()
    carried_out(web, rewound(web, 0))
    delete_records(web, {0: 30})

    loss = decide(web.stream, web.lake, "accept-loss", session=web.session)
    carried_out(web, loss)
    given_up, open_then = is_closed(web), states(web)
    replayed = replay_letters(web.stream, lake=web.lake, session=web.session)
    came_back = is_closed(web)
    web.drain()
    drained = is_closed(web)

    assert (open_then, given_up.rows, given_up.declared_losses) == ({"open": 20}, 0, 30)
    assert (replayed.outcomes, replayed.waiting) == ({"row": 10}, 10)
    assert (came_back.rows, came_back.declared_losses) == (10, 20)
    assert messages_of(web) == list(range(20, 40))
    assert (drained.rows, drained.declared_losses, drained.dead_letters) == (20, 20, 0)
    assert states(web) == {"resolved": 20}


def test_rows_of_a_topic_that_was_there_before_are_not_taken(driven: DrivenFactory) -> None:
    """Procedure: drain; the topic is made again and drained from its start; rewind to there, and drain; again."""
    web = driven(partitions=1)
    web.produce(20)
    web.drain()
    anew = replace(web, publisher=make_again(web, partitions=1))
    carried_out(web, decide(web.stream, web.lake, "new-topic", session=web.session))
    anew.produce(10, bad=0.2, seed=1)
    anew.drain()
    start, both = entries(web.uri, web.stream.app_id)[-2].version, messages_of(web)

    removed = rewound(web, start)
    carried_out(web, removed)
    of_old = messages_of(web)
    web.drain()

    assert removed.beyond.row_count == len(both) - 20 < 10
    assert (of_old, messages_of(web)) == (list(range(20)), both)
    assert web.audit().complete


def messages_of(web: DrivenStream) -> list[int]:
    """Offsets of all rows."""
    return sorted(r["meta"]["kafka"]["offset"] for r in web.found().rows)
