"""The stream bronze/orders of the commands, and its document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DrivenFactory
from tests.documents import written
from tests.driven import DrivenStream

DOCUMENT = """
type: kdi_assets.components.TopicTable
attributes: {{topic: {topic}, table: bronze/{table}, app_id: {table}, schema: "id bigint, at date", date: at}}
"""
GOOD = '{{"id": {id}, "at": "2026-03-{day:02}"}}'


@pytest.fixture
def orders(driven: DrivenFactory, defs: Path) -> DrivenStream:
    """The stream bronze/orders, over a topic with two topic partitions, and its document."""
    fields: dict[str, Any] = {
        "record_ddl": "id bigint, at date",
        "date_expression": "at",
        "columns": {},
        "coordinates": "kafka",
    }
    orders = driven(partitions=2, table="bronze/orders", app_id="orders", **fields)
    written(defs, orders=DOCUMENT.format(topic=orders.stream.topic, table="orders"))
    return orders


def publish(orders: DrivenStream, *, good: int = 10, bad: int = 0) -> None:
    """Half of the good messages to each topic partition, on two dates; the bad ones to the first."""
    for partition in (0, 1):
        orders.send(*(GOOD.format(id=i, day=1 + i % 2) for i in range(good // 2)), partition=partition)
    orders.send(*['{"id": "seven", "at": "2026-03-01"}'] * bad)
