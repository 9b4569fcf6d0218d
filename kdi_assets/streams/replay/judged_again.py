"""Messages judged by the present definition, beside what they were: rows or dead letters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

from kdi_assets.delta.transaction import FileSize, Staged
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.streams.audit.coverage import coverage
from kdi_assets.streams.audit.offsets_in_spark import covered_sql
from kdi_assets.streams.drain.cached_messages import cached
from kdi_assets.streams.drain.dead_letters import refuse_too_many_letters
from kdi_assets.streams.drain.schema_evolution import evolved
from kdi_assets.streams.drain.stage import SHUFFLED_BYTES_PER_FILE_BYTE, stage
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.letters import OUTCOME
from kdi_assets.streams.ledger.rewrite import MESSAGE
from kdi_assets.streams.replay.open_letters import PREVIOUS, tallies_by
from kdi_assets.streams.replay.replay_transaction import ReplayTransaction
from kdi_assets.streams.replay.report import Tally
from kdi_assets.streams.replay.selected_messages import IS_LETTER, ReplayMessages, SelectedMessages
from kdi_assets.streams.rules.judge import letters_of, verdicts
from kdi_assets.streams.rules.rules import rules_of
from kdi_assets.streams.rules.tally import Counts
from kdi_assets.streams.rules.verdict import DEAD_LETTER, ELSEWHERE, FILTERED, ROW, TOMBSTONE, VERDICTS
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

USUAL_FILE = 128 << 20
"""Target size of a file in bytes if the stream has none: after the join, every task has rows of every date."""
_JUDGED = "_kdi_judged"
_WHY = ("reason", "field")
_LETTER = ("topic", *MESSAGE, "timestamp_type", OUTCOME, *_WHY)


class OutcomeGroup(NamedTuple):
    """Messages of one topic partition with the same outcome.

    Attributes:
        was_letter: They were dead letters; else rows.
        known: The ledger counts them; another writer's messages it does not.
        outcome: One of ``verdict.VERDICTS``, or ``elsewhere``.
        changed_letter: They were letters, and their outcome, reason or field is new.
        judged: They were judged now; else they are letters whose message already had a row.
    """

    topic_partition: TopicPartition
    was_letter: bool
    known: bool
    outcome: str
    changed_letter: bool
    judged: bool
    messages: Tally


@dataclass(frozen=True, slots=True)
class JudgedAgain:
    """The messages of a replay, judged.

    Attributes:
        staged: The files with their rows; empty in a dry run.
        verdicts: Of every message: the columns of ``judge.verdicts`` and of ``SelectedMessages.frame``.
        groups: All messages.
        letters: The messages that are dead letters now, as ``judge.letters_of`` gives them.
        new_letters: Those of them that were rows.
        replaced: ``partition, offset, timestamp`` of the messages whose old rows are removed.
    """

    decoder: StreamDecoder
    staged: Staged
    counts: Counts
    verdicts: DataFrame
    groups: tuple[OutcomeGroup, ...]
    letters: Callable[[], DataFrame]
    new_letters: Tally
    replaced: DataFrame

    @property
    def outcomes(self) -> dict[str, int]:
        """How many messages have each outcome."""
        return {outcome: tally.count for outcome, tally in sorted(by_outcome(self.groups).items())}

    @property
    def replaced_count(self) -> int:
        """How many messages lose their old rows."""
        return sum(g.messages.count for g in self.groups if not g.was_letter and g.outcome != ELSEWHERE)

    def append_dead_letters(self, transaction: ReplayTransaction, ranges: Sequence[OffsetRange]) -> LedgerEntry | None:
        """Append new outcomes of dead letters, and the new dead letters of messages that were rows.

        Returns:
            The entry that makes them count; ``None`` if there are none.

        Raises:
            AccountingMismatch: Others were written.
        """
        from pyspark.sql import functions as F

        changed = sum((g.messages for g in self.groups if g.changed_letter), Tally())
        parts = [self.verdicts.where(_changed_letter()).select(*_LETTER)] if changed.count else []
        if self.new_letters.count:
            letters = self.letters().join(self.replaced, list(MESSAGE), "left_semi")
            parts.append(letters.withColumn(OUTCOME, F.lit(None).cast("string")))
        if not parts:
            return None
        both = reduce(lambda one, more: one.unionByName(more, allowMissingColumns=True), parts)
        return transaction.append_dead_letters(both, changed + self.new_letters, ranges=ranges)


@contextmanager
def judged_again(
    transaction: ReplayTransaction, messages: ReplayMessages, *, accept_dead_letters: bool, dry_run: bool
) -> Iterator[JudgedAgain]:
    """Judge the messages, and write their rows into files that no version names yet; a dry run writes nothing.

    Raises:
        KdiError: As a drain.
        AccountingMismatch: The pass that wrote the rows, and the one that gives the verdicts, do not agree.
    """
    stream, selected = evolved(transaction.stream, transaction.lake, transaction.spark), messages.selected
    staged, counts, decoder = stage(
        messages.frame,
        stream,
        transaction.ledger.table.uri,
        now=transaction.now,
        files=FileSize(shuffled_bytes=SHUFFLED_BYTES_PER_FILE_BYTE * (stream.target_file_size or USUAL_FILE)),
        offsets=selected.messages.count,
        dry=dry_run,
    )
    stream = decoder.stream  # its record may have gained fields
    rules = rules_of(decoder)
    for rule in rules:
        rule.refuse(counts)
    if not dry_run and staged.rows != counts.rows:
        raise transaction.mismatch(f"{staged.rows:,} rows were written, of {counts.rows:,}", selected.ranges)
    with cached(_verdicts(transaction, messages, counts, decoder)) as frame:
        with spark_failures(stream, "judging messages again"):
            groups = _groups(frame, transaction)
        _refuse_disagreement(transaction, counts, by_outcome(g for g in groups if g.judged), selected)
        # The limits apply to messages that were rows: those that were dead letters before do not get worse.
        rows = by_outcome(g for g in groups if not g.was_letter)
        new_letters = rows.get(VERDICTS[DEAD_LETTER], Tally())
        letters = partial(letters_of, messages.frame, decoder, counts, now=transaction.now)
        for rule in rules:
            rule.refuse_letters(letters, dead_letters=new_letters.count, became_rows=counts.became_rows)
        if not accept_dead_letters:
            refuse_too_many_letters(stream, new_letters.count, letters, of=selected.rows.count)
        # Rows that belong to another table by now stay: that table has passed their offsets and would not take them.
        replaced = frame.where(f"NOT {IS_LETTER} AND {OUTCOME} <> '{ELSEWHERE}'").select(*MESSAGE)
        yield JudgedAgain(decoder, staged, counts, frame, groups, letters, new_letters, replaced)


def by_outcome(groups: Iterable[OutcomeGroup]) -> dict[str, Tally]:
    """Messages by their outcome."""
    total: defaultdict[str, Tally] = defaultdict(Tally)
    for group in groups:
        total[group.outcome] += group.messages
    return total


def _verdicts(
    transaction: ReplayTransaction, messages: ReplayMessages, counts: Counts, decoder: StreamDecoder
) -> DataFrame:
    from pyspark.sql import functions as F

    selected, judged = messages.selected, F.lit(True).alias(_JUDGED)
    if not counts.not_rows and not selected.letters.count:  # every message became a row: no second pass is needed
        no_reason = dict.fromkeys(_WHY, F.lit(None).cast("string"))
        frame = selected.frame.withColumns({OUTCOME: F.lit(VERDICTS[ROW]), **no_reason})
    else:
        given = verdicts(messages.frame, decoder, now=transaction.now)
        # Spark takes the reason for a column that is never null, and would not check it.
        why = {name: F.expr(f"CASE WHEN {OUTCOME} = '{VERDICTS[DEAD_LETTER]}' THEN {name} END") for name in _WHY}
        frame = given.withColumns(why).join(selected.frame, list(MESSAGE))
    frame = frame.select("*", judged)
    if selected.with_row is None:
        return frame
    return frame.unionByName(selected.with_row.withColumn(_JUDGED, F.lit(False)), allowMissingColumns=True)


def _changed_letter() -> str:
    """Spark SQL over verdicts: a letter with a new outcome, reason or field that is not another table's."""
    unchanged = " AND ".join(f"{now} <=> {previous}" for now, previous in PREVIOUS.items())
    stays = f"{OUTCOME} = '{VERDICTS[DEAD_LETTER]}' AND {unchanged}"
    return f"{IS_LETTER} AND {OUTCOME} <> '{ELSEWHERE}' AND NOT ({stays})"


def _groups(frame: DataFrame, transaction: ReplayTransaction) -> tuple[OutcomeGroup, ...]:
    from pyspark.sql import functions as F

    known = F.expr(covered_sql(coverage(transaction.history.entries).begin))
    marked = frame.withColumns({"known": known, "changed_letter": F.expr(_changed_letter())})
    found = tallies_by(marked, "partition", IS_LETTER, "known", OUTCOME, "changed_letter", _JUDGED)
    return tuple(
        OutcomeGroup(TopicPartition(transaction.stream.topic, p), letter, known, outcome, changed, judged, messages)
        for (p, letter, known, outcome, changed, judged), messages in found.items()
    )


def _refuse_disagreement(
    transaction: ReplayTransaction, counts: Counts, judged: Mapping[str, Tally], selected: SelectedMessages
) -> None:
    """Refuse unless both passes read the selected messages and gave each the same verdict.

    Args:
        counts: Of the pass that wrote the rows.
        judged: By outcome, of the pass that gives the verdicts.

    Raises:
        AccountingMismatch: They did not.
    """
    read = Tally(counts.messages, counts.digest)
    if read != selected.messages:
        detail = f"{read.count:,} messages were judged, of {selected.messages.count:,}"
        raise transaction.mismatch(detail, selected.ranges)
    written = _by_verdict(counts)
    if written[ROW].count != counts.became_rows:
        detail = f"{counts.became_rows:,} messages became rows, of {written[ROW].count:,}"
        raise transaction.mismatch(detail, selected.ranges)
    given = {verdict: judged.get(VERDICTS[verdict], Tally()) for verdict in written}
    given[FILTERED] += judged.get(ELSEWHERE, Tally())
    for verdict, tally in written.items():
        if given[verdict] != tally:
            name, count = VERDICTS[verdict], given[verdict].count
            detail = (
                f"the verdict {name} was given to {count:,} messages, and to {tally.count:,} when rows were written"
            )
            raise transaction.mismatch(detail, selected.ranges)


def _by_verdict(counts: Counts) -> dict[int, Tally]:
    """The messages of a pass by their verdict; those without another verdict became rows."""
    digests = {
        TOMBSTONE: counts.tombstone_digest,
        DEAD_LETTER: counts.dead_letter_digest,
        FILTERED: counts.filtered_digest,
    }
    of = {v: Tally(sum(n for (_, is_), n in counts.not_rows.items() if is_ == v), d) for v, d in digests.items()}
    return {ROW: Tally(counts.messages, counts.digest) - sum(of.values(), Tally()), **of}
