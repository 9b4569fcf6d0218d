"""Messages of dates judged by today's definition, beside what they were: rows or dead letters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

from kdi_assets.drain.contract import refuse_other_types, refuse_unknown
from kdi_assets.drain.counts import Counts
from kdi_assets.drain.evolution import evolved
from kdi_assets.drain.expectations import refuse_unmet
from kdi_assets.drain.failures import spark_failures
from kdi_assets.drain.files import UNKNOWN_TOGETHER
from kdi_assets.drain.judge import condemned, judge, suspects, verdicts
from kdi_assets.drain.kept import kept
from kdi_assets.drain.limits import refuse_too_many_letters
from kdi_assets.drain.stage import stage
from kdi_assets.drain.verdict import DEAD_LETTER, ELSEWHERE, ROW, VERDICTS
from kdi_assets.formats.of_stream import StreamDecoder
from kdi_assets.ledger.coverage import coverage
from kdi_assets.ledger.delta import FileSize, Staged
from kdi_assets.ledger.letters import OUTCOME
from kdi_assets.ledger.offsets import DIGEST, ours
from kdi_assets.ledger.rewrite import MESSAGE
from kdi_assets.replay.agreement import refuse_disagreement
from kdi_assets.replay.deciding import Deciding, Told
from kdi_assets.replay.meant import IS_LETTER, Held
from kdi_assets.replay.open_letters import Tally, beside_standing, news_in, tallies
from kdi_assets.stream import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

USUAL_FILE = 128 << 20
"""Bytes of a file where the stream asks for none: the messages come from a join, each task has some of every date."""


class Became(NamedTuple):
    """Messages of one topic partition that became the same.

    Attributes:
        was_letter: Whether they were dead letters before; rows otherwise.
        known: Whether the ledger can speak of them: they are not what another writer left.
        outcome: One of ``verdict.VERDICTS``, or ``elsewhere``.
    """

    topic_partition: TopicPartition
    was_letter: bool
    known: bool
    outcome: str
    messages: Tally


@dataclass(frozen=True, slots=True)
class JudgedAgain:
    """What today's definition makes of messages.

    Attributes:
        staged: The files of their rows; of a look that writes nothing, none.
        said: As ``judge.verdicts`` gives them, and ``is_letter``: of every message.
        became: All of them.
        rows_that_go: ``partition, offset, timestamp`` of those whose rows go.
    """

    decoder: StreamDecoder
    staged: Staged
    counts: Counts
    said: DataFrame
    became: tuple[Became, ...]
    rows_that_go: DataFrame

    @property
    def outcomes(self) -> dict[str, int]:
        """Messages by what they are now."""
        total = by_outcome(self.became)
        return {outcome: tally.count for outcome, tally in sorted(total.items())}

    @property
    def fallen(self) -> Tally:
        """Those that were rows and are dead letters now."""
        return _fallen(self.became)

    @property
    def going(self) -> int:
        """How many messages' rows go."""
        return sum(b.messages.count for b in self.became if not b.was_letter and b.outcome != ELSEWHERE)

    def rows(self, case: Deciding, held: Held) -> DataFrame:
        """Their rows; decoded once more. Lazy."""
        from pyspark.sql import Observation

        return judge(
            held.messages,
            self.decoder.stream,
            self.decoder,
            now=case.now,
            topic_partitions=held.topic_partitions,
            counts=Observation(),
        )

    def tell(self, case: Deciding, held: Held) -> Told | None:
        """Append what is new of dead letters: what became of those there were, and those that were rows before.

        Raises:
            AccountingMismatch: What lies there is not this.
        """
        from pyspark.sql import functions as F

        parts, expected = [], {}
        if any(b.was_letter for b in self.became):
            of_letters = self.said.where(IS_LETTER).drop(IS_LETTER)
            parts.append(news_in(beside_standing(of_letters, held.meant.open_letters)))
            with spark_failures(case.stream, "judging messages again"):
                expected = tallies(parts[0], OUTCOME)
        if self.fallen.count:
            messages = suspects(held.messages, self.counts)
            letters = condemned(messages, self.decoder.stream, self.decoder, now=case.now)
            letters = letters.join(self.rows_that_go, list(MESSAGE), "left_semi")
            parts.append(letters.withColumn(OUTCOME, F.lit(None).cast("string")))
            expected[""] = self.fallen
        if not expected:
            return None
        news = reduce(lambda one, more: one.unionByName(more, allowMissingColumns=True), parts)
        return case.tell(news, expected, ranges=held.meant.ranges)


@contextmanager
def judged_again(case: Deciding, held: Held, *, accept_dead_letters: bool, dry: bool = False) -> Iterator[JudgedAgain]:
    """Judge what Kafka has of the messages, and write rows into files that no version names; dry, nothing is written.

    Raises:
        UnknownFieldsFound, OtherTypesFound, ExpectationNotMet, TooManyDeadLetters, ShapeMistake, SchemaDisagrees: As a
            drain.
        AccountingMismatch: The pass that wrote the rows, and the one that says what became of each, saw not the same.
    """
    stream = evolved(case.stream, case.lake, case.spark)
    staged, counts, decoder = stage(
        held.messages,
        stream,
        case.ledger.uri,
        now=case.now,
        topic_partitions=held.topic_partitions,
        files=FileSize(together=UNKNOWN_TOGETHER * (stream.target_file_size or USUAL_FILE)),
        dry=dry,
    )
    stream = decoder.stream  # its record may have gained fields
    letters = partial(condemned, suspects(held.messages, counts), stream, decoder, now=case.now)
    refuse_unknown(stream, counts.unknown, became_rows=counts.became_rows)
    refuse_unmet(stream, counts.unmet, of=counts.became_rows)
    refuse_other_types(stream, letters, dead_letters=counts.dead_letters, became_rows=counts.became_rows)
    if not dry and staged.rows != counts.rows:
        detail = f"{staged.rows:,} rows written against {counts.rows:,} that were read"
        raise case.mismatch(detail, held.meant.ranges)
    with kept(_said(case, held, counts, decoder)) as said:
        with spark_failures(stream, "judging messages again"):
            became = _became(said, case)
        refuse_disagreement(case, counts, by_outcome(became), meant=held.meant.messages, ranges=held.meant.ranges)
        if not accept_dead_letters:  # those that were dead letters before are none the worse for it
            refuse_too_many_letters(stream, _fallen(became).count, letters, of=held.meant.rows.count)
        # What is another table's by now stays here: the other has passed its offset, and would not have it either.
        here = said.where(f"NOT {IS_LETTER} AND {OUTCOME} <> '{ELSEWHERE}'").select(*MESSAGE)
        yield JudgedAgain(decoder, staged, counts, said, became, here)


def by_outcome(became: Iterable[Became]) -> dict[str, Tally]:
    """Messages by what they became."""
    total: defaultdict[str, Tally] = defaultdict(Tally)
    for b in became:
        total[b.outcome] += b.messages
    return total


def _fallen(became: Iterable[Became]) -> Tally:
    return by_outcome(b for b in became if not b.was_letter).get(VERDICTS[DEAD_LETTER], Tally())


def _said(case: Deciding, held: Held, counts: Counts, decoder: StreamDecoder) -> DataFrame:
    from pyspark.sql import functions as F

    if not counts.others and not held.meant.letters.count:
        return held.meant.frame.withColumn(OUTCOME, F.lit(VERDICTS[ROW]))  # nothing that a second look could tell
    said = verdicts(held.messages, decoder.stream, decoder, now=case.now)
    return said.join(held.meant.frame, list(MESSAGE))


def _became(said: DataFrame, case: Deciding) -> tuple[Became, ...]:
    from pyspark.sql import functions as F

    known = F.expr(ours(coverage(case.history.entries).begin)).alias("known")
    groups = said.groupBy("partition", IS_LETTER, known, OUTCOME)
    found = groups.agg(F.count("*").alias("n"), F.expr(DIGEST).alias("digest")).collect()
    return tuple(
        Became(
            TopicPartition(case.stream.topic, r["partition"]),
            r[IS_LETTER],
            r["known"],
            r[OUTCOME],
            Tally(r["n"], r["digest"]),
        )
        for r in found
    )
