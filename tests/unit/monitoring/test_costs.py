"""`kdi cost` over handwritten logs, and the budget of CPU seconds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from kdi_assets.cli.operate.status import text
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.documents.model.stream import Checks
from kdi_assets.follow.refine.entry import RefineEntry, refine_entry_to_json
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.operate.monitoring.costs import Usage, table_usage
from kdi_assets.operate.monitoring.stream_row import StreamRow
from kdi_assets.operate.monitoring.table_facts import TableWatch
from kdi_assets.settings import Prices, Settings
from kdi_assets.streams.ledger.archive import copy_to_archive
from tests.documents import refined, stream, written
from tests.table_by_hand import TableByHand, orders
from tests.typed import Kdi, assert_wrong_usage
from tests.unit.monitoring.backlogs import waits

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
TODAY = NOON.date()
YESTERDAY, DAY = TODAY - timedelta(days=1), timedelta(days=1)
SILVER = RefinedTableSpec("silver/orders", (Upstream("bronze/orders"),))


@pytest.fixture
def table(lake: str) -> TableByHand:
    return TableByHand(lake, now=NOON)


def usage(lake: str) -> dict[date, Usage]:
    found = table_usage(orders(), lake, first=TODAY - timedelta(days=6), last=TODAY)
    assert found.complete
    return dict(found.by_day)


def test_drains_replays_and_compactions_are_added_up_by_their_day(table: TableByHand, lake: str) -> None:
    table.drain(ago=8 * DAY, cpu_seconds=1000.0)
    table.drain(ago=DAY, cpu_seconds=1.5, message_bytes=100, bytes=30, files_added=2)
    table.drain(ago=timedelta(hours=1), cpu_seconds=2.5, message_bytes=10, bytes=5, files_added=1)
    table.ledger_commit("replay", ago=timedelta(hours=1), cpu_seconds=4.0, bytes=7, files_added=1)
    table.ledger_commit("renewal", ago=timedelta(hours=1))
    table.commit(ago=timedelta(0), operation="OPTIMIZE", operationMetrics={"numAddedFiles": "3", "numAddedBytes": "40"})
    table.commit(ago=timedelta(0), operation="DELETE")  # another writer's

    assert usage(lake) == {
        YESTERDAY: Usage(commits=1, cpu_seconds=1.5, read_bytes=100, written_bytes=30, files=2),
        TODAY: Usage(commits=4, unmeasured=1, cpu_seconds=6.5, read_bytes=10, written_bytes=52, files=5),
    }
    assert usage(lake)[TODAY].puts == 9
    assert table_usage(orders(), lake, first=YESTERDAY, last=YESTERDAY).by_day.keys() == {YESTERDAY}


def test_work_that_a_restore_undid_was_done(table: TableByHand, lake: str) -> None:
    table.drain(ago=timedelta(hours=2), cpu_seconds=1.0)
    table.drain(ago=timedelta(hours=1), cpu_seconds=2.0)
    table.restore(1)

    assert usage(lake)[TODAY].cpu_seconds == 3.0


def test_entries_of_earlier_releases_count_and_have_no_cpu_seconds(table: TableByHand, lake: str) -> None:
    table.drain(ago=timedelta(hours=1), bytes=5)

    assert usage(lake)[TODAY] == Usage(commits=1, unmeasured=1, written_bytes=5)


def test_commits_that_no_log_has_are_said_to_be_missing(table: TableByHand, lake: str) -> None:
    table.drain(ago=DAY, cpu_seconds=1.0)
    table.drain(ago=timedelta(hours=1), cpu_seconds=2.0)
    table.clean()
    first = TODAY - timedelta(days=6)

    without = table_usage(orders(), lake, first=first, last=TODAY)
    of_today = table_usage(orders(), lake, first=TODAY, last=TODAY)

    assert (without.complete, set(without.by_day)) == (False, {TODAY})
    assert not of_today.complete, "nobody knows whether the commit before was of the same day"


def test_the_archive_has_what_a_clean_up_took(table: TableByHand, lake: str) -> None:
    table.drain(ago=DAY, cpu_seconds=1.0)
    table.drain(ago=timedelta(hours=1), cpu_seconds=2.0)
    copy_to_archive(TableLog.existing(orders().table_uri(lake)), orders().archive_uri(lake))
    table.clean()

    assert {day: used.cpu_seconds for day, used in usage(lake).items()} == {YESTERDAY: 1.0, TODAY: 2.0}


def test_refinements_count_too(lake: str) -> None:
    table = TableByHand(lake, now=NOON, table="silver/orders")
    entry = RefineEntry("silver/orders", "a", "changes", cpu_seconds=3.5, bytes_added=10, files_added=2)
    for one in (entry, replace(entry, cpu_seconds=None)):
        table.commit(ago=timedelta(hours=1), userMetadata=refine_entry_to_json(one))

    found = table_usage(SILVER, lake, first=TODAY, last=TODAY)

    assert found.by_day == {TODAY: Usage(commits=2, unmeasured=1, cpu_seconds=3.5, written_bytes=20, files=4)}


def test_a_cost_is_each_quantity_times_its_price() -> None:
    used = Usage(commits=2, cpu_seconds=10.0, read_bytes=3 * 10**9, written_bytes=10**9, files=6)

    assert used.cost(Prices(0.5, 0.25, 4.0, 0.125)) == 10 * 0.5 + 3 * 0.25 + 4.0 + 8 * 0.125
    assert used.cost(Prices.parse("put=0.125, cpu_second=0.5")) == 6.0


@pytest.mark.parametrize("text", ["cpu=1", "put", "put=x", "put=-1", "put=nan", "put=1,put=2", "put=1,,"])
def test_prices_that_cannot_be_read_are_refused_by_name(text: str, kdi: Kdi, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="KDI_PRICES has .*; it takes name=price"):
        Settings.from_environment({"KDI_PRICES": text})
    monkeypatch.setenv("KDI_PRICES", text)
    assert_wrong_usage(kdi("cost"), "KDI_PRICES has")


def test_the_command_shows_tables_owners_and_days_with_costs_only_by_prices(
    kdi: Kdi, tmp_path: Path, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableByHand(lake, now=datetime.now(UTC))
    table.drain(ago=timedelta(0), cpu_seconds=12.0, message_bytes=2048, bytes=1024, files_added=1)
    owned = stream("bronze/clicks", more=", owners: ['team:web', 'a@b.example']").replace("topic: t", "topic: orders")
    written(tmp_path, clicks=owned, silver=refined("silver/orders", upstream="bronze/orders"))
    clicks = TableByHand(lake, now=datetime.now(UTC), table="bronze/clicks")
    clicks.drain(ago=timedelta(0), cpu_seconds=3.0)

    plain, owners = kdi("cost").out.splitlines(), kdi("cost", "--by", "owner", "--json").objects
    monkeypatch.setenv("KDI_PRICES", "cpu_second=0.5")
    days, only = kdi("cost", "--by", "day").out.splitlines(), kdi("cost", "clicks", "--json").objects

    today = datetime.now(UTC).date().isoformat()
    assert plain[1].split() == ["TABLE", "COMMITS", "CPU", "SECONDS", "READ", "WRITTEN", "FILES", "PUTS"]
    assert plain[3].split() == ["bronze/orders", "1", "12.0", "2.0", "KiB", "1.0", "KiB", "1", "2"]
    assert plain[4].split()[:3] == ["total", "2", "15.0"]
    assert plain[5:] == ["no prices: set KDI_PRICES to see costs"]
    assert [(one["by"], one.get("owner"), one["cpu_seconds"]) for one in owners] == [
        ("owner", None, 12.0),
        ("owner", "a@b.example, team:web", 3.0),
        ("total", None, 15.0),
    ]
    assert (days[2].split()[0], days[2].split()[-1]) == (today, "7.5000")
    assert [(one.get("stream"), one["cost"]) for one in only] == [("bronze/clicks", 1.5), (None, 1.5)]


def test_a_table_that_cannot_be_read_is_refused_and_the_others_are_shown(kdi: Kdi, tmp_path: Path, lake: str) -> None:
    TableByHand(lake, now=datetime.now(UTC)).drain(ago=timedelta(0), cpu_seconds=12.0)
    written(tmp_path, clicks=stream("bronze/clicks").replace("topic: t", "topic: clicks"))
    broken = Path(lake, "bronze", "clicks")
    broken.mkdir()
    (broken / "notes.txt").write_text("no table")

    shown, programs = kdi("cost"), kdi("cost", "--json")

    assert (shown.code, "bronze/orders" in shown.out, "bronze/clicks" in shown.err) == (1, True, True)
    assert [one["table"] for one in programs.objects if one.get("error")] == ["bronze/clicks"]


def test_days_are_given_in_one_way(kdi: Kdi) -> None:
    assert_wrong_usage(kdi("cost", "--days", "3", "--from", "2026-01-01"), "give --days, or --from and --to")
    assert_wrong_usage(kdi("cost", "--to", "2026-01-01"), "give --from too")
    assert_wrong_usage(kdi("cost", "--from", "2026-01-02", "--to", "2026-01-01"), "is later than --to")
    assert (
        kdi("cost", "--from", "2026-01-01", "--to", "2026-01-02").out == "2026-01-01 to 2026-01-02 (UTC): no commits\n"
    )


@pytest.mark.parametrize(("budget", "level"), [(10.0, "warn"), (11.0, "passed")])
def test_the_drains_of_the_day_are_compared_with_the_budget(
    table: TableByHand, lake: str, budget: float, level: str
) -> None:
    """Yesterday's do not count."""
    watched = orders(checks=Checks(cpu_seconds_a_day=budget))
    table.drain(ago=timedelta(hours=13), cpu_seconds=500.0)
    table.drain(ago=timedelta(hours=2), cpu_seconds=4.0)
    table.drain(ago=timedelta(hours=1), cpu_seconds=7.0)

    subject = CheckSubject(watched, lake, lambda: pytest.fail("it started Spark"), now=NOON)
    finding = run_check("cpu_seconds_a_day", subject)
    row = StreamRow(watched, waits(0, None), TableWatch()(watched, lake, now=NOON))

    assert (finding.level, finding.numbers["cpu_seconds"]) == (level, 11.0)
    assert row.cpu_seconds_over_budget == (11.0 if level == "warn" else None)
    assert ("today's drains used 11 CPU seconds" in text([row], [], NOON)) == (level == "warn")
    assert (row.facts["cpu_seconds_today"], row.facts["cpu_seconds_a_day"]) == (11.0, budget)


def test_only_a_stream_with_a_budget_has_its_check() -> None:
    assert "cpu_seconds_a_day" not in orders().check_names
    assert "cpu_seconds_a_day" in orders(checks=Checks(cpu_seconds_a_day=1.0)).check_names
