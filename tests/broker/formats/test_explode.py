"""`explode` from the topic to the table, and every kind of damage to its rows there."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import write_deltalake

from kdi_assets.documents.model.stream import Cluster, OffsetRange
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.finding import CheckResult
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.operate.monitoring.metrics.totals import Totals
from kdi_assets.streams.audit.audit import audit
from kdi_assets.tools.local.publisher import ensure_topic
from tests.broker.formats.order_items import ORDERS, order
from tests.broker.tables.audits import adds_up, both_ways
from tests.driven import DrivenStream, web_requests
from tests.kafka_log import Produced, Publisher
from tests.oracle import Reading, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdi_assets.tools.local.broker import Broker


def lines(message: Produced) -> list[Row]:
    said = json.loads(message.value or b"")
    if any(item["qty"] == 0 for item in said["items"] or ()):
        raise ValueError("a quantity of 0")
    return [
        {
            "id": said["id"],
            "item": item,
            "line": item and f"{said['id']}-{item['sku']}",
            "per": item and 12 / item["qty"],
            "date": date(2026, 3, 1 + (item["qty"] if item else 0) % 3),
        }
        for item in said["items"] or [None]
    ]


def is_good(message: Produced) -> bool:
    try:
        return bool(lines(message))
    except ValueError:
        return False


READING = Reading(lambda message: lines(message)[0], is_good, lines)


@pytest.fixture(scope="module")
def _drained(broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DrivenStream:
    """A stream of orders in two topic partitions, drained twice, the first time after an attempt that died."""
    cluster = Cluster("main", broker.bootstrap_servers)
    ensure_topic(cluster, "orders_with_items", partitions=2)
    stream = web_requests("orders_with_items", cluster, **ORDERS)
    orders = DrivenStream(
        stream, str(tmp_path_factory.mktemp("drained")), Publisher(broker.bootstrap_servers), lambda: spark
    )
    bad = ['{"id": 1000, "items": [{"sku": "a", "qty": 1}, {"sku": "b", "qty": 0}]}', "no json"]
    for first in (0, 30):
        values = [*map(order, range(first, first + 30)), None, order(999), *bad]
        for partition in (0, 1):
            orders.send(*values[partition::2], partition=partition)
        if first == 0:
            with pytest.raises(KeyboardInterrupt):
                orders.drain(at=die_before_the_commit)
        orders.drain()
    return orders


def die_before_the_commit(point: str) -> None:
    if point == "dead letters written":
        raise KeyboardInterrupt


@pytest.fixture
def orders(_drained: DrivenStream, tmp_path: Path) -> DrivenStream:
    """The drained stream with a copy of its tables, which a test may damage."""
    return _drained.copied(tmp_path / "copy")


@pytest.mark.core
def test_every_element_is_a_row_and_every_message_is_accounted_for_once(
    orders: DrivenStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    produced = orders.publisher.flush()
    kept = [m for m in produced if b'"id": 999' not in (m.value or b"")]
    entries, totals = orders.entries()[1:], Totals()
    for entry in entries:
        totals.add(entry)
    report, compared = both_ways(orders, monkeypatch), orders.compare()

    orders.assert_each_offset_once(kept, reading=READING)
    rows = sum(len(lines(m)) for m in kept if is_good(m))
    told = ("messages", "rows", "dead_letters", "tombstones", "filtered")
    assert [totals.counts[f"kdi_{name}_total"] for name in told] == [68, rows, 4, 2, 2]
    assert [e.became_rows for e in entries] == [30, 30]
    assert report.line().startswith(f"audit of bronze/orders_with_items at v2: 68 offsets = 60 messages in {rows} rows")
    assert report.complete and adds_up(report)
    assert (compared.messages, compared.agreed, compared.agrees) == (68, 68, True)
    assert set(orders.letters("reason", "field")) == {("expression_failed", "columns.per"), ("malformed_json", None)}
    assert duplicates(orders).passed
    cut = OffsetRange(orders.tp(), 1, 5)  # of orders with two, four, one and three items
    part = audit(orders.stream, lake=orders.lake, session=orders.session, bounds={cut.topic_partition: cut})
    assert (part.complete, part.offsets, part.became_rows, part.rows) == (True, 4, 4, 10)


def in_sql(orders: DrivenStream, statement: str) -> None:
    orders.session().sql(statement.format(f"delta.`{orders.uri}`"))


def test_the_audit_finds_what_happened_to_single_rows_of_messages(orders: DrivenStream) -> None:
    """Orders 0, 2, 4 … are at the offsets 0, 1, 2 … of topic partition 0; 4 and 14 have four items, 8 and 18 three."""
    lost = "id = 4 AND kafka.index = 0 OR id = 8 AND kafka.index = 1 OR id = 14 AND kafka.index = 3 OR id = 22"
    twice = "id = 18 AND kafka.index = 2 OR id = 24"
    kept = orders.session().sql(f"SELECT * FROM delta.`{orders.uri}` WHERE NOT ({lost})").toArrow()
    write_deltalake(orders.uri, kept, mode="overwrite")
    in_sql(orders, f"INSERT INTO {{0}} SELECT * FROM {{0}} WHERE {twice}")

    report, found = orders.audit(), duplicates(orders)

    assert (report.complete, report.missing, report.twice) == (False, 4, 2)
    assert [(h.range.start, h.range.offset_count, h.taken_by) for h in report.holes] == [
        (n, 1, 3) for n in (2, 4, 7, 11)
    ]
    assert [(d.range.start, d.range.end) for d in report.doubles] == [(9, 10), (12, 13)]
    assert adds_up(report)
    assert (found.passed, found.numbers["messages_doubled"], found.numbers["rows_too_many"]) == (False, 2, 5)


def test_what_someone_deletes_is_told_by_message_whether_all_of_its_rows_are_gone_or_one(orders: DrivenStream) -> None:
    in_sql(orders, "DELETE FROM {0} WHERE id IN (3, 4)")
    whole = orders.audit()
    in_sql(orders, "DELETE FROM {0} WHERE id = 14 AND kafka.index = 1")
    in_sql(orders, "UPDATE {0} SET line = 'x' WHERE id = 24")
    part = orders.audit()

    assert whole.complete and part.complete
    assert [d.offsets for d in whole.deletions] == [2]
    assert [d.offsets for d in part.deletions] == [2, 1]
    assert adds_up(whole) and adds_up(part)
    compared = orders.compare()
    assert (compared.changed, compared.absent) == (2, 0)


def test_a_restored_table_is_drained_again_message_by_message(orders: DrivenStream) -> None:
    in_sql(orders, "RESTORE {0} TO VERSION AS OF 1")
    orders.drain()

    kept = [m for m in orders.publisher.flush() if b'"id": 999' not in (m.value or b"")]
    orders.assert_each_offset_once(kept, reading=READING)
    assert orders.audit().complete


def duplicates(orders: DrivenStream) -> CheckResult:
    return run_check("no_duplicate_coordinates", CheckSubject(orders.stream, orders.lake, orders.session))
