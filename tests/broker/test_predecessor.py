"""Scenarios of kafka-delta-ingest's tests that no other test here covers; docs/kafka-delta-ingest.md lists them all."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from tests.conftest import DrivenFactory


def test_an_offset_of_zero_in_another_writers_table_is_a_position_like_any_other(driven: DrivenFactory) -> None:
    """`zero_offset_issue`: 0 is the last offset in the table, and neither "nothing yet" nor "from the start".
    Procedure: a table whose log says so under the other writer's app id; three messages; drain under that app id.
    """
    web = driven(partitions=1, start={0: 0})
    web.drain()
    web.as_another_writer("kdi", last=0)
    produced = web.produce(3)

    report = web.with_definition(app_id="kdi").drain()

    assert [e.kind for e in web.with_definition(app_id="kdi").entries()] == ["takeover", "drain"]
    assert report.rows_added == 2
    web.assert_each_offset_once([m for m in produced if m.offset > 0])


def test_a_drain_ends_with_what_was_there_when_it_began_also_where_nothing_comes_after(driven: DrivenFactory) -> None:
    """`end_at_initial_offsets`: there, each topic partition had to get one more message before it ended.
    Procedure: fifteen messages over three topic partitions and none in a fourth; drain, while fifteen more come; drain
    while nothing comes.
    """
    web = driven(partitions=4)
    message = '{"meta":{"producer":{"timestamp":"2026-01-01T12:00:00Z"}},"url":"https://a.b/"}'

    def produce() -> None:
        for partition in range(3):
            web.send(*[message] * 5, partition=partition)

    produce()
    first = web.drain(at=lambda point: produce() if point == "before reading" else None)
    second = web.drain()

    assert (first.rows_added, first.backlog_after, len(first.commits)) == (15, 15, 1)
    assert (second.rows_added, second.backlog_after) == (15, 0)
    web.assert_each_offset_once(web.publisher.log)


def test_what_its_transforms_did_are_expressions_over_the_original_message(driven: DrivenFactory) -> None:
    """The unit tests of its transforms: substrings, nested targets, times from seconds, milli- and microseconds as
    number or text, Kafka's fields; each sees the original message, whatever the others write.
    Procedure: a message with everything, one without the fields that the expressions use, one for which an expression
    raises, and one that is no object; drain.
    Pass: values exact to the microsecond (there, fractions of a second were cut off); a row with nulls (there, a
    missing argument failed); two dead letters with their fields.
    """
    web = driven(
        partitions=1,
        record_ddl="name string, seconds double, text string, millis bigint, micros bigint, meta struct<id: int>",
        columns={
            "name": "upper(name)",
            "start": "substr(name, 1, 4)",
            "meta.kafka.offset": "kafka.offset",
            "meta.kafka.topic": "kafka.topic",
            "meta.kafka.micros": "unix_micros(kafka.timestamp)",
            "meta.kafka.timestamp_type": "kafka.timestamp_type",
            "of.seconds": "timestamp_seconds(seconds)",
            "of.text": "timestamp_seconds(CAST(text AS double))",
            "of.millis": "timestamp_millis(millis)",
            "millis_in_micros": "millis * 1000",
        },
        date_expression="to_date(timestamp_micros(micros))",
        coordinates="at",
    )
    stamp = 1_626_823_098_519_950
    moment = datetime.fromtimestamp(stamp / 1e6, UTC)
    whole = {"name": "William", "seconds": stamp / 1e6, "text": "1626823098.51995", "millis": stamp // 1000}
    whole |= {"micros": stamp, "meta": {"id": 7}}
    raises = json.dumps({**whole, "text": "soon"})
    messages = [json.dumps(whole), json.dumps({"micros": stamp}), raises, f"[{json.dumps(whole)}]"]
    produced = web.send(*messages)

    web.drain()

    full, bare = web.rows()
    assert (full["name"], full["start"], full["date"].isoformat()) == ("WILLIAM", "Will", "2021-07-20")
    assert full["meta"]["id"] == 7
    micros = round(produced[0].timestamp.timestamp() * 1e6)
    kafka = {"offset": 0, "topic": web.stream.topic, "micros": micros, "timestamp_type": 0}
    assert full["meta"]["kafka"] == kafka
    assert full["of"] == {"seconds": moment, "text": moment, "millis": moment.replace(microsecond=519_000)}
    assert full["millis_in_micros"] == stamp // 1000 * 1000
    assert (bare["name"], bare["start"], bare["of"]["text"], bare["meta"]["kafka"]["offset"]) == (None, None, None, 1)
    assert web.letters("offset", "reason", "field") == [
        (2, "expression_failed", "columns.of.text"),
        (3, "not_an_object", None),
    ]
