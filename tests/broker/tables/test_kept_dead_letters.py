"""Dead letters that end: which leave with the dates that are kept no longer, and which are the only copy and stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable

from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.operate.upkeep.expiry import Expiry, expire, plan_expiry
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.replay.replay_letters import replay_letters
from tests.driven import DrivenStream, Once
from tests.faults.topics import delete_records, make_again
from tests.tables.kept import (
    KEPT_DAYS,
    NOBODY,
    Crash,
    at_age,
    crash,
    day,
    expired,
    ids,
    message,
    shown_letters,
    stored_letters,
)


def test_orphaned_letters_and_those_inside_a_declared_loss_stay(aged: DrivenStream) -> None:
    """Purpose: a dead letter that may be the only copy of its message is never removed.
    Procedure: drains die between old dead letters and their commit; someone gives up the offset of another old letter.
    Pass: all these are still stored after the expiry, and the audit counts as before.
    """
    web = aged
    for _ in range(2):
        web.send('{"id": 7, "day"', timestamp=at_age(11))
        with pytest.raises(Crash):
            web.drain(at=Once("dead letters written", crash))
    web.drain()
    web.resolve("rewind", topic_partition=web.tp(), to=7)
    delete_records(web, {0: 8})
    web.carry_out(web.decide("accept-loss"))
    web.drain()

    expired(web)
    audit = web.audit()

    stored = DeltaTable(web.stream.dead_letters_uri(web.lake)).to_pyarrow_table().to_pylist()
    assert sorted(r["offset"] for r in stored) == [3, 7, 7, 7, 8], "one 8 is of a drain that died, and nobody counts it"
    assert (audit.complete, audit.declared_losses, audit.kept_no_longer) == (True, 1, 5)


def test_the_dead_letter_of_a_message_that_became_a_row_leaves_with_the_row(aged: DrivenStream) -> None:
    web = aged
    strict = web.with_definition(date_expression="CASE WHEN id < 7 THEN to_date(day) END")
    web.send(message(7, 11), message(8, 9))
    strict.drain()
    replay_letters(web.stream, lake=web.lake, session=web.session)
    replayed = ids(web)

    expired(web)
    audit = web.audit()

    stored = DeltaTable(web.stream.dead_letters_uri(web.lake)).to_pyarrow_table().to_pylist()
    assert (replayed, ids(web)) == ([0, 1, 4, 5, 6, 7, 8], [4, 5, 8])
    assert {r["offset"] for r in stored} == {3, 8}
    assert (audit.complete, audit.rows, audit.kept_no_longer) == (True, 3, 5)


def test_a_dead_letter_whose_timestamp_is_no_time_leaves_by_the_day_of_its_commit(aged: DrivenStream) -> None:
    """Purpose: of a message without a true timestamp the dead letter is often the only copy, and is not removed at
    once.
    """
    web = aged
    seconds = datetime.fromtimestamp(at_age(0).timestamp() / 1000, UTC)
    web.send('{"id": 7, "day"', timestamp=seconds)
    web.send('{"id": 8, "day"', timestamp=datetime.fromtimestamp(0, UTC))
    web.drain()

    expired(web)
    stays = stored_letters(web)
    later = datetime.now(UTC) + timedelta(days=KEPT_DAYS + 1)
    planned = plan_expiry(web.stream, web.lake, NOBODY, now=later)
    done = expire(web.stream, web.lake, NOBODY, session=web.session, now=later)

    assert stays == [3, 7, 8]
    assert planned is not None and done is not None
    assert (planned.dead_letters, done.dead_letters, stored_letters(web)) == (3, 3, [])
    assert (web.audit().complete, web.audit().kept_no_longer) == (True, 9)


def test_a_dead_letter_of_a_message_that_was_drained_again_leaves_too(aged: DrivenStream) -> None:
    """Purpose: such letters are none of the ledger's any more, and must neither stay for ever nor be due each night.
    Procedure: two old messages become dead letters; after a rewind one becomes a row of today, one is filtered.
    Pass: the letters stay until the messages are drained again; then they leave without a commit, the audit of single
    offsets still finds the filtered message, and nothing more is due.
    """
    web = aged
    strict = web.with_definition(date_expression="CASE WHEN id < 7 THEN to_date(day) END")
    web.send(message(7, 0), message(8, 0), timestamp=at_age(11))
    strict.drain()
    web.resolve("rewind", topic_partition=web.tp(), to=7)
    rewound, not_drained = expired(web), stored_letters(web)
    web.stream = replace(web.stream, filter="id <> 8")
    web.drain()
    version = web.version()

    planned = plan_expiry(web.stream, web.lake, NOBODY, now=datetime.now(UTC))
    done = expired(web)
    bounds = {web.tp(): OffsetRange(web.tp(), 0, 9)}
    found = audit(web.stream, lake=web.lake, session=web.session, bounds=bounds)

    assert (rewound.dead_letters, not_drained) == (1, [3, 7, 8])
    assert planned is not None and (planned.dead_letters, done.dead_letters, done.committed) == (2, 2, None)
    assert (stored_letters(web), web.version(), ids(web)) == ([3], version, [4, 5, 7])
    assert (found.complete, found.missing, found.filtered) == (True, 0, 1)
    assert expired(web) == Expiry(day(KEPT_DAYS))


def test_the_messages_of_a_recreated_topic_keep_their_dead_letters(aged: DrivenStream) -> None:
    """Purpose: messages of two topics have the same offsets; only those of the first are old."""
    web = aged
    anew = replace(web, publisher=make_again(web, partitions=1))
    anew.resolve("new-topic")
    anew.send('{"id": 10, "day"', message(11, 1), message(12, 11), '{"id": 13, "day"')
    anew.drain()

    expired(anew)
    audit = anew.audit()

    assert ids(anew) == [4, 5, 11]
    assert [letter["offset"] for letter in shown_letters(anew)] == [0, 3, 3]
    assert (audit.complete, audit.rows, audit.dead_letters, audit.kept_no_longer) == (True, 3, 3, 5)


def test_a_replayed_letter_of_a_topic_takes_none_along_of_the_topic_that_was_made_again(aged: DrivenStream) -> None:
    """Purpose: the record of a replay has the replay's topic, its dead letter an earlier one.
    Procedure: a dead letter at offset 7; the topic is made again; a replay makes an old row of it; the new topic has a
    dead letter at offset 7; the old row leaves.
    """
    web = aged
    web.send(message(7, 11), timestamp=at_age(11))
    web.with_definition(date_expression="CASE WHEN id < 7 THEN to_date(day) END").drain()
    anew = replace(web, publisher=make_again(web, partitions=1))
    anew.resolve("new-topic")
    replay_letters(anew.stream, lake=anew.lake, session=anew.session)
    anew.send(*(message(10 + number, 1) for number in range(7)), '{"id": 17, "day"')
    anew.drain()
    replayed = ids(anew)

    expired(anew)
    audit = anew.audit()

    assert 7 in replayed and 7 not in ids(anew)
    assert [letter["offset"] for letter in shown_letters(anew)] == [3, 7]
    assert (audit.complete, audit.dead_letters) == (True, 2)


@pytest.mark.parametrize("at_once", [False, True])
def test_the_audit_of_some_offsets_knows_which_topics_messages_left(aged: DrivenStream, at_once: bool) -> None:
    """Purpose: messages of two topics have the same offsets, and leave in two commits or in one.
    Procedure: drain rows and dead letters of a topic and of the topic that was made again; the rows and letters of the
    first leave before those of the second are drained, or all leave together.
    Pass: an audit that looks at single offsets counts each message that left once.
    """
    web = aged
    if not at_once:
        expired(web)
    anew = replace(web, publisher=make_again(web, partitions=1))
    anew.resolve("new-topic")
    anew.stream = replace(anew.stream, keep_days=None)
    anew.send(message(10, 12), message(11, 1), message(12, 11), timestamp=at_age(11))
    anew.send('{"id": 13, "day"', timestamp=at_age(11))
    anew.drain()
    bounds = {anew.tp(): OffsetRange(anew.tp(), 0, 7)}

    between = audit(anew.stream, lake=anew.lake, session=anew.session, bounds=bounds)
    expired(anew)
    after = audit(anew.stream, lake=anew.lake, session=anew.session, bounds=bounds)

    assert (between.complete, between.missing) == (True, 0)
    assert between.kept_no_longer == (0 if at_once else 4)
    assert ids(anew) == [4, 5, 11]
    assert (after.complete, after.missing, after.kept_no_longer, after.dead_letters) == (True, 0, 7, 1)
