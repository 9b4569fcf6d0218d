"""Looks at a table's newest commit on object storage: how many requests, and what is seen when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from kdi_assets.delta.versions import SEEN_SECONDS, LatestVersions, LogCache
from tests.storage.object_store import ObjectStore, object_store

TABLE = "s3://bucket/lake/bronze/orders"


@dataclass
class Log:
    """The log of a table in a small S3, a cache of what was read from it, and the clock of its looks."""

    store: ObjectStore
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.versions = LatestVersions(clock=lambda: self.now)
        self.cache: LogCache[str] = LogCache(self.versions)

    def commit(self, version: int, content: bytes = b"{}", *, ago: timedelta = timedelta()) -> None:
        path = TABLE.removeprefix("s3:/") + f"/_delta_log/{version:020}.json"
        self.store.objects[path] = content, datetime.now(UTC) - ago

    def look(self) -> tuple[str | None, int]:
        """The value, unless it is outdated; and the requests that this took."""
        before = len(self.store.heads)
        value = self.cache.current(TABLE)
        return value, len(self.store.heads) - before


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """A log with one commit, which was read."""
    settings = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-central-1"}
    with object_store(ObjectStore()) as store:
        for name, value in {**settings, "AWS_ENDPOINT_URL": store.endpoint}.items():
            monkeypatch.setenv(name, value)
        log = Log(store)
        log.commit(0)
        log.cache.keep(TABLE, "version 0", version=0)
        yield log


def test_a_look_is_one_request_for_the_next_commit_and_finds_it_at_once(log: Log) -> None:
    unchanged = log.look()
    log.commit(1)

    assert (unchanged, log.look()) == (("version 0", 1), (None, 1))
    assert log.store.heads[-1].endswith("/_delta_log/00000000000000000001.json")


def test_an_idle_table_is_asked_for_once_a_minute_and_its_commit_is_seen_then(log: Log) -> None:
    log.versions.set_idle(TABLE, idle=True)
    log.commit(1)
    within = [log.look() for _ in range(12)]
    log.now += SEEN_SECONDS

    assert within == [("version 0", 0)] * 12
    assert log.look() == (None, 2), "the commit that was there, and the next one"


def test_a_table_that_is_idle_no_more_is_looked_at_at_once(log: Log) -> None:
    log.versions.set_idle(TABLE, idle=True)
    log.commit(1)
    log.look()

    log.versions.set_idle(TABLE, idle=False)

    assert log.look() == (None, 1)


@pytest.mark.parametrize("idle", [True, False])
def test_a_table_made_anew_in_the_place_is_seen_after_a_minute(log: Log, idle: bool) -> None:
    log.versions.set_idle(TABLE, idle=idle)
    log.commit(0, ago=timedelta(hours=1))

    before, _ = log.look()
    log.now += SEEN_SECONDS

    assert (before, log.look()[0]) == ("version 0", None)


def test_caches_that_share_their_looks_ask_once_for_an_idle_table(log: Log) -> None:
    other: LogCache[str] = LogCache(log.versions)
    other.keep(TABLE, "of the other", version=0)
    log.versions.set_idle(TABLE, idle=True)
    log.now += SEEN_SECONDS

    found, before = [log.look()], len(log.store.heads)

    assert (found, other.current(TABLE)) == ([("version 0", 2)], "of the other")
    assert len(log.store.heads) == before


def test_a_storage_that_refuses_makes_no_value_current(log: Log) -> None:
    log.store.refused = {"HEAD": (403, "AccessDenied")}
    log.now += SEEN_SECONDS

    assert log.look()[0] is None
