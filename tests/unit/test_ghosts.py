"""Ghosts are removed only where the whole log says who committed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from kdi_assets.ledger.entry import OF_REPLAY, DeadLettersAt, LedgerEntry, RangeCounts
from kdi_assets.ledger.ghosts import remove_ghosts
from kdi_assets.ledger.log import CommitUnreadable
from kdi_assets.stream import KafkaCluster, OffsetRange, Stream, TopicPartition
from sensors.leftovers import suspects_ghosts, sweep

P0 = TopicPartition("orders", 0)
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", KafkaCluster("main", "nowhere:1"))
LETTER = RangeCounts(OffsetRange(P0, 0, 10), became_rows=9, dead_letters=1)
COUNTS_ON = DeadLettersAt("letters", 1)
DRAIN = LedgerEntry(1, "drain", "orders", "committed", "orders", "topic", "table", {P0: 10}, ranges=(LETTER,))


@pytest.fixture
def first_commit(lake: str) -> Path:
    """The file of the table's first commit; one letter counts and one is a ghost."""
    for entry in (replace(DRAIN, attempt_id="first", ranges=()), replace(DRAIN, dead_letters_at=COUNTS_ON)):
        properties = CommitProperties(custom_metadata={"userMetadata": entry.to_json()})
        rows = pa.table({"id": [1]})
        write_deltalake(STREAM.table_uri(lake), rows, mode="append", commit_properties=properties)
    DeltaTable(STREAM.table_uri(lake)).create_checkpoint()
    letters = {"partition": [0, 0], "offset": [3, 3], "attempt_id": ["committed", "never committed"]}
    write_deltalake(STREAM.dead_letters_uri(lake), pa.table(letters))
    return Path(STREAM.table_uri(lake)) / "_delta_log" / f"{0:020}.json"


def attempts(lake: str) -> list[str]:
    """Whose letters are there."""
    letters = DeltaTable(STREAM.dead_letters_uri(lake)).to_pyarrow_table()
    return sorted(letters["attempt_id"].to_pylist())


@pytest.mark.parametrize("text", [None, "{cut off"])
def test_ghosts_are_kept_while_a_commit_that_may_name_them_cannot_be_read(
    lake: str, first_commit: Path, text: str | None
) -> None:
    whole = first_commit.read_text()
    first_commit.unlink()
    if text:
        first_commit.write_text(text)

    with pytest.raises(CommitUnreadable):
        remove_ghosts(STREAM, lake)
    kept = attempts(lake)
    first_commit.write_text(whole)
    removed = remove_ghosts(STREAM, lake)

    assert kept == ["committed", "never committed"]
    assert (removed, attempts(lake)) == (1, ["committed"])


def test_what_a_replay_that_never_committed_said_of_letters_is_left_where_it_is(lake: str, first_commit: Path) -> None:
    """It says so below the position, and may be about to commit; so may what condemns messages that were rows."""
    attempt_ids = ["a replay", "never committed", f"{OF_REPLAY}of dates"]
    said = {"partition": [0, 0, 0], "offset": [3, 4, 5], "attempt_id": attempt_ids}
    outcome = {"outcome": ["row", None, None]}
    write_deltalake(STREAM.dead_letters_uri(lake), pa.table(said | outcome), mode="append", schema_mode="merge")

    assert remove_ghosts(STREAM, lake) == 2
    assert attempts(lake) == ["a replay", "committed", f"{OF_REPLAY}of dates"]


def test_letters_of_the_table_in_whose_place_an_adopted_one_was_put_are_no_ghosts(lake: str) -> None:
    """No entry of the new table's log names those who wrote them."""
    adopted = replace(DRAIN, kind="resolve", ranges=())
    properties = CommitProperties(custom_metadata={"userMetadata": adopted.to_json()})
    write_deltalake(STREAM.table_uri(lake), pa.table({"id": [1]}), commit_properties=properties)
    letters = {"partition": [0], "offset": [3], "attempt_id": ["of the former table"]}
    write_deltalake(STREAM.dead_letters_uri(lake), pa.table(letters))

    assert (remove_ghosts(STREAM, lake), attempts(lake)) == (0, ["of the former table"])


def test_letters_that_are_older_than_the_table_are_no_ghosts(lake: str) -> None:
    """They may be of the table that was there before, and the only copies of their messages."""
    letters = {"partition": [0], "offset": [3], "attempt_id": ["of the former table"]}
    write_deltalake(STREAM.dead_letters_uri(lake), pa.table(letters))
    for entry in (replace(DRAIN, kind="start", attempt_id="first", ranges=()), DRAIN):
        properties = CommitProperties(custom_metadata={"userMetadata": entry.to_json()})
        write_deltalake(STREAM.table_uri(lake), pa.table({"id": [1]}), mode="append", commit_properties=properties)

    assert (remove_ghosts(STREAM, lake), attempts(lake)) == (0, ["of the former table"])


def test_a_tick_looks_for_ghosts_again_when_the_log_did_not_answer(lake: str, first_commit: Path) -> None:
    drained = [replace(DRAIN, dead_letters_at=COUNTS_ON)]  # version 1 of the letters, where one drain makes one: 0
    hidden = first_commit.rename(first_commit.with_name("hidden"))

    silent = sweep(STREAM, lake, drained, known=-1)
    hidden.rename(first_commit)
    answered = sweep(STREAM, lake, drained, known=silent)

    assert (silent, answered) == (-1, COUNTS_ON.version)
    assert attempts(lake) == ["committed"]


def drain(*, letters: int, at: int | None) -> LedgerEntry:
    counts = RangeCounts(OffsetRange(P0, 0, 10), dead_letters=letters)
    return replace(DRAIN, ranges=(counts,), dead_letters_at=None if at is None else DeadLettersAt("letters", at))


def test_drains_that_each_moved_the_dead_letters_once_left_nothing() -> None:
    replay = replace(drain(letters=0, at=2), outcomes={"row": 3})
    drains = [drain(letters=2, at=0), drain(letters=0, at=0), drain(letters=1, at=1), replay]

    assert not suspects_ghosts(drains, known=-1)
    assert not suspects_ghosts([drain(letters=0, at=None)], known=-1)


def test_a_version_that_no_entry_made_is_looked_into() -> None:
    assert suspects_ghosts([drain(letters=2, at=1)], known=-1)
    assert suspects_ghosts([drain(letters=2, at=5), drain(letters=3, at=7)], known=4)
    assert suspects_ghosts([drain(letters=0, at=5)], known=4)
