"""Of which topics rows are: by the commits that are new, and by all ids only where these do not tell."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.markers import topic_txn_id
from kdi_assets.follow.refine.topics import TopicsOfRows, known_topics
from kdi_assets.follow.upstream import UpstreamChanges, changes_since

ONE, TWO = (topic_txn_id("web", topic) for topic in ("one", "two"))


def append(folder: Path, *names: str) -> TableLog:
    transactions = [Transaction(name, 1) for name in (*names, "web/version")]
    uri = str(folder)
    write_deltalake(
        uri, pa.table({"id": [1]}), mode="append", commit_properties=CommitProperties(app_transactions=transactions)
    )
    return TableLog.existing(uri)


def refined(folder: Path, topics: TopicsOfRows) -> TableLog:
    transactions = [Transaction(*each) for each in topics.transactions("silver/t", 1).items()]
    properties = CommitProperties(app_transactions=transactions)
    write_deltalake(str(folder), pa.table({"id": [1]}), mode="append", commit_properties=properties)
    return TableLog.existing(str(folder))


def since(log: TableLog, version: int | None) -> UpstreamChanges:
    return changes_since(log, version)


def test_new_commits_name_their_topics_and_lost_ones_do_not(tmp_path: Path) -> None:
    append(tmp_path, ONE)
    log = append(tmp_path, TWO)

    assert since(log, 0).topics == frozenset({TWO})
    assert since(log, 1).topics == frozenset()
    assert since(log, None).topics is None


@pytest.mark.parametrize(
    ("has", "new", "known"),
    [
        (TopicsOfRows(frozenset({ONE}), 1), [ONE], TopicsOfRows(most=1)),
        (TopicsOfRows(frozenset({ONE, TWO}), 2), [TWO], TopicsOfRows(most=2)),
        (TopicsOfRows(frozenset({ONE}), 1), [TWO], None),
        (TopicsOfRows(), [], TopicsOfRows()),
        (TopicsOfRows(), [ONE], None),
    ],
    ids=["the same topic", "again the second", "another topic", "no topics", "the first topic"],
)
def test_topics_are_known_unless_a_new_one_came(
    tmp_path: Path, has: TopicsOfRows, new: list[str], known: TopicsOfRows | None
) -> None:
    append(tmp_path / "bronze")
    upstream = since(append(tmp_path / "bronze", *new), 0)

    assert known_topics(refined(tmp_path / "silver", has), "silver/t", [upstream]) == known


def test_a_table_of_an_earlier_release_and_one_of_lost_commits_do_not_know_their_topics(tmp_path: Path) -> None:
    upstream = append(tmp_path / "bronze", ONE)
    earlier, made = append(tmp_path / "earlier"), refined(tmp_path / "made", TopicsOfRows(frozenset({ONE}), 1))

    assert known_topics(earlier, "silver/t", [since(upstream, 0)]) is None
    assert known_topics(made, "silver/t", [since(upstream, None)]) is None
