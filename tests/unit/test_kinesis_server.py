"""Our Kinesis server where tests move its clock and order its faults."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError
from urllib3.exceptions import ProtocolError

from kdi_assets.dev.kinesis.faults import Behaviour, Fault
from kdi_assets.dev.kinesis.server import KinesisServer
from tests.kinesis import KinesisEndpoint, frozen_kinesis, refusal

SHARD = "shardId-000000000000"
HOUR = 3600


@pytest.fixture(scope="module")
def endpoint() -> Iterator[KinesisEndpoint]:
    with frozen_kinesis() as one:
        yield one


@pytest.fixture
def kinesis(endpoint: KinesisEndpoint) -> Iterator[KinesisEndpoint]:
    endpoint.wait(10)
    yield endpoint
    endpoint.clean_up()
    vars(of(endpoint).behaviour).update(vars(Behaviour()))


def of(kinesis: KinesisEndpoint) -> KinesisServer:
    """The server of an endpoint."""
    assert kinesis.server
    return kinesis.server


def page(kinesis: KinesisEndpoint, iterator: str) -> Any:
    """One answer of GetRecords."""
    return kinesis.client.get_records(ShardIterator=iterator)


def after(kinesis: KinesisEndpoint, stream: str, number: str, kind: str = "AFTER_SEQUENCE_NUMBER") -> str:
    """An iterator at or behind a sequence number of the first shard."""
    return kinesis.iterator(stream, SHARD, kind, StartingSequenceNumber=number)


def split(kinesis: KinesisEndpoint, stream: str) -> None:
    """Split the first shard."""
    kinesis.client.split_shard(StreamName=stream, ShardToSplit=SHARD, NewStartingHashKey=str(1 << 127))


def test_an_iterator_expires_after_five_minutes_and_not_before(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, SHARD)

    kinesis.wait(300)
    page(kinesis, iterator)
    kinesis.wait(0.01)

    with pytest.raises(ClientError) as refused:
        page(kinesis, iterator)
    assert refusal(refused) == "ExpiredIteratorException"


def test_a_page_holds_at_most_ten_thousand_records(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    for _ in range(21):
        kinesis.put(name, *[b"x"] * 500)

    read = kinesis.read(name, SHARD)

    assert [len(page["Records"]) for page in read.pages if page["Records"]] == [10_000, 500]


def test_a_page_of_ten_mebibytes_keeps_the_shard_busy_for_five_seconds(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    for n in range(11):
        kinesis.put(name, b"%d" % n + bytes((1 << 20) - 4))

    first = page(kinesis, kinesis.iterator(name, SHARD))
    kinesis.wait(4.9)
    with pytest.raises(ClientError) as refused:
        page(kinesis, first["NextShardIterator"])
    kinesis.wait(0.1)
    second = page(kinesis, first["NextShardIterator"])

    assert (len(first["Records"]), len(second["Records"])) == (10, 1)
    assert refusal(refused) == "ProvisionedThroughputExceededException"


def test_a_shard_gives_two_mebibytes_a_second_to_all_its_readers(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    for _ in range(2):
        kinesis.put(name, bytes((1 << 20) - 4), b"x")
    iterator = kinesis.iterator(name, SHARD)

    page(kinesis, iterator)
    with pytest.raises(ClientError) as refused:
        page(kinesis, iterator)
    kinesis.wait(1)
    page(kinesis, iterator)

    assert refusal(refused) == "ProvisionedThroughputExceededException"


def test_a_record_of_ten_megabytes_is_read_where_the_stream_allows_it(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(MaxRecordSizeInKiB=10_240)
    data = b"large" * 2_000_000

    kinesis.put(name, b"small", data, b"small")

    records = page(kinesis, kinesis.iterator(name, SHARD))["Records"]
    assert [record["Data"] for record in records] == [b"small", data, b"small"]


def test_an_idle_reader_is_as_far_behind_as_its_next_record_is_old(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1")

    kinesis.wait(60)
    answers = list(kinesis.pages(kinesis.iterator(name, SHARD), limit=1))

    assert [round(one["MillisBehindLatest"], -3) for one in answers[:2]] == [60_000, 0]


def test_retention_removes_records_by_the_clock(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"old")
    kinesis.wait(23 * HOUR)
    kinesis.put(name, b"new")

    before = kinesis.read(name, SHARD).values
    kinesis.wait(HOUR)
    later = kinesis.read(name, SHARD).values

    assert (before, later) == ([b"old", b"new"], [b"new"])


def test_a_closed_shard_is_listed_and_read_until_retention_has_passed_its_end(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0")
    split(kinesis, name)

    kinesis.wait(23 * HOUR)
    before = [shard["ShardId"][-1] for shard in kinesis.shards(name)], kinesis.read(name, SHARD).values
    kinesis.wait(2 * HOUR)

    assert before == (["0", "1", "2"], [b"0"])
    assert [shard["ShardId"][-1] for shard in kinesis.shards(name)] == ["1", "2"]
    assert kinesis.shards(name)[0]["ParentShardId"] == SHARD
    with pytest.raises(ClientError) as refused:
        kinesis.iterator(name, SHARD)
    assert refusal(refused) == "ResourceNotFoundException"


def test_lowered_retention_hides_at_once_and_raised_retention_brings_nothing_back(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    client.increase_stream_retention_period(StreamName=name, RetentionPeriodHours=72)
    kinesis.put(name, b"old")
    kinesis.wait(30 * HOUR)
    kinesis.put(name, b"new")
    kept = kinesis.read(name, SHARD).values

    client.decrease_stream_retention_period(StreamName=name, RetentionPeriodHours=24)
    hidden = kinesis.read(name, SHARD).values
    client.increase_stream_retention_period(StreamName=name, RetentionPeriodHours=72)

    assert kept == [b"old", b"new"]
    assert hidden == kinesis.read(name, SHARD).values == [b"new"]


def aged(kinesis: KinesisEndpoint) -> tuple[str, str]:
    """A stream of two records, the first of which is too old; and its number."""
    name = kinesis.stream()
    number = kinesis.put(name, b"old")[0]["SequenceNumber"]
    kinesis.wait(25 * HOUR)
    kinesis.put(name, b"new")
    return name, number


def test_reading_behind_a_record_that_is_gone_goes_on_silently(kinesis: KinesisEndpoint) -> None:
    name, number = aged(kinesis)

    assert page(kinesis, after(kinesis, name, number))["Records"][0]["Data"] == b"new"
    assert page(kinesis, after(kinesis, name, number, "AT_SEQUENCE_NUMBER"))["Records"][0]["Data"] == b"new"


def test_reading_behind_a_record_that_is_gone_is_refused_where_it_is_ordered(kinesis: KinesisEndpoint) -> None:
    name, number = aged(kinesis)
    of(kinesis).behaviour.trimmed_position = "refused"

    with pytest.raises(ClientError) as refused:
        after(kinesis, name, number)

    assert refusal(refused) == "InvalidArgumentException"
    assert kinesis.read(name, SHARD).values == [b"new"]


def test_reading_behind_a_record_that_is_gone_is_empty_without_end_where_it_is_ordered(
    kinesis: KinesisEndpoint,
) -> None:
    name, number = aged(kinesis)
    of(kinesis).behaviour.trimmed_position = "empty"

    iterator, answers = after(kinesis, name, number), []
    for _ in range(5):
        kinesis.wait(1)
        answers.append(page(kinesis, iterator))
        iterator = answers[-1]["NextShardIterator"]

    assert [(one["Records"], one["MillisBehindLatest"]) for one in answers] == [([], 86_400_000)] * 5


def test_a_position_on_an_idle_shard_outlives_retention_if_no_record_had_it(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    of(kinesis).behaviour.trimmed_position = "refused"
    start = kinesis.shard(name, 0)["SequenceNumberRange"]["StartingSequenceNumber"]

    kinesis.wait(100 * HOUR)

    assert page(kinesis, after(kinesis, name, start))["Records"] == []


def test_the_date_of_answers_is_the_servers_clock(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.wait(48 * HOUR)

    headers = kinesis.client.list_shards(StreamName=name)["ResponseMetadata"]["HTTPHeaders"]

    assert abs(parsedate_to_datetime(headers["date"]).timestamp() - of(kinesis).now()) < 1
    assert parsedate_to_datetime(headers["date"]) > datetime.now(UTC) + timedelta(hours=47)


def test_a_token_of_listed_shards_is_valid_for_five_minutes(kinesis: KinesisEndpoint) -> None:
    token = kinesis.client.list_shards(StreamName=kinesis.stream(shards=3), MaxResults=1)["NextToken"]

    kinesis.wait(300)
    kinesis.client.list_shards(NextToken=token)
    kinesis.wait(0.01)

    with pytest.raises(ClientError) as refused:
        kinesis.client.list_shards(NextToken=token)
    assert refusal(refused) == "ExpiredNextTokenException"


@pytest.mark.parametrize(
    ("calls", "code", "ask"),
    [
        (
            5,
            "ProvisionedThroughputExceededException",
            lambda c, name, _: c.get_shard_iterator(StreamName=name, ShardId=SHARD, ShardIteratorType="LATEST"),
        ),
        (20, "LimitExceededException", lambda c, name, _: c.describe_stream_summary(StreamName=name)),
        (5, "LimitExceededException", lambda c, _, arn: c.list_stream_consumers(StreamARN=arn)),
    ],
    ids=["GetShardIterator", "DescribeStreamSummary", "ListStreamConsumers"],
)
def test_one_call_too_many_in_a_second_is_refused(
    kinesis: KinesisEndpoint, calls: int, code: str, ask: Callable[[Any, str, str], Any]
) -> None:
    name = kinesis.stream()
    arn = kinesis.summary(name)["StreamARN"]
    kinesis.wait(1)

    for _ in range(calls):
        ask(kinesis.client, name, arn)
    with pytest.raises(ClientError) as refused:
        ask(kinesis.client, name, arn)
    kinesis.wait(1)

    ask(kinesis.client, name, arn)
    assert refusal(refused) == code


def test_a_stream_takes_20_consumers_of_which_five_may_be_created_at_once(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    arn = kinesis.summary(name)["StreamARN"]
    of(kinesis).behaviour.activation_ms = 3000

    def register(number: int) -> None:
        kinesis.wait(0.25)
        kinesis.client.register_stream_consumer(StreamARN=arn, ConsumerName=f"kdi-{number}")

    for number in range(5):
        register(number)
    with pytest.raises(ClientError) as too_fast:
        register(5)
    for number in range(5, 20):
        kinesis.wait(3)
        register(number)
    kinesis.wait(3)
    with pytest.raises(ClientError) as too_many:
        register(20)

    assert refusal(too_fast) == refusal(too_many) == "LimitExceededException"
    assert kinesis.summary(name)["ConsumerCount"] == 20


def test_a_consumer_that_never_becomes_active_cannot_subscribe(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    of(kinesis).behaviour.activation_ms = 1 << 60
    arn = kinesis.summary(name)["StreamARN"]
    consumer = kinesis.client.register_stream_consumer(StreamARN=arn, ConsumerName="kdi")["Consumer"]

    kinesis.wait(24 * HOUR)

    with pytest.raises(ClientError) as refused:
        kinesis.subscribe(consumer["ConsumerARN"], SHARD)
    assert refusal(refused) == "ResourceInUseException"


def test_a_subscription_ends_after_five_minutes_without_an_error(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0")
    events = kinesis.subscribe(kinesis.consumer(name), SHARD)
    first = next(events)["SubscribeToShardEvent"]

    kinesis.wait(299)
    alive = next(events)["SubscribeToShardEvent"]
    kinesis.wait(1)

    assert [record["Data"] for record in first["Records"]] == [b"0"]
    assert alive["Records"] == [] and "ChildShards" not in alive
    assert int(alive["ContinuationSequenceNumber"]) > int(first["ContinuationSequenceNumber"])
    assert list(islice(events, 10)) == []


def test_events_without_records_come_before_those_with_records_and_pass_over_none(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    of(kinesis).behaviour.empty_pages = 2
    kinesis.put(name, b"0")
    consumer = kinesis.consumer(name)

    empty = [event["SubscribeToShardEvent"] for event in islice(kinesis.subscribe(consumer, SHARD), 2)]
    kinesis.wait(6)
    after = {"SequenceNumber": empty[-1]["ContinuationSequenceNumber"]}
    events = kinesis.subscribe(consumer, SHARD, "AFTER_SEQUENCE_NUMBER", **after)
    more = [event["SubscribeToShardEvent"] for event in islice(events, 3)]

    assert [event["Records"] for event in [*empty, *more[:2]]] == [[]] * 4
    assert all(event["MillisBehindLatest"] > 0 for event in empty)
    assert [record["Data"] for record in more[2]["Records"]] == [b"0"]


@pytest.mark.parametrize("gone", ["consumer", "stream"])
def test_a_subscription_ends_with_an_error_when_its_consumer_or_stream_is_deleted(
    kinesis: KinesisEndpoint, gone: str
) -> None:
    name = kinesis.stream()
    consumer = kinesis.consumer(name)
    events = kinesis.subscribe(consumer, SHARD)
    next(events)

    if gone == "consumer":
        kinesis.client.deregister_stream_consumer(ConsumerARN=consumer)
    else:
        kinesis.client.delete_stream(StreamName=name, EnforceConsumerDeletion=True)

    with pytest.raises(Exception, match="ResourceNotFoundException"):
        list(islice(events, 10))


def test_the_next_calls_of_an_operation_are_throttled_and_then_go_well(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, SHARD)
    of(kinesis).order(Fault("GetRecords", skip=1, times=2, code="ProvisionedThroughputExceededException"))

    outcomes = []
    for _ in range(5):
        kinesis.wait(1)
        try:
            page(kinesis, iterator)
            outcomes.append("")
        except ClientError as refused:
            outcomes.append(refused.response["Error"]["Code"])

    throttled = "ProvisionedThroughputExceededException"
    assert outcomes == ["", throttled, throttled, "", ""]


def test_a_fault_may_concern_one_shard_only(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=2)
    first, second = (kinesis.iterator(name, shard["ShardId"]) for shard in kinesis.shards(name))
    of(kinesis).order(Fault("GetRecords", shard="shardId-000000000001", code="InternalFailureException", status=500))

    page(kinesis, first)
    with pytest.raises(ClientError) as failed:
        page(kinesis, second)
    page(kinesis, second)

    assert failed.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500


def test_a_connection_ends_in_the_middle_of_an_answer(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0" * 1000)
    iterator = kinesis.iterator(name, SHARD)
    of(kinesis).order(Fault("GetRecords", cut_after=500))

    with pytest.raises(ConnectionClosedError):
        page(kinesis, iterator)

    assert page(kinesis, iterator)["Records"][0]["Data"] == b"0" * 1000


def test_a_put_whose_answer_is_cut_did_happen(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    of(kinesis).order(Fault("PutRecord", cut_after=10))

    with pytest.raises(ConnectionClosedError):
        kinesis.client.put_record(StreamName=name, Data=b"0", PartitionKey="k")
    kinesis.client.put_record(StreamName=name, Data=b"0", PartitionKey="k")

    assert kinesis.read(name, SHARD).values == [b"0", b"0"]


def test_a_subscription_breaks_in_the_middle_of_an_event(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0" * 5000)
    consumer = kinesis.consumer(name)
    of(kinesis).order(Fault("SubscribeToShard", cut_after=3000))

    with pytest.raises(ProtocolError):
        list(islice(kinesis.subscribe(consumer, SHARD), 10))


def test_an_answer_comes_twice(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1", b"2")
    of(kinesis).order(Fault("GetRecords", repeats=True))

    read = kinesis.read(name, SHARD, limit=2)

    assert read.values == [b"0", b"1", b"0", b"1", b"2"]


def test_records_of_one_put_are_refused_alone(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    of(kinesis).order(Fault("PutRecords", entries=2))

    entries = [{"Data": b"%d" % n, "PartitionKey": "k"} for n in range(4)]
    answer = kinesis.client.put_records(StreamName=name, Records=entries)

    assert answer["FailedRecordCount"] == 2
    assert ["ErrorCode" in one for one in answer["Records"]] == [True, True, False, False]
    assert kinesis.read(name, SHARD).values == [b"2", b"3"]


def test_iterators_expire_when_it_is_ordered_and_new_ones_go_well(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, SHARD)

    of(kinesis).expire_iterators()

    with pytest.raises(ClientError) as refused:
        page(kinesis, iterator)
    assert refusal(refused) == "ExpiredIteratorException"
    page(kinesis, kinesis.iterator(name, SHARD))


def test_an_iterator_does_not_outlive_its_stream_even_if_another_has_its_name(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, SHARD)
    kinesis.client.delete_stream(StreamName=name)
    kinesis.stream(name=name)
    kinesis.put(name, b"of another stream")

    with pytest.raises(ClientError) as refused:
        page(kinesis, iterator)

    assert refusal(refused) == "ResourceNotFoundException"


def test_streams_that_are_created_at_one_moment_are_not_of_the_future(kinesis: KinesisEndpoint) -> None:
    for number in range(30):
        kinesis.client.create_stream(StreamName=f"at-once-{number}", ShardCount=1)
        kinesis.made.append(f"at-once-{number}")

    created = kinesis.summary("at-once-29")["StreamCreationTimestamp"].timestamp()

    assert of(kinesis).now() - 1 < created <= of(kinesis).now()


def test_empty_pages_that_are_behind_come_before_each_page_of_records(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1")
    of(kinesis).behaviour.empty_pages = 3
    kinesis.wait(60)

    read = kinesis.read(name, SHARD, limit=1)

    assert [len(one["Records"]) for one in read.pages] == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]
    assert all(one["MillisBehindLatest"] > 60_000 for one in read.pages[:7]), "as the records that are not read yet"
    assert read.pages[-1]["MillisBehindLatest"] == 0


def test_on_some_streams_a_reader_is_never_at_zero(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0")
    of(kinesis).behaviour.least_behind_ms = 40

    first = page(kinesis, kinesis.iterator(name, SHARD))
    second = page(kinesis, first["NextShardIterator"])

    assert ([r["Data"] for r in first["Records"]], second["Records"]) == ([b"0"], [])
    assert first["MillisBehindLatest"] == second["MillisBehindLatest"] == 40


def test_arrival_timestamps_are_out_of_order_where_it_is_ordered(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    of(kinesis).behaviour.arrival_jitter_ms = 500

    kinesis.put(name, *(b"%d" % n for n in range(50)))

    arrived = [record["ApproximateArrivalTimestamp"] for record in kinesis.read(name, SHARD).records]
    assert sorted(arrived) != arrived and max(arrived) - min(arrived) < timedelta(milliseconds=500)


def test_shard_numbers_may_begin_at_1200_and_children_may_be_listed_before_their_parents(
    kinesis: KinesisEndpoint,
) -> None:
    of(kinesis).behaviour.first_shard = 1200
    of(kinesis).behaviour.newest_shards_first = True
    name = kinesis.stream()

    kinesis.client.update_shard_count(StreamName=name, TargetShardCount=2, ScalingType="UNIFORM_SCALING")

    assert [s["ShardId"] for s in kinesis.shards(name, MaxResults=1)] == [
        f"shardId-{n:012d}" for n in (1202, 1201, 1200)
    ]


def test_records_need_no_partition_key_where_the_stream_distributes_them(kinesis: KinesisEndpoint) -> None:
    auto = kinesis.stream(shards=2, RecordDistributionStrategy="AUTO", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    keyed = kinesis.stream()

    kinesis.client.put_records(StreamName=auto, Records=[{"Data": b"%d" % n} for n in range(20)])
    with pytest.raises(ClientError):
        kinesis.client.put_record(StreamName=keyed, Data=b"0")

    read = [kinesis.read(auto, shard["ShardId"]).records for shard in kinesis.shards(auto)]
    assert sum(map(len, read)) == 20 and all(read)
    assert not any("PartitionKey" in record for records in read for record in records)


def test_calls_are_counted_by_operation_stream_shard_and_consumer(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=2)
    server, second = of(kinesis), "shardId-000000000001"
    kinesis.put(name, b"0")

    for shard in (SHARD, second, second):
        kinesis.wait(1)
        page(kinesis, kinesis.iterator(name, shard))
    next(kinesis.subscribe(kinesis.consumer(name), SHARD))
    server.order(Fault("GetRecords", code="InternalFailureException", status=500))
    with pytest.raises(ClientError):
        page(kinesis, kinesis.iterator(name, SHARD))

    assert [server.calls("GetRecords", stream=name, shard=shard) for shard in (SHARD, second)] == [2, 2]
    assert server.calls("GetRecords", stream=name) == 4
    assert server.calls("SubscribeToShard", stream=name, shard=SHARD, consumer="kdi") == 1
    assert server.calls("SubscribeToShard", stream=name, shard=second) == 0
    assert server.calls("RegisterStreamConsumer", consumer="kdi", stream=name) == 1


def test_many_producers_and_readers_at_once_neither_lose_nor_double_a_record(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=4)

    def put(worker: int) -> None:
        for n in range(20):
            kinesis.put(name, *(b"%d-%d-%d" % (worker, n, k) for k in range(5)))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(8)))

    read = [kinesis.read(name, shard["ShardId"]) for shard in kinesis.shards(name)]
    values = [value for one in read for value in one.values]
    numbers = [record["SequenceNumber"] for one in read for record in one.records]
    assert sorted(values) == sorted(b"%d-%d-%d" % (w, n, k) for w in range(8) for n in range(20) for k in range(5))
    assert len(set(numbers)) == 800


def test_the_server_refuses_puts_when_its_memory_is_used_up() -> None:
    with frozen_kinesis(most_bytes=100_000) as small:
        name = small.stream()
        entries = [{"Data": bytes(10_000), "PartitionKey": "k"}] * 20

        answers = small.client.put_records(StreamName=name, Records=entries)["Records"]

        kept = [one for one in answers if "SequenceNumber" in one]
        assert 5 < len(kept) < 10
        assert {one.get("ErrorCode") for one in answers} == {None, "LimitExceededException"}
        assert [r["SequenceNumber"] for r in small.read(name, SHARD).records] == [k["SequenceNumber"] for k in kept]
        small.wait(25 * HOUR)
        small.put(name, b"again")


def test_the_server_listens_on_the_loopback_only(kinesis: KinesisEndpoint) -> None:
    port = urlsplit(of(kinesis).endpoint).port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; tells the address of this machine
        own = probe.getsockname()[0]

    with pytest.raises(OSError):
        socket.create_connection((own, port), timeout=2)


def asked(server: KinesisServer, operation: str, body: bytes, content_type: str) -> tuple[int, bytes]:
    """Status and body of an answer to raw bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.endpoint).port, timeout=10)
    headers = {"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": content_type}
    try:
        connection.request("POST", "/", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


CBOR = "application/x-amz-cbor-1.1"


def test_cbor_carries_bytes_as_they_are_and_timestamps_in_milliseconds(kinesis: KinesisEndpoint) -> None:
    name, server = kinesis.stream(name="cbor-stream"), of(kinesis)

    # As the SDK for Java writes it: a map of indefinite length, data as a byte string.
    put, _ = asked(server, "PutRecord", b"\xbfjStreamNamekcbor-streamdDataDa\x00\xffblPartitionKeyak\xff", CBOR)
    iterator = kinesis.iterator(name, SHARD).encode()
    wanted = b"\xa1mShardIterator\x79%b%b" % (len(iterator).to_bytes(2), iterator)
    status, answer = asked(server, "GetRecords", wanted, CBOR)

    record = kinesis.read(name, SHARD).records[0]
    milliseconds = round(record["ApproximateArrivalTimestamp"].timestamp() * 1000)
    assert (put, status) == (200, 200)
    assert record["Data"] == b"a\x00\xffb"
    assert b"dDataDa\x00\xffb" in answer
    assert b"x\x1bApproximateArrivalTimestamp\xc1\x1b" + milliseconds.to_bytes(8) in answer
    assert b"lPartitionKeyak" in answer


@pytest.mark.parametrize(
    ("operation", "body", "content_type", "code"),
    [
        ("GetRecords", b"{", "application/x-amz-json-1.1", "SerializationException"),
        ("GetRecords", b"[]", "application/x-amz-json-1.1", "SerializationException"),
        ("GetRecords", b"\xbf", CBOR, "SerializationException"),
        ("GetRecords", b"{}", "application/x-amz-json-1.1", "ValidationException"),
        ("PutCoffee", b"{}", "application/x-amz-json-1.1", "UnknownOperationException"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_and_the_server_goes_on(
    kinesis: KinesisEndpoint, operation: str, body: bytes, content_type: str, code: str
) -> None:
    status, answer = asked(of(kinesis), operation, body, content_type)

    assert status == 400
    assert code.encode() in answer
    if content_type != CBOR:
        assert json.loads(answer)["__type"] == code
    assert kinesis.stream()
