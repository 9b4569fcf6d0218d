"""What a writer's transaction ids say after any history of commits, commits of others and RESTOREs.

The histories are random; each is compared with a naive oracle, which keeps for every version what its rows come from.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.delta.markers import Markers, live_markers, version_id
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.follow.refine.plan import plan_refinement
from kdi_assets.follow.refine.upstream_bookmarks import bookmark_transactions
from kdi_assets.streams.ledger.history import live_commits
from kdi_assets.streams.ledger.positions import read_ledger
from tests.refined import COPY
from tests.table_by_hand import TOPIC, TableByHand, orders

OURS, OLDER = "ours", "older-0"
NAMES = ("ours|name|a", "ours|name|b")
HISTORIES = 30


@dataclass(frozen=True)
class Rows:
    """What the rows of a version come from.

    Attributes:
        committed: The writer's newest commit.
        name, value: What that commit set.
        older: What the newest commit of the writer before set, if ours has none.
        since: Commits of others after ours.
    """

    committed: int | None = None
    name: str = ""
    value: int | None = None
    older: int | None = None
    since: tuple[int, ...] = ()


@dataclass
class History:
    """A table and, by version, what its rows come from."""

    table: TableByHand
    rows: list[Rows] = field(default_factory=lambda: [Rows()])

    def grow(self, chance: random.Random) -> None:
        """One commit of any kind."""
        version, now = self.table.version + 1, self.rows[-1]
        kind = chance.choice(["ours", "others", "others", "restore", "older"])
        if kind == "restore":
            target = chance.randrange(version)
            self.table.restore(target, version=chance.choice([str(target), target, f"'{target}'"]))
            self.rows.append(self.rows[target])
        elif kind == "ours":
            mine = Rows(version, chance.choice(NAMES), chance.randrange(1000))
            self._commit({version_id(OURS): version, mine.name: version, "ours|value": mine.value or 0})
            self.rows.append(mine)
        elif kind == "older" and all(rows.committed is None for rows in self.rows):
            self._commit({OLDER: version})
            self.rows.append(Rows(older=version))
        else:
            self._commit({"somebody": version})
            self.rows.append(Rows(now.committed, now.name, now.value, now.older, (version, *now.since)))

    def _commit(self, transactions: dict[str, int]) -> None:
        ids = [{"txn": {"appId": name, "version": version}} for name, version in transactions.items()]
        self.table.commit(*ids, ago=timedelta(minutes=1))

    def clean(self, cut: int) -> None:
        """A checkpoint of version ``cut``, and no commit before it."""
        DeltaTable(self.table.log.parent, version=cut).create_checkpoint()
        for version in range(cut):
            self.table.file(version).unlink()

    def read(self) -> tuple[Markers, list[int]]:
        """The markers, and the commits of others that were checked."""
        checked: list[int] = []
        found = live_markers(
            TableLog.existing(str(self.table.log.parent)),
            OURS,
            first="our first commit",
            older_ids=lambda log: [OLDER] if log.transaction_version(OLDER) is not None else [],
            check=lambda commit: checked.append(commit.version),
        )
        return found, checked

    def assert_read(self) -> None:
        """The markers are those of the rows."""
        found, checked = self.read()
        expected = self.rows[-1]
        assert found.committed == expected.committed
        if expected.committed is None:
            assert found.version_of(OLDER) == expected.older
            return
        assert [name for name in NAMES if found.holds(name)] == [expected.name]
        assert found.version_of("ours|value") == expected.value
        assert tuple(checked) == expected.since


def random_history(folder: Path, chance: random.Random) -> History:
    history = History(TableByHand(folder))
    for _ in range(chance.randrange(1, 14)):
        history.grow(chance)
    return history


@pytest.mark.parametrize("seed", range(3))
def test_the_markers_are_those_of_the_rows_after_any_restores(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(HISTORIES):
        history = random_history(tmp_path / str(number), chance)
        began = any(rows.committed is not None for rows in history.rows)

        if began and history.rows[-1].committed is None:
            with pytest.raises(CommitUnreadable, match="is older than our first commit"):
                history.read()
        else:
            history.assert_read()


@pytest.mark.parametrize("seed", range(3))
def test_in_a_log_that_was_cleaned_up_the_markers_are_right_or_refused(tmp_path: Path, seed: int) -> None:
    """Pass: they are right if the newest commit that the rows come from is still there, and otherwise if they are read
    at all.
    """
    chance, read, refused = random.Random(seed), 0, 0
    for number in range(HISTORIES):
        history = random_history(tmp_path / str(number), chance)
        committed = history.rows[-1].committed
        if committed is None:
            continue
        cut = chance.randrange(history.table.version + 1)
        history.clean(cut)

        try:
            history.assert_read()
            read += 1
        except CommitUnreadable:
            assert cut > committed, f"history {number}: nothing is missing"
            refused += 1

    assert read > refused > 0


@pytest.mark.parametrize("seed", range(1))
def test_the_history_of_live_commits_has_the_same_newest_one(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(HISTORIES):
        history = random_history(tmp_path / str(number), chance)
        expected = history.rows[-1].committed

        commits = live_commits(TableLog.existing(str(history.table.log.parent)))

        assert next((c.version for c in commits if version_id(OURS) in c.transactions), None) == expected


def test_what_a_check_refuses_is_raised(tmp_path: Path) -> None:
    history = History(TableByHand(tmp_path))
    chance = random.Random(1)
    while not (history.rows[-1].committed and history.rows[-1].since):
        history.grow(chance)

    def refuse(commit: CommitInfo) -> None:
        raise ValueError(f"commit {commit.version}")

    with pytest.raises(ValueError, match=f"commit {history.rows[-1].since[0]}"):
        live_markers(TableLog.existing(str(history.table.log.parent)), OURS, first="ours", check=refuse)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The transaction ids that delta-rs is asked for; for each, it opens every commit since the checkpoint."""
    names: list[str] = []
    ask = DeltaTable.transaction_version

    def counted(table: DeltaTable, app_id: str) -> int | None:
        names.append(app_id)
        return ask(table, app_id)

    monkeypatch.setattr(DeltaTable, "transaction_version", counted)
    return names


def test_a_look_at_the_ledger_asks_for_each_transaction_id_once(lake: str, asked: list[str]) -> None:
    table = TableByHand(lake)
    table.ledger_commit("start", at={TopicPartition(TOPIC, number): 0 for number in range(3)})

    assert read_ledger(orders(), lake, topic_id="topic", topic_partitions=3) is not None

    assert len(asked) == len(set(asked)) == len(("version", "table", "topic", "0", "1", "2", "3"))


def test_a_plan_of_nothing_new_asks_for_each_transaction_id_once(tmp_path: Path, asked: list[str]) -> None:
    write_deltalake(tmp_path / "bronze/events", pa.table({"id": [1]}))
    upstream_id = str(DeltaTable(tmp_path / "bronze/events").metadata().id)
    made = bookmark_transactions(COPY.name, {upstream_id: 0}, 0, definitions=[COPY.definition()])
    properties = CommitProperties(app_transactions=[Transaction(*each) for each in made.items()])
    row = pa.table({"id": [1], "date": [date(2026, 1, 1)]})
    write_deltalake(tmp_path / COPY.table, row, partition_by=["date"], commit_properties=properties)

    assert plan_refinement(COPY, str(tmp_path)).kind == "nothing"

    assert (
        len(asked)
        == len(set(asked))
        == len(("format", "version", "upstream", "from", "definition", "kept from, upstream"))
    )
