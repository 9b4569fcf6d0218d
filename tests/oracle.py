"""The oracle: what was produced against what is in the table and the dead letters, offset by offset, byte by byte.

Counts alone let one loss and one duplicate cancel out. Nothing of the engine's decoding is used here: rows are compared
with Python's own reading of the message.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from urllib.parse import urlparse

from deltalake import DeltaTable

from kdi_assets.ledger.history import live_history
from kdi_assets.stream import Stream
from tests.kafka_log import Produced

Row = Mapping[str, Any]
At = tuple[int, int]


@dataclass(frozen=True)
class Found:
    """Everything that lies in a stream's tables, as another reader sees it; dead letters only those that count."""

    rows: Sequence[Row]
    dead_letters: Sequence[Row]
    ghosts: Sequence[Row]


def read_back(stream: Stream, lake: str) -> Found:
    """Read table and dead letters with delta-rs."""
    history = live_history(stream.table_uri(lake), stream.app_id)
    attempts = {e.attempt_id for e in history.entries} if history else set()
    letters = _rows(stream.dead_letters_uri(lake))
    counting = [x for x in letters if x["attempt_id"] in attempts]
    return Found(_rows(stream.table_uri(lake)), counting, [x for x in letters if x["attempt_id"] not in attempts])


def assert_each_offset_once(produced: Sequence[Produced], found: Found, *, coordinates: str = "meta.kafka") -> None:
    """Nothing lost, nothing twice, nothing changed, nothing invented; tombstones leave no trace."""
    wanted = {(m.topic_partition.partition, m.offset): m for m in produced if m.value is not None}
    rows = [(_coordinates(row, coordinates), row) for row in found.rows]
    letters = [((x["partition"], x["offset"]), x) for x in found.dead_letters]
    seen = Counter(at for at, _ in (*rows, *letters))

    missing = sorted(wanted.keys() - seen.keys())
    doubled = sorted(at for at, times in seen.items() if times > 1)
    invented = sorted(seen.keys() - wanted.keys())
    assert not (missing or doubled or invented), (
        f"missing {_ranges(missing)}, doubled {_ranges(doubled)}, invented {_ranges(invented)}"
    )
    for at, row in rows:
        assert_row_is(wanted[at], row, coordinates=coordinates)
    for at, letter in letters:
        assert_letter_is(wanted[at], letter)


def assert_row_is(message: Produced, row: Row, *, coordinates: str) -> None:
    """The row says what the message said: field by field, as Python reads the JSON."""
    assert message.value is not None
    said = json.loads(message.value)
    for field in ("method", "session_id", "status", "url", "uuid"):
        assert row[field] == said.get(field), f"{message.topic_partition}@{message.offset}: {field}"
    stamp = said["meta"]["producer"]["timestamp"]
    assert row["meta"]["producer"]["timestamp"] == stamp
    assert row["date"].isoformat() == stamp[:10]
    assert row["host"] == urlparse(said["url"]).hostname
    kept = _at(row, coordinates)
    assert kept["topic"] == message.topic_partition.topic
    assert kept["timestamp"].astimezone(UTC) == message.timestamp


def assert_letter_is(message: Produced, letter: Row) -> None:
    """The dead letter is the message, byte for byte, with a reason."""
    assert letter["value"] == message.value
    assert letter["key"] == message.key
    assert letter["topic"] == message.topic_partition.topic
    assert letter["timestamp"].astimezone(UTC) == message.timestamp
    headers = tuple((h["key"], h["value"]) for h in letter["headers"] or ())
    assert headers == message.headers
    assert letter["reason"], f"{message.topic_partition}@{message.offset} has no reason"


def _rows(uri: str) -> list[Row]:
    if not DeltaTable.is_deltatable(uri):
        return []
    rows: list[Row] = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return rows


def _coordinates(row: Row, path: str) -> At:
    kept = _at(row, path)
    return kept["partition"], kept["offset"]


def _at(row: Row, path: str) -> Row:
    for step in path.split("."):
        row = row[step]
    return row


def _ranges(offsets: Iterable[At]) -> str:
    """Neighbouring offsets as ranges: ``0: [3, 5), 1: [7, 8)``."""
    ranges: list[list[int]] = []
    for partition, offset in offsets:
        if ranges and ranges[-1][0] == partition and ranges[-1][2] == offset:
            ranges[-1][2] = offset + 1
        else:
            ranges.append([partition, offset, offset + 1])
    return ", ".join(f"{p}: [{start}, {end})" for p, start, end in ranges[:10]) or "none"
