"""Rewind: positions set back to a moment, to a version of the table, to an offset; and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from kdi_assets.drain.resolve import Decision, NothingToResolve, carry_out_decision, decide
from kdi_assets.stream import TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults.topics import delete_records

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


def test_positions_go_back_to_where_they_stood_at_a_version_as_a_restore_would_have_it(driven: DrivenFactory) -> None:
    """Procedure: drains as versions 1 and 2; a RESTORE to 1, answered by 4; drain as 5; rewind to 3, which is the
    RESTORE; to what is not there, not readable, or not held by the broker any more."""
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

    assert restored.after == {first: 5, second: 5}
    assert begun.after == {first: 0, second: 10}
    with pytest.raises(NothingToResolve, match="nothing below"):
        rewound(web, to_version=5, topic_partition=first)  # its position was higher then
