"""Look at files before any row is read: are they there, and do they have the columns? On the driver, many at a time."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.ledger.storage import storage_failures, table_folder
from kdi_assets.stream.message_format import Files, Parquet

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql.types import DataType, StructType

SIDE_BY_SIDE = 16
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
    """

    reason: str = ""
    field: str = ""
    rows: int | None = None


def look_at(uris: Collection[str], format_: Files, record: StructType) -> dict[str, LookedAt]:
    """Look at every file.

    Raises:
        StorageFailed: The storage does not answer, or refuses; a file that is missing is no failure.
    """
    distinct = list(dict.fromkeys(uris))
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        found = threads.map(partial(_look_at, parquet=isinstance(format_.of, Parquet), record=record), distinct)
        return dict(zip(distinct, found, strict=True))


def _look_at(uri: str, *, parquet: bool, record: StructType) -> LookedAt:
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileType
    from pyarrow.parquet import ParquetFile

    files, path = _file_system(uri)
    with storage_failures(uri):
        (info,) = files.get_file_info([path])
        if info.type is not FileType.File:
            return LookedAt("missing_file", uri)
        if not parquet:
            return LookedAt()
        try:
            with files.open_input_file(path) as opened, ParquetFile(opened) as file:
                field = misfit(_spark_type(file), record)
                return LookedAt("other_schema", field) if field else LookedAt(rows=file.metadata.num_rows)
        except FileNotFoundError:
            return LookedAt("missing_file", uri)
        except ArrowInvalid:
            return LookedAt("unreadable_file", uri)


def _file_system(uri: str) -> tuple[FileSystem, str]:
    from pyarrow.fs import LocalFileSystem

    if "://" not in uri:
        return LocalFileSystem(), uri
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return table_folder(f"s3://{bucket}"), key


def _spark_type(file: object) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import NullType, StructField, StructType

    fields = []
    for field in file.schema_arrow:  # type: ignore[attr-defined]
        try:
            fields.append(StructField(field.name, from_arrow_type(field.type)))
        except PySparkException:  # Spark decides when it reads
            fields.append(StructField(field.name, NullType()))
    return StructType(fields)


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
            fits = declared.scale == found.scale and declared.precision >= found.precision
            return "" if fits else path
        case (t.NullType(), _) | (t.TimestampType() | t.TimestampNTZType(), t.TimestampType() | t.TimestampNTZType()):
            return ""  # Spark decides when it reads
    one, other = found.simpleString(), declared.simpleString()
    return "" if one == other or other in _WIDER.get(one, ()) else path
