"""A stream of orders, whose items become rows."""

from __future__ import annotations

import json
from typing import Any

from kdi_assets.documents.model.message_rules import Explode

ORDERS: dict[str, Any] = {
    "record_ddl": "id bigint, items array<struct<sku: string, qty: int>>",
    "explode": Explode("item", "items"),
    "columns": {"line": "concat(id, '-', item.sku)", "per": "12 / item.qty"},
    "date_expression": "date_add(DATE'2026-03-01', coalesce(item.qty, 0) % 3)",
    "filter": "id <> 999",
    "coordinates": "kafka",
}


def order(number: int) -> str:
    items = [{"sku": f"s{n}", "qty": n + 1} for n in range(number % 5)]
    return json.dumps({"id": number, "items": items if number % 10 else None})
