"""What lies in the tables, counted without a JVM: delta-rs reads both, and the digests are arithmetic."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kdi_assets.audit.coverage import Coverage
from kdi_assets.audit.offsets_in_spark import COUNTS, Found, ours
from kdi_assets.ledger.coordinates import struct_at
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.digests import xxhash64
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.history import LiveHistory
from kdi_assets.ledger.letters import OUTCOME
from kdi_assets.ledger.superseded_offsets import superseded
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from deltalake import QueryBuilder
    from numpy.typing import NDArray

_AT_A_TIME = 1 << 17
_PARTITIONS = 1 << 20
"""No topic has as many: a row with a higher number is not of one."""
_ROWS = """SELECT CAST({at}['partition'] AS bigint) AS partition, CAST({at}['offset'] AS bigint) AS "offset",
  {index} AS index, {count} AS count, true AS is_row, true AS counts, 1 AS rows
FROM stored"""
_LETTERS = """SELECT CAST(l.partition AS bigint), l."offset", 0, 1, false, said.version IS NOT NULL, 1
FROM letters AS l LEFT JOIN ({said}) AS said ON l.attempt_id = said.attempt_id"""
# As ``letters.unreturned`` has it: a letter is none any more if a newer entry says that its message became a row.
_UNRETURNED = """
LEFT JOIN (
  SELECT r.partition, r."offset", r.timestamp, max(said.version) AS version
  FROM letters AS r JOIN ({said}) AS said ON r.attempt_id = said.attempt_id
  WHERE r.outcome = 'row' GROUP BY 1, 2, 3
) AS returned ON l.partition = returned.partition AND l."offset" = returned."offset"
  AND l.timestamp = returned.timestamp
WHERE l.outcome IS NULL AND NOT coalesce(said.version < returned.version, false)"""
_SAID = "SELECT column1 AS attempt_id, column2 AS version FROM (VALUES {attempts})"
_FOUND = "SELECT * FROM ({both}) WHERE {ours}"
_SUMS = "SELECT partition, {sums} FROM ({found}) GROUP BY partition"
_MESSAGES = """SELECT partition, "offset", index, count FROM ({found})
WHERE counts AND "offset" IS NOT NULL AND partition BETWEEN 0 AND {last}"""


def count_without_spark(
    stream: Stream, lake: str, covered: Coverage, history: LiveHistory
) -> Mapping[int, Found] | None:
    """What ``offsets.count`` answers of all rows and letters that the ledger can speak of.

    Returns:
        ``None`` if only single offsets can tell, or delta-rs cannot read the tables.

    Raises:
        KdiError: A log cannot be read.
    """
    import pyarrow as pa
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError

    if covered.digest is None or superseded(history.entries):
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
        return _counted(delta_rs, _FOUND.format(both=" UNION ALL ".join(both), ours=ours(covered.begin)))
    except (DeltaError, pa.ArrowException, OSError):
        return None  # Spark may be able to read them, or says why nobody is


def _rows(path: Sequence[str], fields: Collection[str]) -> str:
    """Every row, as ``offsets.coordinates`` has it."""
    column, *inner = path
    at = '"' + column.replace('"', '""') + '"' + "".join(f"[{_text(step)}]" for step in inner)
    explodes = "index" in fields
    index, count = (f"coalesce({at}['index'], 0)", f"coalesce({at}['count'], 1)") if explodes else ("0", "1")
    return _ROWS.format(at=at, index=index, count=count)


def _letters(letters: TableLog, entries: Sequence[LedgerEntry]) -> str:
    """Every letter whose message is no row, as ``letters.letters_now`` has it."""
    versions = {e.attempt_id: e.version for e in entries}
    said = _SAID.format(attempts=", ".join(f"({_text(attempt)}, {v})" for attempt, v in versions.items()))
    replayed = any(f["name"] == OUTCOME for f in letters.schema["fields"])
    return (_LETTERS + _UNRETURNED if replayed else _LETTERS).format(said=said)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _counted(delta_rs: QueryBuilder, found: str) -> dict[int, Found] | None:
    """Counts and digests by partition; ``None`` if a row says no partition that there can be."""
    import numpy as np

    sums = ", ".join(f"{sql} AS {name}" for name, sql in COUNTS.items())
    counts = [r for batch in _read(delta_rs, _SUMS.format(sums=sums, found=found)) for r in batch.to_pylist()]
    if any(r["partition"] not in range(_PARTITIONS) for r in counts):
        return None
    digests, links = np.zeros((2, _PARTITIONS), np.int64)
    for batch in _read(delta_rs, _MESSAGES.format(found=found, last=_PARTITIONS - 1)):
        # By DLPack: `to_numpy` imports pandas, which takes longer than a small audit.
        columns: Any = map(np.from_dlpack, batch.columns)
        partitions, offsets, indexes, several = columns
        first, linked = indexes == 0, several > 1
        _add(digests, partitions[first], offsets[first])
        if linked.any():
            at, index = (partitions[linked], offsets[linked]), indexes[linked]
            _add(links, *at, index)
            _add(links, *at, (index + 1) % several[linked])
    return {(p := r.pop("partition")): Found(**r, digest=int(digests[p]), links=int(links[p])) for r in counts}


def _add(digests: NDArray[np.int64], partitions: NDArray[np.int64], *numbers: NDArray[np.int64]) -> None:
    """Fold the hash of each row into the digest of its partition."""
    import numpy as np

    np.bitwise_xor.at(digests, partitions, xxhash64(partitions, *numbers).astype(np.int64))


def _read(delta_rs: QueryBuilder, query: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    yield from pa.RecordBatchReader.from_stream(delta_rs.execute(query))
