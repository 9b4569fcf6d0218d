"""Messages judged by today's definition, beside what they were: rows or dead letters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

from kdi_assets.audit.coverage import coverage
from kdi_assets.audit.offsets_in_spark import covered_sql
from kdi_assets.drain.cached_messages import cached
from kdi_assets.drain.dead_letters import refuse_too_many_letters
from kdi_assets.drain.rules.judge import letters_of, verdicts
from kdi_assets.drain.rules.rules import rules_of
from kdi_assets.drain.rules.schema_evolution import evolved
from kdi_assets.drain.rules.tally import Counts
from kdi_assets.drain.rules.verdict import DEAD_LETTER, ELSEWHERE, FILTERED, ROW, TOMBSTONE, VERDICTS
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.drain.stage import SHUFFLED_BYTES_PER_FILE_BYTE, stage
from kdi_assets.formats.stream_decoder import StreamDecoder
from kdi_assets.ledger.delta_transaction import FileSize, Staged
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.letters import OUTCOME
from kdi_assets.ledger.rewrite import MESSAGE
from kdi_assets.replay.open_letters import WAS, tallies_by
from kdi_assets.replay.replay_transaction import ReplayTransaction
from kdi_assets.replay.report import Tally
from kdi_assets.replay.selected_messages import IS_LETTER, Held, SelectedMessages
from kdi_assets.stream.stream import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

USUAL_FILE = 128 << 20
"""Bytes of a file where the stream asks for none: the messages come from a join, each task has some of every date."""
_JUDGED = "_kdi_judged"
_WHY = ("reason", "field")
_TOLD = ("topic", *MESSAGE, "timestamp_type", OUTCOME, *_WHY)


class Became(NamedTuple):
    """Messages of one topic partition that became the same.

    Attributes:
        was_letter: Whether they were dead letters before; rows otherwise.
        known: Whether the ledger can speak of them: they are not what another writer left.
        outcome: One of ``verdict.VERDICTS``, or ``elsewhere``.
        news: Whether they were letters, and something new is to be said of them.
        judged: Whether they were judged now; else they are letters whose message was a row already.
    """

    topic_partition: TopicPartition
    was_letter: bool
    known: bool
    outcome: str
    news: bool
    judged: bool
    messages: Tally


@dataclass(frozen=True, slots=True)
class JudgedAgain:
    """What today's definition makes of messages.

    Attributes:
        staged: The files of their rows; of a look that writes nothing, none.
        said: As ``judge.verdicts`` gives them, and the columns of ``Meant.frame``: of every message.
        became: All of them.
        fallen: Those that were rows and are dead letters now.
        rows_that_go: ``partition, offset, timestamp`` of those whose rows go.
    """

    decoder: StreamDecoder
    staged: Staged
    counts: Counts
    said: DataFrame
    became: tuple[Became, ...]
    fallen: Tally
    rows_that_go: DataFrame

    @property
    def outcomes(self) -> dict[str, int]:
        """Messages by what they are now."""
        total = by_outcome(self.became)
        return {outcome: tally.count for outcome, tally in sorted(total.items())}

    @property
    def going(self) -> int:
        """How many messages' rows go."""
        return sum(b.messages.count for b in self.became if not b.was_letter and b.outcome != ELSEWHERE)

    def tell(self, case: ReplayTransaction, held: Held) -> LedgerEntry | None:
        """Append what is new of dead letters: what became of those there were, and those that were rows before.

        Returns:
            The entry that makes it count; ``None`` if nothing is new.

        Raises:
            AccountingMismatch: Others were written.
        """
        from pyspark.sql import functions as F

        news = sum((b.messages for b in self.became if b.news), Tally())
        parts = [self.said.where(_news()).select(*_TOLD)] if news.count else []
        if self.fallen.count:
            letters = _letters(case, held, self.counts, self.decoder)
            letters = letters.join(self.rows_that_go, list(MESSAGE), "left_semi")
            parts.append(letters.withColumn(OUTCOME, F.lit(None).cast("string")))
        if not parts:
            return None
        said = reduce(lambda one, more: one.unionByName(more, allowMissingColumns=True), parts)
        return case.tell(said, news + self.fallen, ranges=held.meant.ranges)


@contextmanager
def judged_again(
    case: ReplayTransaction, held: Held, *, accept_dead_letters: bool = False, dry: bool = False
) -> Iterator[JudgedAgain]:
    """Judge the messages, and write rows into files that no version names; dry, nothing is written.

    Raises:
        UnknownFieldsFound, OtherTypesFound, ExpectationNotMet, TooManyDeadLetters, ShapeMistake, SchemaDisagrees: As a
            drain.
        AccountingMismatch: The pass that wrote the rows, and the one that says what became of each, saw not the same.
    """
    stream, meant = evolved(case.stream, case.lake, case.spark), held.meant
    staged, counts, decoder = stage(
        held.messages,
        stream,
        case.ledger.table,
        now=case.now,
        files=FileSize(shuffled_bytes=SHUFFLED_BYTES_PER_FILE_BYTE * (stream.target_file_size or USUAL_FILE)),
        dry=dry,
    )
    stream = decoder.stream  # its record may have gained fields
    rules = rules_of(decoder)
    for rule in rules:
        rule.refuse(counts)
    if not dry and staged.rows != counts.rows:
        detail = f"{staged.rows:,} rows written against {counts.rows:,} that were read"
        raise case.mismatch(detail, meant.ranges)
    with cached(_said(case, held, counts, decoder)) as said:
        with spark_failures(stream, "judging messages again"):
            became = _became(said, case)
        _refuse_disagreement(case, counts, by_outcome(b for b in became if b.judged), meant)
        # Those that were dead letters before are none the worse for it.
        rows = by_outcome(b for b in became if not b.was_letter)
        fallen, letters = rows.get(VERDICTS[DEAD_LETTER], Tally()), partial(_letters, case, held, counts, decoder)
        for rule in rules:
            rule.refuse_letters(letters, dead_letters=fallen.count, became_rows=counts.became_rows)
        if not accept_dead_letters:
            refuse_too_many_letters(stream, fallen.count, letters, of=meant.rows.count)
        # What is another table's by now stays here: the other has passed its offset, and would not have it either.
        here = said.where(f"NOT {IS_LETTER} AND {OUTCOME} <> '{ELSEWHERE}'").select(*MESSAGE)
        yield JudgedAgain(decoder, staged, counts, said, became, fallen, here)


def by_outcome(became: Iterable[Became]) -> dict[str, Tally]:
    """Messages by what they became."""
    total: defaultdict[str, Tally] = defaultdict(Tally)
    for b in became:
        total[b.outcome] += b.messages
    return total


def _letters(case: ReplayTransaction, held: Held, counts: Counts, decoder: StreamDecoder) -> DataFrame:
    return letters_of(held.messages, decoder, counts, now=case.now)


def _said(case: ReplayTransaction, held: Held, counts: Counts, decoder: StreamDecoder) -> DataFrame:
    from pyspark.sql import functions as F

    meant, judged = held.meant, F.lit(True).alias(_JUDGED)
    if not counts.others and not meant.letters.count:  # nothing that a second look could tell
        no_reason = dict.fromkeys(_WHY, F.lit(None).cast("string"))
        said = meant.frame.withColumns({OUTCOME: F.lit(VERDICTS[ROW]), **no_reason})
    else:
        told = verdicts(held.messages, decoder, now=case.now)
        # Spark takes the reason for one that is never null, and does not look whether it is.
        why = {name: F.expr(f"CASE WHEN {OUTCOME} = '{VERDICTS[DEAD_LETTER]}' THEN {name} END") for name in _WHY}
        said = told.withColumns(why).join(meant.frame, list(MESSAGE))
    said = said.select("*", judged)
    if meant.there is None:
        return said
    return said.unionByName(meant.there.withColumn(_JUDGED, F.lit(False)), allowMissingColumns=True)


def _news() -> str:
    """Spark SQL over what is said: of a letter, not that nothing has changed, nor that it is another table's."""
    unchanged = " AND ".join(f"{now} <=> {was}" for now, was in WAS.items())
    stays = f"{OUTCOME} = '{VERDICTS[DEAD_LETTER]}' AND {unchanged}"
    return f"{IS_LETTER} AND {OUTCOME} <> '{ELSEWHERE}' AND NOT ({stays})"


def _became(said: DataFrame, case: ReplayTransaction) -> tuple[Became, ...]:
    from pyspark.sql import functions as F

    ledgers = F.expr(covered_sql(coverage(case.history.entries).begin))
    marked = said.withColumns({"known": ledgers, "news": F.expr(_news())})
    found = tallies_by(marked, "partition", IS_LETTER, "known", OUTCOME, "news", _JUDGED)
    return tuple(
        Became(TopicPartition(case.stream.topic, p), letter, known, outcome, news, judged, messages)
        for (p, letter, known, outcome, news, judged), messages in found.items()
    )


def _refuse_disagreement(
    case: ReplayTransaction, counts: Counts, said: Mapping[str, Tally], meant: SelectedMessages
) -> None:
    """Refuse unless both passes saw the messages that are meant, and judged each of them alike.

    Args:
        counts: Of the pass that wrote the rows.
        said: By outcome, what the other says of the same messages.

    Raises:
        AccountingMismatch: They did not.
    """
    read = Tally(counts.messages, counts.digest)
    if read != meant.messages:
        raise case.mismatch(f"{read.count:,} messages were judged, of {meant.messages.count:,}", meant.ranges)
    seen = _seen_by(counts)
    if seen[ROW].count != counts.became_rows:
        raise case.mismatch(f"{counts.became_rows:,} messages became rows, of {seen[ROW].count:,}", meant.ranges)
    told = {verdict: said.get(VERDICTS[verdict], Tally()) for verdict in seen}
    told[FILTERED] += said.get(ELSEWHERE, Tally())
    for verdict, tally in seen.items():
        if told[verdict] != tally:
            detail = f"{told[verdict].count:,} messages are told to be {VERDICTS[verdict]}, {tally.count:,} were"
            raise case.mismatch(detail, meant.ranges)


def _seen_by(counts: Counts) -> dict[int, Tally]:
    """The messages of a pass by their verdict: what is nothing else became rows."""
    digests = {
        TOMBSTONE: counts.tombstone_digest,
        DEAD_LETTER: counts.dead_letter_digest,
        FILTERED: counts.filtered_digest,
    }
    of = {v: Tally(sum(n for (_, is_), n in counts.others.items() if is_ == v), d) for v, d in digests.items()}
    return {ROW: Tally(counts.messages, counts.digest) - sum(of.values(), Tally()), **of}
