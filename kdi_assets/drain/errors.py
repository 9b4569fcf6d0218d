"""Errors of a drain: each says what is safe, and the command that decides it or tries again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.ledger.entry import LastRead
from kdi_assets.stream.stream import OffsetRange, TopicPartition
from kdi_assets.wording import storage_command


class RunAgain(KdiError):
    """An error whose text names the command that met it; its other base says whether a retry can help.

    Attributes:
        command: The command that met the error; by default a drain. ``refused_to`` sets another one.
    """

    stream: str
    command: str = ""

    def __post_init__(self) -> None:
        self.command = self.command or f"kdi drain {self.stream}"


class RetentionPassedPosition(Terminal):
    """Offsets ``[position, earliest)`` were deleted before they were drained."""

    stream: str
    topic_partition: TopicPartition
    position: int
    earliest: int

    def message_parts(self) -> tuple[str, str, str]:
        tp, lost = self.topic_partition, self.earliest - self.position
        return (
            f"{self.stream}: retention deleted [{self.position}, {self.earliest}) of {tp}, at most {lost:,} messages.",
            f"every offset below {self.position} is accounted for; positions stay as they are.",
            f"kdi resolve {self.stream} accept-loss --topic-partition {tp} --until {self.earliest}",
        )


class BrokerEndBelowPosition(Terminal):
    """The broker's end is below the position: its log was truncated, or restored from a copy."""

    stream: str
    topic_partition: TopicPartition
    position: int
    end: int

    what_happened = (
        "{stream}: {topic_partition} ends at {end}, and [{end}, {position}) was drained from it before: the broker "
        "lost these offsets and will give them to other messages."
    )
    what_is_safe = "the rows drained so far; positions stay as they are."
    what_to_run = (
        "kdi resolve {stream} rewind --topic-partition {topic_partition} --to {end}   (rows of the lost offsets are "
        "moved to a table of their own, <table>_removed)"
    )


class TopicRecreated(Terminal):
    """The topic has another id than the topic of the positions: it was deleted and created again."""

    stream: str
    topic: str
    recorded_id: str
    found_id: str

    def message_parts(self) -> tuple[str, str, str]:
        was = f"the positions belong to {f'id {self.recorded_id}' if self.recorded_id else 'another topic'}"
        return (
            f"{self.stream}: topic {self.topic} has id {self.found_id}; {was}. It was deleted and created again.",
            "the rows drained so far; positions stay as they are.",
            f"kdi resolve {self.stream} new-topic",
        )


class TopicPartitionVanished(Terminal):
    """The broker no longer has a topic partition that has a position."""

    stream: str
    topic_partition: TopicPartition
    position: int

    what_happened = "{stream}: the broker no longer has {topic_partition}; it was drained up to {position}."
    what_is_safe = "the rows drained so far; positions stay as they are."
    what_to_run = "kdi resolve {stream} new-topic"


class TableReplaced(Terminal):
    """The table has another id than the table of the positions: it was replaced, or is a clone."""

    stream: str
    uri: str
    recorded_id: str
    found_id: str

    def message_parts(self) -> tuple[str, str, str]:
        was = f" (the ledger belongs to {self.recorded_id})" if self.recorded_id else ""
        return (
            f"{self.stream}: {self.uri} is another table now, with id {self.found_id}{was}.",
            "nothing was read and nothing was written.",
            f"kdi resolve {self.stream} adopt   (positions from its rows; afterwards, to drain more again: "
            f"kdi resolve {self.stream} rewind --topic-partition TOPIC/NUMBER --to OFFSET)",
        )


class RowsWithoutPositions(Terminal):
    """The table has data files and no positions: a clone, a copy, or a table of a writer without positions."""

    stream: str
    uri: str

    what_happened = "{stream}: {uri} has rows and no positions: it is a clone, a copy or another writer's table."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "kdi resolve {stream} adopt   (positions from its rows)"


class DeadLettersReplaced(Terminal):
    """The dead-letter table was restored, replaced or dropped: letters that count may be gone."""

    stream: str
    uri: str
    recorded_id: str
    recorded_version: int
    change: str

    what_happened = (
        "{stream}: the dead letters in {uri} were {change}; the ledger counts on table {recorded_id} at version "
        "{recorded_version} or later."
    )
    what_is_safe = "the rows of the stream's own table; positions stay as they are."
    what_to_run = (
        "kdi resolve {stream} adopt-dead-letters   (accepts what is there; to bring letters back, if it is the same "
        "table, first kdi sql 'RESTORE TABLE delta.`{uri}` TO VERSION AS OF {recorded_version}')"
    )


class DeadLettersGone(RunAgain, Transient):
    """Dead letters that this attempt wrote, or counts on, were removed before its commit."""

    uri: str
    change: str

    what_happened = "{stream}: the dead letters in {uri} were {change} before the commit."
    what_is_safe = "this attempt committed nothing; positions stay as they are."
    what_to_run = "{command}   (it names the decision, if one is needed)"


class AccountingMismatch(RunAgain, Terminal):
    """Messages planned, read and written do not add up."""

    detail: str
    ranges: tuple[OffsetRange, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {self.detail} (planned: {', '.join(map(str, self.ranges))}).",
            "nothing was committed; positions stay as they are.",
            f"{self.command}   (once more; if it fails again, keep the topic's messages and report it)",
        )


class AnotherDrainActive(RunAgain, Transient):
    """Other commits came first too often in a row."""

    detail: str

    what_happened = "{stream}: another drain or replay of this stream is active ({detail})."
    what_is_safe = "what the other one committed; since then, this one committed nothing."
    what_to_run = "{command}   (when the other one has ended)"


def another_active(stream: str, race: KdiError) -> AnotherDrainActive:
    """The error for the last race that an attempt lost."""
    return AnotherDrainActive(stream=stream, detail=race.message_parts()[0])


class TableRefusesRows(Terminal):
    """A constraint of the table does not hold for a row of the stream."""

    stream: str
    detail: str

    what_happened = "{stream}: the table refuses a row: {detail}"
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = (
        "kdi drain {stream}   (first drop the constraint, or let `schema:` (NOT NULL) or `date:` make such "
        "messages dead letters)"
    )


class ReadOrWriteFailed(RunAgain, Transient):
    """Spark, delta-rs or the storage failed in one step.

    Attributes:
        step: What was being done, such as "committing".
        detail: Its cause in one line; ``__cause__`` has the rest.
    """

    step: str
    detail: str

    what_happened = "{stream}: {step} failed: {detail}"
    what_is_safe = (
        "all rows and positions committed so far; a commit lands whole or not at all."  # its answer may be lost
    )
    what_to_run = "{command}   (it begins at the positions that the log has)"


class StorageForbids(RunAgain, Terminal):
    """The storage refuses an operation, and will refuse it again: a right is missing, or room.

    Attributes:
        step: What was being done, such as "committing".
        detail: The cause in one line, with the path if the storage names it.
        needs: What someone must give first.
    """

    step: str
    detail: str
    needs: str

    what_happened = "{stream}: {step} failed: {detail}"
    what_is_safe = "all rows and positions committed so far; a commit lands whole or not at all."
    what_to_run = "{command}   (once {needs})"


class WorkerPythonUnfit(RunAgain, Terminal):
    """The Python of Spark's workers cannot run what decodes or validates the messages.

    Attributes:
        detail: What it lacks, in one line.
    """

    detail: str

    what_happened = "{stream}: Python in Spark's workers cannot decode the messages: {detail}"
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = (
        "{command}   (once the executors have this Python with the packages of deploy/requirements.lock; "
        "PYSPARK_PYTHON names its path there, docs/clusters.md the ways to bring it)"
    )


class TableNotMoved(Terminal):
    """The document was renamed, and its table is still at the old name's place."""

    stream: str
    former: str
    uri: str

    def message_parts(self) -> tuple[str, str, str]:
        """With the command of the storage that moves the table."""
        beside = "then, if they exist, what is beside it likewise: _dead_letters, _ledger, _removed and _erased"
        return (
            f"{self.stream}: the table is still at {self.former} and not at {self.uri}; a drain would start over.",
            "the table; nothing was read and nothing was written.",
            f"{storage_command('mv', self.former, self.uri)}   ({beside})",
        )


class TableMissing(Terminal):
    """The table is gone, and its dead letters, archive, removed rows or notes of erasures are still beside its place.

    Attributes:
        beside: All that are there.
    """

    stream: str
    uri: str
    beside: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        there = ", ".join(self.beside)
        erased = any(uri.endswith("_erased") for uri in self.beside)
        again = ": erased messages that Kafka still holds come back" if erased else ""
        return (
            f"{self.stream}: there is no table at {self.uri}, but there is {there}: the table was removed or moved, "
            "and its positions with it.",
            f"{there}; nothing was read and nothing was written.",
            f"kdi drain {self.stream}   (first put the table back; or, to start over{again}, move {there} somewhere "
            "else)",
        )


class StreamRetired(Terminal):
    """The document says that the stream is no longer drained."""

    stream: str

    what_happened = "{stream} is retired: its document says `status: retired`."
    what_is_safe = "the table and its ledger stay as they are."
    what_to_run = "kdi drain {stream}   (first remove the line from the document)"


class RoutesChanged(Terminal):
    """The documents have other route conditions than the table's ledger, or a change of them was not finished."""

    stream: str
    why: str

    what_happened = "{stream}: {why}."
    what_is_safe = "nothing was read; positions stay as they are."
    what_to_run = "kdi resolve {stream} accept-routes --because WHY   (for all tables of its group; shown first)"


class NotDrainedYet(Terminal):
    """The table has positions of another writer, and no drain has taken them over: a replay must not touch its rows."""

    stream: str
    uri: str

    what_happened = "{stream}: {uri} has positions of another writer, and no drain has taken them over yet."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "kdi drain {stream}   (it takes over the positions; then the same command again)"


class NothingDrained(Terminal):
    """No drain has made the table, so it has no date to replay."""

    stream: str

    what_happened = "{stream}: nothing was drained yet, so there are no rows of older dates to replay."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "kdi drain {stream}   (in Dagster, materialize the newest date; it fills older dates too)"


class Undrainable(Terminal):
    """Offsets that no drain can read or explain; a drain first drains all else that it can, then raises this.

    Attributes:
        offsets: The first such offsets of each topic partition that has any; at least one range.
        happened: Why, in words; set by the subclass, and no field.
    """

    stream: str
    offsets: tuple[OffsetRange, ...]
    happened = ""

    def message_parts(self) -> tuple[str, str, str]:
        first, others = self.offsets[0], len(self.offsets) - 1
        besides = f" The same in {others} more topic partitions." if others else ""
        return (
            f"{self.stream}: {first}: {self.happened}.{besides}",
            "all offsets before these, and the other topic partitions, are drained; positions stay there.",
            f"kdi resolve {self.stream} accept-loss --topic-partition {first.topic_partition} --from {first.start} "
            f"--until {first.end}   (gives up exactly these; look at the brokers first)",
        )


class UnexplainedGap(Undrainable):
    """Offsets without a message, on a topic where every offset has one."""

    happened = "no message is there, and the topic is neither compacted nor written by transactions"


class TimestampTooLarge(Undrainable):
    """Messages with a timestamp that Spark cannot read, such as nanoseconds in place of milliseconds."""

    happened = "the message has a timestamp beyond the year 294,247, which Spark cannot read (nanoseconds?)"


SHOWN = 5
"""So many of the most frequent reasons are named in a refusal."""


class ReasonCount(NamedTuple):
    """A reason of dead letters, and how many have it."""

    reason: str
    field: str
    letters: int

    def __str__(self) -> str:
        return f"{self.letters:,} {self.reason}{f' in {self.field}' if self.field else ''}"


class TooManyDeadLetters(RunAgain, Terminal):
    """More messages of a plan would become dead letters than the stream allows: the document may be wrong."""

    dead_letters: int
    messages: int
    limit: str
    reasons: tuple[ReasonCount, ...]

    def message_parts(self) -> tuple[str, str, str]:
        share, named = self.dead_letters / self.messages, sum(r.letters for r in self.reasons)
        others = f", {self.dead_letters - named:,} others" if named < self.dead_letters else ""
        return (
            f"{self.stream}: {self.dead_letters:,} of {self.messages:,} messages that should become rows would be dead "
            f"letters ({share:.1%}): {', '.join(map(str, self.reasons))}{others}. The limit is {self.limit}.",
            "no dead letter was written and nothing was committed; positions stay as they are, and the topic keeps the "
            "messages until retention deletes them.",
            f"kdi peek {self.stream}; then kdi check   (first correct the document, or its `dead_letter_limit`); or "
            f"{self.command} --accept-dead-letters   (this once)",
        )


class StartOutOfRange(Terminal):
    """The document's `start:` names an offset or a topic partition that the topic does not have."""

    stream: str
    topic_partition: TopicPartition
    said: str

    what_happened = "{stream}: `start` {said}."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "kdi plan {stream}   (first correct `start:` in its document)"


class PositionBelowStart(Terminal):
    """The document's `start:` names an offset above the position: those between were neither read nor given up."""

    stream: str
    topic_partition: TopicPartition
    position: int
    start: int

    def message_parts(self) -> tuple[str, str, str]:
        tp, at = self.topic_partition, self.position
        return (
            f"{self.stream}: `start` says {self.start} for {tp}, and its position is already {at}: a start applies to "
            f"a stream without positions, and [{at}, {self.start}) was not drained.",
            f"every offset below {at} is accounted for; nothing was read and nothing was written.",
            f"kdi drain {self.stream}   (first remove {tp.partition}: {self.start} from `start:`: goes on from {at}); "
            f"or kdi resolve {self.stream} accept-loss --topic-partition {tp} --until {self.start}   (gives these up)",
        )


class TopicTruncated(Terminal):
    """Another message is at the offset that was read last: the topic partition was truncated and has grown since."""

    stream: str
    topic_partition: TopicPartition
    read: LastRead
    found: LastRead

    def message_parts(self) -> tuple[str, str, str]:
        tp, read = self.topic_partition, self.read
        others = f"of {_time(self.found)}" if self.found.timestamp != read.timestamp else "with another key or value"
        return (
            f"{self.stream}: offset {read.offset} of {tp} now has another message ({others}) than the drained "
            f"one, of {_time(read)}: the brokers lost the end of {tp}, and gave its offsets to other messages.",
            "the rows drained so far, with those of the lost messages; nothing was written and positions stay as they "
            "are.",
            f"kdi audit {self.stream} --against-kafka   (names the first offset that differs); then kdi resolve "
            f"{self.stream} rewind --topic-partition {tp} --to OFFSET   (rows of the lost offsets are moved to "
            "<table>_removed)",
        )


def _time(message: LastRead) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=message.timestamp)
    except OverflowError:  # nanoseconds, for one
        return f"timestamp {message.timestamp}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
