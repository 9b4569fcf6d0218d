"""HTTP: each request goes to its operation, is counted, and shows the fault that was ordered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from typing import Any
from uuid import uuid4

from kdi_assets.tools.local.kinesis import consumers, manage_streams, records
from kdi_assets.tools.local.kinesis.consumers import Subscription
from kdi_assets.tools.local.kinesis.faults import ApiCall, Fault, take_fault
from kdi_assets.tools.local.kinesis.refusals import ApiRefusal
from kdi_assets.tools.local.kinesis.state import ApiAnswer, ApiRequest, KinesisState, stream_name
from kdi_assets.tools.local.kinesis.wire import CBOR, EVENT_STREAM, JSON, decode, encode, event_frame

MOST_REQUEST_BYTES = 32 << 20
TARGET = "Kinesis_20131202."

OPERATIONS: Mapping[str, Callable[[KinesisState, ApiRequest], ApiAnswer | None]] = {
    "CreateStream": manage_streams.create_stream,
    "DeleteStream": manage_streams.delete_stream,
    "DescribeStreamSummary": manage_streams.describe_stream_summary,
    "ListShards": manage_streams.list_shards,
    "SplitShard": manage_streams.split_shard,
    "MergeShards": manage_streams.merge_shards,
    "UpdateShardCount": manage_streams.update_shard_count,
    "IncreaseStreamRetentionPeriod": manage_streams.increase_retention,
    "DecreaseStreamRetentionPeriod": manage_streams.decrease_retention,
    "PutRecord": records.put_record,
    "PutRecords": records.put_records,
    "GetShardIterator": records.get_shard_iterator,
    "GetRecords": records.get_records,
    "RegisterStreamConsumer": consumers.register_consumer,
    "DeregisterStreamConsumer": consumers.deregister_consumer,
    "DescribeStreamConsumer": consumers.describe_consumer,
    "ListStreamConsumers": consumers.list_consumers,
}
"""All but SubscribeToShard, whose answer has no end yet."""


def is_operation(name: str) -> bool:
    """Whether this server knows it."""
    return name in OPERATIONS or name == "SubscribeToShard"


class HttpServer(ThreadingHTTPServer):
    """Listens on the loopback, with a thread for each connection."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, state: KinesisState) -> None:
        super().__init__(("127.0.0.1", port), HttpConnection)
        self.state = state
        self._connections: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection: a client may keep it for many calls."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Let the open connections end; each is closed by its own thread."""
        for connection in list(self._connections):
            with suppress(OSError):  # its client has gone
                connection.shutdown(SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that have gone; what else goes wrong is a bug."""
        failed = sys.exception()
        if failed and not isinstance(failed, ConnectionError):
            self.state.failures.append(failed)
            super().handle_error(request, client_address)


class HttpConnection(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise an answer in two parts waits for the client's acknowledgement
    wbufsize = -1
    server: HttpServer

    def do_POST(self) -> None:
        """Answer one call."""
        content_type = CBOR if "cbor" in self.headers.get("Content-Type", "") else JSON
        operation = self.headers.get("X-Amz-Target", "").removeprefix(TARGET)
        fault = None
        try:
            fields = self._fields(content_type)
            request = _admitted(self.server.state, operation, fields)
            fault = request.fault
            if operation == "SubscribeToShard":
                with self.server.state.changed:
                    subscription = Subscription(self.server.state, request)
                return self._push(subscription, fault)
            status, code, answer = 200, "", _answered(self.server.state, request)
        except ApiRefusal as refusal:
            status, code = refusal.status, refusal.code
            answer = {"__type": refusal.code, "message": str(refusal)}
        cut_after = fault.cut_after if fault else None
        self._say(status, code, encode(answer, content_type), content_type, cut_after=cut_after)

    def _fields(self, content_type: str) -> dict[str, Any]:
        size = int(self.headers.get("Content-Length", 0))
        if size > MOST_REQUEST_BYTES:
            self.close_connection = True
            raise ApiRefusal("RequestEntityTooLargeException", f"{size} bytes are too many.", status=413)
        body = self.rfile.read(size)
        try:
            fields = decode(body, content_type)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise ApiRefusal("SerializationException", "The request is not an object.")
        return fields

    def _say(self, status: int, code: str, body: bytes, content_type: str, *, cut_after: int | None) -> None:
        self.send_response(status)
        if code:
            self.send_header("x-amzn-ErrorType", code)
        self._send_headers(content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if cut_after is not None:
            body = body[: min(cut_after, len(body) - 1)]
            self.close_connection = True
        self.wfile.write(body)

    def _push(self, subscription: Subscription, fault: Fault | None) -> None:
        left = fault.cut_after if fault else None
        self.send_response(200)
        self._send_headers(EVENT_STREAM)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for name, payload, is_exception, _ in subscription.events():
                frame = event_frame(name, payload, is_exception=is_exception)
                if part := frame[:left]:  # a chunk without bytes would be the last one
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
                    self.wfile.flush()
                if left is not None and (left := left - len(part)) == 0:
                    break
            if left is None:
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True  # without the last chunk: for the client the connection broke
        except OSError:
            self.close_connection = True  # the client has gone

    def _send_headers(self, content_type: str) -> None:
        self.send_header("x-amzn-RequestId", str(uuid4()))
        self.send_header("Content-Type", content_type)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date header: the server's clock, not the machine's."""
        return formatdate(self.server.state.now() / 1000 if timestamp is None else timestamp, usegmt=True)

    def log_message(self, *_: object) -> None:
        """Say nothing on standard error."""


def _admitted(state: KinesisState, operation: str, fields: dict[str, Any]) -> ApiRequest:
    """The request, counted and within its limits; raises what a fault or a limit answers."""
    stream, shard = stream_name(fields), fields.get("ShardId", "")
    if operation == "GetRecords":
        stream, shard = records.stream_and_shard(fields.get("ShardIterator"))
    consumer = fields.get("ConsumerName") or fields.get("ConsumerARN", "").rpartition("/")[2].partition(":")[0]
    call = ApiCall(operation, stream, shard, consumer)
    with state.changed:
        if not is_operation(operation):
            raise ApiRefusal("UnknownOperationException", f"This server does not know {operation}.")
        state.count(call)
        if limits := state.limits_of(call):
            limits.admit(call, state.now())
        fault = take_fault(state.faults, call)
        if fault and fault.code:
            raise ApiRefusal(fault.code, "Ordered by a test.", status=fault.status)
    return ApiRequest(call, fields, fault)


def _answered(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    with state.changed:
        answer = OPERATIONS[request.call.operation](state, request) or {}
        if not request.call.operation.startswith(("Get", "List", "Describe")):
            state.changed.notify_all()  # subscriptions look what has changed
    return answer
