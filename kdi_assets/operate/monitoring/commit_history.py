"""Every commit of a stream's table in words, also commits that a RESTORE undid. No JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.streams.audit.foreign_changes import deleted_row_count, predicate
from kdi_assets.streams.ledger.entry import Erasure, LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry
from kdi_assets.streams.ledger.history import LoggedCommit, removes_rows, walk_back
from kdi_assets.streams.ledger.positions import RETIRED
from kdi_assets.wording import arrived_between, counted

_REPLAYED = {
    "row": "are rows",
    "filtered": "are filtered",
    "tombstone": "are tombstones",
    "dead_letter": "are dead letters",
    "elsewhere": "are another table's and stay",
}
_LETTERS = {
    **_REPLAYED,
    "row": "became rows",
    "dead_letter": "stay open",
    "elsewhere": "are another table's and stay open",
    "discarded": "discarded",
}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit.

    Attributes:
        operation: The kind of the ledger entry; Delta's operation for another writer's commit; or ``unreadable``.
        live: Whether its rows are in the table: false if a RESTORE undid it, ``None`` if unknown.
        description: What it did, in words.
        set_positions: Positions before and after, if another commit than a drain moved them.
        entry: The ledger entry; ``None`` for another writer's commit.
    """

    version: int
    committed_at: datetime | None
    operation: str
    live: bool | None
    description: str
    set_positions: Mapping[TopicPartition, tuple[int | None, int]] = field(default_factory=dict)
    entry: LedgerEntry | None = None


def commit_history(stream: Stream, lake: str) -> Iterator[HistoryEntry]:
    """The commits of the stream's table in the log and its archive, the newest first; none without a table.

    Lazy: reads no further than to the ledger entry before the last commit that the caller takes.

    Raises:
        KdiError: The log cannot be read.
    """
    log = TableLog.open(stream.table_uri(lake))
    if log is None:
        return
    waiting: list[tuple[LoggedCommit, LedgerEntry | None]] = []
    for commit in walk_back(log, stream.archive_uri(lake)):
        entry = parse_entry(commit.info.user_metadata, commit.version, stream.app_id) if commit.info else None
        if entry:  # its positions are those before the newer commits
            yield from (_described(*newer, entry.positions) for newer in waiting)
            waiting = []
        waiting.append((commit, entry))
    yield from (_described(*oldest, {}) for oldest in waiting)


def _described(commit: LoggedCommit, entry: LedgerEntry | None, before: Mapping[TopicPartition, int]) -> HistoryEntry:
    version, info, live = commit.version, commit.info, commit.live
    if info is None:
        return HistoryEntry(version, None, "unreadable", live, f"the commit {commit.why}")
    if entry is None:
        return HistoryEntry(version, info.committed_at, info.operation or "?", live, of_other_writer(info))
    moved = {}
    if entry.kind in ("start", "takeover", "restore", "resolve"):
        moved = {tp: (before.get(tp), at) for tp, at in sorted(entry.positions.items()) if before.get(tp) != at}
    return HistoryEntry(version, info.committed_at, entry.kind, live, _in_words(entry, moved), moved, entry)


def _in_words(entry: LedgerEntry, moved: Mapping[TopicPartition, tuple[int | None, int]]) -> str:
    match entry.kind:
        case "drain":
            return _drained(entry)
        case "replay" if entry.dates:
            return _replayed(entry, entry.dates)
        case "replay" | "discard":
            became = (f"{entry.outcomes[o]:,} {words}" for o, words in _LETTERS.items() if entry.outcomes.get(o))
            return f"dead letters: {', '.join(became)}"
        case "erase" if entry.erasure:
            return _erased(entry, entry.erasure)
        case "expire" if entry.erasure:
            return _expired(entry, entry.erasure)
        case "renewal":
            return "positions renewed"
        case "routes":
            stopped = entry.routes and entry.routes.stopped
            return "stopped for a change of its route conditions" if stopped else "new route conditions from here on"
    losses = [f"{r} given up{_between(entry, r)}" for r in entry.declared_losses]
    steps = [f"{tp}: {_position(was)} to {_position(at)}" for tp, (was, at) in moved.items()]
    return "; ".join([*steps, *losses, *_removed(entry)]) or "positions unchanged"


def _between(entry: LedgerEntry, lost: OffsetRange) -> str:
    between = entry.lost_between.get(lost.topic_partition)
    return f": {arrived_between(*between)}" if between else ""


def _removed(entry: LedgerEntry) -> list[str]:
    removed = sum(entry.removed_by_date.values())
    kept = f", {entry.kept_aside:,} of them kept in the table `…_removed`" if entry.kept_aside else ""
    return [f"{removed:,} row{'' if removed == 1 else 's'} removed{kept}"] if removed else []


def _erased(entry: LedgerEntry, erasure: Erasure) -> str:
    letters, rows = sum(erasure.dead_letters.values()), sum(entry.removed_by_date.values())
    counts = {"dead letters": letters, "rows of the table `…_removed`": erasure.removed_rows}
    facts = [f"{rows:,} rows", *(f"{count:,} {what}" for what, count in counts.items() if count)]
    what = (
        "what a RESTORE had brought back"
        if erasure.again
        else " or ".join(
            filter(None, [erasure.where, erasure.letters_where and f"dead letters: {erasure.letters_where}"])
        )
    )
    return f"{', '.join(facts)} of {erasure.count:,} messages: {what}"


def _expired(entry: LedgerEntry, erasure: Erasure) -> str:
    letters, rows = sum(erasure.dead_letters.values()), sum(entry.removed_by_date.values())
    facts = [f"{counted(rows, 'row')} on {counted(len(entry.removed_by_date), 'date')} before {entry.kept_from}"]
    facts += [counted(letters, "dead letter")] if letters else []
    return f"{', '.join(facts)} of {counted(erasure.count, 'message')}: kept no longer"


def _replayed(entry: LedgerEntry, dates: tuple[date, date]) -> str:
    named = f"{dates[0]}" if dates[0] == dates[1] else f"{dates[0]} to {dates[1]}"
    became = (f"{entry.outcomes[o]:,} {_REPLAYED[o]}" for o in _REPLAYED if entry.outcomes.get(o))
    removed = sum(entry.removed_by_date.values())
    return f"messages of {named}: {', '.join(became)}; {removed:,} rows removed, {entry.rows:,} added"


def _drained(entry: LedgerEntry) -> str:
    offsets = sum(r.range.offset_count for r in entry.ranges)
    days = len(entry.rows_by_date)
    facts = [f"{offsets:,} offsets: {entry.rows:,} rows on {days:,} date{'' if days == 1 else 's'}"]
    others = {
        "dead letters": entry.dead_letters,
        "tombstones": entry.tombstones,
        "filtered": entry.filtered,
        "gap offsets": entry.gap_offsets,
    }
    facts += [f"{count:,} {name}" for name, count in others.items() if count]
    return ", ".join(facts)


def of_other_writer(commit: CommitInfo) -> str:
    """What another writer's commit did, in words; empty if nothing is worth saying."""
    if commit.is_restore:
        target = commit.restored_to if commit.restored_to is not None else commit.parameters.get("version")
        return f"to version {target}" if target not in (None, "") else f"to {commit.parameters.get('timestamp')}"
    if removes_rows(commit):
        deleted = deleted_row_count(commit)
        return "; ".join(filter(None, [predicate(commit), counted(deleted, "row") if deleted else ""]))
    return ""


def _position(at: int | None) -> str:
    return "none" if at is None else "gone" if at == RETIRED else f"{at:,}"
