"""`kdi doctor` on a table of Kinesis: the rights of its mode, one by one and without an effect, and its consumer."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kdi_assets.documents.model.connections.kinesis import FanOut, KinesisRegion
from kdi_assets.documents.model.kinesis_stream import Consumer, KinesisStream
from kdi_assets.messages.kinesis.rights import DEREGISTERS, READS, REGISTERS, SUBSCRIBES, rights_of
from kdi_assets.operate.doctor.finding import Finding, Verdict
from kdi_assets.operate.doctor.kinesis import rights
from kdi_assets.tools.local.kinesis.faults import Fault
from kdi_assets.tools.local.kinesis.http_server import OPERATIONS
from tests.conftest import CHECKOUT
from tests.kinesis.endpoint import KinesisEndpoint, received, values

POLLING, EFO = Consumer(), Consumer(mode="efo")
TRIED_BY_ALL = ("DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords")
TRIED_OF_CONSUMERS = ("DescribeStreamConsumer", "SubscribeToShard", "ListStreamConsumers")

LAST_HASH_KEY = str((1 << 128) - 1)
MISSING = "kdi_orders is not registered: the next drain with records does it, beside 0 of 20; 21.90 $ a month"


def table(kinesis: KinesisEndpoint, consumer: Consumer) -> KinesisStream:
    assert kinesis.server
    region = KinesisRegion("main", "us-east-1", kinesis.server.endpoint)
    return KinesisStream(
        topic="orders",
        cluster=region,
        consumer=consumer,
        table="bronze/orders",
        record_ddl="id bigint",
        date_expression="current_date()",
    )


def examined(kinesis: KinesisEndpoint, consumer: Consumer = POLLING) -> dict[str, Finding]:
    """The findings by examination; of several rights that are missing, the last."""
    return {finding.examination: finding for finding in rights([table(kinesis, consumer)])}


@pytest.mark.parametrize(
    ("consumer", "operation"),
    [*((POLLING, name) for name in TRIED_BY_ALL), *((EFO, name) for name in (*TRIED_BY_ALL, *TRIED_OF_CONSUMERS))],
    ids=lambda value: value.mode if isinstance(value, Consumer) else value,
)
def test_a_right_that_is_missing_is_named_with_its_resource_and_what_it_stops(
    kinesis: KinesisEndpoint, consumer: Consumer, operation: str
) -> None:
    kinesis.consumer("orders", "kdi_orders")
    arn = kinesis.summary("orders")["StreamARN"]
    assert kinesis.server
    kinesis.server.order(Fault(operation, code="AccessDeniedException"))

    finding = examined(kinesis, consumer)["rights"]

    expected = next(right for right in rights_of(table(kinesis, EFO).fan_out) if right.action == f"kinesis:{operation}")
    of_stream = arn if operation != "DescribeStreamSummary" else "arn:aws:kinesis:us-east-1:*:stream/orders"
    resource = f"{of_stream}/consumer/*" if operation in TRIED_OF_CONSUMERS[:2] else of_stream
    assert finding.verdict is (Verdict.WARNING if operation == "ListStreamConsumers" else Verdict.WRONG)
    assert (finding.facts["action"], finding.facts["resource"]) == (f"kinesis:{operation}", resource)
    text = str(finding.trouble)
    assert expected.without in text and "AccessDeniedException" in text
    assert f"first allow kinesis:{operation} on {resource}" in text
    assert all(action.removeprefix("kinesis:") in finding.found for action in list(finding.facts["untried"]))  # type: ignore[call-overload]


def test_the_key_of_an_encrypted_stream_is_named_where_it_may_not_be_used(kinesis: KinesisEndpoint) -> None:
    assert kinesis.server
    kinesis.server.order(Fault("GetRecords", code="KMSAccessDeniedException"))

    finding = examined(kinesis)["rights"]

    assert (finding.verdict, finding.found) == (Verdict.WRONG, "kms:Decrypt is missing")


def test_a_server_that_would_do_what_is_only_tried_is_not_asked_to_subscribe(
    kinesis: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinesis.consumer("orders", "kdi_orders")
    assert kinesis.server
    monkeypatch.setattr("kdi_assets.messages.kinesis.rights.ONLY_TRIED", "as another server says it")

    finding = examined(kinesis, EFO)["rights"]

    assert kinesis.server.calls("SubscribeToShard") == 0
    assert "SubscribeToShard" in finding.found and "not tried" in finding.found


def test_what_is_no_missing_right_is_its_own_error(kinesis: KinesisEndpoint) -> None:
    assert kinesis.server
    kinesis.server.order(Fault("ListShards", code="InvalidSignatureException"))
    missing = replace(table(kinesis, POLLING), topic="returns")

    refused, (of_missing,) = examined(kinesis)["rights"], rights([missing])

    assert "InvalidSignatureException" in str(refused.trouble)
    assert "has no stream returns" in str(of_missing.trouble)


@pytest.mark.parametrize(
    ("consumer", "operations", "untried"),
    [
        (POLLING, {*TRIED_BY_ALL}, []),
        (EFO, {*TRIED_BY_ALL, *TRIED_OF_CONSUMERS}, ["kinesis:RegisterStreamConsumer"]),
        (Consumer("efo", registered="kdi_orders"), {*TRIED_BY_ALL, *TRIED_OF_CONSUMERS[:2]}, []),
        (
            Consumer("efo", deregister="after_drain"),
            {*TRIED_BY_ALL, *TRIED_OF_CONSUMERS},
            ["kinesis:RegisterStreamConsumer", "kinesis:DeregisterStreamConsumer"],
        ),
    ],
    ids=["polling", "efo", "registered", "deregistered"],
)
def test_every_right_of_a_mode_is_tried_except_those_whose_trial_would_have_an_effect(
    kinesis: KinesisEndpoint, consumer: Consumer, operations: set[str], untried: list[str]
) -> None:
    assert kinesis.server
    kinesis.consumer("orders", "kdi_orders")
    before = {name: kinesis.server.calls(name) for name in (*OPERATIONS, "SubscribeToShard")}

    found = examined(kinesis, consumer)["rights"]

    assert {name for name, calls in before.items() if kinesis.server.calls(name) > calls} == operations
    assert (found.verdict, found.facts["untried"]) == (Verdict.OK, untried)
    needed = {right.action for right in rights_of(table(kinesis, consumer).fan_out)}
    assert needed == {f"kinesis:{name}" for name in operations} | set(untried)


def test_a_drain_that_reads_with_the_consumer_is_not_disturbed(kinesis: KinesisEndpoint) -> None:
    """A second subscription would end the first, and within five seconds Kinesis refuses it."""
    arn = kinesis.consumer("orders", "kdi_orders")
    shard = kinesis.shards("orders")[-1]["ShardId"]
    events = kinesis.subscribe(arn, shard)
    next(events)
    soon = examined(kinesis, EFO)["rights"]
    kinesis.wait(10)

    later = examined(kinesis, EFO)["rights"]

    assert (soon.verdict, later.verdict) == (Verdict.OK, Verdict.OK)
    kinesis.client.put_record(StreamName="orders", Data=b"later", PartitionKey="k", ExplicitHashKey=LAST_HASH_KEY)
    assert values(received(events, 1)) == [b"later"]


def test_no_record_is_read(kinesis: KinesisEndpoint) -> None:
    """This fault waits for a call that gets records."""
    kinesis.client.put_record(StreamName="orders", Data=b"x", PartitionKey="k", ExplicitHashKey=LAST_HASH_KEY)
    assert kinesis.server
    kinesis.server.order(fault := Fault("GetRecords", repeats=True))

    assert examined(kinesis)["rights"].verdict is Verdict.OK

    assert kinesis.server.unmet_faults() == [fault]


def with_consumers(kinesis: KinesisEndpoint, *names: str) -> None:
    for name in names:
        kinesis.consumer("orders", name)


@pytest.mark.parametrize(
    ("consumers", "consumer", "verdict", "found"),
    [
        (
            (),
            EFO,
            Verdict.OK,
            MISSING,
        ),
        (("kdi_orders", "other"), EFO, Verdict.OK, "kdi_orders is ACTIVE, one of 2 (at most 20); 21.90 $ a month"),
        (("analytics",), Consumer("efo", registered="analytics"), Verdict.OK, "analytics is ACTIVE; 21.90 $ a month"),
        ((), Consumer("efo", registered="analytics"), Verdict.WRONG, "no such consumer"),
        (tuple(f"c{n:02}" for n in range(20)), EFO, Verdict.WARNING, "no room for a consumer"),
    ],
    ids=["missing", "active", "theirs", "theirs missing", "no room"],
)
def test_a_consumer_is_shown_with_its_price_and_how_many_others_there_are(
    kinesis: KinesisEndpoint, consumers: tuple[str, ...], consumer: Consumer, verdict: Verdict, found: str
) -> None:
    with_consumers(kinesis, *consumers)

    finding = examined(kinesis, consumer)["consumer"]

    assert finding.verdict is verdict
    assert finding.found.startswith(found)
    assert finding.facts["dollars_a_month"] == 21.9
    assert kinesis.server and kinesis.server.calls("RegisterStreamConsumer") == len(consumers)


def test_a_consumer_that_is_not_active_yet_is_a_warning(kinesis: KinesisEndpoint) -> None:
    assert kinesis.server
    kinesis.server.behaviour.activation_ms = 20_000
    arn = kinesis.summary("orders")["StreamARN"]
    kinesis.client.register_stream_consumer(StreamARN=arn, ConsumerName="kdi_orders")

    found = examined(kinesis, EFO)

    assert (found["consumer"].verdict, found["consumer"].found) == (Verdict.WARNING, "consumer CREATING")
    assert "kinesis:SubscribeToShard" in list(found["rights"].facts["untried"])  # type: ignore[call-overload]


def test_a_polled_table_has_no_line_about_consumers(kinesis: KinesisEndpoint) -> None:
    assert list(examined(kinesis)) == ["rights"]


def documented() -> set[tuple[str, str]]:
    """Action and what follows the stream's ARN in its resource, as the page says."""
    page = (CHECKOUT / "docs" / "kinesis.md").read_text()
    rows = re.findall(r"^\| (`k[^|]*) \| ([^|]*) \|$", page.partition("| rights | on |")[2], re.MULTILINE)
    found = set()
    for actions, resource in rows:
        below = re.search(r"stream/NAME(/\S+)`", resource)
        found |= {(action, below[1] if below else "") for action in re.findall(r"`(kinesis:\w+)`", actions)}
    return found


def test_the_page_lists_the_rights_that_the_doctor_knows() -> None:
    known = {(right.action, right.below) for right in (*READS, *SUBSCRIBES, *REGISTERS, *DEREGISTERS)}

    assert documented() == known
    assert known == {(r.action, r.below) for r in rights_of(FanOut("kdi_x", is_ours=True, deregisters=True))}


def test_a_stream_that_is_being_made_or_deleted_shows_no_rights(kinesis: KinesisEndpoint) -> None:
    kinesis.ours.order(Fault("ListShards", code="ResourceInUseException"))

    found = examined(kinesis)

    assert "ResourceInUseException" in str(found), "not granted: nobody has listed a shard"
    assert all(finding.verdict != Verdict.OK for finding in found.values())
