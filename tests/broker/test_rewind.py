"""Rewind: positions set back to a moment, to a version of the table, to an offset; and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.drain.resolve import Decision, NothingToResolve, carry_out_decision, decide
from kdi_assets.settings import Settings
from kdi_assets.stream import KafkaCluster, TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, web_requests_document
from tests.faults.topics import delete_records
from tests.typed import Kdi, typed

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def rewound(web: DrivenStream, **target: Any) -> Decision:
    return decide(web.stream, web.lake, "rewind", session=web.session, **target)


def by_the_hour(driven: DrivenFactory) -> DrivenStream:
    """Ten messages in each of two topic partitions, one an hour, drained in two halves; then ten behind them."""
    web = driven(partitions=2)
    for half in range(2):
        for hour in range(5 * half, 5 * half + 5):
            for partition in range(2):
                at = BEGIN + timedelta(hours=hour)
                value = '{"meta": {"producer": {"timestamp": "2026-03-01T00:00:00Z"}}, "status": 200}'
                web.publisher.produce(web.stream.topic, value, partition=partition, timestamp=at)
        web.publisher.flush()
        web.drain()
    return web


def test_positions_go_back_to_the_first_message_of_a_moment_and_never_forward(driven: DrivenFactory) -> None:
    """Procedure: a message an hour, ten hours long, in two topic partitions; rewind to moments; retention takes the
    first four hours of one of them."""
    web = by_the_hour(driven)
    first, second = (TopicPartition(web.stream.topic, p) for p in range(2))

    both = rewound(web, to_timestamp=BEGIN + timedelta(hours=6, minutes=30))
    one = rewound(web, to_timestamp=BEGIN + timedelta(hours=3), topic_partition=second)
    with pytest.raises(NothingToResolve, match=r"nothing below the positions is 2026-03-01T09:00:00.001Z or later"):
        rewound(web, to_timestamp=BEGIN + timedelta(hours=9, milliseconds=1))
    with pytest.raises(NothingToResolve, match="has no zone"):
        rewound(web, to_timestamp=datetime(2026, 3, 1))
    with pytest.raises(NothingToResolve, match="exclude each other"):
        rewound(web, to_timestamp=BEGIN, to_version=1)
    delete_records(web, {0: 4})
    with pytest.raises(NothingToResolve, match=rf"{first} the broker has nothing before offset 4 .*T04:00:00.000Z"):
        rewound(web, to_timestamp=BEGIN + timedelta(hours=2))
    from_there = rewound(web, to_timestamp=BEGIN + timedelta(hours=4))

    assert (both.before, both.after) == ({first: 10, second: 10}, {first: 7, second: 7})
    assert one.after == {first: 10, second: 3}
    assert from_there.after == {first: 4, second: 4}
    assert f"[3, 10) of {second}" in one.reason


@pytest.fixture
def kdi(
    settings: Settings,
    tmp_path: Path,
    cluster: KafkaCluster,
    lake: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Kdi:
    """Runs a command over the documents in ``tmp_path``."""
    given = {"KDI_LAKE": lake, "KDI_DEFS": str(tmp_path), "KDI_KAFKA": cluster.bootstrap_servers}
    for name, value in {**given, "KDI_HOME": str(settings.home), "KDI_DRIVER": "own"}.items():
        monkeypatch.setenv(name, value)
    return typed(monkeypatch, capsys)


@pytest.mark.core
def test_positions_go_back_to_where_they_stood_at_a_version_as_a_restore_would_have_it(
    driven: DrivenFactory, kdi: Kdi, tmp_path: Path
) -> None:
    """Procedure: drains as versions 1 and 2; a RESTORE to 1, answered by 4; drain as 5; rewind to 3, which is the
    RESTORE; to what is not there, not readable, or not held by the broker any more; and as a person types it."""
    web = by_the_hour(driven)
    first, second = (TopicPartition(web.stream.topic, p) for p in range(2))
    DeltaTable(web.uri).restore(1)
    web.drain()

    restored, begun = rewound(web, to_version=3), rewound(web, to_version=0, topic_partition=first)
    for version, said in ((6, "there is no version 6; the newest is 5"), (5, "nothing below the positions is not in")):
        with pytest.raises(NothingToResolve, match=said):
            rewound(web, to_version=version)
    delete_records(web, {1: 6})
    with pytest.raises(NothingToResolve, match=rf"at version 1 the position of {second} was 5, .* from 6 on"):
        rewound(web, to_version=1)
    other = replace(web.stream, app_id="another")
    with pytest.raises(NothingToResolve, match="nothing below|first ledger commit"):
        decide(other, web.lake, "rewind", to_version=1, session=web.session)
    carry_out_decision(web.session(), begun, web.stream, web.lake, decided_by="ann", because="a wrong schema")
    (tmp_path / "defs.yaml").write_text(web_requests_document(web.stream.topic))
    words = "resolve", web.stream.table, "rewind", "--topic-partition", "1", "--to", "8"
    shown, done = kdi(*words), kdi(*words, "--because", "two bad ones", "--yes", "--json")
    history = kdi("history", web.stream.table, "--decisions")

    assert shown.code == done.code == history.code == 0, shown.err + done.err
    assert "2 rows of 2 messages behind the new positions are removed, to be drained again" in shown.out
    assert "Nothing was changed" in shown.out
    told = done.objects[0]
    assert (told["rows_beyond"], told["open_dead_letters_beyond"]) == (2, 0)
    assert f'{second}: 10 to 8; 2 rows removed ("two bad ones"' in history.out
    assert restored.after == {first: 5, second: 5}
    assert begun.after == {first: 0, second: 10}
    with pytest.raises(NothingToResolve, match="nothing below"):
        rewound(web, to_version=5, topic_partition=first)  # its position was higher then
