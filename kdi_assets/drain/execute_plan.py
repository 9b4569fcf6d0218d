"""Execute one plan: read, judge, write files, write dead letters, account, commit. The order is the promise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.drain.accounting import Account, account_for
from kdi_assets.drain.dead_letters import Written, append_letters, refuse_gone, refuse_too_many_letters, replaced
from kdi_assets.drain.errors import TopicRecreated
from kdi_assets.drain.plan import Plan
from kdi_assets.drain.report import Commit
from kdi_assets.drain.rules.contract import refuse_other_types, refuse_unknown
from kdi_assets.drain.rules.expectations import refuse_unmet
from kdi_assets.drain.rules.judge import letters_of
from kdi_assets.drain.rules.schema_evolution import evolved
from kdi_assets.drain.rules.tally import Counts
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.drain.stage import file_size, stage
from kdi_assets.ledger.commit import commit
from kdi_assets.ledger.delta_transaction import Staged
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.next_entry import next_entry
from kdi_assets.sources.kafka.reader import read_ranges
from kdi_assets.sources.kafka.topic import read_topic
from kdi_assets.stream.stream import OffsetRange, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ReadMessages = Callable[[Sequence[OffsetRange]], "DataFrame"]
"""``kafka_frame.read_ranges`` of a session and a cluster, or what has read the ranges already."""


def execute_plan(
    plan: Plan,
    stream: Stream,
    lake: str,
    spark: SparkSession,
    *,
    read: ReadMessages | None = None,
    run_id: str = "",
    conflicts: int = 0,
    accept_dead_letters: bool = False,
    at: Callable[[str], None] = lambda point: None,
) -> Commit:
    """Bring the plan's messages into the table, in one commit.

    Args:
        read: Gives the messages of ranges of the plan; by default Kafka does.
        conflicts: Plans of this drain before, which other commits overtook; recorded.
        accept_dead_letters: However many there are.

    Raises:
        MaskSecretMissing: A hash has no key.
        ShapeMistake, SchemaDisagrees: The document does not work, or not with this table; nothing was read.
        UnknownFieldsFound, OtherTypesFound: Messages are as a frozen contract does not allow.
        ExpectationNotMet: One that stops the drain.
        TooManyDeadLetters: Nobody said yet that the document is right.
        OvertakenCommit: Another commit came first and matters; plan again.
        AccountingMismatch, UnexplainedGap: What was read is not what was planned.
        TopicRecreated: The topic was made anew while it was read.
        DeadLettersGone, StagedFilesGone: Someone removed what this try wrote; plan again.
        ReadOrWriteFailed: Spark failed; trying again can help.
    """
    uri = stream.table_uri(lake)
    read = read or partial(read_ranges, spark, stream.cluster)
    messages = read(plan.ranges)
    stages = _Stages()
    staged, counts, decoder = stage(
        messages,
        evolved(stream, lake, spark),
        uri,
        now=plan.now,
        files=file_size(stream, lake, plan),
        at=at,
    )
    stream = decoder.stream  # its record may have gained fields
    stages.ended("read and write")
    at("files written")
    judged = partial(letters_of, messages, stream, decoder, counts, now=plan.now)
    _refuse_by_document(stream, counts, judged, accept_dead_letters=accept_dead_letters)
    # Dead letters before the commit: the two tables share no transaction. If we die in between, these letters name an
    # attempt that no ledger entry knows, so they do not count, and the next drain starts at the same offset. The other
    # order would move the position past messages that are in neither table, and no later drain looks back.
    letters = _write_letters(plan, stream, lake, counts, judged)
    stages.ended("dead letters")
    at("dead letters written")
    # The last moment at which refusing costs nothing.
    with spark_failures(stream, "accounting for the offsets"):
        account = account_for(plan, stream, counts, rows_written=staged.rows, letters=letters, messages=messages)
    _refuse_recreated(plan, stream)
    # All that the plan counts on, and not only what this try appended: older letters may have been taken meanwhile.
    refuse_gone(stream, lake, plan.ledger.dead_letters_at or letters.at)
    stages.ended("account")
    at("accounted for")
    entry = counts.noted_in(_entry(plan, stream, staged, counts, letters, account))
    entry = replace(entry, run_id=run_id, seconds=stages.seconds, conflicts=conflicts)
    with spark_failures(stream, "committing"):
        landed = commit(spark, staged, uri, behind=plan.version, entry=entry)
    at("commit sent")
    took = (datetime.now(UTC) - plan.now).total_seconds()
    return Commit.of(landed, took_seconds=max(0.0, took))


class _Stages:
    """What the stages of a drain take, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def ended(self, stage: str) -> None:
        now = time.monotonic()
        self.seconds[stage], self._since = round(now - self._since, 3), now


def _refuse_by_document(
    stream: Stream, counts: Counts, letters: Callable[[], DataFrame], *, accept_dead_letters: bool
) -> None:
    """Refuse what the stream's document does not put up with."""
    refuse_unknown(stream, counts.unknown, became_rows=counts.became_rows)
    refuse_unmet(stream, counts.unmet, of=counts.became_rows)
    refuse_other_types(stream, letters, dead_letters=counts.dead_letters, became_rows=counts.became_rows)
    if not accept_dead_letters:
        judged = counts.became_rows + counts.dead_letters
        refuse_too_many_letters(stream, counts.dead_letters, letters, of=judged)


def _write_letters(plan: Plan, stream: Stream, lake: str, counts: Counts, letters: Callable[[], DataFrame]) -> Written:
    """Append the letters of this try; without any, nothing."""
    if not counts.dead_letters:
        return Written(0, 0, plan.ledger.dead_letters_at)
    with spark_failures(stream, "writing dead letters"):
        between = (stream.date_window.start, stream.date_window.last(plan.now))
        uri = stream.dead_letters_uri(lake)
        few = counts.letters is not None
        written = append_letters(letters(), uri, attempt_id=plan.attempt_id, between=between, few=few)
    if written.at and plan.ledger.dead_letters_at and written.at.table_id != plan.ledger.dead_letters_at.table_id:
        raise replaced(stream, lake, plan.ledger.dead_letters_at, f"replaced by table {written.at.table_id}")
    return written


def _refuse_recreated(plan: Plan, stream: Stream) -> None:
    """Look at the topic's id again: it may have been deleted and made anew while we read."""
    found = read_topic(stream.cluster, stream.topic).topic_id
    if found != plan.topic_id:
        raise TopicRecreated(stream=stream.name, topic=stream.topic, recorded_id=plan.topic_id, found_id=found)


def _entry(
    plan: Plan, stream: Stream, staged: Staged, counts: Counts, letters: Written, account: Account
) -> LedgerEntry:
    """What the ledger is to know of the plan once its commit has landed."""
    return next_entry(
        stream,
        plan.ledger,
        kind="drain",
        topic_id=plan.topic_id,
        attempt_id=plan.attempt_id,
        positions=plan.positions_after,
        ranges=account.ranges,
        gaps=account.gaps,
        gap_digest=account.gap_digest,
        digest=counts.digest,
        dead_letter_digest=counts.dead_letter_digest,
        tombstone_digest=counts.tombstone_digest,
        filtered_digest=counts.filtered_digest,
        rows_by_date=dict(sorted(staged.rows_by_date.items())),
        bytes=staged.bytes,
        dead_letters_at=letters.at,
        letters_by_date=letters.by_date,
        planned_at=plan.now,
        ends=plan.ends,
        ages=dict(sorted(counts.ages.items())),
        message_bytes=counts.message_bytes,
        routes=plan.routes,
        last_read=plan.last_read,
    )
