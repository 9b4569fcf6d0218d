"""Ghosts: dead letters of tries that never committed. They count for nothing; here they are removed. No JVM."""

from __future__ import annotations

from kdi_assets.ledger.history import entries
from kdi_assets.ledger.log import CommitUnreadable, TableLog, storage_uri
from kdi_assets.stream import Stream


def remove_ghosts(stream: Stream, lake: str) -> int:
    """Remove the letters of tries that no commit of the log names, where they can no longer matter.

    Only below the position: a try that is under way writes at or behind it, and can no longer commit once the position
    moved past. Never inside a declared loss, where a ghost may be the only copy of its message. And never those of a
    commit that a RESTORE undid: another RESTORE may bring it back.

    Returns:
        How many were removed; none while part of the log is gone, because nobody can say who committed then.
    """
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    rows, letters = TableLog.open(stream.table_uri(lake)), TableLog.open(stream.dead_letters_uri(lake))
    if rows is None or letters is None or not _is_whole(rows):
        return 0
    committed = entries(rows.uri, stream.app_id)
    if not committed:
        return 0
    table = DeltaTable(storage_uri(letters.uri))
    written = pc.unique(table.to_pyarrow_table(columns=["attempt_id"])["attempt_id"]).to_pylist()
    ghosts = sorted(set(written) - {e.attempt_id for e in committed})
    if not ghosts:
        return 0
    named = ", ".join(f"'{attempt}'" for attempt in ghosts)
    below = " OR ".join(
        f"(partition = {tp.partition} AND offset < {position})" for tp, position in committed[-1].positions.items()
    )
    lost = "".join(
        f" AND NOT (partition = {r.topic_partition.partition} AND offset >= {r.start} AND offset < {r.end})"
        for e in committed
        for r in e.declared_losses
    )
    removed = table.delete(f"attempt_id IN ({named}) AND ({below}){lost}")
    return int(removed["num_deleted_rows"])


def _is_whole(log: TableLog) -> bool:
    """Whether every commit is still there: the clean-up takes the oldest first."""
    try:
        log.commit(0)
    except CommitUnreadable:
        return False
    return True
