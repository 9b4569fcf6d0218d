"""Enhanced fan-out: consumers, and what a subscription pushes to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kdi_assets.tools.local.kinesis.records import (
    described_children,
    described_record,
    read_page,
    refuse_dry_run,
    start_after,
)
from kdi_assets.tools.local.kinesis.refusals import ApiRefusal
from kdi_assets.tools.local.kinesis.state import ApiAnswer, ApiRequest, KinesisState, from_token, to_token
from kdi_assets.tools.local.kinesis.streams import DataStream, StreamConsumer, refuse_bad_name
from kdi_assets.tools.local.kinesis.wire import ApiTimestamp

MOST_CONSUMERS, MOST_CREATING = 20, 5
PAGE_CONSUMERS = 100
NEXT_CONSUMERS = "NextToken of ListStreamConsumers"
TAKEOVER_MS = 5_000  # before, a second subscription is refused; later, it ends the first
SUBSCRIPTION_MS = 300_000
IDLE_MS = 1_000  # between two events without records
EVENT_RECORDS, EVENT_BYTES = 1_000, 1 << 20
LOOK_SECONDS = 0.25  # of the machine's time: nothing wakes a subscription when the clock alone has moved on


def register_consumer(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    """RegisterStreamConsumer: it is CREATING at first."""
    stream, name, now = state.stream_of(request), request["ConsumerName"], state.now()
    refuse_bad_name(name)
    if name in stream.consumers:
        raise ApiRefusal("ResourceInUseException", f"Consumer {name} of stream {stream.name} already exists.")
    creating = sum(_status(state, one) == "CREATING" for one in stream.consumers.values())
    if len(stream.consumers) >= MOST_CONSUMERS or creating >= MOST_CREATING:
        raise ApiRefusal(
            "LimitExceededException",
            f"Stream {stream.name} has {len(stream.consumers)} consumers, {creating} of them CREATING; at most"
            f" {MOST_CONSUMERS}, {MOST_CREATING} of them CREATING, are allowed.",
        )
    arn = f"{stream.arn}/consumer/{name}"
    consumer = StreamConsumer(name, f"{arn}:{state.new_second(arn) // 1000}", now)
    stream.consumers[name] = consumer
    return {"Consumer": _described(state, consumer)}


def deregister_consumer(state: KinesisState, request: ApiRequest) -> None:
    """DeregisterStreamConsumer: it is gone at once, and its subscriptions end."""
    stream, consumer = _consumer_of(state, request)
    state.deregister(stream, consumer.name)


def describe_consumer(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    """DescribeStreamConsumer."""
    stream, consumer = _consumer_of(state, request)
    return {"ConsumerDescription": {**_described(state, consumer), "StreamARN": stream.arn}}


def list_consumers(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    """ListStreamConsumers, in pages."""
    stream, after = state.stream_of(request), ""
    if token := request.get("NextToken"):
        after = from_token(token, NEXT_CONSUMERS, parts=1)[0]
    left = sorted(name for name in stream.consumers if name > after)
    page = left[: min(request.get("MaxResults", PAGE_CONSUMERS), PAGE_CONSUMERS)]
    answer: ApiAnswer = {"Consumers": [_described(state, stream.consumers[name]) for name in page]}
    return {**answer, "NextToken": to_token(NEXT_CONSUMERS, page[-1])} if len(page) < len(left) else answer


class StreamEvent(NamedTuple):
    """One event of a subscription."""

    name: str
    payload: ApiAnswer
    is_exception: bool = False
    is_last: bool = False


class Subscription:
    """A consumer's subscription to a shard; made with the lock held."""

    def __init__(self, state: KinesisState, request: ApiRequest) -> None:
        """SubscribeToShard, until the first event; raises its errors."""
        self._state = state
        self._stream, self._consumer = _consumer_of(state, request)
        self._shard = self._stream.shard(request["ShardId"], state.now())
        if _status(state, self._consumer) != "ACTIVE":
            raise ApiRefusal("ResourceInUseException", f"Consumer {self._consumer.arn} is not ACTIVE.")
        self._key = (self._consumer.arn, self._shard.id)
        _, made = state.subscriptions.get(self._key, (None, -TAKEOVER_MS))
        if state.now() - made < TAKEOVER_MS:
            raise ApiRefusal(
                "ResourceInUseException",
                f"Another active subscription exists for consumer {self._consumer.arn} and shard {self._shard.id}.",
            )
        position = request["StartingPosition"]
        number, moment = position.get("SequenceNumber"), position.get("Timestamp")
        kind = position.get("Type")
        self._after = start_after(state, self._stream, self._shard, kind, number=number, moment=moment)
        refuse_dry_run(request)
        self._began, self._idle_until = state.now(), 0
        self._empty = state.behaviour.empty_pages
        for key in [key for key, (_, made) in state.subscriptions.items() if self._began - made > SUBSCRIPTION_MS]:
            del state.subscriptions[key]
        state.subscriptions[self._key] = (self, self._began)
        state.changed.notify_all()  # the subscription before ends

    def events(self) -> Iterator[StreamEvent]:
        """The events, each as soon as there is something to tell; the lock is held only while one is made."""
        yield StreamEvent("initial-response", {})
        while True:
            with self._state.changed:
                event = self._wait()
            if event is None:
                return
            yield event
            if event.is_last:
                return

    def _wait(self) -> StreamEvent | None:
        while True:
            if self._state.stopped or self._state.now() - self._began >= SUBSCRIPTION_MS:
                return None
            if event := self._ended() or self._next():
                return event
            self._state.changed.wait(LOOK_SECONDS)

    def _ended(self) -> StreamEvent | None:
        registered = self._state.streams.get(self._stream.name) is self._stream
        if not registered or self._stream.consumers.get(self._consumer.name) is not self._consumer:
            return _exception("ResourceNotFoundException", f"Consumer {self._consumer.arn} not found.")
        if self._state.subscriptions.get(self._key, (None, 0))[0] is not self:
            return _exception("ResourceInUseException", f"Another subscription to {self._shard.id} took over.")
        return None

    def _next(self) -> StreamEvent | None:
        state, stream, shard, now = self._state, self._stream, self._shard, self._state.now()
        stream.shards(now)  # removes what retention has passed
        most = 0 if self._empty else EVENT_RECORDS
        page = read_page(state, stream, shard, self._after, most_records=most, most_bytes=EVENT_BYTES)
        if not page.records and not page.ended and now < self._idle_until:
            return None
        behind = max(1000 * self._empty, page.behind_ms)  # no event is ahead of a record that comes after it
        self._empty = state.behaviour.empty_pages if page.records else max(0, self._empty - 1)
        self._after, self._idle_until = page.after, now if self._empty else now + IDLE_MS
        records = [described_record(record) for record in page.records]
        payload: ApiAnswer = {"Records": records, "MillisBehindLatest": behind}
        if page.ended:
            payload["ChildShards"] = described_children(stream, shard)
            return StreamEvent("SubscribeToShardEvent", payload, is_last=True)
        # On an idle shard it is a number that no record has, which tells how far the consumer is.
        idle = page.after is not None and not page.records and most > 0
        progress = stream.next_number(shard, now) if idle else page.after or shard.start
        return StreamEvent("SubscribeToShardEvent", {**payload, "ContinuationSequenceNumber": str(progress)})


def _exception(code: str, message: str) -> StreamEvent:
    return StreamEvent(code, {"message": message}, is_exception=True, is_last=True)


def _consumer_of(state: KinesisState, request: ApiRequest) -> tuple[DataStream, StreamConsumer]:
    stream = state.stream_of(request)
    arn, name = request.get("ConsumerARN"), request.get("ConsumerName")
    for consumer in stream.consumers.values():
        if consumer.arn == arn or (arn is None and consumer.name == name):
            return stream, consumer
    raise ApiRefusal("ResourceNotFoundException", f"Consumer {arn or name} of stream {stream.name} not found.")


def _status(state: KinesisState, consumer: StreamConsumer) -> str:
    return "ACTIVE" if state.now() - consumer.created >= state.behaviour.activation_ms else "CREATING"


def _described(state: KinesisState, consumer: StreamConsumer) -> ApiAnswer:
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": _status(state, consumer),
        "ConsumerCreationTimestamp": ApiTimestamp(consumer.created),
    }
