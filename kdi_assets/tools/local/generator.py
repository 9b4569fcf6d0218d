"""Generates ``web_requests`` messages for demo, benchmark and tests.

A message is some 328 bytes of JSON, like the log of a web front end::

    {"meta": {"producer": {"timestamp": "2026-03-24T15:06:17.000042+00:00"}}, "method": "GET", "session_id": "…",
     "status": 200, "url": "https://shop.example.com/…", "uuid": "…"}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle
from random import Random
from uuid import UUID

TEMPLATES = 4093  # prime, so that templates do not fall in step with the topic partitions

METHODS = ("GET", "GET", "GET", "GET", "POST", "POST", "PUT", "DELETE", "HEAD")
STATUSES = (200, 200, 200, 200, 201, 204, 301, 304, 400, 403, 404, 500, 503)
HOSTS = ("www.example.com", "shop.example.com", "api.example.com", "cdn.example.net", "blog.example.org")
PATHS = ("catalogue/winter/boots", "checkout/basket/review", "account/orders/history", "search/results/products")

BAD_KINDS: Mapping[str, Callable[[bytes], bytes]] = {
    "malformed": lambda value: value[: len(value) // 2],
    "trailing text": lambda value: value + b" and more",
    "two documents": lambda value: value + value,
    "wrong type": lambda value: value.replace(b'"status":', b'"status":"OK","code":'),
    "number out of range": lambda value: value.replace(b'"status":', b'"status":99999999999,"code":'),
    "invalid UTF-8": lambda value: value.replace(b"https://", b"https://\xff\xfe"),
    "blank": lambda value: b"   ",
    "no date": lambda value: value.replace(b'"timestamp":', b'"time":'),
    "unreadable date": lambda value: value.replace(b'"timestamp":"', b'"timestamp":"about '),
    "date out of window": lambda value: value.replace(b'"timestamp":"2', b'"timestamp":"1'),
}
"""Damages a good message, one kind for each way of not becoming a row."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Properties of the messages.

    Attributes:
        dates: Number of event dates, today and before, with equal shares: late messages are normal.
        bad: Share of messages, 0 to 1, that cannot become a row; the kinds take turns.
        tombstones: Share of messages, 0 to 1, without a value.
        seed: The same seed and clock give the same bytes.
    """

    dates: int = 3
    bad: float = 0.0
    tombstones: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dates < 1 or self.bad < 0 or self.tombstones < 0 or self.bad + self.tombstones > 1:
            raise ValueError(f"{self}: at least one date, and shares between 0 and 1")


def make_template(random: Random) -> bytes:
    """A message with ``%`` fields for second, microsecond and running number."""
    session, uuid = (UUID(int=random.getrandbits(128), version=4) for _ in range(2))
    url = f"https://{random.choice(HOSTS)}/{random.choice(PATHS)}?id={random.getrandbits(40):010x}"
    text = (
        '{"meta":{"producer":{"timestamp":"%b.%06d+00:00"}},'
        f'"method":"{random.choice(METHODS)}","session_id":"{session}","status":{random.choice(STATUSES)},'
        f'"url":"{url}&referrer={random.getrandbits(208):052x}",'
        # The running number is the last group: every uuid is unique without a random number for each message.
        f'"uuid":"{str(uuid)[:24]}%012x"}}'
    )
    return text.encode()


class WebRequests:
    """An endless sequence of messages.

    Attributes:
        counts: Messages so far by kind: ``good``, ``tombstone`` and each of ``BAD_KINDS``.
    """

    def __init__(self, traffic: Traffic) -> None:
        self.counts: Counter[str] = Counter()
        self._traffic = traffic
        self._random = Random(traffic.seed)  # noqa: S311
        self._templates = [(k % traffic.dates, make_template(self._random)) for k in range(TEMPLATES)]
        self._kinds = cycle(BAD_KINDS)
        self._made = 0

    def batch(self, count: int, *, now: datetime) -> list[bytes | None]:
        """The next messages, with the time of ``now`` on their own dates; None is a tombstone."""
        days = (now.astimezone(UTC) - timedelta(days=days_ago) for days_ago in range(self._traffic.dates))
        seconds = [f"{day:%Y-%m-%dT%H:%M:%S}".encode() for day in days]
        numbers = range(self._made, self._made + count)
        picked = (self._templates[number % TEMPLATES] for number in numbers)
        # One formatting for each message and nothing else: this line limits the speed of publishing.
        values = [text % (seconds[ago], n % 1_000_000, n) for n, (ago, text) in zip(numbers, picked, strict=True)]
        self._made += count
        return [self._counted(value) for value in values]

    def _counted(self, value: bytes) -> bytes | None:
        draw, bad = self._random.random(), self._traffic.bad
        if draw >= bad + self._traffic.tombstones:
            self.counts["good"] += 1
            return value
        kind = next(self._kinds) if draw < bad else "tombstone"
        self.counts[kind] += 1
        return None if kind == "tombstone" else BAD_KINDS[kind](value)
