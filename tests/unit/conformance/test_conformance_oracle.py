"""The oracle of the conformance suite finds each way in which a table can differ from its topic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from kdi_assets.tools.conformance.layout import Found, FoundRows
from kdi_assets.tools.conformance.messages import Fate, Sent, fate_of
from kdi_assets.tools.conformance.oracle import WriterAccount, account

TODAY = date(2026, 3, 1)
ROWS = FoundRows(uri="table", partition="partition", offset="offset", date="date")
SAID = {"id": 1, "name": "näme", "amount": 0.25, "at": "2026-02-03T04:05:06Z"}


def sent(offset: int, *, value: bytes | None = None, fate: Fate | None = None, topic: int = 0) -> Sent:
    value = value if value is not None or fate == "no trace needed" else encoded(id=offset)
    return Sent(topic, 0, offset, value, fate or fate_of(value, today=TODAY))


def encoded(**fields: Any) -> bytes:
    return json.dumps({**SAID, **fields}).encode()


def row(offset: int, **fields: Any) -> Found:
    return Found((0, offset), {**SAID, "id": offset, "date": date(2026, 2, 3), **fields})


def letter(offset: int | None, value: bytes | None) -> Found:
    return Found(None if offset is None else (0, offset), None, value)


def judged(produced: Sequence[Sent], *found: Found, rows: FoundRows = ROWS, **options: Any) -> WriterAccount:
    return account(produced, found, rows=rows, **options)


def test_a_table_with_every_message_once_is_faultless() -> None:
    bad = sent(2, value=b"no json")

    told = judged([sent(0), sent(1), bad], row(0), row(1), letter(2, b"no json"))

    assert (told.faultless, told.messages, told.kept, told.first) == (True, 3, 3, ())


def test_one_loss_and_one_double_do_not_cancel_out() -> None:
    told = judged([sent(0), sent(1), sent(2)], row(0), row(0), row(2))

    assert ([m.offset for m in told.lost], told.doubled, told.kept) == ([1], ((0, 0),), 2)
    assert told.first == ("partition 0 offset 0 is there again", "partition 0 offset 1 is lost")


@pytest.mark.parametrize(
    "field",
    [{"amount": 0.5}, {"name": None}, {"at": "2026-02-03T04:05:07Z"}, {"date": date(2026, 2, 4)}, {"id": 7}],
)
def test_a_row_with_one_other_value_is_changed(field: dict[str, Any]) -> None:
    told = judged([sent(0)], row(0, **field))

    assert ([m.offset for m in told.changed], told.lost, told.kept) == ([0], (), 0)
    assert next(iter(field)) in told.first[0]


def test_values_at_each_others_offsets_are_two_changes() -> None:
    told = judged([sent(0), sent(1)], row(0, id=1), row(1, id=0))

    assert len(told.changed) == 2


def test_a_row_of_nulls_does_not_stand_for_a_value_that_is_no_message() -> None:
    nulls = Found((0, 0), dict.fromkeys((*SAID, "date")))

    told = judged([sent(0, value=b"{")], nulls)

    assert len(told.changed) == 1


def test_a_dead_letter_must_have_the_bytes_and_must_be_of_a_bad_message() -> None:
    told = judged([sent(0, value=b"{"), sent(1)], letter(0, b"{ "), letter(1, encoded(id=1)))

    assert [m.offset for m in told.changed] == [0, 1]


def test_dead_letters_without_coordinates_are_found_by_their_values() -> None:
    produced = [sent(0, value=b"{"), sent(1, value=b"["), sent(2, value=b"[")]

    told = judged(produced, letter(None, b"["), letter(None, b"{"), letter(None, b"x"))

    assert ([m.offset for m in told.lost], told.invented, told.kept) == ([2], (None,), 2)


def test_a_row_of_an_aborted_transaction_is_invented() -> None:
    told = judged([sent(0), sent(1, fate="nothing")], row(0), row(1))

    assert (told.invented, told.first) == (((0, 1),), ("partition 0 offset 1 is of an aborted transaction",))


def test_a_row_of_an_offset_that_nobody_produced_is_invented() -> None:
    assert judged([sent(0)], row(0), row(9)).invented == ((0, 9),)


def test_a_tombstone_may_leave_nothing_or_one_row_of_nulls() -> None:
    tombstone = sent(0, fate="no trace needed")
    nulls = Found((0, 0), dict.fromkeys((*SAID, "date")))

    assert judged([tombstone]).faultless
    assert judged([tombstone], nulls).faultless
    assert judged([tombstone], nulls, nulls).doubled == ((0, 0),)
    assert not judged([tombstone], row(0)).faultless


def test_an_offset_of_two_topics_needs_both_messages() -> None:
    both = [sent(0, value=encoded(id=1)), sent(0, value=encoded(id=2), topic=1)]

    assert judged(both, row(0, id=1), row(0, id=2)).faultless
    assert [m.topic for m in judged(both, row(0, id=1)).lost] == [1]
    assert judged(both, row(0, id=2), row(0, id=2)).doubled == ((0, 0),)


def test_what_kafka_deleted_may_be_there_and_is_never_lost() -> None:
    produced = [sent(0), sent(1)]

    told = judged(produced, row(1), deleted=produced)

    assert (told.faultless, [m.offset for m in told.unreachable], told.kept) == (True, [0], 1)
    assert judged(produced, row(1), row(1), deleted=produced).doubled == ((0, 1),)


def test_a_field_that_was_added_must_be_in_a_column_or_in_the_rest() -> None:
    added = [sent(0, value=encoded(id=0, country="DE"))]

    assert len(judged(added, row(0)).changed) == 1
    assert judged(added, row(0, country="DE")).faultless
    with_rest = replace_rest(ROWS)
    assert judged(added, row(0, others='{"country": "DE"}'), rows=with_rest).faultless
    assert len(judged(added, row(0, others='{"country": "PT"}'), rows=with_rest).changed) == 1


def replace_rest(rows: FoundRows) -> FoundRows:
    return rows.model_copy(update={"rest": "others"})


def test_a_column_of_timestamps_holds_the_moment_of_the_text() -> None:
    moment = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)

    assert judged([sent(0)], row(0, at=moment)).faultless
    assert len(judged([sent(0)], row(0, at=moment.replace(second=7))).changed) == 1


def test_true_is_not_one() -> None:
    added = [sent(0, value=encoded(id=0, member=True))]

    assert len(judged(added, row(0, member=1)).changed) == 1


@pytest.mark.parametrize(
    ("value", "fate"),
    [
        (encoded(), "row"),
        (encoded(country="DE"), "row"),
        (encoded(name=None), "row"),
        (encoded(at="1850-01-02T03:04:05Z"), "row or dead letter"),
        (encoded(at="2026-02-30T03:04:05Z"), "row or dead letter"),
        (encoded(id="1"), "dead letter"),
        (encoded(id=True), "dead letter"),
        (encoded() + b"{}", "dead letter"),
        (b'{"id": 1, "amount": NaN, "at": "2026-02-03T04:05:06Z"}', "dead letter"),
        (b"", "dead letter"),
        (b"\xff", "dead letter"),
        (None, "no trace needed"),
    ],
)
def test_the_suite_reads_a_message_itself(value: bytes | None, fate: Fate) -> None:
    assert fate_of(value, today=TODAY) == fate


def test_the_same_message_of_another_topic_is_another_message() -> None:
    assert sent(0) != replace(sent(0), topic=1)
