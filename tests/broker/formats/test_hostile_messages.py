"""Messages that nobody should send: no traceback, no lost driver, no terminal that obeys them, no endless line.

``KDI_FUZZ_SECONDS=1200 pytest tests/broker/formats/test_hostile_messages.py`` plays rounds for so long; each prints its
seed.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from kdi_assets.components.materializations import (
    drain_metadata,
    drain_summary,
    letters_materialization,
    materialization,
)
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from tests.conftest import DrivenFactory
from tests.documents import written
from tests.driven import AS_DECODED, DrivenStream
from tests.typed import Answer, Kdi

LARGEST = 24 * 2**20
TOPIC = {"max.message.bytes": str(LARGEST), "message.timestamp.after.max.ms": str(2**63 - 1)}
MOST_OUTPUT, MOST_METADATA = 400_000, 20_000
"""Characters of what a command may print, and of an event's metadata."""
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NAMES = (
    *("\x1b[31mred", "\x1b]0;title\x07", "a\nb", "tab\there", "", " ", "a.b", "`a`", '"', "'; DROP TABLE x; --"),
    *("\u202e", "\u2066"),
    *("kafka", "date", "_commit_version", "_change_type", "kdi_ledger", "_kdi_verdict", "ID", "id ", "NULL", "${HOME}"),
    *("x" * 100_000, "\ud83d\ude00" * 10, "{{ jinja }}", "<script>alert(1)</script>", "..", "/etc/passwd", "element"),
)
TEXTS = (
    *(b"", b" ", b"\n", b"null", b"true", b"[]", b"[[[", b'"', b"{", b"}", b'{"id"', b"\xef\xbb\xbf{}", b"\x00"),
    *(b'{"id":1}{"id":2}', b'{"id":1,"id":2}', b'{"id":' + b"9" * 5000 + b"}", b'{"id":1e400}', b'{"id":-0}'),
    *(b'{"id":NaN}', b'{"name":"\\ud800"}', b'{"name":"\xed\xa0\x80"}', b'{"name":"\x1b[2J"}', b'{"id":0x10}'),
    *(b"{'id':1}", b"\x1b[2J\x1b[H", b"\xff\xfe{}"),
    *(b"[" * 100_000, b'{"a":' * 100_000, b'{"id":1,"name":"' + b"x" * 2**20 + b'"}', b'{"' + b"k" * 2**20 + b'":1}'),
)


def wide(rng: random.Random) -> bytes:
    return json.dumps({"id": 1, **{f"f{rng.random()}": n for n in range(100_000)}}).encode()


def named(rng: random.Random) -> bytes:
    values: tuple[Any, ...] = (1, "t", None, [], {}, {"": {"": 1}}, [1, "a"], 1.5, True, 10**30)
    return json.dumps({"id": 1, **{rng.choice(NAMES): rng.choice(values) for _ in range(5)}}).encode("utf-8", "replace")


def deep(rng: random.Random) -> bytes:
    depth = rng.choice((10, 490, 500, 999, 1001, 50_000))
    return b'{"id":1,"d":' + b'{"d":' * depth + b"1" + b"}" * depth + b"}"


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((1, 100, 10_000)))


def broken(rng: random.Random) -> bytes:
    good = bytearray(named(rng))
    for _ in range(rng.randrange(1, 8)):
        good[rng.randrange(len(good))] = rng.randrange(256)
    return bytes(good)


KINDS: Sequence[Callable[[random.Random], bytes | None]] = (
    *(wide, named, named, deep, noise, broken, broken),
    *(lambda rng: None, lambda rng: rng.choice(TEXTS), lambda rng: rng.choice(TEXTS)),
    lambda rng: b'{"id":7,"name":"ok"}',
)
KEYS = (None, b"", b"k", b"\x1b[31m", b"k" * (10 * 2**20), b"\xff\x00")
HEADERS: Sequence[Any] = (
    *(None, [("h", None)], [("\x1b[31m", b"\x1b[31m")], [("", b"")], [("h" * 30_000, b"v")], [("h", b"v" * 2**20)]),
    [(f"h{n}", b"v" * 100) for n in range(5_000)],
)
TIMES = (None, 0, 1, 2**41, 253402300800000, 2**53, 1795789011000000)


@pytest.fixture
def web(driven: DrivenFactory, defs: Path) -> DrivenStream:
    """A stream whose table may gain columns and wider types, over a topic that takes large messages."""
    decoded = {**AS_DECODED, "record_ddl": "id bigint, name string"}
    web = driven(partitions=2, config=TOPIC, **decoded)
    contract = "{new_columns: evolve}"
    document = "type: kdi_assets.components.TopicTable\nattributes:\n  schema: id bigint, name string\n"
    document += f"  topic: {web.stream.topic}\n  table: {web.stream.table}\n  contract: {contract}\n"
    document += "  date: to_date(kafka.timestamp)\n  date_window: {start: 1970-01-01}\n"
    document += "  dead_letter_limit: {share: 1}\n"
    written(defs, web=document)
    return web


def send(web: DrivenStream, rng: random.Random, count: int) -> int:
    """Produce hostile messages; how many the broker took."""
    servers = web.stream.kafka.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": LARGEST, "linger.ms": 50, "log_level": 0})
    taken: list[bool] = []
    for _ in range(count):
        value, key, headers, at = rng.choice(KINDS)(rng), rng.choice(KEYS), rng.choice(HEADERS), rng.choice(TIMES)
        more: dict[str, Any] = {"headers": headers} if headers else {}
        more |= {} if at is None else {"timestamp": at}
        more |= {"partition": rng.randrange(2), "on_delivery": lambda error, _: taken.append(error is None)}
        producer.produce(web.stream.topic, value, key, **more)
        producer.flush(60)
    return sum(taken)


def decent(answer: Answer, *codes: int) -> None:
    """Pass: an allowed exit code, no traceback, no character that steers a terminal, no flood."""
    text = answer.out + answer.err
    assert answer.code in codes, text[-3000:]
    assert "Traceback" not in text, text[-3000:]
    assert not (found := STEERING.search(text)), ascii(text[max(found.start() - 200, 0) : found.end() + 50])
    in_json = answer.out.startswith('{"')  # has whole values: they are for programs
    assert in_json or len(text) < MOST_OUTPUT, (len(text), text[:500])


def decent_in_dagster(web: DrivenStream, report: DrainReport, metadata: Mapping[str, Any]) -> None:
    """Pass: the run's metadata and every event of the drain are small, and steer nothing."""
    events = [
        materialization(web.stream, c, day, metadata={}).metadata for c in report.commits for day in c.rows_by_date
    ]
    events += [
        letters_materialization(web.stream, c, day, metadata={}).metadata
        for c in report.commits
        for day in c.letters_by_date
    ]
    for each in [metadata, *events]:
        text = json.dumps(
            {name: str(getattr(value, "value", value)) for name, value in each.items()}, ensure_ascii=False
        )
        assert len(text) < MOST_METADATA, text[:2000]
        assert not (found := STEERING.search(text)), ascii(text[max(found.start() - 200, 0) : found.end() + 50])


def test_hostile_messages_have_a_verdict_and_no_other_effect(web: DrivenStream, kdi: Kdi) -> None:
    """Procedure: hostile messages, drained; every command that shows messages or names of theirs; the event of the
    drain as Dagster's UI shows it; upkeep.
    Pass: each command answers decently, each message is accounted for once, and the next good one becomes a row.
    """
    seconds, seed = float(os.environ.get("KDI_FUZZ_SECONDS", "0")), int(os.environ.get("KDI_FUZZ_SEED", "1"))
    name, until = web.stream.name, time.monotonic() + seconds
    while True:
        print(f"KDI_FUZZ_SEED={seed}")  # noqa: T201
        rng = random.Random(seed)
        assert send(web, rng, 25) > 10
        decent(kdi("peek", name, "--count", "25"), 0)
        decent(kdi("peek", name, "--count", "25", "--json"), 0)
        decent(kdi("drain", name), 0)
        assert send(web, rng, 10) > 3
        stream = load_streams()[name]
        report = drain(stream, lake=web.lake, session=web.session)
        decent_in_dagster(replace(web, stream=stream), report, drain_metadata(report, lag_after=None))
        assert len(drain_summary(report)) < MOST_METADATA
        for command in ("list", "show"):
            decent(kdi("dead-letters", command, name), 0)
            decent(kdi("dead-letters", command, name, "--json"), 0)
        for command in ("history", "audit", "plan", "status"):
            decent(kdi(command, name), 0)
        decent(kdi("upkeep", name, "--yes"), 0)
        decent(kdi("dead-letters", "replay", name), 0)
        decent(kdi("check"), 0)
        web.send(b'{"id":7,"name":"good"}')
        [drained] = kdi("drain", name, "--json").objects
        assert (drained["rows_added"], drained["error"]) == (1, None)
        if time.monotonic() > until:
            return
        seed += 1


@pytest.mark.parametrize("depth", [40, 60, 330, 490])
def test_a_field_that_lies_too_deep_is_counted_and_not_gained(web: DrivenStream, kdi: Kdi, depth: int) -> None:
    """Spark writes schemas as JSON of at most 1,000 levels; messages are read to half of that."""
    web.send(b'{"id":1,"d":' + b'{"d":' * depth + b"1" + b"}" * depth + b"}", b'{"id":2}')

    drained = kdi("drain", web.stream.name, "--json").objects[0]
    columns = DeltaTable(web.uri).schema().to_arrow().names

    assert (drained["rows_added"], drained["error"]) == (2, None)
    assert (("d" in columns), drained["unknown_fields"]["messages"]) == ((True, 0) if depth < 50 else (False, 1))
