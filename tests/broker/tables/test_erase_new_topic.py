"""Erasure from a table with the messages of two topics: the topic was created again, so offsets are there twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from deltalake import DeltaTable

from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.operate.monitoring.commit_history import commit_history
from kdi_assets.streams.replay.replay_letters import replay_letters
from kdi_assets.streams.resolve.errors import NothingToResolve
from tests.broker.tables.test_erase import RECORD, Crash, crash, erased, message, stored_bytes
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, Once
from tests.faults.topics import make_again

OF_OLGA, OF_EVE = "person = 'olga'", "person = 'eve'"


@pytest.fixture
def both(driven: DrivenFactory) -> DrivenStream:
    """Two topics in one table.

    Of the first one, rows of Olga's and Bob's at 0 to 3 and their broken messages at 4 and 5; of the second one, a
    broken message of Bob's at 0, Eve's at 1, which becomes a row by a replay, and a row of Bob's at 2.
    """
    web = driven(partitions=1, **RECORD)
    web.send(message("olga"), message("bob"), message("bob", 2), message("bob", 2))
    web.send('{"person": "olga", "day"', '{"person": "bob", "day"')
    web.drain()
    anew = replace(web, publisher=make_again(web, partitions=1))
    anew.resolve("new-topic")
    anew.send('{"person": "bob", "day": "mai', '{"person": "eve", "day": "never"}', message("bob", 3))
    anew.drain()
    dated = replace(anew.stream, date_expression="DATE'2026-03-03'")
    replay_letters(dated, lake=anew.lake, session=anew.session)
    return anew


def people_at(web: DrivenStream) -> list[tuple[int, str]]:
    return sorted((row["kafka"]["offset"], row["person"]) for row in web.rows())


def open_letters(web: DrivenStream) -> int:
    report = replay_letters(web.stream, lake=web.lake, session=web.session, dry_run=True)
    return sum(report.outcomes.values())


BEFORE = [(0, "olga"), (1, "bob"), (1, "eve"), (2, "bob"), (2, "bob"), (3, "bob")]


def test_a_row_is_erased_and_the_dead_letter_of_the_other_topic_at_its_offset_stays_and_is_open(
    both: DrivenStream,
) -> None:
    web = both
    before = open_letters(web)

    done = erased(web, OF_OLGA)
    audit = web.audit()

    assert people_at(web) == BEFORE[1:]
    assert (done.rows, done.dead_letters, done.letter_records) == (1, 0, 0)
    assert b'"mai' in stored_bytes(web)
    assert open_letters(web) == before == 3
    assert (audit.complete, audit.missing, audit.dead_letters, audit.erased) == (True, 0, 3, 1)


def test_dead_letters_of_the_first_topic_are_erased_also_above_the_positions_of_the_second(both: DrivenStream) -> None:
    web = both

    with pytest.raises(Crash):
        erased(web, letters="CAST(value AS STRING) LIKE '%olga%'", at=Once("commit sent", crash))
    between = open_letters(web)
    left = erased(web, again=True, dry_run=True)
    erased(web, again=True)
    audit = web.audit()

    assert between == 2, "nobody reads the erased one any more"
    assert (left.rows, left.letter_records) == (0, 1)
    assert people_at(web) == BEFORE
    assert open_letters(web) == 2
    assert (audit.complete, audit.missing, audit.dead_letters, audit.erased) == (True, 0, 2, 1)
    assert web.decide("rewind", topic_partition=web.tp(), to=1).after == {web.tp(): 1}, (
        "nothing of this topic is erased"
    )


def test_again_after_a_kill_erases_what_is_left_and_no_row_of_the_other_topic(both: DrivenStream) -> None:
    web = both

    with pytest.raises(Crash):
        erased(web, OF_EVE, at=Once("commit sent", crash))
    found = erased(web, OF_EVE)
    again = erased(web, again=True)
    audit = web.audit()

    assert (found.committed, found.left_letters) == (None, 2), "the dead letter, and the record of its replay"
    assert b"never" not in stored_bytes(web)
    assert people_at(web) == [each for each in BEFORE if each[1] != "eve"]
    assert (again.uncertain_rows, again.uncertain_at) == (1, (OffsetRange(web.tp(), 1, 2),))
    assert (audit.complete, audit.missing, audit.erased) == (True, 0, 1)
    with pytest.raises(NothingToResolve, match="offset 1 of .* was erased"):
        web.decide("rewind", topic_partition=web.tp(), to=1)


def test_again_after_a_restore_names_the_rows_that_may_be_of_the_other_topic(both: DrivenStream) -> None:
    """Purpose: the table of erased offsets does not say which of two topics a row was of."""
    web, version = both, both.version()
    erased(web, OF_OLGA)
    DeltaTable(web.uri).restore(version)
    web.drain()
    restored = next(iter(commit_history(web.stream, web.lake))).version

    again = erased(web, again=True)

    assert again.committed is None and web.version() == restored
    assert (again.uncertain_rows, again.uncertain_at) == (1, (OffsetRange(web.tp(), 0, 1),))
    assert people_at(web) == BEFORE
