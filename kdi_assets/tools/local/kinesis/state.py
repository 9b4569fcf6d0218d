"""The state of the server, and the lookups that its operations share."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Condition
from typing import Any

from kdi_assets.tools.local.kinesis.faults import ApiCall, Behaviour, Fault, ServerClock
from kdi_assets.tools.local.kinesis.limits import RATE_LIMITS, Limits
from kdi_assets.tools.local.kinesis.refusals import ApiRefusal
from kdi_assets.tools.local.kinesis.streams import DataStream

ACCOUNT = "000000000000"
REGION = "us-east-1"
MOST_STREAMS = 500
MOST_COUNTS = 50_000  # different calls that are counted apart, and ARNs that are remembered

ApiAnswer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One call.

    Attributes:
        fields: Of the request, by their names in the API.
        fault: What goes wrong with it, apart from its records.
    """

    call: ApiCall
    fields: Mapping[str, Any]
    fault: Fault | None = None

    def __getitem__(self, name: str) -> Any:
        """A field that must be there; raises ValidationException otherwise."""
        if (value := self.fields.get(name)) is None:
            raise ApiRefusal("ValidationException", f"Value null at '{name}' failed to satisfy constraint: not null")
        return value

    def get(self, name: str, otherwise: Any = None) -> Any:
        """A field that may be missing."""
        value = self.fields.get(name)
        return otherwise if value is None else value


class KinesisState:
    """Streams, clock, limits, faults and counts; ``changed`` is the lock of all, and wakes subscriptions.

    Attributes:
        most_bytes: Memory that records may take; then puts are refused.
        subscriptions: The one that a consumer now has of a shard, and when it was made, by ARN and shard.
        iterators_from: Iterators with a lower running number have expired.
        failures: The last exceptions that no operation should raise.
    """

    def __init__(self, clock: ServerClock, *, most_bytes: int) -> None:
        self.changed = Condition()
        self.clock = clock
        self.most_bytes = most_bytes
        self.behaviour = Behaviour()
        self.limits = Limits()
        self.faults: list[Fault] = []
        self.failures: deque[BaseException] = deque(maxlen=100)
        self.calls: Counter[ApiCall] = Counter()
        self.streams: dict[str, DataStream] = {}
        self.subscriptions: dict[tuple[str, str], tuple[object, int]] = {}
        self.iterators = self.iterators_from = 0
        self.stopped = False
        self._created: dict[str, int] = {}

    def now(self) -> int:
        """Milliseconds since 1970, by the server's clock."""
        return self.clock.now()

    def create(self, name: str, **options: Any) -> None:
        """Create a stream; the options are those of ``DataStream``."""
        arn = f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/{name}"
        self.streams[name] = DataStream(arn, now=self.new_second(arn), **options)

    def delete(self, stream: DataStream) -> None:
        """Delete a stream, its consumers and their subscriptions."""
        for name in list(stream.consumers):
            self.deregister(stream, name)
        del self.streams[stream.name]

    def deregister(self, stream: DataStream, consumer: str) -> None:
        """Remove a consumer, and its subscriptions, which hold the stream."""
        arn = stream.consumers.pop(consumer).arn
        for key in [key for key in self.subscriptions if key[0] == arn]:
            del self.subscriptions[key]

    def has_room(self, size: int) -> bool:
        """Whether a record of so many bytes may be kept; removes what retention has passed before it says no."""
        if self._kept() + size > self.most_bytes:
            for stream in self.streams.values():
                stream.shards(self.now())
        return self._kept() + size <= self.most_bytes

    def _kept(self) -> int:
        return sum(stream.size for stream in self.streams.values())

    def limits_of(self, call: ApiCall) -> Limits | None:
        """The limits that the call counts towards; None: there is none, or nothing of that name."""
        if (limit := RATE_LIMITS.get(call.operation)) is None:
            return None
        if limit.of == "account":
            return self.limits
        if (stream := self.streams.get(call.stream)) is None:
            return None
        return stream.limits if limit.of == "stream" else stream.limits_of_shard(call.shard)

    def new_second(self, arn: str) -> int:
        """The time, in another second than when something of this ARN was created last.

        Sequence numbers tell streams of one name apart by their second of creation, and ARNs tell consumers.
        """
        last = self._created.pop(arn, 0)
        self._created[arn] = max(self.now(), last + 1000)
        if len(self._created) > MOST_COUNTS:
            del self._created[next(iter(self._created))]  # the oldest
        return self._created[arn]

    def count(self, call: ApiCall) -> None:
        """Count a call."""
        known = call in self.calls or len(self.calls) < MOST_COUNTS
        self.calls[call if known else ApiCall(call.operation)] += 1

    def stream_of(self, request: ApiRequest) -> DataStream:
        """The stream that a request names by name or ARN; raises ResourceNotFoundException."""
        name = stream_name(request.fields)
        if not name:
            raise ApiRefusal("InvalidArgumentException", "Either StreamName or StreamARN must be given.")
        stream = self.stream_named(name)
        created = request.get("StreamCreationTimestamp")  # boto3 sends whole seconds
        if created is not None and int(float(created)) != stream.created // 1000:
            raise _not_found(name)
        return stream

    def stream_named(self, name: str, *, created: int | None = None) -> DataStream:
        """The stream of this name, and of this creation if one is given; raises ResourceNotFoundException."""
        stream = self.streams.get(name)
        if stream is None or created not in (None, stream.created):
            raise _not_found(name)
        return stream


def _not_found(name: str) -> ApiRefusal:
    return ApiRefusal("ResourceNotFoundException", f"Stream {name} under account {ACCOUNT} not found.")


def stream_name(fields: Mapping[str, Any]) -> str:
    """The stream that a request names, by its name, its ARN or a consumer's ARN; "" if it names none."""
    arn = fields.get("StreamARN") or fields.get("ConsumerARN") or ""
    return fields.get("StreamName") or arn.partition("stream/")[2].partition("/")[0]


def to_token(kind: str, *parts: object) -> str:
    """Opaque text for an iterator or the next page."""
    return urlsafe_b64encode(json.dumps([kind, *parts]).encode()).decode()


def from_token(text: object, kind: str, *, parts: int) -> list[Any]:
    """The parts that ``to_token`` wrote for this kind; raises InvalidArgumentException if it is anything else."""
    try:
        found = json.loads(urlsafe_b64decode(str(text)))
    except ValueError:
        found = None
    if not isinstance(found, list) or found[:1] != [kind] or len(found) != 1 + parts:
        raise ApiRefusal("InvalidArgumentException", f"Invalid {kind}.")
    return found[1:]
