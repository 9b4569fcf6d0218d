"""Decisions: made on one version of one table, and carried out on no other."""

from __future__ import annotations

import pytest

from kdi_assets.drain.resolve import Decision, carry_out_decision, decide
from kdi_assets.ledger.commit import OvertakenCommit, TableChangedUnderDrain
from kdi_assets.ledger.history import entries
from kdi_assets.stream import TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream


@pytest.fixture
def web(driven: DrivenFactory) -> DrivenStream:
    """Ten messages in one topic partition, drained."""
    web = driven(partitions=1)
    web.produce(10)
    web.drain()
    return web


def test_a_decision_is_not_carried_out_on_another_table_than_it_was_made_for(web: DrivenStream) -> None:
    decision = rewind(web, 4)

    replaced(web)
    with pytest.raises(TableChangedUnderDrain):
        carry_out_decision(web.session(), decision, web.stream, web.lake)

    assert len(entries(web.uri, web.stream.app_id)) == 2


def test_a_decision_is_not_carried_out_when_a_drain_came_between(web: DrivenStream) -> None:
    decision = rewind(web, 4)

    produced = web.produce(10, seed=1)
    web.drain()
    with pytest.raises(OvertakenCommit):
        carry_out_decision(web.session(), decision, web.stream, web.lake)

    web.assert_each_offset_once(produced)


def rewind(web: DrivenStream, to: int) -> Decision:
    only = TopicPartition(web.stream.topic, 0)
    return decide(web.stream, web.lake, "rewind", topic_partition=only, to=to, session=web.session)


def replaced(web: DrivenStream) -> None:
    """Another table in the place of the stream's."""
    made = f"CREATE OR REPLACE TABLE delta.`{web.uri}` USING delta PARTITIONED BY (date)"
    web.session().sql(f"{made} AS SELECT * FROM delta.`{web.uri}`")
