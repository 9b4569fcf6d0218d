"""No environment of the machine; a fake registry without pauses; `kdi` in this process; a table of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kdi_assets.operate.monitoring import follower_rows
from kdi_assets.streams.announce.status import AnnouncedStatus
from tests.documents import SERVED, refined, stream, written
from tests.formats.fake_registry import RunningRegistry, ask_at_once, fake_registry
from tests.kafka.certificates import Certificates, make_certificates
from tests.typed import Kdi, typed


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("KDI_KAFKA", "KDI_DEFS", "KDI_DRIVER", "KDI_AUTOMATION", "KDI_CATALOG")
    for name in (*ours, "OPENLINEAGE_URL", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Those that nobody else trusts."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_at_once(monkeypatch)


@pytest.fixture
def registry(at_once: None) -> Iterator[RunningRegistry]:
    with fake_registry() as running:
        yield running


@pytest.fixture
def kdi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, lake: str) -> Kdi:
    """Runs a command in this process, over one stream whose broker does not exist."""
    orders = stream("bronze/orders", more=", freshness: {warn: 5 minutes, fail: 2 hours}")
    written(tmp_path, orders=orders.replace("topic: t", "topic: orders"))
    for name, value in {"KDI_LAKE": lake, "KDI_DEFS": str(tmp_path), "KDI_KAFKA": "127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    return typed(monkeypatch, capsys)


@pytest.fixture
def every_kind(kdi: Kdi, tmp_path: Path, lake: str, monkeypatch: pytest.MonkeyPatch) -> Kdi:
    """A table of each kind over one Delta table; the stream is retired, so that nobody asks its broker."""
    monkeypatch.setenv("KDI_HOME", str(tmp_path))
    announced = AnnouncedStatus(3, 5, 2, waiting_since=datetime(2026, 3, 10, 12, tzinfo=UTC))
    monkeypatch.setattr(follower_rows, "announced_streams", lambda streams: [s for s in streams if s.announce])
    statuses = lambda streams, *_, **__: {s.name: announced for s in streams}  # noqa: E731
    monkeypatch.setattr(follower_rows, "read_announced_statuses", statuses)
    orders = stream("bronze/orders", more=", status: retired")
    told = stream(
        "bronze/told", more=", status: retired, announce: {topic: files}, freshness: {warn: 1 hour, fail: 2 hours}"
    )
    told = told.replace("topic: t,", "topic: told,")
    silver = refined("silver/daily", upstream="made/elsewhere", more=", freshness: {warn: 1 hour, fail: 6 hours}")
    written(tmp_path, orders=orders, told=told, silver=silver, copy=SERVED)
    rows = {"id": [1], "date": pa.array([date(2026, 1, 1)], pa.date32())}
    write_deltalake(f"{lake}/made/elsewhere", pa.table(rows))
    return kdi
