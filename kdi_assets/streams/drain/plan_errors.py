"""Why no plan is made: the stream, its topic and its table as they are do not fit; someone must decide."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.errors import Terminal
from kdi_assets.messages.topic_state import LastRead
from kdi_assets.streams.ledger.errors import another_table
from kdi_assets.wording import sql_command


class RetentionPassedPosition(Terminal):
    """Offsets ``[position, earliest)`` were deleted before they were drained.

    Attributes:
        went_back: The table's URI, if a RESTORE or a rewind set the position back: an older version has the rows.
    """

    stream: str
    topic_partition: TopicPartition
    position: int
    earliest: int
    went_back: str = ""

    def message_parts(self) -> tuple[str, str, str]:
        tp, lost = self.topic_partition, self.earliest - self.position
        accept = f"kdi resolve {self.stream} accept-loss --topic-partition {tp} --until {self.earliest}"
        accept += "   (without options: in all topic partitions)"
        if self.went_back:
            restore = sql_command(f"RESTORE TABLE delta.`{self.went_back}` TO VERSION AS OF VERSION")
            why = "until VACUUM, the version before the last RESTORE or rewind has the rows"
            accept = f"kdi history {self.stream}   ({why}); then {restore}; or {accept}"
        return (
            f"{self.stream}: retention deleted [{self.position}, {self.earliest}) of {tp}, at most {lost:,} messages.",
            f"every offset below {self.position} is accounted for; positions stay as they are.",
            accept,
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
    """The source no longer has a topic partition that has a position.

    Attributes:
        has_expired: It was not read to its end, and retention removed it; the topic is the same.
    """

    stream: str
    topic_partition: TopicPartition
    position: int
    has_expired: bool = False

    def message_parts(self) -> tuple[str, str, str]:
        what, resolve = "the broker no longer has", f"kdi resolve {self.stream} new-topic"
        if self.has_expired:
            shows = "records what may be missing, and reads on; without --yes it shows it"
            what, resolve = "retention removed", f"kdi resolve {self.stream} accept-loss --yes   ({shows})"
        return (
            f"{self.stream}: {what} {self.topic_partition}; it was drained up to {self.position}.",
            "the rows drained so far; positions stay as they are.",
            resolve,
        )


class TableReplaced(Terminal):
    """The table has another id than the table of the positions: it was replaced, or is a clone.

    Attributes:
        has_numbers: As of ``LedgerGap``.
    """

    stream: str
    uri: str
    recorded_id: str
    found_id: str
    has_numbers: bool = False

    def message_parts(self) -> tuple[str, str, str]:
        adopt = (
            f"kdi resolve {self.stream} adopt   (positions from its rows; afterwards, to drain more again: "
            f"kdi resolve {self.stream} rewind --topic-partition TOPIC/NUMBER --to OFFSET)"
        )
        was = f" (the ledger belongs to {self.recorded_id})" if self.recorded_id else ""
        return (
            f"{self.stream}: {self.uri} is another table now, with id {self.found_id}{was}.",
            "nothing was read and nothing was written.",
            another_table(self.stream) if self.has_numbers else adopt,
        )


class RowsWithoutPositions(Terminal):
    """The table has data files and no positions: a clone, a copy, or a table of a writer without positions.

    Attributes:
        has_numbers: As of ``LedgerGap``.
    """

    stream: str
    uri: str
    has_numbers: bool = False

    def message_parts(self) -> tuple[str, str, str]:
        adopt = f"kdi resolve {self.stream} adopt   (positions from its rows)"
        return (
            f"{self.stream}: {self.uri} has rows and no positions: it is a clone, a copy or another writer's table.",
            "nothing was read and nothing was written.",
            another_table(self.stream) if self.has_numbers else adopt,
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
            f"kdi audit {self.stream} --against-source   (names the first offset that differs); then kdi resolve "
            f"{self.stream} rewind --topic-partition {tp} --to OFFSET   (rows of the lost offsets are moved to "
            "<table>_removed)",
        )


def _time(message: LastRead) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=message.timestamp)
    except OverflowError:  # nanoseconds, for one
        return f"timestamp {message.timestamp}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
