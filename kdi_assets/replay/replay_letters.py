"""Replay of dead letters: messages that could not become rows are judged again, by the definition of now.

What is good now becomes rows where its coordinates are absent, and of the rest a new reason is kept: one commit of the
stream's own table, which moves no position. Drains may run meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING

from kdi_assets.drain.contract import refuse_unknown
from kdi_assets.drain.counts import Counts
from kdi_assets.drain.evolution import evolved
from kdi_assets.drain.expectations import refuse_unmet
from kdi_assets.drain.failures import refused_to, spark_failures
from kdi_assets.drain.judge import verdicts
from kdi_assets.drain.kept import kept
from kdi_assets.drain.report import Commit
from kdi_assets.drain.stage import stage
from kdi_assets.drain.verdict import ROW, VERDICTS
from kdi_assets.ledger.delta import Staged
from kdi_assets.ledger.letters import DISCARDED, OUTCOME
from kdi_assets.replay.agreement import refuse_disagreement
from kdi_assets.replay.chosen import ALL, Chosen
from kdi_assets.replay.deciding import Change, Decided, Deciding, until_not_overtaken
from kdi_assets.replay.open_letters import THERE, WAS, OpenLetters, Tally, beside_standing, is_news, news_in, tallies_by
from kdi_assets.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Reached = Callable[[str], None]
_NEWS = "_kdi_news"


def replay_letters(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    chosen: Chosen = ALL,
    run_id: str = "",
    at: Reached = lambda point: None,
) -> Decided:
    """Judge open dead letters again; what is good now becomes rows, exactly once.

    Args:
        chosen: Which of the open letters.
        run_id: Recorded in the ledger entry.
        at: Called at the named points (``"letters read"``, ``"files written"``, ``"outcomes written"``, ``"commit
            sent"``); tests stop it there.

    Raises:
        AnotherDrainActive: Overtaken again and again.
        KdiError: What a drain would refuse as well.
    """

    def replay(case: Deciding) -> Decided:
        with case.open_letters(chosen) as letters:
            at("letters read")
            with _judged(case, letters, at) as judged:
                return _commit(case, letters, judged, at)

    with refused_to(f"kdi dead-letters replay {stream.name}{chosen.options()}"):
        return until_not_overtaken(stream, lake, session, "replay", replay, nothing=Decided(stream.name), run_id=run_id)


def replay_dry(stream: Stream, *, lake: str, session: Callable[[], SparkSession], chosen: Chosen = ALL) -> Decided:
    """What ``replay_letters`` would do now, by reason; nothing is written.

    Raises:
        KdiError: As there, but for what is found when rows are written and committed.
    """

    def look(case: Deciding) -> Decided:
        with case.open_letters(chosen) as letters, _judged(case, letters, dry=True) as judged:
            return replace(_decided(case, letters, judged.outcomes), changes=_changes(case, judged))

    with refused_to(f"kdi dead-letters replay {stream.name}{chosen.options()} --dry-run"):
        return until_not_overtaken(stream, lake, session, "replay", look, nothing=Decided(stream.name), settles=False)


def discard_letters(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    decided_by: str,
    because: str,
    chosen: Chosen = ALL,
    dry: bool = False,
    run_id: str = "",
    at: Reached = lambda point: None,
) -> Decided:
    """Give open dead letters up: they stay where they are, and no replay looks at them again.

    Args:
        decided_by, because: Who decided, and why; recorded in the ledger entry.
        dry: Only count them.
        at: As that of ``replay_letters``.

    Raises:
        AnotherDrainActive: Overtaken again and again.
    """

    def discard(case: Deciding) -> Decided:
        with case.open_letters(chosen) as letters:
            of = {VERDICTS[ROW]: letters.there, DISCARDED: letters.withheld + letters.whole}
            expected = {outcome: tally for outcome, tally in of.items() if tally.count}
            done = _decided(case, letters, {outcome: tally.count for outcome, tally in expected.items()})
            if dry or not expected:
                return replace(done, withheld=0)
            said = letters.told(f"CASE WHEN {THERE} THEN '{VERDICTS[ROW]}' ELSE '{DISCARDED}' END")
            told = case.tell(said, expected, ranges=letters.ranges)
        at("outcomes written")
        entry = replace(told.of(case.entry), decided_by=decided_by, because=because, outcomes=done.outcomes)
        return replace(done, withheld=0, commit=Commit.of(case.commit(Staged(), entry)))

    with refused_to(f"kdi dead-letters discard {stream.name}{chosen.options()} --because {quote(because)}"):
        return until_not_overtaken(
            stream, lake, session, "discard", discard, nothing=Decided(stream.name), run_id=run_id, settles=not dry
        )


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a replay makes of letters.

    Attributes:
        verdicts: As ``judge.verdicts`` gives them, and what stands as reason and field so far.
        outcomes: How many letters are what now.
        news: Of these, by outcome, those of which something new is to be said.
        counts: Of the pass that wrote the rows; ``None`` if there was nothing to judge.
    """

    verdicts: DataFrame
    outcomes: Mapping[str, int]
    news: Mapping[str, Tally]
    staged: Staged = Staged()
    counts: Counts | None = None


@contextmanager
def _judged(
    case: Deciding, letters: OpenLetters, at: Reached = lambda point: None, *, dry: bool = False
) -> Iterator[_Judged]:
    """Judge letters again, and write rows into files that no version names; dry, nothing is written.

    Raises:
        UnknownFieldsFound, ExpectationNotMet, ShapeMistake, SchemaDisagrees: As a drain.
        AccountingMismatch: The pass that wrote the rows, and the one that says what became of each, saw not the same.
    """
    said, staged, counts = letters.told(f"'{VERDICTS[ROW]}'", where=THERE), Staged(), None
    if letters.whole.count:
        stream = evolved(case.stream, case.lake, case.spark)
        uri, most = case.ledger.uri, len(letters.ranges)
        staged, counts, decoder = stage(letters.messages, stream, uri, now=case.now, topic_partitions=most, dry=dry)
        stream = decoder.stream  # its record may have gained fields
        at("files written")
        refuse_unknown(stream, counts.unknown, became_rows=counts.became_rows)
        refuse_unmet(stream, counts.unmet, of=counts.became_rows)
        said = verdicts(letters.messages, stream, decoder, now=case.now).unionByName(said)
    with kept(beside_standing(said, letters)) as judged:
        with spark_failures(case.stream, "judging dead letters again"):
            groups = tallies_by(judged.selectExpr("*", f"{is_news()} AS {_NEWS}"), OUTCOME, _NEWS)
        found: defaultdict[str, Tally] = defaultdict(Tally)
        for (outcome, _), tally in groups.items():
            found[outcome] += tally
        if counts:
            judged_again = {**found, VERDICTS[ROW]: found[VERDICTS[ROW]] - letters.there}
            refuse_disagreement(case, counts, judged_again, meant=letters.whole, ranges=letters.ranges)
        if counts and not dry and staged.rows != counts.rows:
            raise case.mismatch(f"{staged.rows:,} rows written against {counts.rows:,} that were read", letters.ranges)
        news = {outcome: tally for (outcome, is_new), tally in groups.items() if is_new}
        outcomes = {outcome: tally.count for outcome, tally in sorted(found.items()) if tally.count}
        yield _Judged(judged, outcomes, news, staged, counts)


def _commit(case: Deciding, letters: OpenLetters, judged: _Judged, at: Reached) -> Decided:
    done = _decided(case, letters, judged.outcomes)
    if not judged.news:
        return done
    # Before the commit, as a drain's letters: what names an attempt that no entry knows does not count.
    told = case.tell(news_in(judged.verdicts), judged.news, ranges=letters.ranges)
    at("outcomes written")
    entry = replace(
        told.of(case.entry),
        outcomes=done.outcomes,
        rows_by_date=dict(sorted(judged.staged.rows_by_date.items())),
        bytes=judged.staged.bytes,
    )
    landed = case.commit(judged.staged, judged.counts.noted_in(entry) if judged.counts else entry)
    at("commit sent")
    return replace(done, commit=Commit.of(landed))


def _decided(case: Deciding, letters: OpenLetters, outcomes: Mapping[str, int]) -> Decided:
    return Decided(case.stream.name, outcomes, letters.withheld.count, letters.waiting)


def _changes(case: Deciding, judged: _Judged) -> tuple[Change, ...]:
    """By old and new reason, the most frequent first."""
    from pyspark.sql import functions as F

    by = [WAS["reason"], WAS["field"], OUTCOME, "reason", "field"]
    groups = judged.verdicts.groupBy(*by).agg(
        F.count("*").alias("letters"), F.min(F.struct("partition", "offset")).alias("example")
    )
    with spark_failures(case.stream, "judging dead letters again"):
        found = groups.orderBy(F.desc("letters"), *by).collect()
    return tuple(
        Change(
            reason=r[WAS["reason"]] or "",
            field=r[WAS["field"]] or "",
            outcome=r[OUTCOME],
            new_reason=r["reason"] or "",
            new_field=r["field"] or "",
            letters=r["letters"],
            example=(TopicPartition(case.stream.topic, r["example"][0]), r["example"][1]),
        )
        for r in found
    )
