"""An audit of some offsets, or of a stretch of time: exact where it can be, and it says where it cannot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer
from deltalake import DeltaTable, write_deltalake

from kdi_assets.cli.audit import bounds_meant, typed
from kdi_assets.ledger.audit import audit, audited_history
from kdi_assets.ledger.coverage import coverage
from kdi_assets.ledger.report import AuditReport
from kdi_assets.stream import TopicPartition
from tests.broker.test_audit import adds_up
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GOOD = (
    '{"meta": {"producer": {"timestamp": "2026-03-01T12:00:00Z"}}, "method": "GET", "session_id": "s", "status": 200, '
    '"url": "http://a.b/", "uuid": "u"}'
)


def audited(
    web: DrivenStream, *, only: int | None = None, start: str | None = None, end: str | None = None
) -> AuditReport:
    """As `kdi audit --partition … --from … --to …` does it."""
    tp = None if only is None else TopicPartition(web.stream.topic, only)
    whole = coverage(audited_history(web.stream, web.lake).entries).bounds()
    bounds = bounds_meant(web.stream, typed(tp, start, end), whole)
    return audit(web.stream, lake=web.lake, session=web.session, bounds=bounds)


def publish(web: DrivenStream, values: list[str | None], *, partition: int = 0) -> None:
    """One message a minute from noon on."""
    for number, value in enumerate(values):
        at = NOON + timedelta(minutes=number)
        web.publisher.produce(web.stream.topic, value, partition=partition, timestamp=at)
    web.publisher.flush()


def test_bounds_cut_ranges_by_offset_and_say_what_only_a_count_tells(driven: DrivenFactory) -> None:
    """Procedure: audits of parts of a table; then an overwrite leaves rows of one topic partition out."""
    web = driven(partitions=2)
    publish(web, [GOOD, "bad", None, GOOD, GOOD, None, GOOD, "bad"])
    publish(web, [GOOD] * 6, partition=1)
    web.drain()

    cut = audited(web, only=0, start="1", end="6")
    one = audited(web, only=1)
    by_time = audited(web, start="2026-03-01T12:02:00Z", end="2026-03-01T13:04:00+01:00")
    rows = DeltaTable(web.uri).to_pyarrow_table()
    write_deltalake(web.uri, rows.filter([not lost(r["meta"]["kafka"]) for r in rows.to_pylist()]), mode="overwrite")
    inside, outside = audited(web, only=1, end="4"), audited(web, only=1, start="4")

    assert (cut.complete, cut.offsets, cut.rows, cut.dead_letters, cut.tombstones) == (True, 5, 2, 1, 2)
    assert cut.notes[0] == f"only {web.stream.topic}/0 [1, 6)"
    assert any("known by their count alone" in note for note in cut.notes)
    assert (one.complete, one.offsets, one.rows, len(one.notes)) == (True, 6, 6, 1)
    assert (by_time.complete, by_time.offsets, by_time.rows, by_time.tombstones) == (True, 4, 3, 1)
    assert all(adds_up(r) for r in (cut, one, by_time))
    assert (inside.complete, inside.offsets, outside.complete, outside.missing) == (True, 4, False, 2)

    for said, asked in {
        "is not before": {"only": 0, "start": "3", "end": "2"},
        "was never drained": {"only": 7},
        "nothing of": {"only": 0, "start": "8"},
        "needs --partition": {"start": "1"},
        "has no zone": {"start": "2026-03-01T12:00:00"},
        "is none": {"end": "yesterday"},
    }.items():
        with pytest.raises(typer.BadParameter, match=said):
            audited(web, **asked)  # type: ignore[arg-type]


def lost(at: dict[str, int]) -> bool:
    """Whether the overwrite leaves the row out."""
    return at["partition"] == 1 and at["offset"] >= 4
