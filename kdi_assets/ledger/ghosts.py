"""Ghosts: dead letters of tries that never committed. They count for nothing; here they are removed. No JVM."""

from __future__ import annotations

from kdi_assets.ledger.archive import Archive
from kdi_assets.ledger.entry import OF_REPLAY, LedgerEntry, entry_of
from kdi_assets.ledger.history import every_commit
from kdi_assets.ledger.letters import OUTCOME
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.storage import storage_uri
from kdi_assets.stream import Stream


def remove_ghosts(stream: Stream, lake: str) -> int:
    """Remove the letters of tries that no commit of the log names, where they can no longer matter.

    Only below the position: a drain that is under way writes at or behind it, and can no longer commit once the
    position moved past. Nothing of a replay, which writes below the position and may be under way: neither what became
    of letters nor, known by the name of its try, letters of messages that were rows.
    Never inside a declared loss, where a ghost may be the only copy of its message. Never those of a commit that a
    RESTORE undid: another RESTORE may bring it back. And none at all of a table that was adopted, or that is younger
    than its dead letters: these may be those of the table in whose place it was put, and the only copies of their
    messages.

    Returns:
        How many were removed.

    Raises:
        CommitUnreadable: Part of the log is gone without having been archived, or does not answer, so nobody can say
            who committed.
    """
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    letters = TableLog.open(stream.dead_letters_uri(lake))
    if letters is None:
        return 0
    table = DeltaTable(storage_uri(letters.uri))
    # The letters first, the ledger after: a try that is seen here, and that the ledger then does not name although the
    # position moved past it, cannot commit any more.
    replays = any(f.name == OUTCOME for f in table.schema().fields)
    kept = table.to_pyarrow_table(columns=["attempt_id", *([OUTCOME] if replays else [])])
    written = pc.unique((kept.filter(pc.is_null(kept[OUTCOME])) if replays else kept)["attempt_id"]).to_pylist()
    committed = _every_entry(stream, lake)
    named_otherwise = {attempt for attempt in written if attempt.startswith(OF_REPLAY)}
    ghosts = sorted(set(written) - named_otherwise - {e.attempt_id for e in committed})
    younger = letters.created < TableLog.existing(stream.table_uri(lake)).created
    if not ghosts or not committed or committed[0].kind == "resolve" or younger:
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
    letters_alone = f" AND {OUTCOME} IS NULL" if replays else ""
    removed = table.delete(f"attempt_id IN ({named}) AND ({below}){lost}{letters_alone}")
    return int(removed["num_deleted_rows"])


def _every_entry(stream: Stream, lake: str) -> list[LedgerEntry]:
    """Every entry of the log or its archive from the first commit on, the oldest first."""
    rows = TableLog.existing(stream.table_uri(lake))
    archive = Archive(stream.archive_uri(lake), rows.table_id)
    found = (entry_of(c.user_metadata, c.version, stream.app_id) for c in every_commit(rows, archive))
    return [entry for entry in found if entry]
