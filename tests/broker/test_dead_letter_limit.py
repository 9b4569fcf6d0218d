"""`dead_letter_limit`: a drain that would make dead letters of too much stops before anything is written."""

from __future__ import annotations

import pickle

import pytest

from kdi_assets.drain.dead_letters import Reason, TooManyDeadLetters
from kdi_assets.drain.drain import drain
from kdi_assets.ledger.log import TableLog
from kdi_assets.message_rules import DeadLetterLimit
from tests.conftest import DrivenFactory

GOOD = '{"meta":{"producer":{"timestamp":"2024-05-05T00:00:00Z"}},"method":"GET","status":200,"url":"https://a.b/"}'
WORD = GOOD.replace("200", '"OK"')


@pytest.mark.core
def test_a_wrong_schema_stops_before_a_single_dead_letter_is_written(driven: DrivenFactory) -> None:
    """Procedure: a document that takes a word for a number; drain; correct the document; drain."""
    web = driven(partitions=2, record_ddl="meta struct<producer: struct<timestamp: string>>, url string, uuid int")
    produced = web.produce(250, tombstones=0.1)

    with pytest.raises(TooManyDeadLetters) as refused:
        web.drain()

    count = sum(m.value is not None for m in produced)
    assert (refused.value.dead_letters, refused.value.messages) == (count, count)
    assert refused.value.reasons == (Reason("wrong_type", "uuid", count),)
    happened, _, run = refused.value.parts()
    assert f"{count} of {count} messages that should become rows would be dead letters (100.0%)" in happened
    assert f"{count} wrong_type in uuid" in happened
    assert run.endswith(f"kdi drain {web.stream.name} --accept-dead-letters")
    assert TableLog.open(web.stream.dead_letters_uri(web.lake)) is None
    assert [e.kind for e in web.entries()] == ["start"]


def test_the_first_reasons_are_named_with_their_counts_and_the_rest_as_a_number(driven: DrivenFactory) -> None:
    web = driven(partitions=1, dead_letter_limit=DeadLetterLimit(share=0.1, count=2))
    bad = [WORD, WORD, WORD, "{", "{", "[1]", " ", GOOD + "x", GOOD.replace("2024", "1024"), '{"status":1}']
    web.send(GOOD, *bad, None)

    with pytest.raises(TooManyDeadLetters) as refused:
        web.drain()

    assert (refused.value.dead_letters, refused.value.messages) == (10, 11)
    assert refused.value.reasons[:2] == (Reason("wrong_type", "status", 3), Reason("malformed_json", "", 2))
    assert len(refused.value.reasons) == 5
    assert ", 2 others. The limit is more than 2 and more than 0.1 of them." in refused.value.parts()[0]
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_plans_within_the_limit_that_came_first_stay_committed_and_the_others_can_be_taken_once(
    driven: DrivenFactory,
) -> None:
    web = driven(partitions=1, max_records=5, dead_letter_limit=DeadLetterLimit(share=0.5, count=1))
    web.send(*[GOOD] * 5, *[WORD] * 5)

    with pytest.raises(TooManyDeadLetters):
        web.drain()
    first = web.entries()[-1].positions
    accepted = drain(web.stream, lake=web.lake, session=web.session, accept_dead_letters=True)
    web.send(*[WORD] * 4)
    with pytest.raises(TooManyDeadLetters):
        web.drain()

    assert (first, accepted.positions) == ({web.tp(): 5}, {web.tp(): 10})
    assert (len(web.found().rows), accepted.rows_added, accepted.dead_letters) == (5, 0, 5)
    assert web.audit().complete


def test_what_is_filtered_does_not_hide_that_nothing_else_became_a_row(driven: DrivenFactory) -> None:
    limit = DeadLetterLimit(share=0.5, count=2)
    web = driven(partitions=1, filter="kafka.offset >= 20", columns={"n": "CAST(url AS INT)"}, dead_letter_limit=limit)
    web.send(*[GOOD] * 23)

    with pytest.raises(TooManyDeadLetters) as refused:
        web.drain()

    assert refused.value.reasons == (Reason("expression_failed", "columns.n", 3),)
    assert refused.value.messages == 3
