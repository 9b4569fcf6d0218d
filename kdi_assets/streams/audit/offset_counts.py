"""Counts and digests of the offsets in the tables, without a JVM: delta-rs reads the tables, numpy adds the digests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.coordinates import struct_at, xxhash64
from kdi_assets.streams.audit.coverage import Coverage
from kdi_assets.streams.audit.offsets_in_spark import COUNTS, OffsetCounts, covered_sql
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.history import LiveHistory
from kdi_assets.streams.ledger.letters import OUTCOME
from kdi_assets.streams.ledger.superseded_offsets import superseded_by_decisions

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from deltalake import QueryBuilder
    from numpy.typing import NDArray

_AT_A_TIME = 1 << 17
_PARTITIONS = 1 << 20
"""No topic has this many; a row with a higher number has no valid partition."""
_ROWS = """SELECT CAST({at}['partition'] AS bigint) AS partition, CAST({at}['offset'] AS bigint) AS "offset",
  {index} AS index, {count} AS count, true AS is_row, true AS counts, 1 AS rows
FROM stored"""
_LETTERS = """SELECT CAST(l.partition AS bigint), l."offset", 0, 1, false, attempt.version IS NOT NULL, 1
FROM letters AS l LEFT JOIN ({attempts}) AS attempt ON l.attempt_id = attempt.attempt_id"""
# Like ``letters.filter_letters_without_rows``: leave out dead letters that became rows by a newer replay.
_WITHOUT_ROWS = """
LEFT JOIN (
  SELECT r.partition, r."offset", r.timestamp, max(attempt.version) AS version
  FROM letters AS r JOIN ({attempts}) AS attempt ON r.attempt_id = attempt.attempt_id
  WHERE r.outcome = 'row' GROUP BY 1, 2, 3
) AS returned ON l.partition = returned.partition AND l."offset" = returned."offset"
  AND l.timestamp = returned.timestamp
WHERE l.outcome IS NULL AND NOT coalesce(attempt.version < returned.version, false)"""
_ATTEMPTS = "SELECT column1 AS attempt_id, column2 AS version FROM (VALUES {rows})"
_FOUND = "SELECT * FROM ({both}) WHERE {covered}"
_SUMS = "SELECT partition, {sums} FROM ({found}) GROUP BY partition"
_MESSAGES = """SELECT partition, "offset", index, count FROM ({found})
WHERE counts AND "offset" IS NOT NULL AND partition BETWEEN 0 AND {last}"""


def count_without_spark(
    stream: Stream, lake: str, covered: Coverage, history: LiveHistory
) -> Mapping[int, OffsetCounts] | None:
    """The same as ``offsets_in_spark.count_offsets`` of all rows and dead letters that the ledger covers.

    Returns:
        ``None`` if counts prove nothing for this history, or delta-rs cannot read the tables.

    Raises:
        KdiError: A log cannot be read.
    """
    import pyarrow as pa
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError

    if covered.digest is None or superseded_by_decisions(history.entries):
        return None
    tables = {"stored": TableLog.existing(stream.table_uri(lake), history.version)}
    path, fields = struct_at(tables["stored"].schema, stream.coordinates)
    if not path:
        return None
    both = [_rows(path, fields)]
    if letters := TableLog.open(stream.dead_letters_uri(lake)):
        tables["letters"] = letters
        both.append(_letters(letters, history.entries))
    try:
        delta_rs = QueryBuilder({"datafusion.execution.batch_size": str(_AT_A_TIME)})
        for name, log in tables.items():
            delta_rs.register(name, log.delta_table)
        return _counted(delta_rs, _FOUND.format(both=" UNION ALL ".join(both), covered=covered_sql(covered.begin)))
    except (DeltaError, pa.ArrowException, OSError):
        return None  # Spark may be able to read them; if not, it reports why


def _rows(path: Sequence[str], fields: Collection[str]) -> str:
    """Every row, like ``coordinates``."""
    column, *inner = path
    at = '"' + column.replace('"', '""') + '"' + "".join(f"[{_text(step)}]" for step in inner)
    explodes = "index" in fields
    index, count = (f"coalesce({at}['index'], 0)", f"coalesce({at}['count'], 1)") if explodes else ("0", "1")
    return _ROWS.format(at=at, index=index, count=count)


def _letters(letters: TableLog, entries: Sequence[LedgerEntry]) -> str:
    """Every dead letter whose message is not a row, like ``letters.letters_without_rows``."""
    versions = {e.attempt_id: e.version for e in entries}
    attempts = _ATTEMPTS.format(rows=", ".join(f"({_text(attempt)}, {v})" for attempt, v in versions.items()))
    replayed = any(f["name"] == OUTCOME for f in letters.schema["fields"])
    return (_LETTERS + _WITHOUT_ROWS if replayed else _LETTERS).format(attempts=attempts)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _counted(delta_rs: QueryBuilder, found: str) -> dict[int, OffsetCounts] | None:
    """Counts and digests by partition; ``None`` if a row has no valid partition."""
    import numpy as np

    sums = ", ".join(f"{sql} AS {name}" for name, sql in COUNTS.items())
    counts = [r for batch in _read(delta_rs, _SUMS.format(sums=sums, found=found)) for r in batch.to_pylist()]
    if any(r["partition"] not in range(_PARTITIONS) for r in counts):
        return None
    digests, links = np.zeros((2, _PARTITIONS), np.int64)
    for batch in _read(delta_rs, _MESSAGES.format(found=found, last=_PARTITIONS - 1)):
        # DLPack, because `to_numpy` imports pandas, which takes longer than a small audit.
        columns: Any = map(np.from_dlpack, batch.columns)
        partitions, offsets, indexes, several = columns
        first, linked = indexes == 0, several > 1
        _add(digests, partitions[first], offsets[first])
        if linked.any():
            at, index = (partitions[linked], offsets[linked]), indexes[linked]
            _add(links, *at, index)
            _add(links, *at, (index + 1) % several[linked])
    return {(p := r.pop("partition")): OffsetCounts(**r, digest=int(digests[p]), links=int(links[p])) for r in counts}


def _add(digests: NDArray[np.int64], partitions: NDArray[np.int64], *numbers: NDArray[np.int64]) -> None:
    """Add the hash of each row to the digest of its partition."""
    import numpy as np

    np.bitwise_xor.at(digests, partitions, xxhash64(partitions, *numbers).astype(np.int64))


def _read(delta_rs: QueryBuilder, query: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    yield from pa.RecordBatchReader.from_stream(delta_rs.execute(query))
