"""Messages that break readers: huge, empty, without a key, deeply nested, not text at all."""

from __future__ import annotations

import json

import pytest

from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.operate.monitoring.status_row import json_fields
from kdi_assets.operate.monitoring.stream_row import stream_row_reader
from kdi_assets.streams.drain.errors import TimestampTooLarge
from tests.conftest import DrivenFactory
from tests.kafka_log import Headers, Publisher

MEGABYTE = 1_000_000
STAMP = '{"producer":{"timestamp":"2026-01-02T03:04:05+00:00"}}'


def request(**fields: object) -> str:
    """A good message with these fields."""
    return json.dumps({"meta": json.loads(STAMP), "url": "https://a.b/", **fields})


@pytest.mark.scenario("message of 10 MB and more")
@pytest.mark.compiled  # interpreted code copies a value each time it uses it
def test_messages_of_ten_megabytes_and_more_take_the_same_ways(driven: DrivenFactory) -> None:
    """Purpose: a message larger than the fetch size stalls consumers, and readers that hold many run out of memory.
    Procedure: good and malformed messages of 10 and 24 MB with small ones around them, over two topic partitions,
    between others of 1 MB: 110 MB in all; drain in a JVM with a heap of 2 GB, the default.
    Pass: each is there once, byte for byte; reading the backlog works too.
    """
    web = driven(partitions=2, config={"max.message.bytes": str(30 * MEGABYTE)})
    web.publisher = Publisher(web.stream.kafka.bootstrap_servers, **{"message.max.bytes": 30 * MEGABYTE})
    web.produce(10, bad=0.2)
    for partition in (0, 1):
        for size in (10, 1, 10, 24, 1):
            big = request(session_id="x" * size * MEGABYTE)
            web.send(big, big[:-1] if size < 24 else "bad", partition=partition)
    produced = web.produce(10, bad=0.2, seed=1)

    assert read_backlog(web.stream, web.lake).lag_seconds is not None
    web.drain()

    assert max(len(m.value or b"") for m in produced) > 24 * MEGABYTE
    web.assert_each_offset_once(produced)


@pytest.mark.scenario("poison message", "tombstone", "empty payload, two documents in one")
def test_no_message_keeps_those_around_it_from_their_table(driven: DrivenFactory) -> None:
    """Purpose: a message that a parser fails on must affect only itself, whatever it contains.
    Procedure: messages that are empty, blank, two documents, no text, no JSON, too deep, too long a number, each
    without a key, with an empty one and with one that is no text, with headers of every kind; good ones and tombstones
    around each; drain.
    Pass: the good ones are rows, the others dead letters with key, value and headers byte for byte; tombstones leave no
    trace.
    """
    good = request(status=200)
    deep = request(url="https://a.b/")[:-1] + ',"method":' + "[" * 5000 + "]" * 5000 + "}"
    number = request()[:-1] + ',"status":' + "9" * 5000 + "}"
    poison: list[bytes | str] = [b"", b" \n", good + good, f"[{good}]", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", "null"]
    poison += ["{", good[:-1], deep, number, good.replace("200", "1e999"), '{"meta":' * 2000, "\ufeff" + good]
    headers: list[Headers] = [(), [("h", None)], [("h", b""), ("h", b"\xff"), ("", b"x")]]
    web = driven(partitions=1)

    for value in poison:
        for key, given in zip((None, b"", b"\xff\x00"), headers, strict=True):
            produced = web.send(good, value, None, key=key, headers=given)
    report = web.drain()

    web.assert_each_offset_once(produced)
    assert (report.rows_added, report.dead_letters) == (3 * len(poison), 3 * len(poison))
    assert sum(c.tombstones for c in report.commits) == 3 * len(poison)
    assert web.audit().complete


@pytest.mark.core
@pytest.mark.scenario("poison message")
def test_a_timestamp_that_spark_cannot_hold_costs_its_message_alone(driven: DrivenFactory) -> None:
    """Purpose: a timestamp in nanoseconds instead of milliseconds makes Spark's reader fail for its whole read.
    Procedure: good messages in two topic partitions, in one of them a message with nanoseconds in the middle; drain,
    which refuses; give up exactly what it names; drain.
    Pass: the first drain takes all but that message and later ones of its partition; the decision gives up one offset.
    """
    web = driven(partitions=2, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    web.produce(10)
    web.publisher.client.produce(web.stream.topic, request(), partition=1, timestamp=1_700_000_000_000_000_000)
    produced = web.produce(10, seed=1)
    only = web.tp(1)

    with pytest.raises(TimestampTooLarge, match=f"accept-loss --topic-partition {only} --from 5 --until 6"):
        web.drain()
    web.assert_each_offset_once([m for m in produced if m.topic_partition != only or m.offset < 5])
    web.resolve("accept-loss", topic_partition=only, start=5, until=6)
    report = web.drain()

    assert (report.rows_added, report.backlog_after) == (5, 0)
    web.assert_each_offset_once(produced)
    assert web.audit().declared_losses == 1


@pytest.mark.scenario("a figure at zero", "topic with hardly any messages")
def test_a_topic_without_any_message_has_figures_and_they_are_zero(driven: DrivenFactory) -> None:
    """Purpose: a figure that disappears at zero looks as if nothing measured it.
    Procedure: status, drain, audit and status again over a topic that never had a message; then one comes.
    Pass: every figure is there as 0; the audit is complete; the message arrives.
    """
    web = driven(partitions=2)

    def figures() -> dict[str, object]:
        (seen,) = stream_row_reader([web.stream], web.lake)()
        return json_fields(seen)

    before = figures()
    report = web.drain()
    after, audited = figures(), web.audit()

    zero = {"backlog_offsets": 0, "open_transaction_offsets": 0, "error": None}
    assert {key: before[key] for key in zero} == zero
    assert {key: after[key] for key in zero} == zero
    assert (after["dead_letters_24h"], after["table_version"]) == (0, 0)
    assert (report.backlog_before, report.backlog_after, report.rows_added, report.dead_letters) == (0, 0, 0, 0)
    assert (audited.complete, audited.offsets, audited.rows, audited.gaps) == (True, 0, 0, 0)
    assert "0 offsets = 0 rows + 0 dead letters + 0 tombstones + 0 gaps + 0 declared losses" in audited.line()
    web.assert_each_offset_once([])
    produced = web.send(request(), partition=1)
    web.drain()
    web.assert_each_offset_once(produced)
