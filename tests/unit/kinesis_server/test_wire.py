"""Connections, CBOR, and requests that cannot be read."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from kdi_assets.tools.local.kinesis.server import KinesisServer
from kdi_assets.tools.local.kinesis.wire import decode
from tests.kinesis.endpoint import SHARD, KinesisEndpoint, frozen_kinesis

JSON, CBOR = "application/x-amz-json-1.1", "application/x-amz-cbor-1.1"


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


def test_the_server_listens_on_the_loopback_only(kinesis: KinesisEndpoint) -> None:
    port = urlsplit(kinesis.ours.endpoint).port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; tells the address of this machine
        own = probe.getsockname()[0]

    with pytest.raises(OSError):
        socket.create_connection((own, port), timeout=2)


def test_cbor_carries_bytes_as_they_are_and_timestamps_in_milliseconds(kinesis: KinesisEndpoint) -> None:
    name, server = kinesis.stream(name="cbor-stream"), kinesis.ours

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
    ("written", "value"),
    [
        (b"\x17", 23),
        (b"\x18\x18", 24),
        (b"\x19\x03\xe8", 1000),
        (b"\x1a\x00\x0f\x42\x40", 1_000_000),
        (b"\x1b\x00\x00\x00\xe8\xd4\xa5\x10\x00", 1_000_000_000_000),
        (b"\x38\x63", -100),
        (b"\xf9\x3e\x00", 1.5),
        (b"\xfa\x47\xc3\x50\x00", 100_000.0),
        (b"\xfb\x3f\xf1\x99\x99\x99\x99\x99\x9a", 1.1),
        (b"\x83\xf4\xf5\xf6", [False, True, None]),
        (b"\x9f\x01\x9f\x02\xff\xff", [1, [2]]),
        (b"\x5f\x42\x01\x02\x41\x03\xff", b"\x01\x02\x03"),
        (b"\x7f\x65strea\x64ming\xff", "streaming"),
        (b"\xbf\x61a\xa1\x61b\x40\xff", {"a": {"b": b""}}),
        (b"\xc1\x1b\x00\x00\x01\x9a\x00\x00\x00\x00", 0x19A_0000_0000 / 1000),
        (b"\xd8\x20\x61x", "x"),
    ],
    ids=lambda one: one.hex() if isinstance(one, bytes) else "",
)
def test_every_form_of_cbor_is_read(written: bytes, value: object) -> None:
    """Most are examples of RFC 8949, appendix A; a timestamp is in milliseconds, as AWS writes it."""
    assert decode(written, CBOR) == value


def test_an_endpoint_that_is_stopped_ends_connections_that_clients_keep() -> None:
    with frozen_kinesis() as kinesis:
        address = urlsplit(kinesis.ours.endpoint)
        kept = http.client.HTTPConnection("127.0.0.1", address.port, timeout=10)
        kept.request("POST", "/", b"{}", {"X-Amz-Target": "Kinesis_20131202.GetRecords", "Content-Type": JSON})
        kept.getresponse().read()
        open_before = kept.sock is not None

    assert open_before
    with closing(kept), pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        kept.request("POST", "/", b"{}", {"X-Amz-Target": "Kinesis_20131202.GetRecords", "Content-Type": JSON})
        kept.getresponse()


def test_an_exception_that_no_operation_should_raise_is_known(kinesis: KinesisEndpoint) -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        asked(kinesis.ours, "DescribeStreamSummary", b'{"StreamARN": 7}', JSON)

    assert [type(failure) for failure in kinesis.ours.failures()] == [AttributeError]
    assert kinesis.ours.failures() == []


@pytest.mark.parametrize(
    ("operation", "body", "content_type", "code"),
    [
        ("GetRecords", b"{", JSON, "SerializationException"),
        ("GetRecords", b"[]", JSON, "SerializationException"),
        ("GetRecords", b"\xbf", CBOR, "SerializationException"),  # the end is missing
        ("GetRecords", b"\xbfaa\xff", CBOR, "SerializationException"),  # a key without a value
        ("GetRecords", b"\x5f\x01\xff", CBOR, "SerializationException"),  # a number in parts of bytes
        ("GetRecords", b"\xa1\x80\x01", CBOR, "SerializationException"),  # a list as a key
        ("GetRecords", b"\x81" * 5000, CBOR, "SerializationException"),
        ("GetRecords", b"\xff", CBOR, "SerializationException"),
        ("GetRecords", b"{}", JSON, "ValidationException"),
        ("PutCoffee", b"{}", JSON, "UnknownOperationException"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_and_the_server_goes_on(
    kinesis: KinesisEndpoint, operation: str, body: bytes, content_type: str, code: str
) -> None:
    status, answer = asked(kinesis.ours, operation, body, content_type)

    assert status == 400
    assert code.encode() in answer
    if content_type != CBOR:
        assert json.loads(answer)["__type"] == code
    assert kinesis.stream()
