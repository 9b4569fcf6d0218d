"""A stream whose messages name files with orders."""

from __future__ import annotations

from datetime import date
from typing import Any

DAY = date(2026, 3, 1)
ORDERS: dict[str, Any] = {
    "record_ddl": "id bigint NOT NULL, price double, day date",
    "columns": {"cents": "CAST(price * 100 AS bigint)", "file": "element_at(split(kafka.file, '/'), -1)"},
    "date_expression": "day",
    "coordinates": "kafka",
}
