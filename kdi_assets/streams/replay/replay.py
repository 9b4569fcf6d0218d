"""Replay: judge drained messages again by the present definition, and exchange their rows in one commit.

Dates and dead letters differ only in the selection of messages and the source of their bytes. The commit removes the
old rows and adds the new ones, on whatever dates they have now; positions stay. Outcomes of dead letters are written
before the commit and count with it. The messages are selected at one version of the table, and the commit is planned
on that version, so later messages are never affected.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kdi_assets.delta.files import FILE
from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.streams.drain.cached_messages import cached
from kdi_assets.streams.drain.report import Commit
from kdi_assets.streams.ledger.entry import LedgerEntry, RowlessCounts
from kdi_assets.streams.ledger.letters import OUTCOME
from kdi_assets.streams.ledger.rewrite import old_rows, rows_of_messages, rows_with_files
from kdi_assets.streams.replay.judged_again import JudgedAgain, judged_again
from kdi_assets.streams.replay.open_letters import PREVIOUS
from kdi_assets.streams.replay.replay_transaction import ReplayTransaction
from kdi_assets.streams.replay.report import LetterChange, ReplayReport
from kdi_assets.streams.replay.row_diff import Change, change_counts, change_feed, compare, examples, moved
from kdi_assets.streams.replay.selected_messages import IS_LETTER, ReplayMessages
from kdi_assets.streams.rules.judge import judge
from kdi_assets.streams.rules.rules import with_counts
from kdi_assets.streams.rules.tally import PassTally
from kdi_assets.streams.rules.verdict import DEAD_LETTER, FILTERED, ROW, TOMBSTONE, VERDICTS
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Reached = Callable[[str], None]
_UNTRACED = {VERDICTS[TOMBSTONE]: "tombstones", VERDICTS[FILTERED]: "filtered"}


def replay(
    transaction: ReplayTransaction,
    messages: ReplayMessages,
    empty: ReplayReport,
    *,
    at: Reached,
    accept_dead_letters: bool = False,
) -> ReplayReport:
    """Exchange the rows of messages and record the outcomes of dead letters, in one commit.

    Args:
        empty: The report if there is nothing to do.
        at: Called at the points ``"files written"``, ``"letters written"`` and ``"commit sent"``.
        accept_dead_letters: Go on however many rows become dead letters.

    Raises:
        AccountingMismatch: The counts of selected, read, judged, written and removed messages do not agree.
        TooManyDeadLetters: More rows than the stream's limit allows would become dead letters.
        KdiError: As a drain.
    """
    report = _report(messages, empty)
    if messages.selected.is_nothing:
        return report
    with judged_again(transaction, messages, accept_dead_letters=accept_dead_letters, dry_run=False) as judged:
        at("files written")
        staged, changes = _exchanged(transaction, messages, judged)
        report = replace(report, outcomes=judged.outcomes, changes=changes)
        entry = judged.append_dead_letters(transaction, messages.selected.ranges)
        if entry is None and not set(changes) - {"same"}:
            return report  # nothing differs, so nothing is committed
        at("letters written")
        report = replace(
            report,
            rows_by_date=dict(sorted(staged.rows_by_date.items())),
            removed_by_date=staged.removed_by_date,
        )
        entry = transaction.commit(staged, _entry(report, judged, staged, entry or transaction.entry))
        at("commit sent")
        return replace(report, commit=Commit.of(entry))


def preview(
    transaction: ReplayTransaction, messages: ReplayMessages, empty: ReplayReport, *, into: str = ""
) -> ReplayReport:
    """Report what ``replay`` would do; nothing of the stream is written.

    Args:
        into: URI of a table to create with the old and new rows (``row_diff.compare``); empty: none.

    Raises:
        KdiError: As ``replay``, except errors of the write and the commit.
    """
    report, selected = _report(messages, empty), messages.selected
    if selected.is_nothing and messages.missing_frame is None:
        return report
    with judged_again(transaction, messages, accept_dead_letters=True, dry_run=True) as judged:
        report = replace(report, outcomes=judged.outcomes)
        if selected.letters.count or selected.with_row is not None:
            report = replace(report, letter_changes=_letter_changes(transaction, judged))
        if empty.first is None:
            return report  # dead letters have no rows to compare with
        with (
            _comparison(transaction, messages, judged) as compared,
            spark_failures(transaction.stream, "comparing rows"),
        ):
            if into:
                compared.write.format("delta").mode("error").save(into)
            shown = examples(compared, transaction.stream)
            return replace(report, changes=change_counts(compared), examples=shown, moved=moved(compared))


def _report(messages: ReplayMessages, empty: ReplayReport) -> ReplayReport:
    """The report before the messages are judged."""
    selected = messages.selected
    left_alone = {name: getattr(selected, name) for name in ("withheld", "waiting", "torn", "unplaced")}
    return replace(empty, missing=messages.missing, **left_alone)


def _exchanged(
    transaction: ReplayTransaction, messages: ReplayMessages, judged: JudgedAgain
) -> tuple[Staged, dict[Change, int]]:
    """Stage the new rows, and the rewrite of the files that hold the old ones."""
    stream, ledger, added = transaction.stream, transaction.ledger, judged.staged
    if not judged.replaced_count:
        return added, {"added": added.rows} if added.rows else {}
    with spark_failures(stream, "exchanging rows"):
        bounds, version = messages.selected.bounds, ledger.version
        old = old_rows(transaction.spark, stream, ledger.uri, judged.replaced, version=version, within=bounds)
        if old is None or old.messages < judged.replaced_count:
            found = old.messages if old else 0
            detail = f"{found:,} messages have rows, of {judged.replaced_count:,} whose rows are to be exchanged"
            raise transaction.mismatch(detail, messages.selected.ranges)
        with cached(compare(old.rows, old.written(added), stream).where("change <> 'same'")) as differing:
            changes = change_counts(differing)
            same = added.rows - sum(n for change, n in changes.items() if change != "gone")
            # Without any change the old files stay.
            exchanged = old.rewrite_files(change_feed(differing), added) if changes else Staged()
    return exchanged, {**changes, "same": same} if same else changes


def _entry(report: ReplayReport, judged: JudgedAgain, staged: Staged, entry: LedgerEntry) -> LedgerEntry:
    returned: Counter[TopicPartition] = Counter()
    withdrawn: defaultdict[TopicPartition, RowlessCounts] = defaultdict(RowlessCounts)
    digest = 0
    for group in judged.groups:
        tp, count = group.topic_partition, group.messages.count
        if not group.known:
            continue  # no entry counts the messages of another writer
        if group.was_letter:
            returned[tp] += count if group.outcome == VERDICTS[ROW] else 0
        elif group.outcome == VERDICTS[DEAD_LETTER]:
            returned[tp] -= count
        elif kind := _UNTRACED.get(group.outcome):
            withdrawn[tp] += RowlessCounts(**{kind: count})
            digest ^= group.messages.digest
    entry = replace(
        entry,
        dates=(report.first, report.last) if report.first and report.last else None,
        outcomes=report.outcomes,
        returned={tp: n for tp, n in sorted(returned.items()) if n},
        withdrawn=dict(sorted(withdrawn.items())),
        withdrawn_digest=digest,
        rows_by_date=report.rows_by_date,
        removed_by_date=report.removed_by_date,
        bytes=staged.bytes,
        files_added=staged.data_files,
    )
    return with_counts(entry, judged.decoder, judged.counts)


@contextmanager
def _comparison(transaction: ReplayTransaction, messages: ReplayMessages, judged: JudgedAgain) -> Iterator[DataFrame]:
    """Every old and new row of the messages, as ``row_diff.compare`` gives them."""
    from pyspark.sql import functions as F

    stream, spark, ledger = transaction.stream, transaction.spark, transaction.ledger
    bounds = messages.selected.bounds
    table = rows_with_files(spark, stream, ledger.uri, version=ledger.version, within=bounds).drop(FILE)
    tally = PassTally(spark, transaction.stream, transaction.now)
    new = judge(messages.frame, judged.decoder, now=transaction.now, tally=tally)
    both = compare(rows_of_messages(table, stream, judged.replaced), new, stream)
    if messages.missing_frame is not None:
        missing = compare(rows_of_messages(table, stream, messages.missing_frame), new.limit(0), stream)
        both = both.unionByName(missing.withColumn("change", F.lit("missing")))
    with cached(both) as compared:
        yield compared


def _letter_changes(transaction: ReplayTransaction, judged: JudgedAgain) -> tuple[LetterChange, ...]:
    """Dead letters by old and new reason, the most frequent first."""
    from pyspark.sql import functions as F

    by = [PREVIOUS["reason"], PREVIOUS["field"], OUTCOME, "reason", "field"]
    groups = (
        judged.verdicts.where(IS_LETTER)
        .groupBy(*by)
        .agg(F.count("*").alias("letters"), F.min(F.struct("partition", "offset")).alias("example"))
    )
    with spark_failures(transaction.stream, "judging messages again"):
        found = groups.collect()
    changes = [
        LetterChange(
            reason=r[PREVIOUS["reason"]] or "",
            field=r[PREVIOUS["field"]] or "",
            outcome=r[OUTCOME],
            new_reason=r["reason"] or "",
            new_field=r["field"] or "",
            letters=r["letters"],
            example=(TopicPartition(transaction.stream.topic, r["example"][0]), r["example"][1]),
        )
        for r in found
    ]
    return tuple(sorted(changes, key=lambda change: (-change.letters, change[:5])))
