"""Look at files before any row is read: are they there, and do they have the columns? On the driver, many at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kdi_assets.delta.storage import storage_failures, table_file_system
from kdi_assets.documents.model.message_format import Files, Parquet

if TYPE_CHECKING:
    from pyarrow import DataType as ArrowType
    from pyarrow.fs import FileInfo, FileSystem
    from pyarrow.parquet import ParquetFile
    from pyspark.sql.types import DataType, StructType

SIDE_BY_SIDE = 16
MOST_LINE_BYTES, MOST_TEXT_BYTES = 64 << 20, 16 << 30
"""Of a line, and of all lines of a file, decompressed: Spark holds a line, and orders the lines of a file."""
MOST_FOOTER_BYTES, MOST_COLUMN_BYTES = 256 << 20, 2 << 30
"""Of the metadata of a Parquet file, and of a column of a row group, decompressed."""
_MARK, _TAIL_BYTES, _CHUNK_BYTES = b"PAR1", 64 << 10, 8 << 20
_COMPRESSED: Mapping[str, str] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""By the end of their names, files that Spark decompresses."""
_MOST_GZIP_RATIO = 1032
"""Source: zlib, "Technical Details": the highest ratio of deflate is 1032:1."""
_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint", "double"),
    "float": ("double",),
}
"""Spark reads a column of the first type as one of the others."""


@dataclass(frozen=True, slots=True)
class LookedAt:
    """A file as it is now.

    Attributes:
        reason: Why it cannot be read; empty if it can.
        field: The column that does not suit.
        rows: Of a Parquet file, by its footer; ``None`` for others.
        state: Its size, and the nanoseconds since 1970 at which it was written.
    """

    reason: str = ""
    field: str = ""
    rows: int | None = None
    state: tuple[int, int] = dataclass_field(default=(0, 0), compare=False)


def look_at(uris: Collection[str], format_: Files, record: StructType) -> dict[str, LookedAt]:
    """Look at every file.

    Raises:
        StorageFailed: The storage does not answer, or refuses; a file that is missing is no failure.
    """
    distinct = list(dict.fromkeys(uris))
    systems = {root: _file_system(root) for root in {_root_of(uri) for uri in distinct}}
    looking = partial(_look_at, systems=systems, parquet=isinstance(format_.of, Parquet), record=record)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        return dict(zip(distinct, threads.map(looking, distinct), strict=True))


def read_through(uri: str) -> None:
    """Read every byte of a file, and drop it.

    Raises:
        StorageFailed: The storage does not give them all.
    """
    root = _root_of(uri)
    with storage_failures(uri), _file_system(root).open_input_file(_path_in(root, uri)) as file:
        while file.read(_CHUNK_BYTES):
            pass


def _look_at(uri: str, *, systems: Mapping[str, FileSystem], parquet: bool, record: StructType) -> LookedAt:
    from pyarrow.fs import FileType

    root = _root_of(uri)
    files, path = systems[root], _path_in(root, uri)
    with storage_failures(uri):
        (info,) = files.get_file_info([path])
        if info.type is not FileType.File:
            return LookedAt("missing_file", uri)
        if not parquet:
            return LookedAt("too_large", uri) if _is_too_large(files, path, info) else LookedAt(state=_state(info))
        try:
            footer = _footer(files, path)
        except FileNotFoundError:
            return LookedAt("missing_file", uri)
    # Outside of ``storage_failures``: the bytes are here, and pyarrow raises OSError also for bytes that make no sense.
    if (found := _parsed(footer)) is None:
        return LookedAt("unreadable_file", uri)
    if _largest_column(found) > MOST_COLUMN_BYTES:
        return LookedAt("too_large", uri)
    field = misfit(_record_of(found), record)
    return LookedAt("other_schema", field) if field else LookedAt(rows=found.metadata.num_rows, state=_state(info))


def _state(info: FileInfo) -> tuple[int, int]:
    return info.size, info.mtime_ns or 0


def changed_files(seen: Mapping[str, tuple[int, int]]) -> list[str]:
    """The files that were written again since they were looked at. One that was removed had been read before.

    Args:
        seen: By file, ``LookedAt.state``.

    Raises:
        StorageFailed: The storage does not answer, or refuses.
    """
    from pyarrow.fs import FileType

    systems = {root: _file_system(root) for root in {_root_of(uri) for uri in seen}}

    def is_changed(uri: str) -> bool:
        root = _root_of(uri)
        with storage_failures(uri):
            (info,) = systems[root].get_file_info([_path_in(root, uri)])
        return info.type is FileType.File and _state(info) != seen[uri]

    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        return [uri for uri, changed in zip(seen, threads.map(is_changed, seen), strict=True) if changed]


def _is_too_large(files: FileSystem, path: str, info: FileInfo) -> bool:
    """Whether a text file has a line, or decompressed content, beyond the limits; few files are read for it."""
    from pyarrow import ArrowException

    codec = _COMPRESSED.get(PurePosixPath(path).suffix, "")
    at_most = info.size * {"": 1, "gzip": _MOST_GZIP_RATIO}.get(codec, MOST_LINE_BYTES)
    if at_most <= MOST_LINE_BYTES:
        return False
    line = content = 0
    try:
        with files.open_input_stream(path, compression=codec or None) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                first, last = chunk.find(b"\n"), chunk.rfind(b"\n")
                content += len(chunk)
                longest = line + (first if first >= 0 else len(chunk))
                line = len(chunk) - last - 1 if last >= 0 else longest
                if max(longest, line) > MOST_LINE_BYTES or content > MOST_TEXT_BYTES:
                    return True
    except (ArrowException, OSError):
        return False  # damaged, or the storage fails: reading it for its rows tells
    return False


def _largest_column(file: ParquetFile) -> int:
    groups = (file.metadata.row_group(n) for n in range(file.metadata.num_row_groups))
    return max((g.column(n).total_uncompressed_size for g in groups for n in range(g.num_columns)), default=0)


def _root_of(uri: str) -> str:
    """The bucket; empty for this machine."""
    return f"s3://{uri.removeprefix('s3://').partition('/')[0]}" if "://" in uri else ""


def _path_in(root: str, uri: str) -> str:
    return uri.removeprefix(f"{root}/") if root else uri


def _file_system(root: str) -> FileSystem:
    from pyarrow.fs import LocalFileSystem

    return table_file_system(root) if root else LocalFileSystem()


def _footer(files: FileSystem, path: str) -> bytes:
    """The metadata at the end of a Parquet file, with its length and the mark; empty if there is none.

    Source: Parquet, "File Format": metadata, its length in four bytes, little endian, and ``PAR1``.
    """
    with files.open_input_file(path) as file:
        size = file.size()
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read()
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if tail[-4:] != _MARK or length > min(size, MOST_FOOTER_BYTES):
            return b""
        if length > len(tail):
            file.seek(size - length)
            tail = file.read()
    return bytes(tail[-length:])


def _parsed(footer: bytes) -> ParquetFile | None:
    from pyarrow import ArrowException, BufferReader
    from pyarrow.parquet import ParquetFile

    if not footer:
        return None
    try:
        # Spark reads INT96; other times in nanoseconds it refuses.
        return ParquetFile(BufferReader(_MARK + footer), coerce_int96_timestamp_unit="us")
    except (ArrowException, OSError, ValueError):
        return None


def _record_of(file: ParquetFile) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, _spark_type(field.type)) for field in file.schema_arrow])


def _spark_type(found: ArrowType) -> DataType:
    """The type as which Spark reads a column; one that no column is declared as, if Spark would guess or refuse.

    Source: Spark, ``ParquetToSparkSchemaConverter``: unsigned integers have the next wider type.
    """
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql import types as t
    from pyspark.sql.pandas.types import from_arrow_type

    unsigned = {
        pa.uint8(): t.ShortType(),
        pa.uint16(): t.IntegerType(),
        pa.uint32(): t.LongType(),
        pa.uint64(): t.DecimalType(20, 0),
    }
    if found in unsigned:
        return unsigned[found]
    if isinstance(found, pa.BaseExtensionType):
        return _spark_type(found.storage_type)
    if pa.types.is_dictionary(found):
        return _spark_type(found.value_type)
    if pa.types.is_struct(found):
        return t.StructType([t.StructField(inner.name, _spark_type(inner.type)) for inner in found])
    if pa.types.is_map(found):
        return t.MapType(_spark_type(found.key_type), _spark_type(found.item_type))
    if pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found):
        return t.ArrayType(_spark_type(found.value_type))
    if pa.types.is_timestamp(found) and found.unit == "ns":
        return t.CalendarIntervalType()
    try:
        return from_arrow_type(found)
    except PySparkException:
        return t.CalendarIntervalType()


def misfit(found: StructType, declared: StructType, path: str = "") -> str:
    """The first declared field that a file cannot give; empty if it gives all. Names ignore case, as in Spark."""
    names = {field.name.lower(): field for field in found.fields}
    for field in declared.fields:
        here = f"{path}.{field.name}" if path else field.name
        there = names.get(field.name.lower())
        if there is None:
            if not field.nullable:
                return here
        elif wrong := _misfit(there.dataType, field.dataType, here):
            return wrong
    return ""


def _misfit(found: DataType, declared: DataType, path: str) -> str:
    from pyspark.sql import types as t

    match found, declared:
        case t.StructType(), t.StructType():
            return misfit(found, declared, path)
        case t.ArrayType(), t.ArrayType():
            return _misfit(found.elementType, declared.elementType, f"{path}[]")
        case t.MapType(), t.MapType():
            key = _misfit(found.keyType, declared.keyType, f"{path}[]")
            return key or _misfit(found.valueType, declared.valueType, f"{path}[]")
        case t.DecimalType(), t.DecimalType():
            unsigned = (found.precision, found.scale) == (20, 0)  # of 64 bits: Spark reads them as this type alone
            fits = declared.scale == found.scale and declared.precision >= found.precision
            fits = fits and (not unsigned or declared.precision == found.precision)
            return "" if fits else path
        case (t.NullType(), _) | (t.TimestampType() | t.TimestampNTZType(), t.TimestampType() | t.TimestampNTZType()):
            return ""  # Spark decides when it reads
    one, other = found.simpleString(), declared.simpleString()
    return "" if one == other or other in _WIDER.get(one, ()) else path
