"""Replay: messages that were drained become what today's definition makes of them, in one commit that moves nothing.

The same for dates and for dead letters. Who asks says which messages are meant, and where their bytes come from:
dates are read from Kafka again, dead letters hold theirs. Their old rows go and the new ones come, wherever their date
falls now; what is new of letters is written before the commit, and counts with it. The commit is planned on the version
at which the messages were chosen, so whatever is added meanwhile is none of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kdi_assets.drain.cached_messages import cached
from kdi_assets.drain.report import Commit
from kdi_assets.drain.rules.judge import judge
from kdi_assets.drain.rules.rules import with_counts
from kdi_assets.drain.rules.tally import PassTally
from kdi_assets.drain.rules.verdict import DEAD_LETTER, FILTERED, ROW, TOMBSTONE, VERDICTS
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.ledger.delta_transaction import Staged
from kdi_assets.ledger.entry import LedgerEntry, RowlessCounts
from kdi_assets.ledger.letters import OUTCOME
from kdi_assets.ledger.rewrite import FILE, old_rows, rows_of_messages, rows_with_files
from kdi_assets.replay.judged_again import JudgedAgain, judged_again
from kdi_assets.replay.open_letters import WAS
from kdi_assets.replay.replay_transaction import ReplayTransaction
from kdi_assets.replay.report import LetterChange, ReplayReport
from kdi_assets.replay.row_diff import Change, compared, counts, examples, feed, moved
from kdi_assets.replay.selected_messages import IS_LETTER, Held
from kdi_assets.stream.stream import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Reached = Callable[[str], None]
_UNTRACED = {VERDICTS[TOMBSTONE]: "tombstones", VERDICTS[FILTERED]: "filtered"}


def replay(
    case: ReplayTransaction, held: Held, nothing: ReplayReport, *, at: Reached, accept_dead_letters: bool = False
) -> ReplayReport:
    """Exchange the rows of messages, and say what became of letters, in one commit.

    Args:
        nothing: What is reported where there is nothing to do.
        at: Called at the points ``"files written"``, ``"letters written"`` and ``"commit sent"``.
        accept_dead_letters: However many rows become dead letters.

    Raises:
        AccountingMismatch: What was chosen, read, judged, written and taken out does not add up.
        TooManyDeadLetters: More rows than the stream's limit allows would become dead letters.
        KdiError: What a drain would refuse as well.
    """
    report = _of(held, nothing)
    if held.meant.is_nothing:
        return report
    with judged_again(case, held, accept_dead_letters=accept_dead_letters) as judged:
        at("files written")
        staged, changes = _exchanged(case, held, judged)
        report = replace(report, outcomes=judged.outcomes, changes=changes)
        told = judged.tell(case, held)
        if told is None and not set(changes) - {"same"}:
            return report  # nothing is different: what is there stays
        at("letters written")
        report = replace(
            report,
            rows_by_date=dict(sorted(staged.rows_by_date.items())),
            removed_by_date=staged.removed_by_date,
        )
        landed = case.commit(staged, _entry(report, judged, staged, told or case.entry))
        at("commit sent")
        return replace(report, commit=Commit.of(landed))


def look(case: ReplayTransaction, held: Held, nothing: ReplayReport, *, into: str = "") -> ReplayReport:
    """What ``replay`` would do; nothing of the stream is written.

    Args:
        into: URI of a table to make, of every row as it is and as it would be (``compared.compared``); empty: none.

    Raises:
        KdiError: As there, but for what is found when rows are written and committed.
    """
    report, meant = _of(held, nothing), held.meant
    if meant.is_nothing and held.lacking is None:
        return report
    with judged_again(case, held, accept_dead_letters=True, dry=True) as judged:
        report = replace(report, outcomes=judged.outcomes)
        if meant.letters.count or meant.there is not None:
            report = replace(report, letter_changes=_letter_changes(case, judged))
        if nothing.first is None:
            return report  # of letters there are no rows yet that theirs could be compared with
        with _side_by_side(case, held, judged) as both, spark_failures(case.stream, "comparing rows"):
            if into:
                both.write.format("delta").mode("error").save(into)
            shown = examples(both, case.stream)
            return replace(report, changes=counts(both), examples=shown, moved=moved(both))


def _of(held: Held, nothing: ReplayReport) -> ReplayReport:
    """What is known of the messages before they are judged."""
    meant = held.meant
    return replace(
        nothing,
        missing=held.missing,
        withheld=meant.withheld,
        waiting=meant.waiting,
        torn=meant.torn,
        unplaced=meant.unplaced,
    )


def _exchanged(case: ReplayTransaction, held: Held, judged: JudgedAgain) -> tuple[Staged, dict[Change, int]]:
    """The files of the new rows, and those that go for them, written anew with what else they hold."""
    stream, added = case.stream, judged.staged
    if not judged.going:
        return added, {"added": added.rows} if added.rows else {}
    with spark_failures(stream, "exchanging rows"):
        bounds, version = held.meant.bounds, case.ledger.version
        old = old_rows(case.spark, stream, case.ledger.uri, judged.rows_that_go, version=version, within=bounds)
        if old is None or old.messages < judged.going:
            detail = f"{old.messages if old else 0:,} messages have rows, of {judged.going:,} whose rows go"
            raise case.mismatch(detail, held.meant.ranges)
        with cached(compared(old.rows, old.written(added), stream).where("change <> 'same'")) as differing:
            changes = counts(differing)
            same = added.rows - sum(n for change, n in changes.items() if change != "gone")
            # What came out the same stays as it is.
            exchanged = old.rewrite_files(feed(differing), added) if changes else Staged()
    return exchanged, {**changes, "same": same} if same else changes


def _entry(report: ReplayReport, judged: JudgedAgain, staged: Staged, entry: LedgerEntry) -> LedgerEntry:
    returned: Counter[TopicPartition] = Counter()
    withdrawn: defaultdict[TopicPartition, RowlessCounts] = defaultdict(RowlessCounts)
    digest = 0
    for became in judged.became:
        tp, count = became.topic_partition, became.messages.count
        if not became.known:
            continue  # another writer's: no entry counts them
        if became.was_letter:
            returned[tp] += count if became.outcome == VERDICTS[ROW] else 0
        elif became.outcome == VERDICTS[DEAD_LETTER]:
            returned[tp] -= count
        elif kind := _UNTRACED.get(became.outcome):
            withdrawn[tp] += RowlessCounts(**{kind: count})
            digest ^= became.messages.digest
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
    )
    return with_counts(entry, judged.decoder, judged.counts)


@contextmanager
def _side_by_side(case: ReplayTransaction, held: Held, judged: JudgedAgain) -> Iterator[DataFrame]:
    """Every row that is meant as it is and as it would be, as ``compared`` gives it."""
    from pyspark.sql import functions as F

    stream, version = case.stream, case.ledger.version
    table = rows_with_files(case.spark, stream, case.ledger.uri, version=version, within=held.meant.bounds).drop(FILE)
    tally = PassTally(case.spark, case.now)
    now = judge(held.messages, judged.decoder, now=case.now, tally=tally)
    both = compared(rows_of_messages(table, stream, judged.rows_that_go), now, stream)
    if held.lacking is not None:
        lost = compared(rows_of_messages(table, stream, held.lacking), now.limit(0), stream)
        both = both.unionByName(lost.withColumn("change", F.lit("missing")))
    with cached(both) as side_by_side:
        yield side_by_side


def _letter_changes(case: ReplayTransaction, judged: JudgedAgain) -> tuple[LetterChange, ...]:
    """Of what were letters, by old and new reason, the most frequent first."""
    from pyspark.sql import functions as F

    by = [WAS["reason"], WAS["field"], OUTCOME, "reason", "field"]
    groups = (
        judged.said.where(IS_LETTER)
        .groupBy(*by)
        .agg(F.count("*").alias("letters"), F.min(F.struct("partition", "offset")).alias("example"))
    )
    with spark_failures(case.stream, "judging messages again"):
        found = groups.collect()
    changes = [
        LetterChange(
            reason=r[WAS["reason"]] or "",
            field=r[WAS["field"]] or "",
            outcome=r[OUTCOME],
            new_reason=r["reason"] or "",
            new_field=r["field"] or "",
            letters=r["letters"],
            example=(TopicPartition(case.stream.topic, r["example"][0]), r["example"][1]),
        )
        for r in found
    ]
    return tuple(sorted(changes, key=lambda change: (-change.letters, change[:5])))
