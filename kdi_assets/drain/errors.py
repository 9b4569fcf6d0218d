"""What a drain refuses to decide by itself: each names the command that decides it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.ledger.entry import LastRead
from kdi_assets.stream.stream import OffsetRange, TopicPartition


class RunAgain(KdiError):
    """What is to run next is what was refused, and that need not be a drain.

    Attributes:
        command: That; a drain where nothing else is said.
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

    def parts(self) -> tuple[str, str, str]:
        tp, lost = self.topic_partition, self.earliest - self.position
        return (
            f"{self.stream}: retention deleted [{self.position}, {self.earliest}) of {tp}, at most {lost:,} messages.",
            f"every offset below {self.position} is accounted for; positions stay as they are.",
            f"kdi resolve {self.stream} accept-loss --topic-partition {tp} --until {self.earliest}",
        )


class BrokerEndBelowPosition(Terminal):
    """The broker's end is below the position: the log was truncated, or restored from a copy."""

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
    """The topic has another id than the one the positions belong to: it was deleted and made again."""

    stream: str
    topic: str
    recorded_id: str
    found_id: str

    def parts(self) -> tuple[str, str, str]:
        was = f"the positions belong to id {self.recorded_id}" if self.recorded_id else "the positions are another's"
        return (
            f"{self.stream}: topic {self.topic} has id {self.found_id}; {was}. It was deleted and made again.",
            "the rows drained so far; positions stay as they are.",
            f"kdi resolve {self.stream} new-topic",
        )


class TopicPartitionVanished(Terminal):
    """A topic partition with a position is not there any more."""

    stream: str
    topic_partition: TopicPartition
    position: int

    what_happened = "{stream}: the broker has no {topic_partition} any more; it was drained up to {position}."
    what_is_safe = "the rows drained so far; positions stay as they are."
    what_to_run = "kdi resolve {stream} new-topic"


class TableReplaced(Terminal):
    """The table has another id than the one the positions were made for: replaced, or a clone."""

    stream: str
    uri: str
    recorded_id: str
    found_id: str

    def parts(self) -> tuple[str, str, str]:
        was = f" (the ledger was made for {self.recorded_id})" if self.recorded_id else ""
        return (
            f"{self.stream}: {self.uri} is another table now, with id {self.found_id}{was}.",
            "nothing was read and nothing was written.",
            f"kdi resolve {self.stream} adopt   (positions from its rows), or rewind to drain again",
        )


class RowsWithoutPositions(Terminal):
    """The table holds data files and no position: a clone, a copy, or a table of a writer that leaves none."""

    stream: str
    uri: str

    what_happened = "{stream}: {uri} has rows and no positions: it is a clone, a copy or another writer's table."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "kdi resolve {stream} adopt   (positions behind its rows)"


class DeadLettersReplaced(Terminal):
    """The dead-letter table was restored, replaced or dropped, so letters that count may be gone."""

    stream: str
    uri: str
    recorded_id: str
    recorded_version: int
    happened: str

    what_happened = (
        "{stream}: the dead letters in {uri} were {happened}; the ledger counts on table {recorded_id} at version "
        "{recorded_version} or later."
    )
    what_is_safe = "the rows of the stream's own table; positions stay as they are."
    what_to_run = (
        "RESTORE TABLE delta.`{uri}` TO VERSION AS OF {recorded_version} brings them back; kdi resolve {stream} "
        "adopt-dead-letters accepts what is there"
    )


class DeadLettersGone(RunAgain, Transient):
    """The dead letters that this try wrote, or counts on, were taken away before its commit."""

    uri: str
    happened: str

    what_happened = "{stream}: the dead letters in {uri} were {happened} before this could be committed."
    what_is_safe = "this try committed nothing; positions stay as they are."
    what_to_run = "{command}   (it says what must be decided, if anything)"


class AccountingMismatch(RunAgain, Terminal):
    """What was read, written and planned does not add up."""

    detail: str
    ranges: tuple[OffsetRange, ...]

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {self.detail} (planned: {', '.join(map(str, self.ranges))}).",
            "nothing was committed; positions stay as they are.",
            f"{self.command} once more; if it repeats, keep the topic's messages and report it",
        )


class AnotherDrainActive(RunAgain, Transient):
    """Others committed first, again and again: twice for a drain."""

    detail: str

    what_happened = "{stream}: another drain or replay of this stream is active ({detail})."
    what_is_safe = "what the other committed stands; this one committed nothing since."
    what_to_run = "{command}   (when the other has ended)"


class TableRefusesRows(Terminal):
    """A constraint of the table does not hold for a row that the stream gives."""

    stream: str
    detail: str

    what_happened = "{stream}: the table refuses a row: {detail}"
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = "drop the constraint, or let `schema:` (NOT NULL) or `date:` make such messages dead letters"


class ReadOrWriteFailed(RunAgain, Transient):
    """Spark failed while messages were read or files written; nothing of it is visible."""

    step: str
    detail: str

    what_happened = "{stream}: {step} failed: {detail}"
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = "{command}   (it begins where this one did)"


class TableNotMoved(Terminal):
    """The document was renamed, and its table still lies where the old name says."""

    stream: str
    former: str
    uri: str

    def parts(self) -> tuple[str, str, str]:
        moves = [
            f"mv {self.former}{beside} {self.uri}{beside}" for beside in ("", "_dead_letters", "_ledger", "_removed")
        ]
        return (
            f"{self.stream}: the table still lies at {self.former} and not at {self.uri}; a drain would begin anew.",
            "the table as it is; nothing was read and nothing was written.",
            f"{moves[0]}   (then, if they exist, {moves[1]}, {moves[2]} and {moves[3]})",
        )


class TableMissing(Terminal):
    """The table is gone, and a table that only a drain of it makes lies beside its place."""

    stream: str
    uri: str
    beside: str

    what_happened = (
        "{stream}: there is no table at {uri}, and {beside} lies beside its place: the table was removed or moved, "
        "and its positions with it."
    )
    what_is_safe = "nothing was read and nothing was written; what lies beside it is as it was."
    what_to_run = "put the table back; or, to start over, mv {beside} somewhere else, then kdi drain {stream}"


class StreamRetired(Terminal):
    """The document says that nothing is drained any more."""

    stream: str

    what_happened = "{stream} is retired: its document says `status: retired`."
    what_is_safe = "the table and its ledger stay as they are."
    what_to_run = "remove the line from the document, if it is to be drained again"


class NotDrainedYet(Terminal):
    """The table has positions of another writer, which no drain has taken over: its rows are nobody's to replay."""

    stream: str
    uri: str

    what_happened = "{stream}: {uri} has positions of another writer, and no drain has taken it over yet."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "kdi drain {stream}   (it takes over the positions; then the same command again)"


class Undrainable(Terminal):
    """Nobody can read these offsets, or say why there is no message.

    Attributes:
        offsets: The first such offsets of each topic partition that has any; at least one.
    """

    stream: str
    offsets: tuple[OffsetRange, ...]
    happened = ""

    def parts(self) -> tuple[str, str, str]:
        first, others = self.offsets[0], len(self.offsets) - 1
        besides = f" So it is in {others} more topic partitions." if others else ""
        return (
            f"{self.stream}: {first}: {self.happened}.{besides}",
            "all offsets before these are drained, and so are the other topic partitions; positions stay there.",
            f"kdi resolve {self.stream} accept-loss --topic-partition {first.topic_partition} --from {first.start} "
            f"--until {first.end}   (gives up exactly these; look at the brokers first)",
        )


class UnexplainedGap(Undrainable):
    """Offsets without a message, on a topic where every offset should have one."""

    happened = "no message is there, and the topic is neither compacted nor written by transactions"


class TimestampTooLarge(Undrainable):
    """Messages with a timestamp that Spark cannot hold, such as nanoseconds where Kafka has milliseconds."""

    happened = "the message has a timestamp beyond the year 294,247, which Spark cannot read (nanoseconds?)"


SHOWN = 5
"""Reasons named in a refusal, the most frequent ones."""


class ReasonCount(NamedTuple):
    """Why messages become dead letters, and how many of them."""

    reason: str
    field: str
    letters: int

    def __str__(self) -> str:
        return f"{self.letters:,} {self.reason}{f' in {self.field}' if self.field else ''}"


class TooManyDeadLetters(RunAgain, Terminal):
    """More messages of one plan would become dead letters than the stream allows: the document may be what is wrong."""

    dead_letters: int
    messages: int
    limit: str
    reasons: tuple[ReasonCount, ...]

    def parts(self) -> tuple[str, str, str]:
        share, named = self.dead_letters / self.messages, sum(r.letters for r in self.reasons)
        others = f", {self.dead_letters - named:,} others" if named < self.dead_letters else ""
        return (
            f"{self.stream}: {self.dead_letters:,} of {self.messages:,} messages that should become rows would be dead "
            f"letters ({share:.1%}): {', '.join(map(str, self.reasons))}{others}. The limit is {self.limit}.",
            "no dead letter was written and nothing was committed; positions stay as they are, and the messages lie in "
            "the topic until retention deletes them.",
            f"kdi peek {self.stream} shows what becomes of messages: correct the document (or its `dead_letter_limit`) "
            f"and run `kdi check`; or take them for what they are, this once: "
            f"{self.command} --accept-dead-letters",
        )


class StartOutOfRange(Terminal):
    """The document's `start:` names an offset, or a topic partition, that the topic does not have."""

    stream: str
    topic_partition: TopicPartition
    said: str

    what_happened = "{stream}: `start` {said}."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "correct `start:` in the stream's document and run `kdi plan`"


class PositionBelowStart(Terminal):
    """The document's `start:` names an offset behind the position: what lies between was neither read nor given up."""

    stream: str
    topic_partition: TopicPartition
    position: int
    start: int

    def parts(self) -> tuple[str, str, str]:
        tp, at = self.topic_partition, self.position
        return (
            f"{self.stream}: `start` says {self.start} for {tp}, and its position is {at} already: a start holds for a "
            f"stream that has none, and [{at}, {self.start}) was not drained.",
            f"every offset below {at} is accounted for; nothing was read and nothing was written.",
            f"take {tp.partition}: {self.start} out of `start:`, to drain on from {at}; or give the offsets up: "
            f"kdi resolve {self.stream} accept-loss --topic-partition {tp} --until {self.start}",
        )


class TopicTruncated(Terminal):
    """The message that was read last is another one now: the topic partition was cut off and has grown since."""

    stream: str
    topic_partition: TopicPartition
    read: LastRead
    found: LastRead

    def parts(self) -> tuple[str, str, str]:
        tp, read = self.topic_partition, self.read
        others = f"of {_time(self.found)}" if self.found.timestamp != read.timestamp else "with another key or value"
        return (
            f"{self.stream}: offset {read.offset} of {tp} holds another message now ({others}) than the one that was "
            f"drained, of {_time(read)}: the brokers lost the end of {tp}, and gave its offsets to other messages.",
            "the rows drained so far, those of the lost messages among them; nothing was written and positions stay as "
            "they are.",
            f"kdi audit {self.stream} --against-kafka   (names the first offset that differs); then kdi resolve "
            f"{self.stream} rewind --topic-partition {tp} --to that offset   (rows of the lost offsets are moved to "
            "<table>_removed)",
        )


def _time(message: LastRead) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=message.timestamp)
    except OverflowError:  # nanoseconds, for one
        return f"timestamp {message.timestamp}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
