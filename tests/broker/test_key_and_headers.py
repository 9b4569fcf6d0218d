"""Key and headers of messages, wherever a stream's document has Spark SQL."""

from __future__ import annotations

from datetime import date

from kdi_assets.drain.compare import compare
from kdi_assets.message_rules import Expectation
from tests.conftest import DrivenFactory
from tests.kafka_log import Headers
from tests.oracle import Row

GOOD = '{"url": "http://a.example/x"}'


def header(name: str) -> str:
    """As docs/streams.md shows it."""
    return f"CAST(get(filter(kafka.headers, h -> h.key = '{name}'), 0).value AS STRING)"


def test_columns_date_and_filter_read_key_and_headers(driven: DrivenFactory) -> None:
    web = driven(
        partitions=1,
        record_ddl="url string",
        coordinates="kafka",
        columns={"tenant": "CAST(kafka.key AS STRING)", "meta.trace": header("trace"), "sent": "to_json(kafka)"},
        date_expression=f"to_date({header('day')})",
        filter="kafka.key IN ('eu', 'us') AND NOT exists(coalesce(kafka.headers, array()), h -> h.key = 'test')",
    )
    day = ("day", b"2026-03-01")
    given: list[tuple[str, Headers]] = [
        ("eu", [day, ("trace", b"t-1"), ("trace", b"t-2")]),
        ("us", [day]),
        ("eu", [day, ("test", None)]),
        ("as", [day]),
        ("eu", ()),
    ]
    for key, headers in given:
        web.publisher.produce(web.stream.topic, GOOD, key=key, headers=headers, partition=0)
    web.publisher.flush()

    report = web.drain()

    rows: list[Row] = sorted(web.found().rows, key=lambda row: int(row["kafka"]["offset"]))
    assert [(row["tenant"], row["meta"]["trace"]) for row in rows] == [("eu", "t-1"), ("us", None)]
    assert {row["date"] for row in rows} == {date(2026, 3, 1)}
    assert '"headers":[{"key":"day"' in rows[0]["sent"]
    [letter] = web.found().dead_letters
    assert (letter["offset"], letter["reason"], report.filtered) == (4, "no_date", 2)
    assert compare(web.stream, lake=web.lake, session=web.session).agreed == 5


def test_an_expectation_alone_reads_headers(driven: DrivenFactory) -> None:
    traced = Expectation(f"{header('trace')} IS NOT NULL", "warn")
    web = driven(
        partitions=1, expectations={"traced": traced}, record_ddl="url string", date_expression="current_date()"
    )
    for headers in ([("trace", b"t-1")], []):
        web.publisher.produce(web.stream.topic, GOOD, headers=headers, partition=0)
    web.publisher.flush()

    report = web.drain()

    assert (report.rows_added, report.unmet) == (2, {"traced": 1})
