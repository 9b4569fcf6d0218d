"""What Kinesis refuses, and what keeps a stream from being drained."""

from __future__ import annotations

from kdi_assets.errors import AGAIN, Terminal, Transient

NOTHING = "nothing was committed by this attempt; earlier commits stay."
ACCEPT_LOSS = (
    "kdi resolve {table} accept-loss --yes   (records what may be missing, and reads on; without --yes it shows it. Or "
    "write a new path into the document: the table so far stays)"
)


class KinesisUnanswered(Transient):
    """Kinesis does not answer, or is too busy."""

    connection: str
    detail: str

    what_happened = "Kinesis ({connection}) does not answer now: {detail}"
    what_is_safe = NOTHING
    what_to_run = f"{AGAIN}   (first check credentials, AWS_ENDPOINT_URL_KINESIS, `region` and `endpoint`)"


class KeysExpired(KinesisUnanswered):
    """The keys came to their end while a task read with them: those of a role last an hour, or as long as it says."""

    what_to_run = f"{AGAIN}   (with new keys; it reads less with --from and --to, a drain with a smaller `max_records`)"


class EndlessAnswers(Transient):
    """A shard answers again and again, and comes no nearer to the record that is looked for, or to its end."""

    stream: str
    shard: str
    answers: int

    what_happened = "{shard} of {stream} gave {answers} answers that come no nearer to what is looked for."
    what_is_safe = NOTHING
    what_to_run = AGAIN


class KinesisRequestRefused(Terminal):
    """Kinesis refuses our credentials, a right, or the request."""

    connection: str
    detail: str

    what_happened = "Kinesis ({connection}) refuses: {detail}"
    what_is_safe = NOTHING
    what_to_run = "kdi doctor   (first grant the right, or correct the document)"


class KinesisRightMissing(Terminal):
    """AWS denies a call that a table needs."""

    table: str
    action: str
    resource: str
    without: str
    detail: str

    what_happened = "{table} has no right {action} on {resource}: {detail} Without it, {without}."
    what_is_safe = "nothing was read, written or registered."
    what_to_run = "kdi doctor {table}   (first allow {action} on {resource})"


class NoSuchKinesisStream(Terminal):
    """There is no such stream in the region."""

    connection: str
    region: str
    stream: str

    what_happened = "Kinesis ({connection}, {region}) has no stream {stream}."
    what_is_safe = "the table is untouched."
    what_to_run = "kdi status   (first correct `stream_name` or the connection's `region`, or create the stream)"


class KinesisReaderMissing(Terminal):
    """The JVM has no reader of shards: its jars were not fetched, or after it started."""

    stream: str

    what_happened = "Spark has no client of Kinesis, which {stream} needs."
    what_is_safe = NOTHING
    what_to_run = "kdi jars --kinesis   (then end the warm driver if one runs: kdi driver stop)"


class BookmarkMissing(Terminal):
    """The ledger has a position of a shard and no sequence number to go on from."""

    stream: str
    shard: str
    table: str

    what_happened = "the ledger of {stream} does not say after which record of {shard} to go on."
    what_is_safe = "the table is untouched."
    what_to_run = (
        "kdi history {table}   (shows the commits that are known. To read on, write a new path into the document: the "
        "table so far stays)"
    )


class BookmarkDiffers(Terminal):
    """Another record has the sequence number that was read last."""

    stream: str
    shard: str
    table: str
    sequence: str

    what_happened = "{shard} of {stream} has another record at {sequence} than the one that was read."
    what_is_safe = "the table is untouched."
    what_to_run = ACCEPT_LOSS


class ShardTrimmed(Terminal):
    """Retention passed the record that was read last, and nobody looked at the shard since."""

    stream: str
    shard: str
    table: str
    since: str
    until: str

    what_happened = (
        "retention passed the position in {shard} of {stream}: records that arrived between {since} and {until} may be "
        "missing."
    )
    what_is_safe = "every record up to the position is in the table; this drain wrote nothing."
    what_to_run = ACCEPT_LOSS


class NoSuchConsumer(Terminal):
    """The stream does not have the consumer that the document names."""

    stream: str
    consumer: str
    table: str

    what_happened = "{stream} has no consumer {consumer}, which `consumer.registered` names."
    what_is_safe = NOTHING
    what_to_run = "kdi drain {table}   (first register it, or remove the line: then drains register one of their own)"


class NoRoomForConsumer(Terminal):
    """The stream has as many consumers as AWS allows."""

    stream: str
    consumer: str
    others: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream} has {len(self.others)} consumers already, and AWS allows no other one: "
            f"{self.consumer} cannot be registered. They are {', '.join(self.others)}.",
            NOTHING,
            "kdi kinesis consumers   (then deregister one that nobody needs, or set consumer: {mode: polling})",
        )


class ConsumerNotActive(Transient):
    """A consumer was asked for again and again, and cannot be used yet."""

    stream: str
    consumer: str
    seconds: int
    detail: str

    what_happened = "the consumer {consumer} of {stream} is not ACTIVE after {seconds} s: {detail}"
    what_is_safe = NOTHING
    what_to_run = AGAIN


class ConsumerTaken(Transient):
    """Another reader subscribed to the shard with the same consumer: a consumer has one reader of a shard at a time."""

    stream: str
    shard: str
    consumer: str

    what_happened = "another reader of {stream} is active: it reads {shard} with the same consumer, {consumer}."
    what_is_safe = NOTHING
    what_to_run = (
        f"{AGAIN}   (when the other one has ended. If it is not a drain, it ends the drain each time: give the table a "
        "consumer of its own)"
    )


class ConsumerGone(Transient):
    """A consumer was deregistered while it read."""

    stream: str
    shard: str
    consumer: str

    what_happened = "the consumer {consumer} of {stream} was deregistered while it read {shard}."
    what_is_safe = NOTHING
    what_to_run = AGAIN


class SeamOpen(Transient):
    """The two clients disagree about the records at an edge of what was read."""

    stream: str
    shard: str
    detail: str

    what_happened = "{shard} of {stream} was not read without a hole: {detail}"
    what_is_safe = NOTHING
    what_to_run = AGAIN


class CheckpointUnusable(Terminal):
    """The document's `start` does not say where each shard begins, or what it says cannot be read."""

    stream: str
    shard: str
    said: str

    what_happened = "`start` of {stream}: {shard} {said}."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "kdi check   (first correct `start`)"


class SpanDiffers(Terminal):
    """Records that were read again are not those that a drain read: count or sequence numbers differ.

    Attributes:
        start: The number of the first record of the span.
        first: The sequence number of the record at which the reading began.
    """

    stream: str
    shard: str
    start: int
    first: str
    detail: str
    table: str

    what_happened = "{shard} of {stream} has other records from offset {start} on than the drained ones: {detail}"
    what_is_safe = "nothing was replaced; rows and dead letters stay as they are."
    what_to_run = (
        "kdi audit {table} --against-source   (names each such span. What no drain read gets into another table only: "
        "write a new path into the document, and a `start` before it; the table so far stays. Later offsets and other "
        "dates can be read again)"
    )


class SpanTrimmed(Transient):
    """Retention passed records just when they were read again."""

    stream: str
    shard: str
    start: int

    what_happened = "retention passed records of {shard} of {stream}, from offset {start} on, while they were read."
    what_is_safe = "nothing was replaced; rows and dead letters stay as they are."
    what_to_run = f"{AGAIN}   (it leaves out what is gone, or says what to decide)"


class SpanForgotten(Terminal):
    """Records are held of which neither log nor archive says which numbers they had."""

    stream: str
    shard: str
    start: int
    end: int
    table: str

    what_happened = (
        "the commits that drained offsets [{start}, {end}) of {shard} of {stream} are in neither the table's log nor "
        "its archive: nobody can say which records they are."
    )
    what_is_safe = "the rows of these offsets, and their dead letters."
    what_to_run = "kdi history {table}   (shows from which version on the commits are known; later dates can be read)"


class OffsetsUnknown(Terminal):
    """A record has an offset once a drain has read it, and nothing leads from a time to an offset."""

    stream: str

    what_happened = (
        "records of {stream} have offsets by being drained: none belongs to a time, and none to a record that no drain "
        "has read."
    )
    what_is_safe = "the table is untouched."
    what_to_run = "kdi audit {stream}   (of all offsets, or between two)"
