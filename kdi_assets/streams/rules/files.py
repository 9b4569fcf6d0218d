"""Files that messages name: look at them, judge their rows, and give each message one verdict as a whole.

A message is few bytes and its files are many rows, so no message is exploded in a cell. The messages of a plan are
taken to the driver, their files are looked at, and one pass over the rows gives the verdict of each message. A second
pass, the one that writes, reads the files of the good messages alone; what it writes is counted against the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.message_format import MOST_FILE_MESSAGES, Files
from kdi_assets.messages.formats.decoder import DOCUMENT, PAYLOAD, VALUE
from kdi_assets.messages.formats.files.decoder import RESULT_DDL, FilesDecoder
from kdi_assets.messages.formats.files.look import LookedAt, changed_files, look_at, read_through
from kdi_assets.messages.formats.files.names import NamedFiles, named_files
from kdi_assets.messages.formats.rules import Rule
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.runtime.application_end import cluster_failure
from kdi_assets.runtime.root_cause import root_cause
from kdi_assets.runtime.spark_failures import spark_exceptions
from kdi_assets.streams.rules.errors import TooManyMessages
from kdi_assets.streams.rules.expectations import UNMET, ExpectationsRule
from kdi_assets.streams.rules.file_rows import At, PlacedFile, numbered_rows, rows_of
from kdi_assets.streams.rules.judge import with_reasons
from kdi_assets.streams.rules.records import stream_decoder
from kdi_assets.streams.rules.rules import MessageRule
from kdi_assets.streams.rules.tally import Counts
from kdi_assets.streams.rules.verdict import DEAD_LETTER, ROW, VERDICT
from kdi_assets.streams.spark_errors import ReadOrWriteFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_ROWS = 2**31 - 1
_BLAMES_FILE = "FAILED_READ_FILE"
"""In Spark's error if a task failed while it read a file: the file may be damaged, or the storage failed."""
_KNOWN_DDL = f"partition int, offset bigint, result {RESULT_DDL}"


class FilesRule(MessageRule):
    """The rule of ``format: files``: skips messages that name nothing to read, and counts what rows did not meet."""

    def skips(self) -> str:
        return f"coalesce({DOCUMENT}.nothing, false)"

    def reasons(self, now: datetime) -> list[Rule]:
        return [Rule("no_rows", f"coalesce({DOCUMENT}.rows, 0) = 0 AND NOT coalesce({DOCUMENT}.nothing, false)")]

    def observed(self) -> dict[str, str]:
        if not self.stream.expectations:
            return {}
        # As in other streams: of messages that would be rows otherwise.
        otherwise_row = f"{VERDICT} = {ROW} OR {VERDICT} = {DEAD_LETTER} AND {DOCUMENT}.reason = 'expectation_not_met'"
        return {"unmet": f"CASE WHEN {otherwise_row} THEN {DOCUMENT}.unmet END"}

    def entry_fields(self, counts: Counts) -> dict[str, Any]:
        return ExpectationsRule(self.decoder).entry_fields(counts)

    def refuse(self, counts: Counts) -> None:
        ExpectationsRule(self.decoder).refuse(counts)


@dataclass
class _Message:
    """A message of the plan, and what is found out about it.

    Attributes:
        columns: Of ``PlacedFile.message``.
        reason, detail: Why it is a dead letter; empty if it is none.
        rows: Of all its files together.
        unmet: Numbers of the expectations that one of its rows does not meet.
    """

    columns: Mapping[str, Any]
    named: NamedFiles
    reason: str = ""
    detail: str = ""
    rows: int = 0
    unmet: list[str] = field(default_factory=list)

    @property
    def at(self) -> At:
        return self.columns["partition"], self.columns["offset"]

    @property
    def is_read(self) -> bool:
        return bool(self.named.uris) and not self.reason

    def refuse(self, reason: str, detail: str = "") -> None:
        """Make it a dead letter, unless it is one already."""
        if not self.reason:
            self.reason, self.detail = reason, detail


def knowing_files(messages: DataFrame, decoder: StreamDecoder, *, now: datetime) -> StreamDecoder:
    """A decoder that knows the files of these messages, and what each message becomes. The files are read.

    Args:
        messages: As ``reader.read_ranges`` gives them.
        now: The moment of planning, UTC.

    Raises:
        TooManyMessages: More than the driver can hold.
        StorageFailed: The storage does not answer; a file that is missing is a dead letter of its messages.
        ReadOrWriteFailed: Spark failed, and none of the files is the cause.
    """
    if not isinstance(files := decoder.payload_decoder, FilesDecoder):
        return decoder
    spark = messages.sparkSession
    return _Reading(spark, decoder, files, stream_decoder(decoder.stream.of_file_rows), now).of(messages)


def refuse_changed_files(decoder: StreamDecoder) -> None:
    """Refuse what was written of files that were written again since the first pass: nobody judged those rows.

    Raises:
        ReadOrWriteFailed: There is one; the next drain reads it as it is then.
    """
    files = decoder.payload_decoder
    if isinstance(files, FilesDecoder) and (changed := changed_files(files.seen)):
        detail = f"{changed[0]} was written again meanwhile"
        raise ReadOrWriteFailed(stream=decoder.stream.name, step="reading files", detail=detail)


@dataclass(frozen=True)
class _Reading:
    """The first pass over the files of a plan."""

    spark: SparkSession
    decoder: StreamDecoder
    files: FilesDecoder
    rows_decoder: StreamDecoder
    now: datetime

    def of(self, messages: DataFrame) -> StreamDecoder:
        found = self._messages(messages)
        sizes = self._look(found)
        placed = self._judge(found, sizes)
        known = self.spark.createDataFrame([_result(m) for m in found], _KNOWN_DDL)
        seen = {file.uri: sizes[file.uri].state for file in placed}
        return replace(self.decoder, payload_decoder=replace(self.files, known=known, files=placed, seen=seen))

    def _messages(self, messages: DataFrame) -> list[_Message]:
        """The messages with a value, each with what it names."""
        from pyspark.sql import functions as F

        opened = self.decoder.with_payload(messages.withColumn(VALUE, F.col("value")))
        columns = [c for c in messages.columns if c not in ("value", "timestamp")]
        micros = F.expr("unix_micros(timestamp)").alias("micros")
        with_value = opened.where(F.col(VALUE).isNotNull()).select(*columns, micros, PAYLOAD)
        rows = with_value.limit(MOST_FILE_MESSAGES + 1).collect()
        if len(rows) > MOST_FILE_MESSAGES:
            raise TooManyMessages(stream=self.decoder.stream.name, most=MOST_FILE_MESSAGES)
        found = []
        for row in rows:
            values = row.asDict()
            payload = values.pop(PAYLOAD)
            named = self._named(payload)
            found.append(_Message({"headers": None, **values}, named, named.reason, named.detail))
        return sorted(found, key=lambda message: message.at)

    def _named(self, payload: bytes | None) -> NamedFiles:
        if payload is None:
            return NamedFiles(reason=f"not_{self.decoder.stream.compression}")
        return named_files(bytes(payload), self._format)

    @property
    def _format(self) -> Files:
        return self.files.format

    def _look(self, messages: Sequence[_Message]) -> dict[str, LookedAt]:
        """Look at all files; messages with a file that cannot be read become dead letters."""
        looked = look_at(_uris(messages), self._format, self.rows_decoder.source)
        _refuse(messages, {uri: found for uri, found in looked.items() if found.reason})
        return looked

    def _judge(self, messages: Sequence[_Message], looked: Mapping[str, LookedAt]) -> list[PlacedFile]:
        """Judge the rows of all files; the files of the messages that become rows."""
        sizes = {uri: found.rows for uri, found in looked.items() if found.rows is not None}
        try:
            sizes |= self._counted([uri for uri in _uris(messages) if uri not in sizes])
            placed = _placed(messages, sizes)
            verdicts = self._verdicts(placed)
        except spark_exceptions() as failed:
            if error := cluster_failure(root_cause(failed)):
                raise error from failed
            if not (unreadable := self._unreadable(_uris(messages))):
                raise self._failed(root_cause(failed)) from failed
            _refuse(messages, {uri: LookedAt("unreadable_file", uri) for uri in unreadable})
            return self._judge(messages, looked)
        self._note(messages, verdicts, expected={file.at: file.count for file in placed})
        return _placed(messages, sizes)

    def _failed(self, detail: str) -> ReadOrWriteFailed:
        return ReadOrWriteFailed(stream=self.decoder.stream.name, step="reading files", detail=detail)

    def _counted(self, uris: Sequence[str]) -> dict[str, int]:
        """The rows of files without a footer that says it."""
        from pyspark.sql import functions as F

        if not uris:
            return {}
        rows = numbered_rows(self.spark, uris, self.rows_decoder).groupBy("_kdi_file").agg(F.count("*").alias("n"))
        found = {row["_kdi_file"]: int(row["n"]) for row in rows.collect()}
        return {uri: found.get(uri, 0) for uri in uris}

    def _verdicts(self, files: Sequence[PlacedFile]) -> dict[At, Any]:
        """By message: its rows, the first bad one's reason, and the expectations that are not met."""
        from pyspark.sql import functions as F

        rows = with_reasons(rows_of(self.spark, files, self.rows_decoder), self.rows_decoder, self.now, None)
        path = self.rows_decoder.stream.source_struct.path
        bad = f"CASE WHEN {VERDICT} = {DEAD_LETTER} THEN struct({path('index')}, reason, field) END"
        unmet = f"array_distinct(flatten(collect_set({UNMET})))" if self.decoder.stream.expectations else "array()"
        found = rows.groupBy(path("partition"), path("offset")).agg(
            F.count("*").alias("rows"), F.expr(f"min({bad})").alias("bad"), F.expr(unmet).alias("unmet")
        )
        return {(row["partition"], row["offset"]): row for row in found.collect()}

    def _note(self, messages: Iterable[_Message], verdicts: Mapping[At, Any], *, expected: Mapping[At, int]) -> None:
        for message in messages:
            found = verdicts.get(message.at)
            message.rows = int(found["rows"]) if found else 0
            if message.rows != expected.get(message.at, 0):
                # The numbers of the rows would not be those of the files.
                raise self._failed(f"{message.rows:,} rows, of {expected.get(message.at, 0):,}: the files changed")
            if not found:
                continue
            message.unmet = list(found["unmet"])
            if bad := found["bad"]:
                message.refuse(bad["reason"], bad["field"] or "")

    def _unreadable(self, uris: Iterable[str]) -> list[str]:
        """The files at which Spark fails although the storage gives all of their bytes; each is read alone.

        Raises:
            StorageFailed: The storage does not give them.
        """
        bad = []
        for uri in uris:
            try:
                numbered_rows(self.spark, [uri], self.rows_decoder).write.format("noop").mode("overwrite").save()
            except spark_exceptions() as failed:
                if error := cluster_failure(root_cause(failed)):
                    raise error from failed
                if _BLAMES_FILE not in str(failed):
                    raise self._failed(root_cause(failed)) from failed
                read_through(uri)
                bad.append(uri)
        return bad


def _uris(messages: Iterable[_Message]) -> list[str]:
    return list(dict.fromkeys(uri for message in messages if message.is_read for uri in message.named.uris))


def _refuse(messages: Iterable[_Message], bad: Mapping[str, LookedAt]) -> None:
    for message in messages:
        for uri in message.named.uris:
            if found := bad.get(uri):
                message.refuse(found.reason, found.field)


def _placed(messages: Iterable[_Message], sizes: Mapping[str, int]) -> list[PlacedFile]:
    """The files of the messages that are no dead letters so far, each at its place among the rows of its message."""
    placed = []
    for message in messages:
        if not message.is_read:
            continue
        count, first = sum(sizes[uri] for uri in message.named.uris), 0
        if count > _MOST_ROWS:
            message.refuse("too_many_rows")
            continue
        for uri in message.named.uris:
            placed.append(PlacedFile(uri, message.columns, first, count))
            first += sizes[uri]
    return placed


def _result(message: _Message) -> tuple[int, int, tuple[Any, ...]]:
    """The row of ``_KNOWN_DDL``."""
    why = (message.reason or None, message.detail or None)
    return *message.at, (*why, message.rows, message.named.names_nothing, message.unmet)
