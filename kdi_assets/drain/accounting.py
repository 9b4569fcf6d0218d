"""Accounting: what was read must be what was planned, counted twice and in ways that can disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.drain.counts import Counts
from kdi_assets.drain.dead_letters import Written
from kdi_assets.drain.gaps import Gaps, confirmed_gaps
from kdi_assets.drain.plan import Plan
from kdi_assets.drain.refusals import AccountingMismatch
from kdi_assets.drain.verdict import DEAD_LETTER, FILTERED, TOMBSTONE
from kdi_assets.ledger.digests import digest_of
from kdi_assets.ledger.entry import RangeCounts
from kdi_assets.stream import OffsetRange, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LISTED = 1_000
"""A ledger entry lists so many gaps; of more it has their number and digest, which prove them and name none."""


@dataclass(frozen=True, slots=True)
class Account:
    """A plan that adds up: every offset of its ranges is a row, a dead letter, a tombstone, filtered or a gap."""

    ranges: tuple[RangeCounts, ...]
    gaps: Gaps | None = None

    @property
    def listed_gaps(self) -> tuple[OffsetRange, ...]:
        """The gaps, if they are few enough for a ledger entry."""
        return tuple(self.gaps.ranges()) if self.gaps and len(self.gaps) <= LISTED else ()

    @property
    def unlisted_gap_digest(self) -> int:
        """What proves them, if they are not."""
        return self.gaps.digest if self.gaps and len(self.gaps) > LISTED else 0


def account_for(
    plan: Plan,
    stream: Stream,
    counts: Counts,
    *,
    rows_written: int,
    letters: Written,
    messages: DataFrame,
) -> Account:
    """Refuse unless the messages read are the offsets planned, and what was written is what was read.

    Args:
        counts: From the pass that wrote the rows.
        rows_written: From the statistics of the files.
        letters: From the write of the dead letters.
        messages: The planned ranges, to look for the offsets that are missing; not read if none is.

    Raises:
        AccountingMismatch: A number or a digest differs, or a second client sees a message that was not read.
        UnexplainedGap: An offset without a message where there must be one.
    """
    for what, written, read in (
        ("rows", rows_written, counts.rows),
        ("dead letters", letters.count, counts.dead_letters),
        ("messages with a verdict", counts.became_rows + sum(counts.others.values()), counts.messages),
    ):
        if written != read:
            raise _mismatch(plan, f"{written:,} {what} against {read:,} that were read")
    if letters.digest != counts.dead_letter_digest:
        raise _mismatch(plan, "the dead letters written are not the messages that became no row")
    gaps = confirmed_gaps(plan, stream, messages) if counts.messages < plan.offset_count else None
    in_gaps, gap_digest = (gaps.offset_count, gaps.digest) if gaps else (0, 0)
    if plan.offset_count - in_gaps != counts.messages:
        raise _mismatch(plan, f"{counts.messages:,} messages read, gaps aside {plan.offset_count:,} offsets planned")
    if (expected := digest_of(plan.ranges) ^ gap_digest) != counts.digest:
        raise _mismatch(plan, f"digest {counts.digest} of the offsets read is not {expected}, that of those planned")
    return Account(tuple(_range_counts(r, counts, gaps) for r in plan.ranges), gaps)


def _range_counts(r: OffsetRange, counts: Counts, gaps: Gaps | None) -> RangeCounts:
    number = r.topic_partition.partition
    others = (counts.others.get((number, verdict), 0) for verdict in (DEAD_LETTER, TOMBSTONE, FILTERED))
    letters, tombstones, filtered = others
    here = gaps.by_topic_partition.get(r.topic_partition) if gaps else None
    missing = here.offset_count if here else 0
    unlisted = missing if gaps and len(gaps) > LISTED else 0
    # The digest has proved that exactly the offsets of the range were read: what is nothing else became rows.
    became_rows = r.offset_count - letters - tombstones - filtered - missing
    return RangeCounts(r, became_rows, letters, tombstones, missing, filtered, unlisted)


def _mismatch(plan: Plan, detail: str) -> AccountingMismatch:
    return AccountingMismatch(stream=plan.stream, detail=detail, ranges=plan.ranges)
