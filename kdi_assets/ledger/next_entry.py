"""Next entry: the one place where ledger entries are made. No I/O.

A commit of the ledger sets every transaction id that the log has of it, and carries on what later commits rest on. An
id or a field that one commit left out would be stale behind it, and messages would be lost or come twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from kdi_assets.ledger.entry import MOVING_NOTHING, OF_REPLAY, DeadLettersAt, Kind, LedgerEntry, still_last
from kdi_assets.ledger.positions import LedgerState, known_positions
from kdi_assets.stream.stream import Stream, TopicPartition

_PASSES: Mapping[Kind, Collection[Kind]] = {
    "drain": MOVING_NOTHING,
    "replay": ("drain", "renewal"),
    "discard": ("drain", "renewal"),
}
"""Ledger commits that a commit may land behind although they were not there when it was planned: drains touch offsets
behind the positions, replays and discards those before them."""


def next_entry(
    stream: Stream,
    ledger: LedgerState | None,
    *,
    kind: Kind,
    topic_id: str,
    positions: Mapping[TopicPartition, int] | None = None,
    attempt_id: str = "",
    **fields: Any,
) -> LedgerEntry:
    """The entry of a commit that comes behind the ledger as it is.

    Args:
        ledger: ``None``: the commit makes the table.
        topic_id: Of the topic that the positions are of: the ledger's own, or one that a decision goes over to.
        positions: Next offsets that it sets; all other topic partitions keep those that the ledger has.
        attempt_id: By default a new one.
        fields: Of ``LedgerEntry``; those that it carries on, only where they change: dead letters, routes and
            the messages read last.
    """
    newest = ledger.entry if ledger else None
    after = {**(known_positions(ledger, stream) if ledger else {}), **(positions or {})}
    carried = {
        "dead_letters_at": ledger.dead_letters_at if ledger else None,
        "routes": ledger.routes if ledger else None,
        "last_read": still_last(newest, after) if newest and newest.topic_id == topic_id else {},
    }
    return LedgerEntry(
        version=-1,
        kind=kind,
        app_id=stream.app_id,
        attempt_id=attempt_id or f"{OF_REPLAY if kind == 'replay' else ''}{uuid.uuid4()}",
        topic=stream.topic,
        topic_id=topic_id,
        table_id=ledger.table_id if ledger else "",
        positions=after,
        **{**carried, **fields},
    )


def may_pass(entry: LedgerEntry, other: LedgerEntry | None) -> bool:
    """Whether the entry's commit may land behind another ledger commit that its plan did not know."""
    return other is not None and other.kind in _PASSES.get(entry.kind, ())


def behind(entry: LedgerEntry, other: LedgerEntry) -> LedgerEntry:
    """The entry as it must be behind another one that it passes: what it does not change is as that one has it."""
    if entry.kind in MOVING_NOTHING:
        entry = replace(entry, positions=other.positions, routes=other.routes, last_read=other.last_read)
    return replace(entry, dead_letters_at=_newer(entry.dead_letters_at, other.dead_letters_at))


def _newer(ours: DeadLettersAt | None, theirs: DeadLettersAt | None) -> DeadLettersAt | None:
    """The later of both: the loss of either's letters must be seen ever after."""
    if ours is None or theirs is None:
        return ours or theirs
    return theirs if theirs.table_id == ours.table_id and theirs.version > ours.version else ours
