"""`kdi sql` whose Spark fails for a reason that may pass: may the statement be committed? No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from kdi_assets.runtime import application_end
from tests.typed import Kdi, typed


@pytest.fixture
def kdi_sql(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kdi:
    """`kdi sql --json`, whose session loses its connection."""

    def lost(statement: str) -> None:
        raise OSError("connection reset by peer")

    class Session:
        def __call__(self) -> SimpleNamespace:
            return SimpleNamespace(sql=lost)

        def watched(self) -> nullcontext[None]:
            return nullcontext()

    @contextmanager
    def session(of: str, *, as_json: bool) -> Iterator[Session]:
        yield Session()

    monkeypatch.setattr("kdi_assets.cli.operate.sql.lazy_session", session)
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
    assert (answer.code, refused["error"]["type"]) == (75, error)


def test_a_statement_that_may_be_committed_is_not_repeated_when_the_cluster_ends_the_application(
    kdi_sql: Kdi, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(master="spark://host:7077", applicationId="app-7")
    monkeypatch.setattr(application_end, "ended_context", lambda: context)

    reading, writing = ((kdi_sql(text).objects)[0]["error"] for text in ("SELECT 1", "INSERT INTO t SELECT 1"))

    assert (reading["type"], writing["type"]) == ("ApplicationEnded", "StatementInterrupted")
    assert "app-7 ended on spark://host:7077" in writing["detail"]
