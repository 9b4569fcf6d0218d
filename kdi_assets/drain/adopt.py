"""Adopt: a table that the ledger does not know becomes the stream's; where it ends is what must be found out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from kdi_assets.drain.adopted_rows import AdoptedRows
from kdi_assets.drain.case import Case, Proposal
from kdi_assets.errors import KdiError
from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.entry import DeadLettersAt
from kdi_assets.ledger.history import SAME_ROWS, live_commits, takes_table
from kdi_assets.ledger.log import CommitUnreadable, TableLog
from kdi_assets.ledger.state import read_ledger, version_id
from kdi_assets.sources.checkpoint import Checkpoint, CheckpointUnfit
from kdi_assets.stream import OffsetRange, TopicPartition


def adopted(case: Case, checkpoint: str = "") -> Proposal:
    """The positions of a table, or of dead letters, that lie in the place of those that the ledger knows.

    Args:
        checkpoint: Of the Structured Streaming query that wrote the table; empty: none did.

    Raises:
        NothingToResolve: There is nothing to adopt, or nothing tells where the table ends.
    """
    ledger = case.ledger
    if ledger is not None and ledger.knows_table:
        if checkpoint:
            raise case.no("the ledger knows the table and its positions; a checkpoint has no say in them")
        if ledger.entry is None or ledger.entry.dead_letters_at == letters_there(case):
            raise case.no("the table and its dead letters are those that the ledger knows")
        return Proposal(case.before, "the dead letters that are there now are accepted")
    if checkpoint:
        return _of_query(case, checkpoint)
    if ledger is not None and ledger.ledger_version is None and ledger.positions:
        raise case.no(f"another writer left its positions under app_id {case.stream.app_id!r}; a drain takes them over")
    table = f"table {case.log.table_id} is the stream's"
    if ledger is not None and ledger.ledger_version is not None and not ledger.knows_topic:
        reason = f"{table}; its topic is another one too, drained from offset 0"
        return Proposal(dict.fromkeys(case.topic.partitions, 0), reason)
    return _of_clone(case) or _behind_rows(case, table)


def _behind_rows(case: Case, table: str) -> Proposal:
    """Of a table without anybody's positions."""
    behind = case.behind_rows()
    if case.log.transaction(version_id(case.stream.app_id)) is None:  # no ledger ever knew the topic's id
        AdoptedRows(case, behind).refuse_another_topic()
    return Proposal(behind, f"{table}; positions lie behind the highest offset in its rows")


def letters_there(case: Case) -> DeadLettersAt | None:
    """The dead letters that lie in the stream's place now."""
    letters = TableLog.open(case.stream.dead_letters_uri(case.lake))
    return DeadLettersAt(letters.table_id, letters.version) if letters else None


def _of_clone(case: Case) -> Proposal | None:
    """The positions of the table that this one is a clone of: clones have the rows, and drop the positions."""
    made = _clone_commit(case.log)
    if made is None:
        return None
    source, version = _source(str(made.parameters.get("source", ""))), _number(made.parameters.get("sourceVersion"))
    lake, _, name = source.rpartition("/")
    if version is None or not lake:
        return None
    topic, count = case.topic.topic_id, len(case.topic.partitions)
    try:
        of = replace(case.stream, table=name)
        ledger = read_ledger(of, lake, topic_id=topic, topic_partitions=count, version=version)
    except (CommitUnreadable, KdiError):
        return None  # gone, or out of reach: the rows are here
    if ledger is None or ledger.ledger_version is None or not ledger.knows_topic:
        return None
    after = {tp: ledger.positions.get(tp, 0) for tp in case.topic.partitions}
    reason = (
        f"table {case.log.table_id} is the stream's; positions are those of {source} at version {version}, of which it "
        "is a clone"
    )
    return Proposal(after, reason, rows_until=ledger.rows_until)


def _clone_commit(log: TableLog) -> CommitInfo | None:
    """The commit that made the table as a clone, if its rows are those of the clone still."""
    for commit in live_commits(log):
        if commit.operation.startswith("CLONE"):
            return commit
        if not commit.operation.startswith((*SAME_ROWS, "DELETE", "UPDATE")):
            return None
    return None


def _source(named: str) -> str:
    """Where a clone's source lies; Delta names a table by its path as ``delta.`file:/…```."""
    path = re.sub(r"^delta\.`(.*)`$", r"\1", named.strip('"'))
    return re.sub(r"^file:/+", "/", path).rstrip("/")


def _number(told: object) -> int | None:
    text = str(told).strip('"')
    return int(text) if text.isdecimal() else None


def _of_query(case: Case, uri: str) -> Proposal:
    """Positions behind the last batch that a Structured Streaming query brought into the table."""
    try:
        checkpoint = Checkpoint.read(uri)
        landed = case.log.transaction(checkpoint.query_id)
        batch = _last_batch(case, checkpoint, landed)
        offsets = checkpoint.offsets_behind(batch)
    except CheckpointUnfit as unfit:
        raise case.no(str(unfit)) from unfit
    _refuse_other_offsets(case, uri, offsets)
    rows = AdoptedRows(case, offsets)
    rows.refuse_another_topic()
    beyond = rows.beyond()
    again = [str(OffsetRange(tp, offsets[tp], end)) for tp, end in sorted(beyond.ends.items())]
    ahead = f"; rows of {', '.join(again)} stay until their messages are drained again" if again else ""
    reason = (
        f"table {case.log.table_id} is the stream's; positions lie behind batch {batch} of query "
        f"{checkpoint.query_id}, which must never run again{ahead}{_untold(case, rows, checkpoint, landed)}"
    )
    # A query that goes on would bring the same messages: its next batch sets this id, and the commit refuses.
    expect = {checkpoint.query_id: -1 if landed is None else landed}
    return Proposal(offsets, reason, expect, rows_until=beyond.ends, beyond=beyond)


def _untold(case: Case, rows: AdoptedRows, checkpoint: Checkpoint, landed: int | None) -> str:
    """What nobody can say of rows without coordinates: whether some lie behind the last batch already."""
    lacking = rows.without_coordinates()
    if lacking == 0:
        return ""
    # Who is known to have written nothing since needs no asking.
    later = None if landed is None else next(_written_since(case.log, checkpoint.query_id), None)
    if landed is not None and later is None:
        return ""
    which = "no row of it says" if lacking is None else f"{lacking:,} rows of it do not say"
    by = f"commit {later.version} ({later.operation}) came behind that batch, and " if later else ""
    return f"; {by}{which} where the message stood: what another writer brought behind these offsets comes twice"


def _written_since(log: TableLog, query_id: str) -> Iterator[CommitInfo]:
    """Commits behind the query's last that may have added rows, the newest first."""
    for version in range(log.version, -1, -1):
        commit = log.commit(version)
        if query_id in commit.transactions:
            return
        if not commit.operation.startswith((*SAME_ROWS, "DELETE", "UPDATE", "UPGRADE ")):
            yield commit


def _last_batch(case: Case, checkpoint: Checkpoint, landed: int | None) -> int:
    """The newest batch whose rows are in the table: the table itself knows better than the checkpoint.

    Args:
        landed: The newest one that Delta's sink recorded in the table; ``None`` if it was never written by that sink.
    """
    planned, committed, query = checkpoint.planned, checkpoint.committed, checkpoint.query_id
    if landed is None:
        # Someone else's sink, `foreachBatch` for one: only what the query calls done is known to be.
        if planned != committed:
            raise CheckpointUnfit(
                f"whether batch {planned} of query {query} reached the table, neither the checkpoint nor the table "
                "says; let the query run once more until it has no batch open"
            )
        return committed
    if not committed <= landed <= planned:
        raise CheckpointUnfit(
            f"the table has batches of query {query} up to {landed}, the checkpoint's are done up to {committed} and "
            f"planned up to {planned}: they are not of one table at one time"
        )
    _refuse_restored(case, query)
    return landed


def _refuse_restored(case: Case, query_id: str) -> None:
    """A RESTORE leaves the query's id in the table and takes its rows."""
    for version in range(case.log.version, -1, -1):
        try:
            commit = case.log.commit(version)
        except CommitUnreadable as unreadable:
            why = f"commit {version} of the table {unreadable.why}, so nobody can say whether it was restored since"
            raise CheckpointUnfit(f"{why} the last batch") from unreadable
        if takes_table(commit):
            raise CheckpointUnfit(
                f"commit {version} of the table ({commit.operation}) put other rows in the place of the query's"
            )
        if query_id in commit.transactions:
            return


def _refuse_other_offsets(case: Case, uri: str, offsets: dict[TopicPartition, int]) -> None:
    topics = sorted({tp.topic for tp in offsets})
    if topics != [case.stream.topic]:
        raise case.no(f"the query of {uri} read topic {', '.join(topics) or 'none'}, not {case.stream.topic}")
    held = case.topic.partitions
    for at_odds, said in (
        (offsets.keys() - held.keys(), "the broker has none of that number"),
        (held.keys() - offsets.keys(), "the checkpoint has no offset of it, so the query never read it"),
    ):
        if at_odds:
            raise case.no(f"{', '.join(map(str, sorted(at_odds)))}: {said}")
    for tp, at in sorted(offsets.items()):
        if at > held[tp].high_watermark:
            end = held[tp].high_watermark
            raise case.no(f"the query read {tp} up to offset {at}, and it ends at {end}: it is another topic by now")
