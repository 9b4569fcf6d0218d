"""What Kinesis refuses, and what keeps a stream from being drained."""

from __future__ import annotations

from kdi_assets.errors import AGAIN, Terminal, Transient

NOTHING = "nothing was committed by this attempt."


class KinesisUnanswered(Transient):
    """Kinesis does not answer, or is too busy."""

    connection: str
    detail: str

    what_happened = "Kinesis ({connection}) does not answer now: {detail}"
    what_is_safe = NOTHING
    what_to_run = AGAIN


class EndlessAnswers(Transient):
    """A shard answers again and again, and neither with the record that is looked for nor with its end."""

    stream: str
    shard: str
    answers: int

    what_happened = "{shard} of {stream} gave {answers} answers without reaching what was looked for."
    what_is_safe = NOTHING
    what_to_run = AGAIN


class KinesisRequestRefused(Terminal):
    """Kinesis refuses our credentials, a right, or the request."""

    connection: str
    detail: str

    what_happened = "Kinesis ({connection}) refuses: {detail}"
    what_is_safe = NOTHING
    what_to_run = "kdi doctor   (first grant the right, or correct the document)"


class NoSuchKinesisStream(Terminal):
    """There is no such stream in the region."""

    connection: str
    stream: str

    what_happened = "Kinesis ({connection}) has no stream {stream}."
    what_is_safe = "the table is untouched."
    what_to_run = "kdi status   (first correct the document, or create the stream)"


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

    what_happened = "the ledger of {stream} does not say after which record of {shard} to go on."
    what_is_safe = "the table is untouched."
    what_to_run = "kdi history {stream}"


class BookmarkDiffers(Terminal):
    """Another record has the sequence number that was read last."""

    stream: str
    shard: str
    sequence: str

    what_happened = "{shard} of {stream} has another record at {sequence} than the one that was read."
    what_is_safe = "the table is untouched."
    what_to_run = "kdi status   (then decide with whoever owns the stream)"


class ShardTrimmed(Terminal):
    """Retention passed the record that was read last, and nobody looked at the shard since."""

    stream: str
    shard: str
    since: str
    until: str

    what_happened = (
        "retention passed the position in {shard} of {stream}: records that arrived between {since} and {until} may be "
        "missing."
    )
    what_is_safe = "every record up to the position is in the table; this drain wrote nothing."
    what_to_run = "kdi status"


class SeamOpen(Transient):
    """The two clients disagree about the records at an edge of what was read."""

    stream: str
    shard: str
    detail: str

    what_happened = "{shard} of {stream} was not read without a hole: {detail}"
    what_is_safe = NOTHING
    what_to_run = AGAIN


class SpanDiffers(Terminal):
    """Records that were read again are not those that a drain read: count or sequence numbers differ.

    Attributes:
        detail: Begins with the number of the first record.
    """

    connection: str
    detail: str

    what_happened = "Kinesis ({connection}) has other records from offset {detail}."
    what_is_safe = "nothing was replaced; rows and dead letters stay as they are."
    what_to_run = "kdi audit TABLE --against-source   (compares all that the stream still holds)"


class SpanTrimmed(Terminal):
    """Retention passed the first record of a span, and the others of it have no numbers without it."""

    stream: str
    shard: str
    start: int
    end: int

    what_happened = (
        "retention passed offsets [{start}, {end}) of {shard} of {stream}, or the beginning of what a drain read there."
    )
    what_is_safe = "the rows of these offsets, and their dead letters."
    what_to_run = "the same command for offsets from {end} on, or for later dates"


class SpanForgotten(Terminal):
    """Records are held of which neither log nor archive says which numbers they had."""

    stream: str
    shard: str
    start: int
    end: int

    what_happened = (
        "the commits that drained offsets [{start}, {end}) of {shard} of {stream} are in neither the table's log nor "
        "its archive: their records cannot be told from others."
    )
    what_is_safe = "the rows of these offsets, and their dead letters."
    what_to_run = "kdi history {stream}   (shows from which version on the commits are known; later dates can be read)"


class ReadsAfterPositions(Terminal):
    """Records without numbers cannot be read by numbers."""

    stream: str

    what_happened = "records of {stream} have no offsets before a drain reads them."
    what_is_safe = NOTHING
    what_to_run = "kdi status {stream}"
