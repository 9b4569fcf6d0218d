"""Copy rows into a staging table, in Spark's Python workers.

This module is sent to workers by value: it imports nothing of ours, and the rest inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

RESULT = "part int, rows bigint, sqlstate string, message string"
"""What a task returns; a failure of the database is data, so that Spark neither retries it nor hides its code."""


@dataclass(frozen=True)
class CopyTask:
    """What each task does.

    Attributes:
        parameters: libpq's connection parameters.
        copy: ``COPY … FROM STDIN`` with the staging table.
        record: Records a part and its rows, if the part is not recorded yet; takes both as parameters.
        recorded: Reads the rows of a part; takes the part.
    """

    parameters: Mapping[str, str]
    copy: str
    record: str
    recorded: str


def copying(task: CopyTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for ``mapInArrow`` over frames with one column: lines, each with its line end."""

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import psycopg
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        try:
            rows, state, message = _copy_part(task, part, batches), None, None
        except psycopg.Error as failed:
            rows, state, message = 0, failed.sqlstate or "", str(failed)
        names = ["part", "rows", "sqlstate", "message"]
        types = [pa.int32(), pa.int64(), pa.string(), pa.string()]
        values = [part, rows, state, message]
        yield pa.RecordBatch.from_arrays([pa.array([v], t) for v, t in zip(values, types, strict=True)], names=names)

    return copy


def _copy_part(task: CopyTask, part: int, batches: Iterator[pa.RecordBatch]) -> int:
    """Copy one part, exactly once whatever Spark repeats: rows and the record of the part are one transaction."""
    import psycopg

    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return 0
    with psycopg.connect(**task.parameters) as connection, connection.cursor() as cursor:  # type: ignore[arg-type]
        # The publishing transaction is durable, and with it all that was written to the log before it.
        cursor.execute("SET synchronous_commit = off")
        rows = int(first.num_rows)
        with cursor.copy(task.copy.encode()) as copy:
            copy.write(_text(first))
            for batch in batches:
                copy.write(_text(batch))
                rows += batch.num_rows
        # Another attempt of this task may have been first, or may be about to commit: then this one leaves nothing.
        cursor.execute(task.record.encode(), (part, rows))
        if cursor.rowcount == 1:
            return rows
        connection.rollback()
        cursor.execute(task.recorded.encode(), (part,))
        found: Any = cursor.fetchone()
        return int(found[0])


def _text(batch: pa.RecordBatch) -> memoryview:
    """The lines of a batch as they lie in memory, one after the other."""
    lines = batch.column(0)
    _, offsets, data = lines.buffers()
    if data is None:
        return memoryview(b"")
    at = memoryview(offsets).cast("i" if offsets.size < 8 * (len(lines) + lines.offset + 1) else "q")
    return memoryview(data)[at[lines.offset] : at[lines.offset + len(lines)]]
