"""Consumers of enhanced fan-out: how drains get one, and what `kdi kinesis consumers` shows and ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from botocore.exceptions import ClientError

from kdi_assets.documents.model.connections.kinesis import FanOut, KinesisRegion
from kdi_assets.messages.kinesis.consumers import active_consumer, name_of
from kdi_assets.messages.kinesis.errors import (
    ConsumerNotActive,
    KinesisRequestRefused,
    NoRoomForConsumer,
    NoSuchConsumer,
    NoSuchKinesisStream,
)
from kdi_assets.tools.local.kinesis.faults import Fault
from tests.documents import written
from tests.kinesis.endpoint import KinesisEndpoint
from tests.typed import Kdi

OURS = FanOut("kdi_orders", is_ours=True)
DAY = 86_400


def active(kinesis: KinesisEndpoint, fan_out: FanOut = OURS, *, stream: str = "orders") -> str:
    assert kinesis.server
    arn = kinesis.summary("orders")["StreamARN"].replace("orders", stream)
    return active_consumer(KinesisRegion("main", "us-east-1", kinesis.server.endpoint), arn, fan_out, table="bronze/a")


def test_a_missing_consumer_is_registered_once_and_active(kinesis: KinesisEndpoint) -> None:
    assert kinesis.server
    kinesis.server.behaviour.activation_ms = 20_000
    arn = active(kinesis)

    assert name_of(arn) == "kdi_orders"
    assert active(kinesis) == arn
    described = kinesis.client.describe_stream_consumer(ConsumerARN=arn)["ConsumerDescription"]
    assert described["ConsumerStatus"] == "ACTIVE"
    assert kinesis.server.calls("RegisterStreamConsumer") == 1


@pytest.mark.scenario("Kinesis: consumers gone, not ACTIVE, too many")
def test_a_consumer_that_is_never_active_is_waited_for_two_minutes(kinesis: KinesisEndpoint) -> None:
    assert kinesis.server
    kinesis.server.behaviour.activation_ms = 10 * DAY * 1000

    with pytest.raises(ConsumerNotActive, match="is not ACTIVE after 120 s: its status is CREATING"):
        active(kinesis)


@pytest.mark.scenario("Kinesis: consumers gone, not ACTIVE, too many")
def test_a_stream_with_20_consumers_has_no_room_for_another(kinesis: KinesisEndpoint) -> None:
    for number in range(20):
        kinesis.consumer("orders", f"c{number:02}")

    with pytest.raises(NoRoomForConsumer, match="has 20 consumers already.* kdi_orders cannot be registered.*c00, c01"):
        active(kinesis)


@pytest.mark.scenario("Kinesis: consumers gone, not ACTIVE, too many")
def test_a_registration_that_is_throttled_or_raced_is_made_later(kinesis: KinesisEndpoint) -> None:
    assert kinesis.server
    for code in ("LimitExceededException", "ResourceInUseException"):
        kinesis.server.order(Fault("RegisterStreamConsumer", code=code))

    assert name_of(active(kinesis)) == "kdi_orders"


def test_a_registration_without_the_right_is_refused(kinesis: KinesisEndpoint) -> None:
    assert kinesis.server
    kinesis.server.order(Fault("RegisterStreamConsumer", code="AccessDeniedException"))

    with pytest.raises(KinesisRequestRefused, match="AccessDenied"):
        active(kinesis)


def test_a_consumer_that_is_not_ours_is_never_registered(kinesis: KinesisEndpoint) -> None:
    assert kinesis.server
    theirs = FanOut("analytics", is_ours=False)
    with pytest.raises(NoSuchConsumer, match="(?s)orders has no consumer analytics.*kdi drain bronze/a"):
        active(kinesis, theirs)
    assert kinesis.server.calls("RegisterStreamConsumer") == 0
    arn = kinesis.consumer("orders", "analytics")
    kinesis.stream(name="returns")
    of_another_stream = FanOut(kinesis.consumer("returns", "analytics"), is_ours=False)

    assert active(kinesis, theirs) == active(kinesis, FanOut(arn, is_ours=False)) == arn
    with pytest.raises(NoSuchConsumer, match="orders has no consumer arn:"):
        active(kinesis, of_another_stream)


def test_a_stream_that_is_missing_has_no_consumer(kinesis: KinesisEndpoint) -> None:
    with pytest.raises(NoSuchKinesisStream):
        active(kinesis, stream="returns")


@pytest.fixture
def defs(kinesis: KinesisEndpoint, tmp_path: Path) -> Path:
    """Documents of two tables of `orders`: one with fan-out, one polled."""
    assert kinesis.server
    connection = {"name": "main", "region": "us-east-1", "endpoint": kinesis.server.endpoint}
    table = {"stream_name": "orders", "connection": "main", "schema": "id bigint", "date": "current_date()"}
    fields = [
        ("KinesisConnection", connection),
        ("KinesisTable", {**table, "table": "bronze/orders", "consumer": {"mode": "efo"}}),
        ("KinesisTable", {**table, "table": "bronze/polled", "app_id": "polled"}),
    ]
    documents = [{"type": f"kdi_assets.components.{kind}", "attributes": given} for kind, given in fields]
    return written(tmp_path / "fan_out", kinesis=yaml.safe_dump_all(documents))


def test_consumers_are_listed_with_their_price_and_tables(kdi: Kdi, kinesis: KinesisEndpoint, defs: Path) -> None:
    """An orphan is one that no table uses: here that of a table which is polled now."""
    assert kdi("kinesis", "consumers", "--defs", str(defs)).out == "no drain has registered a consumer\n"
    for name in ("kdi_orders", "kdi_polled", "analytics"):
        kinesis.consumer("orders", name)
    kinesis.wait(3 * DAY)

    shown = kdi("kinesis", "consumers", "--defs", str(defs)).out.splitlines()
    in_json = kdi("kinesis", "consumers", "--json", "--defs", str(defs)).out.splitlines()

    assert [line.split() for line in shown] == [
        ["STREAM", "CONSUMER", "STATUS", "AGE", "$", "A", "MONTH", "TABLES"],
        ["orders", "kdi_orders", "ACTIVE", "3d", "21.90", "bronze/orders"],
        ["orders", "kdi_polled", "ACTIVE", "3d", "21.90", "-"],
    ]
    assert [(each["name"], each["dollars_a_month"], each["tables"]) for each in map(json.loads, in_json)] == [
        ("kdi_orders", 21.9, ["bronze/orders"]),
        ("kdi_polled", 21.9, []),
    ]


def test_a_consumer_is_deregistered_with_yes_and_only_if_it_is_ours(
    kdi: Kdi, kinesis: KinesisEndpoint, defs: Path
) -> None:
    arns = {name: kinesis.consumer("orders", name) for name in ("kdi_polled", "analytics")}
    command = ("kinesis", "consumers", "--defs", str(defs), "--deregister")

    assert "nothing was done" in kdi(*command, "kdi_polled").out
    assert kdi(*command, "analytics", "--yes").code == 2
    kinesis.client.describe_stream_consumer(ConsumerARN=arns["kdi_polled"])
    assert kdi(*command, "kdi_polled", "--yes").out.endswith("deregistered\n")

    with pytest.raises(ClientError, match="not found"):
        kinesis.client.describe_stream_consumer(ConsumerARN=arns["kdi_polled"])
    kinesis.client.describe_stream_consumer(ConsumerARN=arns["analytics"])


@pytest.fixture
def by_two_connections(kinesis: KinesisEndpoint, tmp_path: Path) -> Path:
    """Documents of two tables of `orders` by a connection each, and of a table whose stream is missing."""
    documents = []
    for name, stream, consumer in (("a", "orders", "efo"), ("b", "orders", "polling"), ("c", "returns", "polling")):
        region = {"name": name, "region": "us-east-1", "endpoint": kinesis.ours.endpoint}
        table = {"stream_name": stream, "connection": name, "table": f"bronze/{name}", "schema": "id bigint"}
        more = {"date": "current_date()", "consumer": {"mode": consumer}}
        documents += [("KinesisConnection", region), ("KinesisTable", {**table, **more, "app_id": f"{stream}_{name}"})]
    texts = [{"type": f"kdi_assets.components.{kind}", "attributes": given} for kind, given in documents]
    return written(tmp_path / "two", kinesis=yaml.safe_dump_all(texts))


def test_a_consumer_is_listed_once_with_the_tables_of_all_connections_and_ended_by_its_name(
    kdi: Kdi, kinesis: KinesisEndpoint, by_two_connections: Path
) -> None:
    kinesis.consumer("orders", "kdi_orders_a")
    command = ("kinesis", "consumers", "--defs", str(by_two_connections))

    listed = kdi(*command, "--json")
    ended = kdi(*command, "--deregister", "kdi_orders_a", "--yes")

    assert [(one["name"], one["tables"]) for one in listed.objects] == [("kdi_orders_a", ["bronze/a"])]
    assert "has no stream returns" in listed.err
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "deregistered")
