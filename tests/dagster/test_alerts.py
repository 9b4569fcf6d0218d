"""Alerts over a real HTTP server: what a tick of the lag sensor sends, and what happens if the delivery fails."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster import DagsterInstance

from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.errors import ChangedByOthers, UpstreamMissing
from kdi_assets.follow.serve.errors import DatabaseUnavailable
from kdi_assets.operate.monitoring.backlog import Backlog, State
from kdi_assets.operate.monitoring.follower_rows import FollowerRow
from kdi_assets.sensors import alerts, downstream_alerts
from kdi_assets.sensors.memory import read_cursor, write_cursor
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.plan_errors import RetentionPassedPosition
from tests.dagster.sensors.scripted_cluster import Cluster
from tests.receivers.webhook import Webhook
from tests.table_by_hand import TableByHand

pytestmark = pytest.mark.usefixtures("lake_in_environment")

LOST = RetentionPassedPosition(
    stream="bronze/orders", topic_partition=TopicPartition("orders", 0), position=10, earliest=25
)


@dataclass
class Watched(Cluster):
    """Streams and their status words."""

    words: dict[str, State] = field(default_factory=dict)

    def _backlog(self, stream: Stream) -> Backlog:
        seen, word = super()._backlog(stream), self.words.get(stream.name, State.OK)
        held = {tp: replace(waits, word=word) for tp, waits in seen.topic_partitions.items()}
        return replace(seen, topic_partitions=held)

    def tick_after_a_minute(self) -> dg.SensorExecutionData:
        """A tick for which the incidents in the cursor are a minute older."""
        kept = read_cursor(self.cursor)
        older = {i: replace(f, since=f.since - 60, over=f.over and f.over - 60) for i, f in kept.incidents.items()}
        self.cursor = write_cursor(replace(kept, incidents=older))
        return self.tick()


def test_refined_and_served_tables_that_are_refused_late_or_away_are_sent(
    instance: DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: a table is up to date, later late, later refused; a database does not answer, and is back.
    Pass: each is sent once after its patience, and once more when it is over; a missing upstream table is no incident.
    """
    clock, said = datetime(2026, 5, 6, tzinfo=UTC), dict[str, FollowerRow]()
    silver, gone = (RefinedTableSpec(path, (Upstream("bronze/orders"),)) for path in ("silver/orders", "silver/gone"))
    copy = ServedTableSpec("gold/daily", Postgres("daily", url="postgresql://kdi@db/x"), ("date",))
    monkeypatch.setattr(downstream_alerts, "read_follower_rows", lambda tables, **_: [said[t.name] for t in tables])
    sensor = downstream_alerts.alert_sensor([silver, gone, copy], now=lambda: clock)
    cursor: str | None = None

    def tick(waits: float, refusal: KdiError | None = None, away: KdiError | None = None) -> list[tuple[str, str, str]]:
        nonlocal cursor, clock
        clock += timedelta(minutes=1)
        said[silver.name] = FollowerRow(
            silver.name, TableKind.REFINED, 1, waits, limits=FreshnessLimits(30, 60), refusal=refusal
        )
        said[gone.name] = FollowerRow(
            gone.name, TableKind.REFINED, refusal=UpstreamMissing(table="", upstream="", uri="")
        )
        said[copy.name] = FollowerRow(copy.name, TableKind.SERVED, 0, 0.0, refusal=away)
        before = len(webhook.told)
        with dg.build_sensor_context(instance, cursor=cursor) as context:
            cursor = sensor.evaluate_tick(context).cursor
        return webhook.told[before:]

    down = DatabaseUnavailable(target=copy.name, server="db:5432/x", detail="no answer")
    changed = ChangedByOthers(table=silver.name, uri="", version=3, operation="DELETE")
    told = [tick(10), tick(90, away=down), tick(150, away=down), tick(0, changed), tick(0, changed), tick(0), tick(0)]

    late, away, refused = ((silver.name, "stands_still"), (copy.name, "unreachable"), (silver.name, "refused"))
    assert told[:2] == [[], []]
    assert set(told[2]) == {(*late, "began"), (*away, "began")}
    assert told[3] == [(*refused, "began")]  # whether it is late is unknown now
    assert told[4] == [(*away, "ended")]
    assert told[5] == []
    assert set(told[6]) == {(*late, "ended"), (*refused, "ended")}


@pytest.fixture
def cluster(instance: DagsterInstance) -> Watched:
    return Watched(instance, waiting={"bronze/orders": 500})


def test_an_incident_is_sent_once_and_once_more_when_it_is_over(cluster: Watched, webhook: Webhook) -> None:
    cluster.words = {"bronze/orders": State.STOP}
    cluster.tick()
    said = cluster.tick_after_a_minute().skip_message or ""
    cluster.tick()
    cluster.words = {}
    cluster.tick()
    cluster.tick_after_a_minute()
    cluster.tick()

    assert webhook.told == [("bronze/orders", "stands_still", "began"), ("bronze/orders", "stands_still", "ended")]
    assert "alerts: sent 1" in said
    first, second = webhook.received
    assert first["text"] == "bronze/orders: stands still: STOP: 500 offsets wait, the oldest message for 2 s"
    assert second["text"] == "bronze/orders: over: stands still, after 2 min"
    assert first["cluster"] == "main"
    assert first["incidents"][0]["detail"] == "STOP: 500 offsets wait, the oldest message for 2 s"


def test_streams_with_one_cause_share_a_message_and_a_line(cluster: Watched, webhook: Webhook) -> None:
    cluster.waiting = {"bronze/orders": 500, "bronze/clicks": 500}
    cluster.words = dict.fromkeys(("bronze/orders", "bronze/clicks"), State.STALL)
    cluster.refusals = {"bronze/payments": replace(LOST, stream="bronze/payments")}

    cluster.tick()
    cluster.tick_after_a_minute()

    refused, together = webhook.received
    assert refused["text"].startswith("bronze/payments: refused: retention deleted [10, 25)")
    assert "Run: kdi resolve bronze/payments accept-loss" in refused["text"]
    assert together["text"].startswith("bronze/clicks, bronze/orders: stands still: STALL: 500 offsets wait")
    assert [i["stream"] for i in together["incidents"]] == ["bronze/clicks", "bronze/orders"]


@pytest.mark.parametrize("answer", [500, 404, 302, 0], ids=["500", "404", "a redirect", "none in time"])
def test_what_the_webhook_does_not_take_is_sent_at_the_next_tick_and_the_tick_goes_on(
    cluster: Watched, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    monkeypatch.setattr(alerts, "TIMEOUT_SECONDS", 0.2)
    cluster.refusals, webhook.answer = {"bronze/orders": LOST}, answer
    cluster.waiting["bronze/clicks"] = 5000

    data = cluster.tick()
    failed = read_cursor(data.cursor).incidents
    webhook.answer = 200
    cluster.tick()
    cluster.tick()

    assert len(data.run_requests or ()) == 1, "the run of another stream is requested all the same"
    assert [followed.told for followed in failed.values()] == [False]
    assert webhook.told == [("bronze/orders", "refused", "began")]


def test_a_failed_delivery_is_said_without_the_address_which_is_a_secret(
    cluster: Watched, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.refusals, webhook.answer = {"bronze/orders": LOST}, 500
    refused = cluster.tick().skip_message or ""
    monkeypatch.setenv("KDI_ALERT_WEBHOOK", "http://127.0.0.1:1/secret")
    silent = cluster.tick().skip_message or ""
    monkeypatch.setenv("KDI_ALERT_WEBHOOK", "file:///secret")
    wrong = cluster.tick().skip_message or ""

    assert "the webhook answered 500" in refused
    assert "no answer from the webhook (URLError)" in silent
    assert "is not an http or https address" in wrong
    assert "secret" not in refused + silent + wrong + repr(Settings.from_environment())


def test_who_sets_a_webhook_is_told_of_what_goes_on_and_again_where_the_cursor_is_lost(
    cluster: Watched, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.refusals = {"bronze/orders": LOST}
    monkeypatch.delenv("KDI_ALERT_WEBHOOK")
    cluster.tick()
    without = read_cursor(cluster.cursor).incidents
    monkeypatch.setenv("KDI_ALERT_WEBHOOK", webhook.url)
    cluster.tick()
    cluster.cursor = None
    cluster.tick()

    assert without == {}
    assert webhook.told == [("bronze/orders", "refused", "began")] * 2


def test_dead_letters_are_read_from_the_ledger(cluster: Watched, webhook: Webhook, lake: str) -> None:
    TableByHand(lake).drain(1000, ago=timedelta(minutes=5), dead_letters=60)

    cluster.tick()

    assert webhook.told == [("bronze/orders", "dead_letters", "began")]
    assert webhook.received[0]["text"] == (
        "bronze/orders: dead letters: 60 of 1,000 messages of the last hour are dead letters; the limit is 1.00%"
    )
