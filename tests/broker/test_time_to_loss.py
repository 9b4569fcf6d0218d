"""The alert about messages that retention is about to delete comes before they are deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType

from kdi_assets.operate.monitoring.backlog_reader import BacklogReader
from kdi_assets.sensors.alerts import Alerts
from kdi_assets.sensors.memory import Memory, TrackedIncident
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.plan_errors import RetentionPassedPosition
from kdi_assets.tools.local.broker import JVM_OPTIONS, QUICK_START, Broker, start_broker
from tests.conftest import DrivenFactory
from tests.faults.topics import configure
from tests.receivers.webhook import Webhook

KEPT_MS, LOST_SECONDS, STREAMS = 12_000, 120.0, 10


@pytest.fixture
def broker(settings: Settings, tmp_path: Path) -> Iterator[Broker]:
    """A broker that looks for messages to delete all the time; the broker of the other tests never does."""
    often = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "1000"}
    jvm_options = (*JVM_OPTIONS, *QUICK_START)
    broker = start_broker(tmp_path / "broker", home=settings.home, jvm_options=jvm_options, properties=often)
    yield broker
    broker.stop()


@pytest.mark.scenario("retention passes the position")
def test_the_alert_comes_before_the_loss_every_time(
    driven: DrivenFactory, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: an alert after the loss is useless.
    Procedure: paused streams whose topics keep twelve seconds; a message to each, half a second apart; read the backlog
    as the sensor's tick does until retention has deleted all of them.
    Pass: each stream was refused for a loss in the end, and its alert had been delivered at an earlier tick.
    """
    webs = [driven(partitions=1, status="paused") for _ in range(STREAMS)]
    for web in webs:
        web.produce(1)
        web.drain()
        # Only now: a first drain may take that long.
        configure(web.stream.kafka, ResourceType.TOPIC, web.stream.topic, **{"retention.ms": str(KEPT_MS)})
    streams = {web.stream.name: web.stream for web in webs}
    monkeypatch.setenv("KDI_LAKE", webs[0].lake)
    look, alerts, known = BacklogReader(), Alerts("main"), dict[str, TrackedIncident]()
    told_at: dict[str, int] = {}
    lost_at: dict[str, int] = {}

    for web in webs:
        web.produce(2)
        time.sleep(0.5)  # so that they do not all expire in the same moment
    began, tick = time.monotonic(), 0
    while len(lost_at) < STREAMS and time.monotonic() - began < LOST_SECONDS:
        tick += 1
        backlogs = look(list(streams.values()), lake=webs[0].lake)
        for lost in (b.stream for b in backlogs if isinstance(b.refusal, RetentionPassedPosition)):
            lost_at.setdefault(lost, tick)
        memories = dict.fromkeys(streams, Memory())
        followed, _ = alerts(
            backlogs,
            settings=Settings.from_environment(),
            streams=streams,
            in_flight={},
            memories=memories,
            known=known,
            now=datetime.now(UTC),
        )
        known = dict(followed)
        for stream in (stream for stream, kind, event in webhook.told if (kind, event) == ("loss_near", "began")):
            told_at.setdefault(stream, tick)
        time.sleep(0.2)

    assert set(lost_at) == set(streams), "retention took none of the others"
    assert {stream: told_at.get(stream, 0) < tick for stream, tick in lost_at.items()} == dict.fromkeys(streams, True)
    assert set(told_at) == set(streams)
