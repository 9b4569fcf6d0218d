"""`kdi dead-letters` and `kdi history` over a real broker, as a person types them."""

from __future__ import annotations

import getpass
import re
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import TopicFactory, also_on_s3
from tests.documents import written
from tests.kafka_log import Publisher
from tests.typed import Kdi

DOCUMENT = """
type: kdi_assets.components.TopicTable
attributes: {{topic: {topic}, table: bronze/orders, schema: "id bigint, at string", date: {date}}}
"""
pytestmark = pytest.mark.usefixtures("spark")
"""The session for the commands."""
WRONG, RIGHT = "CAST(concat(at, '?') AS DATE)", "CAST(at AS DATE)"


def document(defs: Path, topic: str, *, date: str) -> None:
    """The stream, with this expression of its date."""
    written(defs, orders=DOCUMENT.format(topic=topic, date=f'"{date}"'))


@also_on_s3
def test_letters_are_listed_shown_replayed_and_discarded_and_their_rows_moved_to_another_date(
    kdi: Kdi, topic: TopicFactory, producer: Publisher, defs: Path, spark: SparkSession
) -> None:
    """Procedure: a wrong expression makes dead letters of all messages; it is corrected; what stays bad is discarded;
    then it is corrected once more, and the date is replayed.
    """
    name = topic(1)
    document(defs, name, date=WRONG)
    producer.produce_all(name, ['{"id": 1, "at": "2026-03-01"}'] * 3 + ['{"id": 2, "at": "soon"}', "no JSON \x1b[31m"])
    drained = kdi("drain", "orders")
    document(defs, name, date=RIGHT)

    listed = kdi("dead-letters", "list", "orders")
    [shown] = kdi("dead-letters", "show", "orders", "--field", "date", "--count", "1", "--json").objects
    view = kdi("dead-letters", "view", "orders")
    raw = kdi("dead-letters", "show", "orders", "--topic-partition", "0", "--offset", "4")
    dry = kdi("dead-letters", "replay", "orders")
    done = kdi("dead-letters", "replay", "orders", "--yes")
    discard = "dead-letters", "discard", "orders", "--because", "never a date", "--field", "date"
    counted, [gone] = kdi(*discard), kdi(*discard, "--yes", "--json").objects
    [after] = kdi("dead-letters", "list", "orders", "--json").objects
    document(defs, name, date=f"date_add({RIGHT}, 1)")
    asked = ("--from", "2026-03-01", "--to", "2026-03-01")
    looked = kdi("replay", "orders", *asked)
    [moved] = kdi("replay", "orders", *asked, "--yes", "--json").objects
    history = kdi("history", "orders")
    [told] = kdi("history", "orders", "--decisions", "--json").objects

    spark.sql(view.out)
    condemned = spark.sql("SELECT error, json_string IS NULL AS other FROM orders_dead_letters").collect()
    assert Counter(map(tuple, condemned)) == {("expression_failed in date", False): 4, ("malformed_json", True): 1}
    assert drained.code == listed.code == view.code == dry.code == done.code == counted.code == history.code == 0
    assert "bronze/orders: 5 open dead letters" in listed.out
    assert "open   expression_failed  date         4" in listed.out
    [letter] = shown["dead_letters"]
    assert (letter["offset"], letter["value"], letter["state"]) == (0, '{"id": 1, "at": "2026-03-01"}', "open")
    assert r"no JSON \x1b[31m" in raw.out
    became = "bronze/orders: 5 open dead letters: 2 dead letters, 3 rows"
    assert became in dry.out and became in done.out
    assert "Nothing was changed; the same command with --yes does it." in dry.out
    assert "2026-03-01  3 rows" in done.out
    assert "Nothing was changed; the same command with --yes does it." in counted.out
    assert (gone["outcomes"], gone["done"]) == ({"discarded": 1}, True)
    assert {(g["state"], g["letters"]) for g in after["groups"]} == {("open", 1), ("resolved", 3), ("discarded", 1)}
    assert "dead letters: 3 became rows, 2 stay open" in history.out
    assert f'dead letters: 1 discarded ("never a date" by {getpass.getuser()})' in history.out
    assert "bronze/orders: 3 messages of 2026-03-01 to 2026-03-01: 3 rows" in looked.out
    assert "2026-03-01  2026-03-02     3" in looked.out
    assert 'date: "2026-03-01" -> "2026-03-02"' in looked.out
    assert (moved["messages"], moved["changes"], moved["done"]) == (3, {"moved": 3}, True)
    assert (moved["removed_by_date"], moved["rows_by_date"]) == ({"2026-03-01": 3}, {"2026-03-02": 3})
    assert "messages of 2026-03-01: 3 are rows; 3 rows removed, 3 added" in history.out
    assert [c["what"] for c in told["commits"]] == ["replay", "discard", "replay", "start"]
    audit = kdi("audit", "orders")
    assert (audit.code, "1 dead letter" in audit.out or "2 dead letters" in audit.out) == (0, True), audit.out


def test_a_stream_without_a_table_has_no_dead_letters_and_no_history(kdi: Kdi, topic: TopicFactory, defs: Path) -> None:
    document(defs, topic(1), date=RIGHT)

    assert "no dead letters" in kdi("dead-letters", "list", "orders").out
    assert "no open dead letter" in kdi("dead-letters", "replay", "orders").out
    assert "WHERE false" in kdi("dead-letters", "view", "orders").out
    assert "the table does not exist" in kdi("history", "orders").out


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_messages_whose_kafka_timestamp_is_of_no_year_that_python_has_are_shown(
    kdi: Kdi, topic: TopicFactory, producer: Publisher, defs: Path, spark: SparkSession, zone: str
) -> None:
    """A producer that gives microseconds for milliseconds; brokers before Kafka 4 take any timestamp."""
    name = topic(1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    written(defs, orders=DOCUMENT.format(topic=name, date="current_date()"))
    for value, milliseconds in (('{"id": 1}', 1_795_000_000_000_000), ("no JSON", 1_795_000_000_000_000), ("x", 0)):
        producer.client.produce(name, value, timestamp=milliseconds or 1_795_000_000_123)
    producer.flush()

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        peeked = kdi("peek", "orders")
        kdi("drain", "orders")
        listed = kdi("dead-letters", "list", "orders")
        shown = kdi("dead-letters", "show", "orders")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))

    far = re.compile(r"offset [01], \+58851-\d\d-\d\dT\d\d:\d\d:\d\dZ: ")
    assert len(far.findall(peeked.out)) == 2
    assert "9999-12-31" in listed.out and "2026-11-18" in listed.out
    assert len(far.findall(shown.out)) == 1 and "2026-11-18T11:06:40Z" in shown.out
