"""`kdi sql` whose Spark fails for a reason that may pass: may the statement be committed? No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.runtime import application_end
from kdi_assets.runtime.errors import DriverGone
from kdi_assets.runtime.spark import driver_loss_named
from tests.typed import Kdi, typed


class Session:
    """Loses its connection; with ``gone``, because the warm driver has ended, before or after it is opened."""

    def __init__(self, *, gone: str = "") -> None:
        self._gone = gone

    def __call__(self) -> SimpleNamespace:
        if self._gone == "before":
            raise DriverGone(home=Path("/home"), reason="none has been started there")
        return SimpleNamespace(sql=self._lost)

    def watched(self) -> AbstractContextManager[None]:
        connection = SimpleNamespace(folder=Path("/home"), driver_ended=lambda: self._gone == "after")
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(connection=connection))
        return driver_loss_named(session)

    def _lost(self, statement: str) -> None:
        raise OSError("connection reset by peer")


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """The last one is the next command's."""
    sessions = [Session()]

    @contextmanager
    def lazy_session(of: str, *, as_json: bool) -> Iterator[Session]:
        yield sessions[-1]

    monkeypatch.setattr("kdi_assets.cli.operate.sql.lazy_session", lazy_session)
    return sessions


@pytest.fixture
def kdi_sql(sessions: list[Session], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kdi:
    """`kdi sql --json`, whose session loses its connection."""
    return typed(monkeypatch, capsys, "sql", "--json")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT 1", "QueryInterrupted"),
        ("\n select insert FROM t", "QueryInterrupted"),
        ("show TABLES", "QueryInterrupted"),
        ("DESCRIBE HISTORY delta.`/lake/t`", "QueryInterrupted"),
        ("WITH a AS (SELECT 1) SELECT * FROM a", "QueryInterrupted"),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "StatementInterrupted"),
        ("INSERT INTO t SELECT 1", "StatementInterrupted"),
        ("/* SELECT */ DELETE FROM t", "StatementInterrupted"),
        ("selected", "StatementInterrupted"),
    ],
)
def test_a_statement_that_only_reads_is_typed_again(kdi_sql: Kdi, statement: str, error: str) -> None:
    answer = kdi_sql(statement)

    (refused,) = answer.objects
    code = 75 if error == "QueryInterrupted" else 1  # a script that repeats on 75 would insert twice
    assert (answer.code, refused["error"]["type"]) == (code, error)


def test_a_statement_that_may_be_committed_is_not_repeated_when_the_cluster_ends_the_application(
    kdi_sql: Kdi, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(master="spark://host:7077", applicationId="app-7")
    monkeypatch.setattr(application_end, "ended_context", lambda: context)

    reading, writing = ((kdi_sql(text).objects)[0]["error"] for text in ("SELECT 1", "INSERT INTO t SELECT 1"))

    assert (reading["type"], writing["type"]) == ("ApplicationEnded", "StatementInterrupted")
    assert "app-7 ended on spark://host:7077" in writing["detail"]


@pytest.mark.parametrize(
    ("statement", "gone", "error"),
    [
        ("INSERT INTO t SELECT 1", "after", "StatementInterrupted"),
        ("INSERT INTO t SELECT 1", "before", "DriverGone"),
        ("SELECT 1", "after", "DriverGone"),
    ],
)
def test_only_a_statement_that_had_begun_may_be_committed_by_a_warm_driver_that_ends(
    kdi_sql: Kdi, sessions: list[Session], statement: str, gone: str, error: str
) -> None:
    """Purpose: an INSERT that is repeated after a commit whose answer was lost adds its rows once more."""
    sessions.append(Session(gone=gone))

    (refused,) = kdi_sql(statement).objects

    assert refused["error"]["type"] == error
    assert refused["error"]["run"].startswith("the same command again") is (error == "DriverGone")
