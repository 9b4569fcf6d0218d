"""The values of a scrape, over handwritten logs; dashboard and rules name only exported metrics."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.documents.model.stream import Checks, Cluster, FreshnessLimits, OffsetRange, Stream
from kdi_assets.follow.refine.errors import UpstreamGone, UpstreamMissing
from kdi_assets.follow.serve.errors import SourceGone
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.operate.monitoring.backlog import Backlog, PartitionBacklog, State
from kdi_assets.operate.monitoring.follower_rows import FollowerRow
from kdi_assets.operate.monitoring.metrics import collector, downstream
from kdi_assets.operate.monitoring.metrics.collector import stream_collector
from kdi_assets.operate.monitoring.metrics.downstream import DownstreamReader, downstream_samples
from kdi_assets.operate.monitoring.metrics.names import DOWNSTREAM_UP
from kdi_assets.operate.monitoring.metrics.totals import LedgerTotals
from kdi_assets.settings import Prices
from tests.table_by_hand import TP, TableByHand
from tests.unit.monitoring.scripted_look import Seen

NOW = datetime.now(UTC)
MAIN = Cluster("main", "localhost:9092")
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", MAIN)
CLICKS = Stream("clicks", "bronze/clicks", "id bigint", "current_date()", MAIN)
LABELS = {"stream": "bronze/orders", "topic": "orders"}
SILENT = BrokerUnreachable(cluster="main", bootstrap_servers="localhost:1", detail="timed out")


@pytest.fixture
def table(tmp_path: Path) -> TableByHand:
    return TableByHand(tmp_path, now=NOW)


def registry(lake: Path, look: Seen | None = None, *streams: Stream) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(stream_collector(streams or (STREAM,), str(lake), look=look or Seen()))
    return made


def value(scraped: CollectorRegistry, name: str, **labels: str) -> float | None:
    """The value in the next scrape."""
    return scraped.get_sample_value(name, {**LABELS, **labels})


def test_a_stream_with_nothing_waiting_has_every_figure_and_they_are_zero(table: TableByHand, tmp_path: Path) -> None:
    table.drain(100, ago=timedelta(minutes=1))

    scraped = registry(tmp_path, None, replace(STREAM, freshness=FreshnessLimits(300, 1800)), CLICKS)

    for name in ("kdi_backlog_offsets", "kdi_lag_seconds", "kdi_open_transaction_offsets"):
        assert value(scraped, name, partition="0") == 0.0
    for name in ("kdi_backlog_bytes", "kdi_time_to_close_seconds", "kdi_table_small_files", "kdi_dead_letters_total"):
        assert value(scraped, name) == 0.0
    assert value(scraped, "kdi_time_to_loss_seconds", partition="0") == math.inf
    assert value(scraped, "kdi_position_offset", partition="0") == 100
    assert (value(scraped, "kdi_table_version"), value(scraped, "kdi_stream_up")) == (1, 1)
    limit = "kdi_freshness_limit_seconds"
    assert [value(scraped, limit, level=level) for level in ("warn", "fail")] == [300, 1800]
    without = {"stream": "bronze/clicks", "topic": "clicks", "level": "warn"}
    assert scraped.get_sample_value(limit, without) is None


def test_a_backlog_is_told_by_topic_partition_and_what_is_unknown_is_not_a_number(tmp_path: Path) -> None:
    held = PartitionBacklog(90, 100, 5, 7, lag_seconds=12.5, arrival_rate=0.8, word=State.STALL)

    scraped = registry(tmp_path, Seen({"bronze/orders": held}))

    told = {
        name: value(scraped, f"kdi_{name}", partition="0")
        for name in ("backlog_offsets", "lag_seconds", "end_offset", "earliest_offset", "open_transaction_offsets")
    }
    assert list(told.values()) == [10, 12.5, 100, 5, 7]
    assert math.isnan(value(scraped, "kdi_time_to_loss_seconds", partition="0") or 0)
    assert math.isnan(value(scraped, "kdi_backlog_bytes") or 0)
    assert math.isnan(value(scraped, "kdi_last_commit_timestamp_seconds") or 0), "there is no table yet"
    assert value(scraped, "kdi_stream_state", state="STALL") == 1
    assert value(scraped, "kdi_stream_state", state="OK") == 0
    assert scraped.get_sample_value("kdi_streams", {"state": "STALL"}) == 1


def test_a_broken_stream_costs_its_own_samples_and_not_the_scrape(table: TableByHand, tmp_path: Path) -> None:
    table.drain(ago=timedelta(minutes=1))
    (tmp_path / "bronze" / "clicks").mkdir()
    (tmp_path / "bronze" / "clicks" / "notes.txt").write_text("no table")

    scraped = registry(tmp_path, Seen(refusals={"bronze/clicks": SILENT}), STREAM, CLICKS)

    clicks = {"stream": "bronze/clicks", "topic": "clicks"}
    assert scraped.get_sample_value("kdi_stream_up", clicks) == 0
    assert scraped.get_sample_value("kdi_stream_state", {**clicks, "state": "unreachable"}) == 1
    assert scraped.get_sample_value("kdi_table_files", clicks) is None
    assert scraped.get_sample_value("kdi_backlog_bytes", clicks) is None
    assert (value(scraped, "kdi_stream_up"), value(scraped, "kdi_rows_total")) == (1, 100)


def test_counters_begin_with_the_log_and_go_on_with_every_commit(table: TableByHand, tmp_path: Path) -> None:
    scraped = registry(tmp_path)
    counted: dict[str, Any] = {
        "message_bytes": 5000,
        "bytes": 900,
        "conflicts": 1,
        "cpu_seconds": 1.5,
        "files_added": 2,
        "seconds": {"plan": 0.5, "write": 2.0},
    }
    table.drain(100, ago=timedelta(days=40), dead_letters=4, **counted)
    lost = (OffsetRange(TP, 100, 107),)
    table.ledger_commit("resolve", ago=timedelta(days=30), declared_losses=lost)

    first = {n: value(scraped, f"kdi_{n}_total") for n in ("drains", "rows", "dead_letters", "messages", "conflicts")}
    table.drain(10, ago=timedelta(minutes=1), dead_letters=1, **counted)
    table.commit(ago=timedelta(seconds=1), operation="RESTORE", operationParameters={"version": 2})

    assert list(first.values()) == [1, 96, 4, 100, 1]
    assert value(scraped, "kdi_rows_total") == 105, "a RESTORE takes the rows, and not the work"
    assert value(scraped, "kdi_dead_letters_total") == 5
    assert value(scraped, "kdi_declared_loss_offsets_total") == 7
    assert (value(scraped, "kdi_message_bytes_total"), value(scraped, "kdi_file_bytes_total")) == (10000, 1800)
    assert value(scraped, "kdi_stage_seconds_total", stage="write") == 4.0
    assert (value(scraped, "kdi_cpu_seconds_total"), value(scraped, "kdi_files_total")) == (3.0, 4)
    assert value(scraped, "kdi_cost_total") is None, "nobody named prices"


def test_costs_are_what_was_used_times_the_prices(table: TableByHand, tmp_path: Path) -> None:
    table.drain(ago=timedelta(minutes=2), cpu_seconds=10.0, bytes=2 * 10**9, files_added=3)
    scraped, streams = CollectorRegistry(), [replace(STREAM, checks=Checks(cpu_seconds_a_day=600.0)), CLICKS]

    prices = Prices(cpu_second=0.5, gb_written=1.0, put=0.25)
    scraped.register(stream_collector(streams, str(tmp_path), look=Seen(), prices=prices))

    ledger_commits = 1
    assert value(scraped, "kdi_cost_total") == 10 * 0.5 + 2 * 1.0 + (3 + ledger_commits) * 0.25
    assert value(scraped, "kdi_cpu_budget_seconds") == 600
    assert scraped.get_sample_value("kdi_cpu_budget_seconds", {"stream": "bronze/clicks", "topic": "clicks"}) is None


def test_a_counter_is_not_told_before_its_log_was_read_to_the_end(table: TableByHand, tmp_path: Path) -> None:
    """In the middle, the rest would look like work that was done between two scrapes."""
    for minutes in (3, 2, 1):
        table.drain(10, ago=timedelta(minutes=minutes))
    clock: Iterator[float] = iter(range(100))
    totals, uri = LedgerTotals(lambda: next(clock)), STREAM.table_uri(str(tmp_path))

    told = [totals(uri, "orders", until=until) for until in (2.0, 4.0, 90.0)]

    assert told[:2] == [None, None]
    assert told[2] is not None and told[2].counts["kdi_messages_total"] == 30


def test_counters_do_not_go_back_when_a_table_is_made_anew(table: TableByHand, tmp_path: Path) -> None:
    scraped = registry(tmp_path)
    table.drain(10, ago=timedelta(minutes=3))
    before = value(scraped, "kdi_messages_total")
    for commit in table.log.iterdir():
        commit.unlink()
    table.log.rmdir()

    TableByHand(tmp_path, now=NOW, table_id="another").drain(7, ago=timedelta(minutes=1))

    assert (before, value(scraped, "kdi_messages_total")) == (10, 17)


def test_a_slow_cluster_costs_its_own_streams_and_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, looked = Event(), Counter[str]()

    class Gated(Seen):
        def __call__(self, streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
            looked[streams[0].cluster.name] += 1
            assert streams[0].cluster.name == "other" or gate.wait(30)
            return super().__call__(streams, lake=lake)

    other = replace(CLICKS, cluster=Cluster("other", "localhost:9093"))
    monkeypatch.setattr(collector, "wait", lambda asked, timeout: list(asked)[1].result(30))
    scraped = registry(tmp_path, Gated(), STREAM, other)

    in_time = [scraped.get_sample_value("kdi_look_up", {"cluster": name}) for name in ("main", "other")]
    up, end = value(scraped, "kdi_stream_up"), value(scraped, "kdi_end_offset", partition="0")
    unknown = value(scraped, "kdi_stream_state", state="unknown")
    clicks = scraped.get_sample_value(
        "kdi_end_offset", {"stream": "bronze/clicks", "topic": "clicks", "partition": "0"}
    )
    gate.set()

    assert (in_time, up, end, unknown, clicks) == ([0, 1], 0, None, 1, 100)
    assert looked == {"main": 1, "other": 6}


CHECKOUT = Path(__file__).parents[3]
METRIC = re.compile(r"\b(kdi_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
UNITS = tuple("_seconds _bytes _offset _offsets _files _version _versions _up _state _total _ratio kdi_streams".split())


@pytest.fixture
def exported(tmp_path: Path) -> dict[str, Metric]:
    """The exported samples, by the name that is queried."""
    now = datetime.now(UTC)
    table = TableByHand(tmp_path, now=now)
    table.drain(ago=timedelta(minutes=1), seconds={"read and write": 1.5}, ages={8: 100})
    stream = replace(STREAM, freshness=FreshnessLimits(300, 1800), checks=Checks(cpu_seconds_a_day=600.0))
    silver = RefinedTableSpec("silver/orders", (Upstream(stream.table),), freshness=FreshnessLimits(300, 1800))
    scraped = CollectorRegistry()
    reader = DownstreamReader([silver], str(tmp_path), tmp_path)
    scraped.register(stream_collector([stream], str(tmp_path), look=Seen(), downstream=reader, prices=Prices(put=1.0)))
    return {family.name + ("_total" if family.type == "counter" else ""): family for family in scraped.collect()}


def labels(family: Metric) -> set[str]:
    return {label for sample in family.samples for label in sample.labels}


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((CHECKOUT / "deploy/prometheus/rules.yaml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CHECKOUT / "deploy/grafana/kdi.json").read_text())
    return loaded


def expressions() -> Iterator[str]:
    """Every PromQL expression that we ship."""
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ()))


def queried() -> Iterator[tuple[str, dict[str, str]]]:
    """Every metric in them: its name and its matchers."""
    for expression in expressions():
        for name, matchers in METRIC.findall(expression):
            yield name, {label: wanted for label, _, wanted in MATCHER.findall(matchers)}


def test_every_metric_has_samples_and_a_name_with_its_unit(exported: dict[str, Metric]) -> None:
    assert [name for name, family in exported.items() if not family.samples] == []
    assert [name for name in exported if not name.startswith("kdi_") or not name.endswith(UNITS)] == []


def test_dashboard_and_rules_query_what_is_exported_by_labels_that_it_has(exported: dict[str, Metric]) -> None:
    asked = list(queried())
    wrong = [pair for pair in asked if pair[0] not in exported or not pair[1].keys() <= labels(exported[pair[0]])]

    assert wrong == []
    assert exported.keys() - {name for name, _ in asked} == set(), "all of them are looked at"


def test_states_and_quantiles_that_are_queried_exist(exported: dict[str, Metric]) -> None:
    told = {"state": {state.value for state in State}, "quantile": {"0.5", "0.95", "0.99"}}
    asked = Counter(
        (label, value)
        for _, matchers in queried()
        for label, wanted in matchers.items()
        if label in told
        for value in wanted.split("|")
    )

    assert len(asked) > 5
    assert [pair for pair in asked if pair[1] not in told[pair[0]]] == []
    assert {s.labels["state"] for s in exported["kdi_stream_state"].samples} == told["state"]


def test_a_look_at_followers_that_fails_leaves_no_old_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silver = RefinedTableSpec("silver/orders", (Upstream("bronze/orders"),))
    reader = DownstreamReader([silver], str(tmp_path), tmp_path)
    reader.request().result()
    before = reader.last

    def fails(*_: object, **__: object) -> list[FollowerRow]:
        raise RuntimeError("no answer")

    monkeypatch.setattr(downstream, "read_follower_rows", fails)
    with pytest.raises(RuntimeError):
        reader.request().result()

    assert [row.name for row in before] == ["silver/orders"]
    assert dict(downstream_samples(reader.tables, reader.last))[DOWNSTREAM_UP] == [(("silver/orders", "refined"), 0.0)]


def test_a_look_at_followers_that_hangs_leaves_no_old_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silver = RefinedTableSpec("silver/orders", (Upstream("bronze/orders"),))
    reader, released = DownstreamReader([silver], str(tmp_path), tmp_path), Event()
    reader.request().result()

    def hangs(*_: object, **__: object) -> list[FollowerRow]:
        assert released.wait(timeout=60)
        return [FollowerRow("silver/orders", TableKind.REFINED)]

    monkeypatch.setattr(downstream, "read_follower_rows", hangs)
    going = reader.request()
    early = reader.last
    monkeypatch.setattr(downstream, "HANGS_SECONDS", 0.0)
    late = reader.last
    released.set()
    going.result()

    assert [len(rows) for rows in (early, late, reader.last)] == [1, 0, 1]


@pytest.mark.parametrize(
    ("row", "up"),
    [
        (FollowerRow("silver/orders", TableKind.REFINED, 0, 0.0), 1.0),
        (FollowerRow("silver/orders", TableKind.REFINED, refusal=UpstreamMissing(table="", upstream="", uri="")), 1.0),
        (FollowerRow("silver/orders", TableKind.REFINED, refusal=UpstreamGone(table="", upstream="", uri="")), 0.0),
        (FollowerRow("silver/orders", TableKind.REFINED, refusal=SourceGone(target="", uri="", version=1)), 0.0),
        (FollowerRow("silver/orders", TableKind.REFINED, refusal=SILENT), 0.0),
    ],
)
def test_a_table_that_has_not_begun_pages_nobody(row: FollowerRow, up: float) -> None:
    silver = RefinedTableSpec("silver/orders", (Upstream("bronze/orders"),))

    assert dict(downstream_samples([silver], [row]))[DOWNSTREAM_UP] == [(("silver/orders", "refined"), up)]
