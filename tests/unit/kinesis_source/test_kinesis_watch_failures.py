"""A look at streams of Kinesis whose calls fail: what stays known, and when a stream counts as unreachable."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis import watch
from kdi_assets.messages.kinesis.client import kinesis_client, translated
from kdi_assets.messages.kinesis.errors import KinesisUnanswered
from kdi_assets.messages.kinesis.look_ahead import SHARDS_AT_ONCE
from kdi_assets.messages.kinesis.shards import id_of, list_shards
from kdi_assets.messages.kinesis.watch import COMMAND_ATTEMPTS
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader
from kdi_assets.sensors.incidents import CurrentIncidents, IncidentKind, current_incidents
from kdi_assets.sensors.memory import Memory
from kdi_assets.tools.local.kinesis.faults import Fault
from tests.kinesis.shard import DAY, OneShard
from tests.kinesis.ticks import Ticks
from tests.table_by_hand import TOPIC


def test_throttled_looks_leave_what_is_known_and_are_tried_again(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, shards=2, names=(TOPIC, "other"))
    code = "ProvisionedThroughputExceededException"
    ticks.server.order(Fault("GetRecords", shard=id_of(0), code=code, times=2))

    first, _ = ticks.tick()
    second, _ = ticks.tick()
    ticks.server.order(Fault("GetRecords", code=code, times=4))
    third, calls = ticks.tick()

    assert [(one.refusal, one.known) for one in first] == [(None, False)] * 2
    assert first[0].topic_partitions[TopicPartition(TOPIC, 1)].is_idle
    assert [(one.refusal, one.known) for one in second] == [(None, True)] * 2
    assert [(one.refusal, one.known) for one in third] == [(None, True)] * 2
    assert calls[0] == 4, "a call that was one too many is not repeated at once"


def test_a_stream_that_is_throttled_for_minutes_does_not_answer(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, names=(TOPIC, "other"))
    ticks.tick()
    fault = Fault("GetRecords", shard=id_of(0), code="ProvisionedThroughputExceededException", times=1000)
    ticks.server.order(fault)

    refusals = [[one.refusal for one in ticks.tick()[0]] for _ in range(70)]
    ticks.server.unmet_faults()
    again, _ = ticks.tick()

    assert refusals[0] == refusals[58] == [None, None]
    assert [type(refusal) for refusal in refusals[-1]] == [KinesisUnanswered] * 2
    assert [one.refusal for one in again] == [None, None]


def test_a_right_that_one_stream_lacks_refuses_only_that_stream(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, names=(TOPIC, "other"))
    ticks.server.order(Fault("GetShardIterator", code="AccessDeniedException"))

    found, _ = ticks.tick()

    assert sorted(one.refusal is None for one in found) == [False, True]


@pytest.mark.parametrize("leader_seconds", [0.0, 5.0])
def test_a_stream_that_is_not_active_yet_says_nothing_of_the_others(
    shard: OneShard, lake: str, monkeypatch: pytest.MonkeyPatch, leader_seconds: float
) -> None:
    ticks = Ticks(shard, lake, names=("a", "b", "c"))
    listed = "kdi_assets.messages.kinesis.source.list_shards"
    monkeypatch.setattr(listed, lambda client, name: [] if name == "a" else list_shards(client, name))

    found = BacklogReader(leader_seconds=leader_seconds)(ticks.streams, lake=lake)

    assert [one.refusal is None for one in found] == [False, True, True]
    assert "a has no shard" in str(found[0].refusal)


def test_a_connection_that_is_down_is_not_asked_about_every_shard(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, shards=4, names=(TOPIC, "b", "c", "d"))
    ticks.tick()
    ticks.server.order(Fault("GetRecords", code="ExpiredTokenException", times=1000))

    found, calls = ticks.tick()
    ticks.server.unmet_faults()
    again, _ = ticks.tick()

    assert [type(one.refusal) for one in found] == [KinesisUnanswered] * 4
    assert calls[0] <= SHARDS_AT_ONCE
    assert [one.refusal for one in again] == [None] * 4


def test_iterators_that_expire_at_once_are_no_answer(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    ticks.tick()
    ticks.server.order(Fault("GetRecords", code="ExpiredIteratorException", times=1000))

    looks = [ticks.tick()[0][0] for _ in range(70)]
    ticks.server.unmet_faults()
    ((again,), _) = ticks.tick()

    assert (looks[0].refusal, looks[0].known, looks[55].refusal) == (None, True, None)
    assert isinstance(looks[-1].refusal, KinesisUnanswered)
    assert (again.refusal, again.known) == (None, True)


def test_a_summary_that_cannot_be_renewed_for_minutes_is_no_answer(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    ticks.tick()
    ticks.server.order(Fault("DescribeStreamSummary", code="LimitExceededException", times=1000))

    looks = [ticks.tick()[0][0] for _ in range(125)]
    ticks.server.unmet_faults()
    ((again,), _) = ticks.tick()

    assert looks[100].refusal is None
    assert isinstance(looks[-1].refusal, KinesisUnanswered)
    assert again.refusal is None


def test_a_shard_that_ended_is_not_known_before_its_children_are_listed(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    ticks.tick()
    shard.client.split_shard(StreamName=TOPIC, ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    ticks.server.order(Fault("ListShards", code="LimitExceededException", times=2))

    looks = [ticks.tick()[0][0] for _ in range(4)]

    assert [(one.refusal, one.known) for one in looks] == [(None, False)] * 3 + [(None, True)]


def unreachable(shard: OneShard, monkeypatch: pytest.MonkeyPatch, *shards: int) -> None:
    """From now on no connection can be made for calls about these shards."""
    first = {id_of(number) for number in shards}

    class Client:
        exceptions = shard.client.exceptions

        def get_shard_iterator(self, **asked: Any) -> Any:
            if asked["ShardId"] in first:
                raise ConnectTimeoutError(endpoint_url=shard.server.endpoint)
            return shard.client.get_shard_iterator(**asked)

        def get_records(self, **asked: Any) -> Any:
            return shard.client.get_records(**asked)

    monkeypatch.setattr(watch, "kinesis_client", lambda *_, **__: Client())


def test_one_connection_that_cannot_be_made_leaves_what_is_known(
    shard: OneShard, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks(shard, lake, shards=2, names=(TOPIC, "other"))
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a", ExplicitHashKey="0")
    unreachable(shard, monkeypatch, 1)

    found, _ = ticks.tick()

    assert [(one.refusal, one.offsets) for one in found] == [(None, 1), (None, 0)]
    assert [one.topic_partitions[TopicPartition("other", 0)].is_idle for one in found[1:]] == [True]


def test_a_connection_that_no_call_can_make_is_down(
    shard: OneShard, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks(shard, lake, shards=2, names=(TOPIC, "other"))
    unreachable(shard, monkeypatch, 0, 1)

    found, _ = ticks.tick()

    assert [(type(one.refusal), one.known) for one in found] == [(KinesisUnanswered, False)] * 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [("ExpiredTokenException", IncidentKind.UNREACHABLE), ("UnrecognizedClientException", IncidentKind.REFUSED)],
)
def test_a_loss_that_is_near_is_not_over_while_nothing_answers(
    shard: OneShard, lake: str, code: str, kind: IncidentKind
) -> None:
    """Procedure: retention is near a record that waits; the call about the other shard is refused with the keys."""
    ticks = Ticks(shard, lake, shards=2)
    (stream,) = ticks.streams
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a", ExplicitHashKey="0")
    ticks.tick()
    ticks.server.advance(DAY - 60)

    def incidents() -> CurrentIncidents:
        names, found = {stream.name: stream}, ticks.tick()[0]
        return current_incidents(found, streams=names, in_flight=(), memories={stream.name: Memory()}, tables={})

    near = incidents()
    ticks.server.order(Fault("GetRecords", code=code, times=1000))
    down = incidents()
    ticks.server.unmet_faults()

    key = f"{IncidentKind.LOSS_NEAR}:{stream.name}"
    assert near[key]
    assert down[f"{kind}:{stream.name}"]
    assert key not in down, "nobody knows, so that the incident goes on"


def test_a_summary_for_which_no_connection_can_be_made_leaves_what_is_known(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    watching = shard.source.watch()
    watching.topics([TOPIC], leader_seconds=0.0)
    ticks.server.advance(300)

    def describe(name: str, *, attempts: int) -> Any:
        with translated(shard.connection, name):
            raise ConnectTimeoutError(endpoint_url=shard.server.endpoint)

    watching.describe = describe
    found = watching.topics([TOPIC, "s"], leader_seconds=0.0)

    assert isinstance(found[TOPIC], TopicState)
    assert isinstance(found["s"], KinesisUnanswered)


def test_a_shard_that_does_not_answer_hides_no_records_of_the_others(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, shards=2)
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a", ExplicitHashKey="0")
    code = "ProvisionedThroughputExceededException"
    ticks.server.order(Fault("GetRecords", shard=id_of(1), code=code, times=1000))

    found = [ticks.tick()[0][0] for _ in range(70)][-1]
    ticks.server.unmet_faults()

    assert (found.refusal, found.offsets) == (None, 1)
    assert found.topic_partitions[TopicPartition(TOPIC, 1)].unknown


@pytest.mark.parametrize(
    ("leader_seconds", "waits", "told"), [(0.0, 5, type(None)), (3.0, 15, KinesisUnanswered)], ids=["tick", "command"]
)
def test_a_look_at_a_server_that_does_not_answer_comes_to_an_end(
    shard: OneShard, lake: str, monkeypatch: pytest.MonkeyPatch, leader_seconds: float, waits: int, told: type
) -> None:
    """Procedure: every call about a shard waits as long as the client allows it, with its attempts.
    Pass: a person who asks how far 48 shards are hears of it after some calls, and not after all; another tick follows.
    """
    ticks, asked = Ticks(shard, lake, shards=8, names=(TOPIC, "b", "c", "d", "e", "f")), []

    class Silent:
        exceptions = shard.client.exceptions

        def get_shard_iterator(self, **asks: Any) -> Any:
            asked.append(asks["ShardId"])
            ticks.server.advance(waits)
            raise ReadTimeoutError(endpoint_url=shard.server.endpoint)

    monkeypatch.setattr(watch, "kinesis_client", lambda *_, **__: Silent())

    found = BacklogReader(leader_seconds=leader_seconds)(ticks.streams, lake=lake)

    assert 0 < len(asked) <= SHARDS_AT_ONCE
    assert [(type(one.refusal), one.known) for one in found] == [(told, False)] * 6


def test_a_command_asks_for_no_more_summaries_once_one_was_not_answered_in_time(shard: OneShard, lake: str) -> None:
    """Each of them would wait as long, one after the other."""
    ticks, asked, names = Ticks(shard, lake), list[str](), [f"s{number}" for number in range(20)]
    watching = shard.source.watch()

    def describe(name: str, *, attempts: int) -> Any:
        asked.append(name)
        ticks.server.advance(5 * attempts)
        with translated(shard.connection, name):
            raise ReadTimeoutError(endpoint_url=shard.server.endpoint)

    watching.describe = describe
    found = watching.topics(names, leader_seconds=3.0)

    assert 0 < len(asked) <= 3
    assert [type(found[name]) for name in names] == [KinesisUnanswered] * len(names)


def test_calls_of_a_look_wait_for_no_more_than_five_seconds(shard: OneShard) -> None:
    """The next look repeats the call, or a person waits."""
    waits = [kinesis_client(shard.connection, attempts=n).meta.config.read_timeout for n in (1, COMMAND_ATTEMPTS, 4)]

    assert waits == [5, 5, 20]
