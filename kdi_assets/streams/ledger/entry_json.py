"""The JSON of a ledger entry, in the user metadata of its commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from typing import Any

from kdi_assets.delta.log import metadata_with
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.shard_bookmarks import Bookmark, Span
from kdi_assets.messages.topic_state import LastRead
from kdi_assets.streams.ledger.entry import DeadLettersAt, Erasure, FieldCounts, LedgerEntry, RangeCounts, RowlessCounts
from kdi_assets.streams.ledger.errors import WrittenByNewerRelease
from kdi_assets.streams.ledger.routes import Routes

FORMAT, FORMAT_OF_ERASURES, FORMAT_OF_BOOKMARKS, FORMAT_OF_EXPIRIES = 1, 6, 7, 8
"""A new field needs no new format if older releases can ignore it and still count right; any other change does. A
release that does not know erasures would count erased messages as missing, one that does not know bookmarks would leave
them out of its next entry, and one that does not know expiries cannot read their offsets. Development versions wrote 2
to 5."""
_FORMATS = (FORMAT, FORMAT_OF_ERASURES, FORMAT_OF_BOOKMARKS, FORMAT_OF_EXPIRIES)


def entry_to_json(entry: LedgerEntry) -> str:
    """The form in the log: numbers of topic partitions as keys, ranges as ``[partition, start, end]``."""
    values = {name: value for name, value in _to_json_value(entry).items() if value or name not in _LEFT_OUT_IF_EMPTY}
    return json.dumps({"kdi_ledger": _format_of(entry), **values}, separators=(",", ":"))


def _format_of(entry: LedgerEntry) -> int:
    if entry.kind == "expire":
        return FORMAT_OF_EXPIRIES
    return FORMAT_OF_BOOKMARKS if entry.bookmarks else FORMAT_OF_ERASURES if entry.erasure else FORMAT


def parse_entry(user_metadata: str, version: int, app_id: str) -> LedgerEntry | None:
    """The entry in a commit's user metadata; ``None`` if the commit is not of this ledger.

    Raises:
        WrittenByNewerRelease: This release does not know the entry's format.
    """
    written = metadata_with("kdi_ledger", user_metadata)
    if written is None or written.get("app_id") != app_id:
        return None
    if written["kdi_ledger"] not in _FORMATS:
        raise WrittenByNewerRelease(app_id=app_id, version=version)
    known = {f.name: written[f.name] for f in fields(LedgerEntry) if written.get(f.name) is not None}
    read = {name: _FROM_JSON[name](value, written["topic"]) for name, value in known.items() if name in _FROM_JSON}
    return LedgerEntry(**{**known, **read, "version": version})


_LEFT_OUT_IF_EMPTY = (
    *("gap_digest", "letters_by_date", "routes", "decided_by", "because", "outcomes", "returned"),
    *("dates", "removed_by_date", "kept_aside", "withdrawn", "withdrawn_digest", "last_read"),
    *("erasure", "kept_from", "bookmarks", "spans", "lost_between", "cpu_seconds", "files_added", "deployment"),
)
_COUNTS = tuple(f.name for f in fields(RangeCounts))[1:]
_RANGE_LENGTH = 3 + len(_COUNTS)  # of a range in the log: partition, start, end, and the counts of this release


def _to_json_value(value: Any) -> Any:
    match value:
        case OffsetRange():
            return [value.topic_partition.partition, value.start, value.end]
        case RangeCounts():
            return [*_to_json_value(value.range), *(getattr(value, name) for name in _COUNTS)]
        case LastRead():
            return [value.offset, value.timestamp, value.digest]
        case RowlessCounts():
            return [value.tombstones, value.filtered]
        case TopicPartition():
            return str(value.partition)
        case date():
            return value.isoformat()
        case tuple():
            return [_to_json_value(each) for each in value]
        case Mapping():
            return {_to_json_value(key): _to_json_value(each) for key, each in value.items()}
    return {f.name: _to_json_value(getattr(value, f.name)) for f in fields(value)} if is_dataclass(value) else value


def _by_partition(values: Mapping[str, Any], topic: str, of: Callable[..., Any] = int) -> dict[TopicPartition, Any]:
    return {TopicPartition(topic, int(p)): of(value) for p, value in values.items()}


def _by_date(values: Mapping[str, int], topic: str) -> dict[date, int]:
    return {date.fromisoformat(day): count for day, count in values.items()}


def _erasure(value: Mapping[str, Any], topic: str) -> Erasure:
    counts = {name: _by_partition(value[name], topic) for name in ("became_rows", "dead_letters")}
    return Erasure(**{**value, **counts})


def _range(value: Sequence[int], topic: str) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, value[0]), value[1], value[2])


_FROM_JSON: Mapping[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("positions", "ends", "returned"), _by_partition),
    **dict.fromkeys(("rows_by_date", "letters_by_date", "removed_by_date"), _by_date),
    **dict.fromkeys(("gaps", "declared_losses"), lambda values, topic: tuple(_range(r, topic) for r in values)),
    **dict.fromkeys(("unknown", "misfits"), lambda of, _: FieldCounts(of["messages"], of["named"], of["others"])),
    "last_read": lambda values, topic: _by_partition(values, topic, lambda m: LastRead(*m)),
    "bookmarks": lambda values, topic: _by_partition(values, topic, lambda mark: Bookmark(**mark)),
    "spans": lambda values, topic: _by_partition(values, topic, lambda span: Span(**span)),
    "lost_between": lambda values, topic: _by_partition(values, topic, tuple),
    "withdrawn": lambda values, topic: _by_partition(values, topic, lambda u: RowlessCounts(*u)),
    "ranges": lambda values, topic: tuple(RangeCounts(_range(r, topic), *r[3:_RANGE_LENGTH]) for r in values),
    "dead_letters_at": lambda value, _: DeadLettersAt(value["table_id"], value["version"]),
    "planned_at": lambda value, _: datetime.fromisoformat(value),
    "kept_from": lambda value, _: date.fromisoformat(value),
    "dates": lambda values, _: tuple(map(date.fromisoformat, values)),
    "ages": lambda values, _: {int(bucket): count for bucket, count in values.items()},
    "routes": Routes.from_json,
    "erasure": _erasure,
}
"""How the fields are read whose JSON differs from their value; the second argument is the topic."""
