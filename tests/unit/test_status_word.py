"""Burrow's words for a topic partition."""

from __future__ import annotations

import pytest

from kdi_assets.drain.backlog import PATIENCE, Sample, StatusWord, status_word, worst

LIMIT = 60.0


def judged(
    *window: tuple[int, int | None],
    position: int,
    end: int,
    waiting: float | None = 5.0,
    patience: float | None = LIMIT,
) -> StatusWord:
    samples = [Sample(*one) for one in window]
    return status_word(samples, position=position, end=end, waiting_seconds=waiting, patience_seconds=patience)


@pytest.mark.parametrize(
    ("window", "position", "end", "word"),
    [
        ([(10, 30), (20, 40)], 20, 20, "OK"),  # nothing waits, whatever was before
        ([(10, 10), (20, 40)], 20, 60, "OK"),  # caught up within the window
        ([(10, 30), (20, 35)], 20, 34, "OK"),  # 20, 15, 14 left: it falls
        ([(10, 30), (20, 40)], 20, 40, "WARN"),  # 20 left each time, though the position moves
        ([(10, 30), (20, 50)], 20, 60, "WARN"),  # ever more
        ([(20, 30), (20, 40)], 20, 50, "STALL"),  # the stream commits, this one stays
        ([(20, 30), (10, 40)], 10, 50, "REWIND"),
        ([(20, 30), (20, 30)], 10, 50, "REWIND"),  # someone set it back since the last commit
        ([(20, None), (20, None)], 20, 50, "OK"),  # an older release did not say where the topic ended
        ([(20, 30)], 20, 50, "OK"),  # one commit shows no direction
        ([], 0, 50, "OK"),
    ],
)
def test_the_window_and_now_decide(window: list[tuple[int, int | None]], position: int, end: int, word: str) -> None:
    assert judged(*window, position=position, end=end) == word


def test_what_waits_thrice_as_long_as_the_document_allows_has_stopped_whatever_the_window_says() -> None:
    caught_up = [(10, 10), (20, 20)]

    assert judged(*caught_up, position=20, end=21, waiting=PATIENCE * LIMIT) == StatusWord.OK
    assert judged(*caught_up, position=20, end=21, waiting=PATIENCE * LIMIT + 1) == StatusWord.STOP
    assert judged(position=0, end=1, waiting=PATIENCE * LIMIT + 1) == StatusWord.STOP


def test_a_stream_that_promises_nothing_about_time_never_stops_by_the_clock() -> None:
    assert judged((10, 10), (20, 20), position=20, end=21, waiting=1e6, patience=None) == StatusWord.OK
    assert judged((10, 10), (20, 20), position=20, end=21, waiting=None) == StatusWord.OK


def test_a_stream_has_the_worst_word_of_its_topic_partitions() -> None:
    assert worst([StatusWord.OK, StatusWord.STALL, StatusWord.WARN]) is StatusWord.STALL
    assert worst([StatusWord.REWIND, StatusWord.WARN]) is StatusWord.REWIND
    assert worst([]) is None
