"""What a drain refuses to decide by itself: each names the command that decides it."""

from __future__ import annotations

from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.stream import OffsetRange, TopicPartition


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


class SchemaDisagrees(Terminal):
    """The table's columns are not those that the stream's document gives."""

    stream: str
    uri: str
    differences: tuple[str, ...]

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {self.uri} and the stream's document disagree: {'; '.join(self.differences)}.",
            "nothing was read and nothing was written.",
            f"ALTER TABLE delta.`{self.uri}` …, or correct `schema:` and `columns:` and run `kdi check`",
        )


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
