"""Truncation: a log that was cut off below a position and has grown past it, seen by the last message that was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kdi_assets.drain.survey import Survey
from kdi_assets.errors import Terminal
from kdi_assets.ledger.entry import LastRead
from kdi_assets.sources.kafka_client import nobody_answers
from kdi_assets.sources.kafka_messages import AtPosition, around_positions
from kdi_assets.stream import Stream, TopicPartition


@dataclass(eq=False, kw_only=True)
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


def truncated(
    stream: Stream, read: Mapping[TopicPartition, LastRead], found: Mapping[TopicPartition, AtPosition]
) -> TopicTruncated | None:
    """The refusal, where another message stands at the offset that was read last.

    One that is gone, by retention, compaction or with an aborted transaction, is no difference.

    Args:
        read: As the ledger keeps them.
        found: What stands there now.
    """
    for tp, at in sorted(found.items()):
        if tp in read and at.before is not None and at.before != read[tp]:
            return TopicTruncated(stream=stream.name, topic_partition=tp, read=read[tp], found=at.before)
    return None


def next_messages(stream: Stream, seen: Survey) -> list[datetime]:
    """When the next message of each topic partition that has a backlog was written, as far as that is known.

    Raises:
        TopicTruncated: The one before it is not the one that was read last.
        BrokerUnreachable: Nobody says what stands there.
    """
    read = seen.last_read()
    found = around_positions(stream.cluster, seen.waiting(), before={tp: m.offset for tp, m in read.items()})
    if refusal := truncated(stream, read, found):
        raise refusal
    if silent := sorted(read.keys() - found.keys()):
        raise nobody_answers(stream.cluster, f"no answer about the last message read of {silent[0]}")
    return [at.next_at for at in found.values() if at.next_at is not None]


def _time(message: LastRead) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=message.timestamp)
    except OverflowError:  # nanoseconds, for one
        return f"timestamp {message.timestamp}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
