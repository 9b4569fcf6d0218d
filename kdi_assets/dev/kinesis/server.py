"""The HTTP server: it hands each request to its operation, counts it, and shows the faults that were ordered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from threading import Thread
from typing import Any
from uuid import uuid4

from kdi_assets.dev.broker import free_port, is_free
from kdi_assets.dev.foreground import run_until_stopped
from kdi_assets.dev.kinesis import consumers, manage_streams, records
from kdi_assets.dev.kinesis.consumers import Subscription
from kdi_assets.dev.kinesis.faults import ApiCall, Behaviour, Fault, ServerClock, take_fault
from kdi_assets.dev.kinesis.refusals import ApiRefusal
from kdi_assets.dev.kinesis.state import REGION, ApiAnswer, ApiRequest, KinesisState, stream_name
from kdi_assets.dev.kinesis.wire import CBOR, EVENT_STREAM, JSON, decode, encode, event_frame

USUAL_PORT = 14566
ACCESS_KEY = "kdi-loopback"
MOST_BYTES = 1 << 29
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


class KinesisServer:
    """A running server; its streams are only in memory, and end with it.

    Attributes:
        behaviour: May be changed at any time.
    """

    def __init__(self, *, port: int, clock: ServerClock, most_bytes: int) -> None:
        self._state = KinesisState(clock, most_bytes=most_bytes)
        self.behaviour: Behaviour = self._state.behaviour
        self._http = _Server(("127.0.0.1", port), _Handler)
        self._http.state = self._state
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def environment(self) -> Mapping[str, str]:
        """Variables with which clients of AWS use the server; it takes any credentials."""
        return {
            "AWS_ENDPOINT_URL_KINESIS": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,  # boto3 reads this one only
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": f"{ACCESS_KEY}-secret",
        }

    def now(self) -> float:
        """The server's time, in seconds since 1970."""
        return self._state.now() / 1000

    def advance(self, seconds: float) -> None:
        """Move the server's clock forward."""
        with self._state.changed:
            self._state.clock.advance(seconds)
            self._state.changed.notify_all()

    def order(self, fault: Fault) -> None:
        """Let calls fail; of several faults of one operation, the first one ordered comes first.

        Raises:
            ValueError: It could never happen.
        """
        if fault.operation not in OPERATIONS and fault.operation != "SubscribeToShard":
            raise ValueError(f"this server does not know {fault.operation}")
        fault.check()
        with self._state.changed:
            self._state.faults.append(fault)

    def unmet_faults(self) -> list[Fault]:
        """Withdraw the faults that were ordered and have not happened, or not often enough; returns them."""
        with self._state.changed:
            unmet = list(self._state.faults)
            self._state.faults.clear()
        return unmet

    def failures(self) -> list[BaseException]:
        """Exceptions that ended a call and should not have, since this was asked last."""
        with self._state.changed:
            failures = list(self._state.failures)
            self._state.failures.clear()
        return failures

    def expire_iterators(self) -> None:
        """Every iterator that was given out until now has expired."""
        with self._state.changed:
            self._state.iterators_from = self._state.iterators

    def calls(self, operation: str, *, stream: str = "", shard: str = "", consumer: str = "") -> int:
        """The number of calls so far, also of those refused; a part that is not given counts all."""
        asked = ApiCall(operation, stream, shard, consumer)
        with self._state.changed:
            return sum(
                count
                for call, count in self._state.calls.items()
                if all(part in ("", given) for part, given in zip(asked, call, strict=True))
            )

    def stop(self) -> None:
        """End it, its subscriptions and all connections."""
        with self._state.changed:
            self._state.stopped = True
            self._state.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self._http.end_connections()


def start_kinesis(
    *, port: int | None = None, clock: ServerClock | None = None, most_bytes: int = MOST_BYTES
) -> KinesisServer:
    """Start a server on the loopback.

    Args:
        port: The preferred port; if it is taken, and by default, a free one.
        clock: By default the machine's time.
        most_bytes: Memory for records; when it is used up, puts are refused.
    """
    return KinesisServer(port=free_port(port), clock=clock or ServerClock(), most_bytes=most_bytes)


def run_kinesis(*, port: int, report: Callable[[str], None]) -> None:
    """Run a server in the foreground until SIGTERM or SIGINT.

    Args:
        report: Called with each line about how to reach the server, once it answers.
    """

    def start() -> KinesisServer:
        taken = "" if is_free(port) else f" (port {port} is taken)"
        server = start_kinesis(port=port)
        report(f"Kinesis answers on {server.endpoint}{taken}, its streams are only in memory")
        for name, value in server.environment().items():
            report(f"export {name}={value}")
        return server

    run_until_stopped(start)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    state: KinesisState

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
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


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise an answer in two parts waits for the client's acknowledgement
    wbufsize = -1
    server: _Server

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
        if operation not in OPERATIONS and operation != "SubscribeToShard":
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
