"""The oracle: what was produced, compared with the table and the dead letters, offset by offset, byte by byte.

Counts alone let one loss and one duplicate cancel out. Nothing of the engine's decoding is used here: rows are compared
with Python's own reading of the message.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import Any
from urllib.parse import urlparse

from deltalake import DeltaTable

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.runtime.s3_access import delta_rs_options
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry
from kdi_assets.streams.ledger.history import live_history, until_unreadable, walk_back
from tests.kafka_log import Produced

Row = Mapping[str, Any]
At = tuple[int, int]

MAY_CONDEMN_THE_GOOD = ("date_outside_window", "expression_failed")
"""Reasons that come from the stream's document and not from the message."""


@dataclass(frozen=True)
class Found:
    """A stream's tables as another reader sees them; only dead letters that count.

    Attributes:
        dead_letters: Those whose message did not become a row later.
        said: Outcomes of letters, as far as they count.
    """

    rows: Sequence[Row]
    dead_letters: Sequence[Row]
    ghosts: Sequence[Row] = ()
    said: Sequence[Row] = ()


def read_back(stream: Stream, lake: str) -> Found:
    """Read table and dead letters with delta-rs."""
    attempts = attempts_that_count(stream, lake)
    kept = _rows(stream.dead_letters_uri(lake))
    said = [x for x in kept if x.get("outcome") and x["attempt_id"] in attempts]
    returned = {_message_of(x) for x in said if x["outcome"] == "row"}
    letters = [x for x in kept if not x.get("outcome")]
    drained = drained_again(stream, lake)
    counting = [x for x in letters if x["attempt_id"] in attempts and _message_of(x) not in returned]
    counting = [x for x in counting if not drained(x)]
    ghosts = [x for x in letters if x["attempt_id"] not in attempts]
    return Found(_rows(stream.table_uri(lake)), counting, ghosts, said)


def _message_of(letter: Row) -> tuple[int, int, datetime]:
    return letter["partition"], letter["offset"], letter["timestamp"]


def attempts_that_count(stream: Stream, lake: str) -> frozenset[str]:
    """The attempts that a ledger entry of the live history names: their dead letters count."""
    history = live_history(stream.table_uri(lake), stream.app_id, archive_uri=stream.archive_uri(lake))
    return frozenset(e.attempt_id for e in history.entries) if history else frozenset()


def drained_again(stream: Stream, lake: str) -> Callable[[Row], bool]:
    """Whether someone set the position back before a letter's message, and a drain read it since: then that drain's
    result counts. A drain that reads a message twice by itself has no such decision before it.
    """
    history = live_history(stream.table_uri(lake), stream.app_id, archive_uri=stream.archive_uri(lake))
    entries = history.entries if history else ()

    def later(letter: Row) -> bool:
        tp, offset = TopicPartition(stream.topic, letter["partition"]), letter["offset"]
        return any(
            r.range.topic_partition == tp and r.range.start <= offset < r.range.end
            for e in _since_set_back(letter, entries, tp)
            for r in e.ranges
        )

    return later


def is_set_back(letter: Row, stream: Stream, entries: Sequence[LedgerEntry]) -> bool:
    """Whether someone set the position back before a letter's message, since it was drained: a drain reads it again.

    Args:
        entries: The live ones.
    """
    return bool(_since_set_back(letter, entries, TopicPartition(stream.topic, letter["partition"])))


def _since_set_back(letter: Row, entries: Sequence[LedgerEntry], tp: TopicPartition) -> Sequence[LedgerEntry]:
    """The decision that set the position back before a letter's message, and what came since; empty without one."""
    of, offset = next((e for e in entries if e.attempt_id == letter["attempt_id"]), None), letter["offset"]
    since = [e for e in entries if of and e.version > of.version and e.topic_id == of.topic_id]
    back = (e.version for e in since if e.kind == "resolve" and e.positions.get(tp, offset + 1) <= offset)
    decided = min(back, default=None)
    return [e for e in since if decided is not None and e.version >= decided]


def assert_each_offset_once(
    produced: Sequence[Produced],
    found: Found,
    *,
    coordinates: str = "meta.kafka",
    given_up: Collection[OffsetRange] = (),
    seed: int = 0,
    reading: Reading | None = None,
) -> None:
    """Nothing lost, nothing twice, nothing changed, nothing invented; tombstones leave no trace.

    Args:
        produced: What the broker acknowledged, as far as it must be there. A recreated topic gave the same offset to
            several messages: each must be there.
        given_up: Offsets that may be missing: declared losses, rows that someone removed.
        seed: Of the produced messages; a failure names it.
        reading: How Python reads the messages; as web requests by default.
    """
    wanted: dict[At, list[Produced]] = defaultdict(list)
    for message in produced:
        if message.value is not None:
            wanted[message.topic_partition.partition, message.offset].append(message)
    seen = _by_message(found.rows, coordinates)
    letters: dict[At, list[Row]] = defaultdict(list)
    for letter in found.dead_letters:
        letters[letter["partition"], letter["offset"]].append(letter)

    spared = {(r.topic_partition.partition, offset) for r in given_up for offset in range(r.start, r.end)}
    times = {at: (len(wanted[at]), len(seen[at]) + len(letters[at])) for at in {*wanted, *seen, *letters}}
    missing = sorted(at for at, (want, have) in times.items() if have < want and at not in spared)
    doubled = sorted(at for at, (want, have) in times.items() if have > want > 0)
    invented = sorted(at for at, (want, have) in times.items() if have > want == 0)
    if faults := sorted({*missing, *doubled, *invented}):
        raise AssertionError(
            f"{_first(faults[0], missing, doubled)}; missing {_ranges(missing)}, doubled {_ranges(doubled)}, "
            f"invented {_ranges(invented)}; seed {seed}"
        )
    for at, messages in wanted.items():
        _assert_same(
            messages, seen[at], letters[at], coordinates=coordinates, seed=seed, reading=reading or WEB_REQUESTS
        )


def _first(at: At, missing: Sequence[At], doubled: Sequence[At]) -> str:
    happened = "in neither table" if at in missing else "there twice" if at in doubled else "there and never produced"
    return f"topic partition {at[0]} offset {at[1]} is {happened}"


def _assert_same(
    messages: Sequence[Produced],
    rows: Sequence[Sequence[Row]],
    letters: Sequence[Row],
    *,
    coordinates: str,
    seed: int,
    reading: Reading,
) -> None:
    """All rows of a message, and each letter, are one of the messages, and each message is at most one of them."""
    left = list(messages)
    told: list[tuple[str, Callable[[Produced], str]]] = [
        *(("row", partial(rows_differ, rows=each, reading=reading, coordinates=coordinates)) for each in rows),
        *(("dead letter", partial(letter_differs, letter=letter, reading=reading)) for letter in letters),
    ]
    for what, differs in told:
        differences = {i: differs(m) for i, m in enumerate(left)}
        same = next((i for i, difference in differences.items() if not difference), None)
        if same is None:
            said = next(iter(differences.values()), "it is there twice")
            raise AssertionError(f"{messages[0].topic_partition}@{messages[0].offset}: {what}: {said}; seed {seed}")
        left.pop(same)


def rows_differ(message: Produced, *, rows: Sequence[Row], reading: Reading, coordinates: str) -> str:
    """Where the rows differ from the message, field by field as Python reads it; empty if nowhere."""
    try:
        wanted = reading.rows(message)
    except (ValueError, TypeError, KeyError, RecursionError) as bad:
        return f"the message has no such row: {bad!r}"
    places = [(at.get("index", 0), at.get("count", 1)) for at in (at_path(row, coordinates) for row in rows)]
    if places != [(index, len(wanted)) for index in range(len(wanted))]:
        return f"it has {len(wanted)} rows, and those of index and count {places} are there"
    told = (_row_differs(message, row, said, coordinates) for row, said in zip(rows, wanted, strict=True))
    return next(filter(None, told), "")


def _row_differs(message: Produced, row: Row, wanted: Row, coordinates: str) -> str:
    kept = at_path(row, coordinates)
    have = {path: at_path(row, path) for path in wanted} | {"topic": kept["topic" if "topic" in kept else "stream"]}
    wanted = {**wanted, "topic": message.topic_partition.topic}
    if isinstance(kept.get("timestamp"), datetime):  # the table of another writer may not have it
        have, wanted = (
            {**have, "timestamp": kept["timestamp"].astimezone(UTC)},
            {**wanted, "timestamp": message.timestamp},
        )
    return _difference(wanted, have)


def letter_differs(message: Produced, *, letter: Row, reading: Reading) -> str:
    """Where the dead letter differs from the message, byte for byte, or has no reason; empty if nowhere."""
    wanted: dict[str, Any] = {"value": message.value, "key": message.key, "topic": message.topic_partition.topic}
    wanted |= {"timestamp": message.timestamp, "headers": message.headers, "has a reason": True, "is good": False}
    have: dict[str, Any] = {field: letter[field] for field in ("value", "key", "topic")}
    have |= {"timestamp": letter["timestamp"].astimezone(UTC), "has a reason": bool(letter["reason"])}
    have["is good"] = reading.is_good(message) and letter["reason"] not in MAY_CONDEMN_THE_GOOD
    have |= {"headers": tuple((h["key"], h["value"]) for h in letter["headers"] or ())}
    return _difference(wanted, have)


def web_request(message: Produced) -> Row:
    """The row of a web request."""
    said = json.loads(message.value or b"")
    stamp = said["meta"]["producer"]["timestamp"]
    wanted = {field: said.get(field) for field in ("method", "session_id", "status", "url", "uuid")}
    day = date.fromisoformat(stamp[:10])
    return {**wanted, "meta.producer.timestamp": stamp, "date": day, "host": urlparse(said["url"]).hostname}


def is_good(message: Produced) -> bool:
    """Whether the message is, field by field, an uncorrupted message of the generator."""
    try:
        said = json.loads(message.value or b"")
        stamp = datetime.fromisoformat(said["meta"]["producer"]["timestamp"])
        texts = [said[field] for field in ("method", "session_id", "url", "uuid")]
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    fields = {"meta", "method", "session_id", "status", "url", "uuid"}
    number = type(said["status"]) is int and abs(said["status"]) < 1000 if "status" in said else False
    return said.keys() == fields and number and stamp.year >= 2020 and all(isinstance(text, str) for text in texts)


@dataclass(frozen=True)
class Reading:
    """Python's own reading of a stream's messages.

    Attributes:
        said: Path of a column (dots nest) to its value in the message's row; raises if there can be no row.
        is_good: Whether the message must have a row.
        each: The same as ``said`` for every row, in their order, if a message may have several.
    """

    said: Callable[[Produced], Row]
    is_good: Callable[[Produced], bool]
    each: Callable[[Produced], Sequence[Row]] | None = None

    def rows(self, message: Produced) -> Sequence[Row]:
        """The rows of the message."""
        return [self.said(message)] if self.each is None else self.each(message)


WEB_REQUESTS = Reading(web_request, is_good)


def _difference(wanted: Mapping[str, Any], have: Mapping[str, Any]) -> str:
    return next((f"{f} is {have[f]!r} and not {want!r}" for f, want in wanted.items() if have[f] != want), "")


def _rows(uri: str) -> list[Row]:
    options = delta_rs_options(uri)
    if not DeltaTable.is_deltatable(uri, options):
        return []
    rows: list[Row] = DeltaTable(uri, storage_options=options).to_pyarrow_table().to_pylist()
    return rows


def _by_message(rows: Sequence[Row], path: str) -> dict[At, list[list[Row]]]:
    """The rows of every message, by their index; as many times as a message, or one of its rows, is there."""
    messages: dict[At, list[list[Row]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: at_path(row, path).get("index", 0)):
        kept = at_path(row, path)
        of_one = messages[kept["partition"], kept["offset"]]
        before = (at_path(rows[-1], path) for rows in of_one)
        # To the first copy of this message that has no such row yet.
        goes_on = [
            b.get("timestamp") == kept.get("timestamp") and b.get("index", 0) < kept.get("index", 0) for b in before
        ]
        if True in goes_on:
            of_one[goes_on.index(True)].append(row)
        else:
            of_one.append([row])
    return messages


def at_path(row: Row, path: str) -> Any:
    """The value at a path; dots nest."""
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


def entries(uri: str, app_id: str) -> list[LedgerEntry]:
    """Every ledger entry, the oldest first, undone or not; the readable part of the log."""
    log = TableLog.open(uri)
    commits = until_unreadable(walk_back(log)) if log else ()
    found = (parse_entry(c.user_metadata, c.version, app_id) for c in commits)
    return [entry for entry in found if entry][::-1]
