"""Commands about refined tables that need no Spark: wrong options, plan, status and history."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.follow.refine.entry import RefineEntry, RefineKind
from kdi_assets.follow.refine.errors import ChangedByOthers
from kdi_assets.follow.refine.plan import RefinePlan
from kdi_assets.follow.refine.report import RefineReport
from kdi_assets.operate.monitoring.checks.finding import Level
from kdi_assets.operate.monitoring.refined_status import RefinedStatus, up_to_date
from tests.documents import SERVED, refined, written
from tests.typed import Kdi, assert_wrong_usage

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAILY = RefinedTableSpec("gold/daily", (Upstream("made/elsewhere"),), freshness=FreshnessLimits(60, 600))
REFUSED = ChangedByOthers(table="gold/daily", uri="/lake", version=4, operation="DELETE")


@pytest.fixture(autouse=True)
def _document(kdi: Kdi, tmp_path: Path) -> None:
    """One refined table, beside the stream of ``kdi``."""
    written(tmp_path, gold=refined("gold/daily", upstream="made/elsewhere"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["refine"], "name tables, or give --all"),
        (["refine", "daily", "--all"], "give --all, or names, not both"),
        (["refine", "--all", "--rebuild"], "name the tables, without --dates"),
        (["refine", "daily", "--dates", "2026-03-02", "2026-03-01"], "2026-03-02 is later than --to"),
        (["refine", "orders"], "bronze/orders is the table of a stream"),
        (["refine", "nothing"], "no refined table is called nothing"),
        (["audit", "orders", "--all"], "only for refined tables"),
        (["audit", "daily", "--against-kafka"], "a refined table has no offsets"),
        (["audit", "daily", "--from", "7", "--to", "9"], "a refined table takes dates"),
        (["audit", "daily", "--from", "2026-03-01"], "give both, in order, and not with --all"),
        (
            ["replay", "daily", "--from", "2026-03-01", "--to", "2026-03-01", "--leave-missing"],
            "a refined table has no messages",
        ),
    ],
)
def test_what_was_typed_wrong_is_named(kdi: Kdi, arguments: list[str], said: str) -> None:
    assert_wrong_usage(kdi(*arguments), said)


def test_an_upstream_table_that_is_missing_is_said_by_every_command(kdi: Kdi) -> None:
    planned, status, history = kdi("plan", "daily", "--json"), kdi("status", "daily"), kdi("history", "daily")

    assert planned.code == 75 and planned.objects[0]["error"]["type"] == "UpstreamMissing"
    head, line, refusal, *_ = status.out.splitlines()
    assert (status.code, head.split()[:2], line.split()[1:]) == (
        0,
        ["TABLE", "KIND"],
        ["refined", *"???-", "not", "begun", "-"],
    )
    assert refusal.startswith("gold/daily: its upstream table made/elsewhere does not exist")
    assert history.out == "gold/daily: no commit yet; the table does not exist\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_what_follows_a_table_that_is_still_to_be_made_is_not_begun_in_a_plan_of_all_tables(
    kdi: Kdi, tmp_path: Path, lake: str, as_json: bool
) -> None:
    """A table that no document makes is still missing, and so is one for a person who names the table made of it."""
    write_deltalake(f"{lake}/made/elsewhere", pa.table({"date": pa.array([date(2026, 1, 1)], pa.date32())}))
    served = SERVED.replace("made/elsewhere", "gold/monthly")
    month = refined("gold/monthly", upstream="gold/daily")
    new = written(tmp_path / "new", day=refined("gold/daily", upstream="made/elsewhere"), month=month, served=served)
    options = ["--defs", str(new), *(["--json"] if as_json else [])]

    every, named = kdi("plan", *options), kdi("plan", "gold/monthly", *options)
    written(new, lost=refined("gold/lost", upstream="made/nowhere"))
    with_lost = kdi("plan", *options)

    assert (every.code, named.code, with_lost.code) == (0, 75, 75), every.err
    if as_json:
        daily, monthly, elsewhere = every.objects
        assert (daily["refined"], monthly["refined"], elsewhere["new"]) == ("rebuild", "not begun", "not begun")
        assert (monthly["why"], monthly["error"]) == ("gold/daily does not exist yet", None)
    else:
        assert "gold/monthly: not begun: gold/daily does not exist yet\n" in every.out
        assert "duckdb/elsewhere_now: not begun: gold/monthly does not exist yet\n" in every.out
    assert "made/nowhere" in with_lost.err


def test_the_first_refinement_is_planned_without_spark(kdi: Kdi, lake: str) -> None:
    write_deltalake(f"{lake}/made/elsewhere", pa.table({"date": pa.array([date(2026, 1, 1)], pa.date32())}))

    planned, in_json = kdi("plan", "gold/daily"), kdi("plan", "gold/daily", "--json")
    status = kdi("status", "--json")

    assert planned.out == (
        "gold/daily: would compute all rows, as a new table: the table is new\n"
        "UPSTREAM TABLE  CONSUMED  NEWEST  NEW\n"
        "made/elsewhere         -       0  lost\n"
    )
    assert in_json.objects[0]["upstreams"] == [
        {
            "table": "made/elsewhere",
            "new": "lost",
            "since": None,
            "version": 0,
            "why": "nothing of it was consumed before",
        }
    ]
    assert [(o.get("stream"), o.get("table"), o["state"]) for o in status.objects][1] == (None, "gold/daily", "behind")


def test_a_refinement_shows_the_rows_that_came_and_went_by_date(kdi: Kdi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a date that only lost rows; a run that finds nothing new has no version."""
    first, second = date(2026, 1, 1), date(2026, 1, 2)
    entry = RefineEntry(
        "gold/daily",
        "a",
        "changes",
        dates=(first, second),
        rows_added=1200,
        rows_removed=3,
        rows_by_date={second: 1200},
        removed_by_date={first: 2, second: 1},
        version=7,
    )
    reports = [RefineReport(entry), RefineReport(entry), RefineReport(RefineEntry("gold/daily", "b", "nothing"))]
    monkeypatch.setattr("kdi_assets.follow.refine.refine.refine", lambda table, **_: reports.pop(0))

    shown, in_json, idle = kdi("refine", "daily"), kdi("refine", "daily", "--json"), kdi("refine", "daily", "--json")

    assert shown.out == (
        "gold/daily: 1,200 rows added, 3 removed, v7, 0.0 s\n"
        "DATE        ROWS ADDED  REMOVED\n"
        "2026-01-01           0        2\n"
        "2026-01-02       1,200        1\n"
    )
    assert in_json.objects[0]["removed_by_date"] == {"2026-01-01": 2, "2026-01-02": 1}
    assert (in_json.objects[0]["version"], idle.objects[0]["version"], idle.objects[0]["refined"]) == (
        7,
        None,
        "nothing",
    )


@pytest.mark.parametrize(
    ("kind", "waits", "level"),
    [
        ("nothing", None, "passed"),
        ("changes", 30, "passed"),
        ("changes", 90, "warn"),
        ("dates", 700, "error"),
        ("rebuild", None, "passed"),
    ],
)
def test_a_table_is_up_to_date_as_long_as_freshness_allows(kind: RefineKind, waits: int | None, level: Level) -> None:
    plan = RefinePlan("", 1, "id", (), kind)
    since = None if waits is None else NOW - timedelta(seconds=waits)

    assert up_to_date(RefinedStatus(DAILY, plan, waiting_since=since), NOW).level == level


def test_a_refused_table_is_not_up_to_date() -> None:
    found = up_to_date(RefinedStatus(DAILY, refusal=REFUSED), NOW)

    assert (found.level, found.description) == ("error", REFUSED.message_parts()[0])
