"""The pass that wrote rows against the one that said what becomes of each message: they must have seen the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kdi_assets.drain.counts import Counts
from kdi_assets.drain.verdict import DEAD_LETTER, ELSEWHERE, FILTERED, ROW, TOMBSTONE, VERDICTS
from kdi_assets.replay.deciding import Deciding
from kdi_assets.replay.open_letters import Tally
from kdi_assets.stream import OffsetRange


def refuse_disagreement(
    case: Deciding, counts: Counts, said: Mapping[str, Tally], *, meant: Tally, ranges: Sequence[OffsetRange]
) -> None:
    """Refuse unless both saw the messages that are meant, and judged each of them alike.

    Args:
        counts: Of the pass that wrote the rows.
        said: By outcome, what the other says of the same messages.
        meant: The messages that were to be judged.

    Raises:
        AccountingMismatch: They did not.
    """
    read = Tally(counts.messages, counts.digest)
    if read != meant:
        raise case.mismatch(f"{read.count:,} messages were judged, of {meant.count:,}", ranges)
    seen = seen_by(counts)
    if seen[ROW].count != counts.became_rows:
        raise case.mismatch(f"{counts.became_rows:,} messages became rows, of {seen[ROW].count:,}", ranges)
    told = {verdict: said.get(VERDICTS[verdict], Tally()) for verdict in seen}
    told[FILTERED] += said.get(ELSEWHERE, Tally())
    for verdict, tally in seen.items():
        if told[verdict] != tally:
            detail = f"{told[verdict].count:,} messages are told to be {VERDICTS[verdict]}, {tally.count:,} were"
            raise case.mismatch(detail, ranges)


def seen_by(counts: Counts) -> dict[int, Tally]:
    """The messages of a pass by their verdict: what is nothing else became rows."""
    digests = {
        TOMBSTONE: counts.tombstone_digest,
        DEAD_LETTER: counts.dead_letter_digest,
        FILTERED: counts.filtered_digest,
    }
    of = {v: Tally(sum(n for (_, is_), n in counts.others.items() if is_ == v), d) for v, d in digests.items()}
    return {ROW: Tally(counts.messages, counts.digest) - sum(of.values(), Tally()), **of}
