"""`kdi new` over a real broker: what it samples, and that its documents pass the check and drain as predicted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kdi_assets.documents.model.stream import Cluster, TopicPartition
from kdi_assets.messages.kafka.sample import sample
from kdi_assets.messages.kafka.topic import read_topic
from kdi_assets.settings import Settings
from tests.conftest import TopicFactory
from tests.documents import REGISTRY, written
from tests.faults.topics import TransactionalPublisher
from tests.formats.avro_bytes import datum
from tests.formats.fake_registry import RunningRegistry
from tests.formats.framed import framed
from tests.kafka_log import Publisher
from tests.typed import Kdi
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def environment(environment: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """A user's environment, with the test's own home and so its own registry cache."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "jars").symlink_to(environment.home / "jars")
    monkeypatch.setenv("KDI_HOME", str(home))
    return replace(environment, home=home)


def test_the_oldest_and_the_newest_of_each_topic_partition_are_sampled_and_only_what_may_be_read(
    topic: TopicFactory, producer: Publisher, cluster: Cluster
) -> None:
    name = topic(4)
    for partition, count in enumerate((300, 7, 0)):
        producer.produce_all(name, [b"%d" % n for n in range(count)], partition=partition)
    producer.produce_all(name, [b"alone"], partition=3)
    aborted = TransactionalPublisher(cluster.bootstrap_servers, name)
    with aborted.transaction(commit=False):
        for n in range(20):
            aborted.produce(name, b"never %d" % n, partition=3)
    # Markers come after the answer.
    wait_until(lambda: read_topic(cluster, name).partitions[TopicPartition(name, 3)].end == 22)
    state = read_topic(cluster, name)
    found = sample(cluster, state, count=60)

    offsets: dict[int, list[int]] = {}
    for message in found.messages:
        offsets.setdefault(message.topic_partition.partition, []).append(message.offset)
    assert offsets == {0: [*range(10), *range(290, 300)], 1: [*range(7)], 3: [0]}
    assert found.messages[-1].value == b"alone"
    assert all(m.timestamp and abs(m.timestamp - datetime.now(UTC)) < timedelta(minutes=5) for m in found.messages)
    assert found.cut_short == ""
    assert sample(cluster, state, count=600, max_bytes=40).cut_short.endswith("bytes had come")


def order(n: int) -> dict[str, Any]:
    """One good message, nested, with every case that a document must distinguish."""
    at = datetime.now(UTC) - timedelta(days=n % 3)
    return {
        "id": n,
        "created_at": at.isoformat(),
        "updated": int(at.timestamp() * 1000),
        "customer": {"name": f"c{n}", "e-mail": None if n % 2 else "x", "born": "1980-02-03", "end": {"case": n % 5}},
        "items": [{"sku": f"s{k}", "price": 1.25 * k, "when": at.isoformat()} for k in range(n % 3 + 1)],
        "code": n if n % 2 else f"{n}a",
        "seen_by": {f"user {n} {k}": {"times": k} for k in range(3)},
        **{"tags": [], "kafka": "no", "a b": 1, "date": "2026-01-01", "null": n, "large": 2**64 + n},
        "note": {"text": "x"} if n % 100 == 1 else 5,
    }


def broken(n: int) -> bytes:
    """A bad message, of a different kind for each number; all but one cannot be rows."""
    good = json.dumps(order(n)).encode()
    kinds = [
        good[:-5],
        good + b"x",
        b"[1]",
        good.replace(b'"code": ', b'"code": "x", "_a": '),  # a text column takes numbers too, so this one is a row
        good.replace(b'"items": [', b'"items": [7, '),
        json.dumps({**order(n), "created_at": "1999-01-01T00:00:00Z"}).encode(),
        good.replace(b'"code": ', b'"code": 1.5, "_c": '),
        good.replace(b'"no"', b'"\xff"'),
    ]
    return kinds[n // 20 % len(kinds)]


def shop_order(*names: str) -> dict[str, Any]:
    """An Avro schema: an id, a time that may be missing, and texts that may be missing."""
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    more = [{"name": name, "type": ["null", "string"], "default": None} for name in names]
    fields = [{"name": "id", "type": "long"}, {"name": "at", "type": ["null", moment], "default": None}, *more]
    return {"type": "record", "name": "Order", "fields": fields}


@pytest.mark.core
def test_documents_pass_the_check_and_drain_into_just_the_dead_letters_that_they_name(
    kdi: Kdi,
    spark: SparkSession,
    topic: TopicFactory,
    producer: Publisher,
    registry: RunningRegistry,
    defs: Path,
    lake: str,
) -> None:
    """Purpose: a proposal is useful only if Spark, decoders and dates agree with what the driver predicted.
    Procedure: publish topics of several formats, each small enough to be sampled whole; propose, check, drain.
    Pass: the check finds nothing; each table and its dead letters have exactly what the document predicted, by reason.
    """
    now = datetime.now(UTC).isoformat().encode()
    lines = (b'%d;"a;b";00%d;%b;true;' % (n, n, now) for n in range(50))
    values: dict[str, Sequence[bytes | None]] = {
        "nested": [broken(n) if n % 20 == 0 else json.dumps(order(n)).encode() for n in range(200)] + [None] * 5,
        "lines": [b"id;text;digits;at;flag;none", *lines, b"cut;off"],
        "prose": [b"it says %d" % n for n in range(50)],
        "noise": [bytes([0xFF, n]) for n in range(50)],
    }
    subject = "new_avro-value"
    first, second = (registry.register(subject, json.dumps(shop_order(*more))) for more in ((), ("note",)))
    written(defs, registry=REGISTRY.replace("https://registry:8081", registry.url))
    values["avro"] = [
        *(framed(first, datum(shop_order(), {"id": n, "at": datetime.now(UTC)})) for n in range(30)),
        *(framed(second, datum(shop_order("note"), {"id": n, "at": None, "note": "x"})) for n in range(3)),
        *(b"", b"x", framed(99, b"\2\0")),
    ]
    third = registry.register("new_json-value", '{"type": "object"}', type="JSON")
    of_json = [framed(third, b'{"n": %d, "at": "%b"}' % (n, now)) for n in range(30)]
    values["json"] = [*of_json, b"x", framed(third, b"{"), framed(third, b""), framed(99, b"{}"), framed(first, b"{}")]
    names = {kind: topic(2, name=f"new_{kind}") for kind in values}
    for kind, published in values.items():
        for n, value in enumerate(published):
            producer.produce(names[kind], value, partition=n % 2)
    producer.flush()

    proposals = {}
    for kind, name in names.items():
        answer = kdi("new", name, "--json")
        assert answer.code == 0, answer.err
        proposals[kind] = answer.objects[0]
        assert proposals[kind]["sampled"] == len(values[kind])
    checked = kdi("check")
    drained = kdi("drain", "--all", "--json")

    assert (checked.code, checked.out) == (0, f"streams: {len(values)}, mistakes: 0\n")
    assert drained.code == 0, drained.err
    for kind, proposal in proposals.items():
        uri = f"{lake}/bronze/{names[kind]}"
        foretold = {(d["reason"], d["field"]): d["messages"] for d in proposal["dead_letters"]}
        assert DeltaTable(uri).to_pyarrow_table().num_rows == proposal["rows"], kind
        assert letters_of(f"{uri}_dead_letters") == foretold, kind
    assert [proposals[kind]["rows"] for kind in ("avro", "json")] == [33, 30]
    assert proposals["nested"]["tombstones"] == 5
    assert len(proposals["nested"]["dead_letters"]) >= 7

    once_more = kdi("new", names["lines"])
    assert (once_more.code, once_more.out) == (1, "")
    assert "exists already" in once_more.err


def letters_of(uri: str) -> Counter[tuple[str, str | None]]:
    """The dead letters by reason and top-level field, if there are any."""
    if not DeltaTable.is_deltatable(uri):
        return Counter()
    letters = DeltaTable(uri).to_pyarrow_table(columns=["reason", "field"]).to_pylist()
    return Counter((x["reason"], x["field"] and x["field"].partition(".")[0]) for x in letters)


def test_a_topic_that_tells_nothing_is_refused_and_nothing_is_written(
    kdi: Kdi, topic: TopicFactory, producer: Publisher, defs: Path
) -> None:
    empty, deleted = topic(2, name="web_events"), topic(name="deleted_events")
    producer.produce_all(deleted, [None] * 3)

    answers = {name: kdi("new", name, "--json") for name in (empty, deleted, "web_event")}

    assert {name: answer.code for name, answer in answers.items()} == {empty: 1, deleted: 1, "web_event": 1}
    said = {name: answer.objects[0]["error"] for name, answer in answers.items()}
    assert "topic 'web_events' of Kafka cluster main has no committed message" in said[empty]["happened"]
    assert "has only tombstones, 3 in the sample" in said[deleted]["happened"]
    assert "has no topic 'web_event'; did you mean web_events?" in said["web_event"]["happened"]
    assert "nothing was written" in said["web_event"]["safe"]
    assert list(defs.iterdir()) == []
