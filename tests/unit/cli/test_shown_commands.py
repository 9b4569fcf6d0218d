"""Commands that errors show for a storage or for Spark SQL, as a shell takes them."""

from __future__ import annotations

import shlex

import pytest

from kdi_assets.wording import did_you_mean, moving_commands, removing_command, sql_command, storage_command


@pytest.mark.parametrize(
    ("uri", "listed", "moved", "removed"),
    [
        (
            "/my lake/x",
            "ls '/my lake/x'",
            "mkdir -p '/my lake/to'; then mv '/my lake/x' '/my lake/to/y'",
            "rm '/my lake/x'/0*.json '/my lake/x'/_last",
        ),
        (
            "s3://b/x",
            "aws s3 ls s3://b/x",
            "aws s3 mv --recursive s3://b/x s3://b/to/y",
            "aws s3 rm --recursive s3://b/x --exclude '*' --include '0*.json' --include _last",
        ),
        (
            "hdfs://n:1/x",
            "hadoop fs -ls hdfs://n:1/x",
            "hadoop fs -mkdir -p hdfs://n:1/to; then hadoop fs -mv hdfs://n:1/x hdfs://n:1/to/y",
            "hadoop fs -rm hdfs://n:1/x/0*.json hdfs://n:1/x/_last",
        ),
    ],
)
def test_files_of_the_lake_are_listed_moved_and_removed_where_they_lie(
    uri: str, listed: str, moved: str, removed: str
) -> None:
    there = f"{uri.removesuffix('x')}to/y"

    assert storage_command("ls", uri) == listed
    assert "; then ".join(moving_commands([(uri, there)])) == moved
    assert removing_command(uri, ("0*.json", "_last")) == removed


@pytest.mark.parametrize(
    ("uri", "listed"),
    [
        ("s3a://b/x", "aws s3 ls s3://b/x"),
        ("file:///my%20lake/x", "ls '/my lake/x'"),
        ("gs://b/x", "hadoop fs -ls gs://b/x"),
    ],
)
def test_an_address_is_spelled_as_the_command_of_its_storage_spells_it(uri: str, listed: str) -> None:
    assert storage_command("ls", uri) == listed


def test_a_folder_is_made_once_and_only_if_tables_move_to_another_one() -> None:
    moves = [("/old/x_ledger", "/new/x_ledger"), ("/old/x", "/new/x")]

    assert moving_commands(moves) == ["mkdir -p /new", "mv /old/x_ledger /new/x_ledger", "mv /old/x /new/x"]
    assert moving_commands([("/old/x", "/old/y")]) == ["mv /old/x /old/y"]


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
