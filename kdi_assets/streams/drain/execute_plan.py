"""Execute one plan: its steps, from the messages to one commit of the table, in the order that is the promise."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.messages.held import ReadMessages
from kdi_assets.messages.of_stream import source_of
from kdi_assets.streams.drain.accounting import Account, account_for
from kdi_assets.streams.drain.dead_letters import (
    AppendedLetters,
    append_letters,
    check_letters_intact_or_retry,
    letters_replaced,
    refuse_too_many_letters,
)
from kdi_assets.streams.drain.distinct_columns import distinct_columns
from kdi_assets.streams.drain.plan import Plan
from kdi_assets.streams.drain.plan_errors import TopicRecreated
from kdi_assets.streams.drain.report import Commit
from kdi_assets.streams.drain.stage import file_size, stage
from kdi_assets.streams.ledger.commit import commit, next_entry
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.rules.judge import letters_of
from kdi_assets.streams.rules.rules import rules_of, with_counts
from kdi_assets.streams.rules.tally import Counts
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainContext:
    """What all steps of a stream's drain share.

    Attributes:
        lake: Root of the tables.
        session: Gives the Spark session; called only if there is something to do.
        run_id: Recorded in the ledger entry: Dagster's run, if there is one.
        accept_dead_letters: Drain even if there are more dead letters than the stream's limit.
        report: Called with a line about each step, for a log.
        at: Called with the name of each point that the drain reaches; tests stop the drain there.
        on_backlog: Called with the number of waiting messages, before ``session`` is; not if the source does not know
            it, or a message may become several rows.
    """

    stream: Stream
    lake: str
    session: Callable[[], SparkSession]
    run_id: str = ""
    accept_dead_letters: bool = False
    report: Callable[[str], None] = lambda line: None
    at: Callable[[str], None] = lambda point: None
    on_backlog: Callable[[int], None] = lambda messages: None


def execute_plan(
    plan: Plan,
    context: DrainContext,
    *,
    read: ReadMessages | None = None,
    conflicts: int = 0,
    cpu_seconds: Callable[[], float] | None = None,
) -> Commit:
    """Bring the plan's messages into the table, in one commit: every step of ``STEPS``, or the refusal of one.

    Args:
        read: Gives the messages of ranges of the plan; by default the source does.
        conflicts: How many plans of this drain other commits overtook before; recorded.
        cpu_seconds: Gives the CPU seconds that the commit's entry records; called just before the commit.

    Raises:
        MaskSecretMissing: The environment does not have the secret of a hash.
        ShapeMistake, SchemaDisagrees: The document does not work, or not with this table; nothing was read.
        UnknownFieldsFound, OtherTypesFound: Messages have what a frozen contract does not allow.
        ExpectationNotMet: An expectation that stops the drain.
        TooManyDeadLetters: There are more than the stream's limit.
        OvertakenCommit: Another commit came first and changes what the plan rests on; plan again.
        AccountingMismatch, UnexplainedGap: The messages read are not the offsets planned.
        TopicRecreated: The topic was deleted and created again during the read.
        DeadLettersGone, StagedFilesGone: Someone removed what this attempt wrote; plan again.
        ReadOrWriteFailed: Spark failed; a retry can help.
    """
    execution = Execution(plan, context, read, conflicts, cpu_seconds)
    for step in STEPS:
        step.run(execution)
        if step.timed_as:
            execution.note_seconds(step.timed_as)
        if step.point:
            context.at(step.point)
    return execution.landed


class Execution:
    """One plan in execution: each step leaves here what later steps need.

    Attributes:
        stream: The stream; once files are written, with the fields that its record gained.
        seconds: What the steps took, for the ledger entry.
    """

    staged: Staged
    counts: Counts
    decoder: StreamDecoder
    letters: AppendedLetters
    account: Account
    landed: Commit

    def __init__(
        self,
        plan: Plan,
        context: DrainContext,
        read: ReadMessages | None,
        conflicts: int,
        cpu_seconds: Callable[[], float] | None,
    ) -> None:
        self.plan, self.context, self.conflicts, self.cpu_seconds = plan, context, conflicts, cpu_seconds
        self.stream, self.table = context.stream, plan.ledger.table
        self.spark = context.session()
        self.messages = (read or partial(source_of(self.stream).read, self.spark))(plan.ranges)
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def write_files(self) -> None:
        """Read and judge the messages, and write the rows into files that no version of the table names."""
        if self.stream.contract.evolves:
            from kdi_assets.streams.drain.schema_evolution import evolved

            self.stream = evolved(self.stream, self.context.lake, self.spark)
        self.staged, self.counts, self.decoder = stage(
            self.messages,
            self.stream,
            self.table.uri,
            now=self.plan.now,
            files=file_size(self.stream, self.plan),
            distinct=distinct_columns(self.stream, self.plan),
            offsets=self.plan.offset_count,
            before_read=partial(self.context.at, "before reading"),
        )
        self.stream = self.decoder.stream

    def refuse_by_document(self) -> None:
        """Refuse what the stream's document does not allow."""
        stream, counts, rules = self.stream, self.counts, rules_of(self.decoder)
        for rule in rules:
            rule.refuse(counts)
        for rule in rules:
            rule.refuse_letters(self.dead_letters, dead_letters=counts.dead_letters, became_rows=counts.became_rows)
        if counts.dead_letters and not self.context.accept_dead_letters:
            of = counts.became_rows + counts.dead_letters
            refuse_too_many_letters(stream, counts.dead_letters, self.dead_letters, of=of)

    def write_dead_letters(self) -> None:
        """Append the dead letters of this attempt; without any, write nothing."""
        plan, stream, recorded = self.plan, self.stream, self.plan.ledger.dead_letters_at
        if not self.counts.dead_letters:
            self.letters = AppendedLetters(0, 0, recorded)
            return
        dates = (stream.date_window.first, stream.date_window.last(plan.now))
        few = self.counts.letters is not None
        with spark_failures(stream, "writing dead letters"):
            uri = stream.dead_letters_uri(self.context.lake)
            self.letters = append_letters(self.dead_letters(), uri, attempt_id=plan.attempt_id, between=dates, few=few)
        if self.letters.at and recorded and self.letters.at.table_id != recorded.table_id:
            raise letters_replaced(stream, self.context.lake, recorded, f"replaced by table {self.letters.at.table_id}")

    def account_for_offsets(self) -> None:
        """Refuse unless every offset of the plan is a row, a dead letter, a tombstone, filtered or a gap."""
        with spark_failures(self.stream, "accounting for the offsets"):
            self.account = account_for(
                self.plan,
                self.stream,
                self.counts,
                rows_written=self.staged.rows,
                letters=self.letters,
                messages=self.messages,
            )

    def check_again(self) -> None:
        """Look again at the topic, which may be another one by now, and at the dead letters."""
        plan, stream = self.plan, self.stream
        found = source_of(stream).topic_id(stream.topic)
        if found != plan.topic_id:
            raise TopicRecreated(stream=stream.name, topic=stream.topic, recorded_id=plan.topic_id, found_id=found)
        # Not only what this attempt appended: someone may have removed older dead letters since the plan.
        if counted_on := plan.ledger.dead_letters_at or self.letters.at:
            check_letters_intact_or_retry(stream, self.context.lake, counted_on)

    def commit(self) -> None:
        """Commit rows, positions and the ledger entry together, directly behind the plan's version."""
        with spark_failures(self.stream, "committing"):
            landed = commit(
                self.spark, self.staged, self.table.uri, read_version=self.plan.version, entry=self._entry()
            )
        took = (datetime.now(UTC) - self.plan.now).total_seconds()
        self.landed = Commit.of(landed, took_seconds=max(0.0, took))

    def dead_letters(self) -> DataFrame:
        """The dead letters of the messages."""
        return letters_of(self.messages, self.decoder, self.counts, now=self.plan.now)

    def note_seconds(self, steps: str) -> None:
        """Note the seconds since the last note."""
        now = time.monotonic()
        self.seconds[steps], self._since = round(now - self._since, 3), now

    def _entry(self) -> LedgerEntry:
        plan, counts, account = self.plan, self.counts, self.account
        entry = next_entry(
            self.stream,
            plan.ledger,
            kind="drain",
            topic_id=plan.topic_id,
            attempt_id=plan.attempt_id,
            positions=plan.positions_after,
            bookmarks=plan.marks.bookmarks,
            spans=plan.marks.spans,
            ranges=account.ranges,
            gaps=account.gaps,
            gap_digest=account.gap_digest,
            digest=counts.digest,
            dead_letter_digest=counts.dead_letter_digest,
            tombstone_digest=counts.tombstone_digest,
            filtered_digest=counts.filtered_digest,
            rows_by_date=dict(sorted(self.staged.rows_by_date.items())),
            bytes=self.staged.bytes,
            files_added=self.staged.data_files,
            cpu_seconds=round(self.cpu_seconds(), 3) if self.cpu_seconds else None,
            dead_letters_at=self.letters.at,
            letters_by_date=self.letters.by_date,
            planned_at=plan.now,
            ends=plan.ends,
            ages=dict(sorted(counts.ages.items())),
            message_bytes=counts.message_bytes,
            routes=plan.routes,
            last_read=plan.last_read,
        )
        entry = with_counts(entry, self.decoder, counts)
        return replace(entry, run_id=self.context.run_id, seconds=self.seconds, conflicts=self.conflicts)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an execution.

    Attributes:
        point: What ``DrainContext.at`` hears once the step is done; empty: nothing.
        timed_as: What the ledger entry calls the seconds of this step and of those before it that have no name.
    """

    run: Callable[[Execution], None]
    point: str = ""
    timed_as: str = ""


STEPS = (
    Step(Execution.write_files, "files written", timed_as="read and write"),  # inside it: "before reading"
    Step(Execution.refuse_by_document),
    # Dead letters before the commit: the two tables share no transaction. If we die in between, these letters name an
    # attempt that no ledger entry knows, so they do not count, and the next drain starts at the same offset. The other
    # order would move the position past messages that are in neither table, and no later drain looks back.
    Step(Execution.write_dead_letters, "dead letters written", timed_as="dead letters"),
    # The last moment at which a refusal costs nothing.
    Step(Execution.account_for_offsets),
    Step(Execution.check_again, "accounted for", timed_as="account"),
    Step(Execution.commit, "commit sent"),
)
"""The steps of every plan, in their order, with the points at which tests stop a drain."""
