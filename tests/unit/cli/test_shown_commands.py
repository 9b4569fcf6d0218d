"""Commands that errors show for a storage or for Spark SQL, as a shell takes them."""

from __future__ import annotations

import shlex

import pytest

from kdi_assets.wording import did_you_mean, removing_command, sql_command, storage_command


@pytest.mark.parametrize(
    ("uri", "listed", "moved", "removed"),
    [
        ("/my lake/x", "ls '/my lake/x'", "mv '/my lake/x' /to", "rm '/my lake/x'/0*.json '/my lake/x'/_last"),
        (
            "s3://b/x",
            "aws s3 ls s3://b/x",
            "aws s3 mv --recursive s3://b/x /to",
            "aws s3 rm --recursive s3://b/x --exclude '*' --include '0*.json' --include _last",
        ),
    ],
)
def test_files_of_the_lake_are_listed_moved_and_removed_where_they_lie(
    uri: str, listed: str, moved: str, removed: str
) -> None:
    assert storage_command("ls", uri) == listed
    assert storage_command("mv", uri, "/to") == moved
    assert removing_command(uri, ("0*.json", "_last")) == removed


def test_a_statement_is_one_word_of_the_command_whatever_it_has() -> None:
    statement = 'UPDATE delta.`/lake/o\'neill` SET a = "x y"'

    assert shlex.split(sql_command(statement)) == ["kdi", "sql", statement]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("tabel", "did you mean table?"),
        ("lag", "did you mean lag_seconds?"),
        ("x", "known: lag_seconds, table"),
        ("", "known: lag_seconds, table"),
    ],
)
def test_a_name_is_guessed_by_its_letters_or_its_beginning(word: str, said: str) -> None:
    assert did_you_mean(word, ("table", "lag_seconds")) == said
