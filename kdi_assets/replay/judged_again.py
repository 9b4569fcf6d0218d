"""Messages of dates judged by today's definition, beside what they were: rows or dead letters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING

from kdi_assets.drain.contract import refuse_other_types, refuse_unknown
from kdi_assets.drain.evolution import evolved
from kdi_assets.drain.expectations import refuse_unmet
from kdi_assets.drain.failures import spark_failures
from kdi_assets.drain.judge import Counts, condemned, judge, suspects, verdicts
from kdi_assets.drain.kept import kept
from kdi_assets.drain.limits import refuse_too_many_letters
from kdi_assets.drain.stage import stage
from kdi_assets.drain.verdict import DEAD_LETTER, ELSEWHERE, ROW, VERDICTS
from kdi_assets.formats.of_stream import StreamDecoder
from kdi_assets.ledger.delta import Staged
from kdi_assets.ledger.letters import OUTCOME
from kdi_assets.ledger.offsets import DIGEST
from kdi_assets.ledger.rewrite import MESSAGE
from kdi_assets.replay.agreement import refuse_disagreement
from kdi_assets.replay.deciding import Deciding, Told
from kdi_assets.replay.meant import IS_LETTER, Held
from kdi_assets.replay.open_letters import Tally, beside_standing, news_in, tallies
from kdi_assets.stream import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Outcomes = Mapping[TopicPartition, Mapping[str, Tally]]
"""By topic partition, the messages by what they are now; 0 of what is not named."""


@dataclass(frozen=True, slots=True)
class JudgedAgain:
    """What today's definition makes of messages.

    Attributes:
        staged: The files of their rows; of a look that writes nothing, none.
        said: As ``judge.verdicts`` gives them, and ``is_letter``: of every message.
        of_rows, of_letters: Those that were rows before, and those that were dead letters.
        rows_that_go: ``partition, offset, timestamp`` of those whose rows go.
    """

    decoder: StreamDecoder
    staged: Staged
    counts: Counts
    said: DataFrame
    of_rows: Outcomes
    of_letters: Outcomes
    rows_that_go: DataFrame

    @property
    def outcomes(self) -> dict[str, int]:
        """Messages by what they are now."""
        total: defaultdict[str, int] = defaultdict(int)
        for of in (*self.of_rows.values(), *self.of_letters.values()):
            for outcome, tally in of.items():
                total[outcome] += tally.count
        return {outcome: count for outcome, count in sorted(total.items()) if count}

    def rows(self, case: Deciding, held: Held) -> DataFrame:
        """Their rows; decoded once more. Lazy."""
        from pyspark.sql import Observation

        partitions = len(held.meant.ranges)
        return judge(
            held.messages,
            self.decoder.stream,
            self.decoder,
            now=case.now,
            topic_partitions=partitions,
            counts=Observation(),
        )

    def tell(self, case: Deciding, held: Held) -> Told | None:
        """Append what is new of dead letters: what became of those there were, and those that were rows before.

        Raises:
            AccountingMismatch: What lies there is not this.
        """
        from pyspark.sql import functions as F

        parts, expected = [], {}
        if self.of_letters:
            of_letters = self.said.where(IS_LETTER).drop(IS_LETTER)
            parts.append(news_in(beside_standing(of_letters, held.meant.open_letters)))
            with spark_failures(case.stream, "judging messages again"):
                expected = tallies(parts[0], OUTCOME)
        fallen = sum((of[VERDICTS[DEAD_LETTER]] for of in self.of_rows.values()), Tally())
        if fallen.count:
            messages = suspects(held.messages, self.counts)
            letters = condemned(messages, self.decoder.stream, self.decoder, now=case.now)
            letters = letters.join(self.rows_that_go, list(MESSAGE), "left_semi")
            parts.append(letters.withColumn(OUTCOME, F.lit(None).cast("string")))
            expected[""] = fallen
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
    partitions = len(held.meant.ranges)
    staged, counts, decoder = stage(
        held.messages, stream, case.ledger.uri, now=case.now, topic_partitions=partitions, dry=dry
    )
    stream = decoder.stream  # its record may have gained fields
    letters = partial(condemned, suspects(held.messages, counts), stream, decoder, now=case.now)
    refuse_unknown(stream, counts.unknown, became_rows=counts.became_rows)
    refuse_unmet(stream, counts.unmet, of=counts.became_rows)
    refuse_other_types(stream, letters, dead_letters=counts.dead_letters, became_rows=counts.became_rows)
    if not accept_dead_letters:
        refuse_too_many_letters(stream, counts, letters)
    if not dry and staged.rows != counts.rows:
        detail = f"{staged.rows:,} rows written against {counts.rows:,} that were read"
        raise case.mismatch(detail, held.meant.ranges)
    with kept(_said(case, held, counts, decoder)) as said:
        with spark_failures(stream, "judging messages again"):
            of_rows, of_letters = _outcomes(said, case), _outcomes(said, case, letters=True)
        together: defaultdict[str, Tally] = defaultdict(Tally)
        for of in (*of_rows.values(), *of_letters.values()):
            for outcome, tally in of.items():
                together[outcome] += tally
        refuse_disagreement(case, counts, together, meant=held.meant.messages, ranges=held.meant.ranges)
        # What is another table's by now stays here: the other has passed its offset, and would not have it either.
        here = said.where(f"NOT {IS_LETTER} AND {OUTCOME} <> '{ELSEWHERE}'").select(*MESSAGE)
        yield JudgedAgain(decoder, staged, counts, said, of_rows, of_letters, here)


def _said(case: Deciding, held: Held, counts: Counts, decoder: StreamDecoder) -> DataFrame:
    from pyspark.sql import functions as F

    if not counts.others and not held.meant.letters.count:
        return held.meant.frame.withColumn(OUTCOME, F.lit(VERDICTS[ROW]))  # nothing that a second look could tell
    said = verdicts(held.messages, decoder.stream, decoder, now=case.now)
    return said.join(held.meant.frame, list(MESSAGE))


def _outcomes(said: DataFrame, case: Deciding, *, letters: bool = False) -> Outcomes:
    from pyspark.sql import functions as F

    meant = said.where(IS_LETTER if letters else f"NOT {IS_LETTER}")
    groups = meant.groupBy("partition", OUTCOME).agg(F.count("*").alias("n"), F.expr(DIGEST).alias("digest"))
    found: defaultdict[TopicPartition, defaultdict[str, Tally]] = defaultdict(lambda: defaultdict(Tally))
    for r in groups.collect():
        found[TopicPartition(case.stream.topic, r["partition"])][r[OUTCOME]] = Tally(r["n"], r["digest"])
    return found
