"""The harness itself: what the oracle must notice, and that slices of the proof contain every module once."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from tests.kafka_log import Produced
from tests.oracle import Found, Reading, assert_each_offset_once
from tests.slices import Slice

TP = TopicPartition("web", 0)
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def message(offset: int, *, url: str = "http://a.example/", status: object = 200) -> Produced:
    said = {"meta": {"producer": {"timestamp": "2026-01-02T03:04:05Z"}}, "method": "GET", "session_id": "s"}
    value = json.dumps({**said, "status": status, "url": url, "uuid": str(offset)}).encode()
    return Produced(TP, offset, b"k", value, (), MOMENT)


def row(m: Produced) -> dict[str, Any]:
    said = json.loads(m.value or b"")
    kafka = {"topic": "web", "partition": 0, "offset": m.offset, "timestamp": m.timestamp}
    return {**said, "meta": {**said["meta"], "kafka": kafka}, "date": date(2026, 1, 2), "host": "a.example"}


def letter(m: Produced) -> dict[str, Any]:
    at = {"topic": "web", "partition": 0, "offset": m.offset, "timestamp": m.timestamp}
    return {**at, "key": m.key, "value": m.value, "headers": [], "reason": "no_json"}


MESSAGES = [message(offset, status=200 if offset < 8 else "OK") for offset in range(10)]
ROWS = [row(m) for m in MESSAGES[:8]]
LETTERS = [letter(m) for m in MESSAGES[8:]]


def test_what_is_as_it_was_produced_passes_and_a_tombstone_leaves_no_trace() -> None:
    tombstone = replace(message(10), value=None)

    assert_each_offset_once([*MESSAGES, tombstone], Found(ROWS, LETTERS))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Found(ROWS[:3] + ROWS[5:], LETTERS), r"offset 3 is in neither table; missing 0: \[3, 5\), .*; seed 7$"),
        (Found(ROWS, LETTERS[1:]), r"offset 8 is in neither table; missing 0: \[8, 9\)"),
        (Found([*ROWS, ROWS[2]], LETTERS), r"offset 2 is there twice; missing none, doubled 0: \[2, 3\)"),
        (Found(ROWS, [*LETTERS, LETTERS[0]]), r"offset 8 is there twice"),
        (Found(ROWS, [*LETTERS, letter(MESSAGES[0])]), r"offset 0 is there twice"),
        (Found(ROWS[1:], [*LETTERS, letter(MESSAGES[0])]), r"web/0@0: dead letter: is good is True"),
        (
            Found([*ROWS, row(message(77))], LETTERS),
            r"offset 77 is there and never produced; .*invented 0: .77, 78",
        ),
        # The right number: a count would not notice.
        (
            Found([*ROWS[1:], ROWS[2]], LETTERS),
            r"offset 0 is in neither table; missing 0: .0, 1., doubled 0: .2, 3",
        ),
    ],
)
def test_what_is_lost_twice_or_invented_is_named_with_ranges_and_seed(found: Found, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        assert_each_offset_once(MESSAGES, found, seed=7)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("row", "status", 404),
        ("row", "host", None),
        ("row", "date", date(2026, 1, 3)),
        ("dead letter", "value", b"other"),
        ("dead letter", "reason", None),
        ("dead letter", "headers", [{"key": "h", "value": b""}]),
    ],
)
def test_a_row_or_a_dead_letter_that_is_not_the_message_is_named(kind: str, field: str, value: object) -> None:
    rows, letters = ([{**first, field: value}, *others] for first, *others in (ROWS, LETTERS))
    found = Found(rows, LETTERS) if kind == "row" else Found(ROWS, letters)

    with pytest.raises(AssertionError, match=rf"web/0@[08]: {kind}: .* is"):
        assert_each_offset_once(MESSAGES, found)


def test_what_was_given_up_may_be_missing_and_may_not_be_there_twice() -> None:
    given_up = [OffsetRange(TP, 2, 4)]

    assert_each_offset_once(MESSAGES, Found(ROWS[:2] + ROWS[4:], LETTERS), given_up=given_up)
    assert_each_offset_once(MESSAGES, Found(ROWS, LETTERS), given_up=given_up)
    with pytest.raises(AssertionError, match="offset 2 is there twice"):
        assert_each_offset_once(MESSAGES, Found([*ROWS, ROWS[2]], LETTERS), given_up=given_up)


def test_of_a_topic_made_again_each_message_of_an_offset_must_be_there() -> None:
    again = [message(offset, url="http://a.example/again") for offset in range(2)]

    assert_each_offset_once([*MESSAGES, *again], Found([*ROWS, *(row(m) for m in again)], LETTERS))
    with pytest.raises(AssertionError, match="offset 1 is in neither table"):
        assert_each_offset_once([*MESSAGES, *again], Found([*ROWS, row(again[0])], LETTERS))
    with pytest.raises(AssertionError, match="web/0@1: row"):
        assert_each_offset_once([*MESSAGES, *again], Found([*ROWS, row(again[0]), ROWS[1]], LETTERS))


def exploded(m: Produced, *indexes: int) -> list[dict[str, Any]]:
    kafka = row(m)["meta"]["kafka"]
    return [{"n": 10 * m.offset + index, "kafka": {**kafka, "index": index, "count": 3}} for index in indexes]


EXPLODED = Reading(lambda m: {}, lambda m: True, lambda m: [{"n": 10 * m.offset + index} for index in range(3)])


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ((0, 1, 2), ""),
        ((0, 2), r"web/0@1: row: it has 3 rows, and those of index and count \[\(0, 3\), \(2, 3\)\] are there"),
        ((0, 1, 1, 2), r"offset 1 is there twice"),
        ((), r"offset 1 is in neither table"),
    ],
)
def test_of_a_message_with_several_rows_each_must_be_there_once(second: tuple[int, ...], told: str) -> None:
    found = Found([*exploded(MESSAGES[0], 2, 1, 0), *exploded(MESSAGES[1], *second)], [])

    with pytest.raises(AssertionError, match=told) if told else nullcontext():
        assert_each_offset_once(MESSAGES[:2], found, coordinates="kafka", reading=EXPLODED)


TESTS = Path(__file__).parents[2]
MODULES = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))


def test_four_slices_hold_every_module_once_and_none_is_much_larger() -> None:
    slices = [{m for m in MODULES if Slice(number, 4).holds(m)} for number in (1, 2, 3, 4)]

    assert sorted(module for part in slices for module in part) == MODULES
    assert max(map(len, slices)) < len(MODULES) / 3


@pytest.mark.parametrize("text", ["0/4", "5/4", "2", "a/b", "1/0"])
def test_what_is_no_slice_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is no slice"):
        Slice.parsed(text)
