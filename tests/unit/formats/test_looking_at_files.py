"""Files are looked at before Spark reads a row: what is missing, damaged or of another schema is found."""

from __future__ import annotations

import bz2
import gzip
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from kdi_assets.documents.model.message_format import Files, Json, Parquet
from kdi_assets.messages.formats.files.look import LookedAt, changed_files, look_at

ID = t.StructType([t.StructField("id", t.LongType(), nullable=False)])


def looked(path: Path | str, record: t.StructType = ID, of: Parquet | Json = Parquet()) -> LookedAt:  # noqa: B008
    return look_at([str(path)], Files(of, "paths", ("/",)), record)[str(path)]


def written(path: Path, table: dict[str, Any]) -> Path:
    pq.write_table(pa.table(table), path)
    return path


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: b"PAR1",
        lambda whole: b"PAR1 and no Parquet",
        lambda whole: whole[:-1],
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-60] + bytes(52) + whole[-8:],
        lambda whole: whole[:-300] + b"\xff" * 292 + whole[-8:],
        lambda whole: whole[:-8] + b"\xff\xff\xff\x7f" + whole[-4:],
    ],
)
def test_a_damaged_file_is_unreadable_and_no_failure_of_the_storage(tmp_path: Path, damage: Any) -> None:
    whole = written(tmp_path / "whole.parquet", {"id": list(range(50))}).read_bytes()
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(damage(whole))

    assert looked(damaged) == LookedAt("unreadable_file", str(damaged))


def test_a_file_that_is_not_there_or_a_folder_is_missing(tmp_path: Path) -> None:
    for path in (tmp_path / "none.parquet", tmp_path, tmp_path / "none" / "a"):
        assert looked(path) == LookedAt("missing_file", str(path))
        assert looked(path, of=Json()) == LookedAt("missing_file", str(path))


def test_the_footer_gives_the_rows_also_if_it_is_long(tmp_path: Path) -> None:
    wide = {"id": list(range(7)), **{f"column_{n}_{'x' * 50}": [n] * 7 for n in range(1000)}}

    assert looked(written(tmp_path / "wide.parquet", wide)) == LookedAt(rows=7)
    assert looked(written(tmp_path / "empty.parquet", {"id": pa.array([], pa.int64())})) == LookedAt(rows=0)


FITS = [
    (pa.int32(), t.LongType()),
    (pa.int16(), t.IntegerType()),
    (pa.float32(), t.DoubleType()),
    (pa.decimal128(10, 2), t.DecimalType(12, 2)),
    (pa.timestamp("us"), t.TimestampType()),
    (pa.timestamp("us", "UTC"), t.TimestampType()),
    (pa.list_(pa.int32()), t.ArrayType(t.LongType())),
    (pa.map_(pa.string(), pa.int32()), t.MapType(t.StringType(), t.LongType())),
    (pa.uint8(), t.ShortType()),
    (pa.uint8(), t.LongType()),
    (pa.uint16(), t.IntegerType()),
    (pa.uint32(), t.LongType()),
    (pa.uint64(), t.DecimalType(20, 0)),
    (pa.list_(pa.uint32()), t.ArrayType(t.LongType())),
    (pa.dictionary(pa.int32(), pa.string()), t.StringType()),
    (pa.null(), t.LongType()),
]
MISFITS = [
    (pa.uint8(), t.ByteType(), "a"),
    (pa.uint16(), t.ShortType(), "a"),
    (pa.uint32(), t.IntegerType(), "a"),
    (pa.uint64(), t.LongType(), "a"),
    (pa.uint64(), t.DecimalType(38, 0), "a"),
    (pa.struct([("b", pa.uint32())]), t.StructType([t.StructField("b", t.IntegerType())]), "a.b"),
    (pa.timestamp("ns"), t.TimestampType(), "a"),
    (pa.time64("us"), t.LongType(), "a"),
    (pa.duration("us"), t.LongType(), "a"),
    (pa.float16(), t.FloatType(), "a"),
    (pa.list_(pa.float16()), t.ArrayType(t.FloatType()), "a[]"),
    (pa.int64(), t.IntegerType(), "a"),
    (pa.string(), t.LongType(), "a"),
    (pa.string(), t.DateType(), "a"),
    (pa.float64(), t.FloatType(), "a"),
    (pa.decimal128(10, 3), t.DecimalType(12, 2), "a"),
    (pa.list_(pa.string()), t.ArrayType(t.LongType()), "a[]"),
    (pa.struct([("b", pa.string())]), t.StructType([t.StructField("B", t.LongType())]), "a.B"),
    (pa.int64(), t.StructType([t.StructField("b", t.LongType())]), "a"),
]


@pytest.mark.parametrize(("found", "declared", "field"), [*((*pair, "") for pair in FITS), *MISFITS])
def test_a_column_must_have_a_type_that_spark_reads_as_the_declared_one(
    tmp_path: Path, found: pa.DataType, declared: t.DataType, field: str
) -> None:
    file = written(tmp_path / "a.parquet", {"A": pa.array([None], found)})
    record = t.StructType([t.StructField("a", declared)])

    assert looked(file, record) == (LookedAt("other_schema", field) if field else LookedAt(rows=1))


def test_columns_may_be_missing_unless_they_are_needed(tmp_path: Path) -> None:
    values = {"other": [1], "day": [date(2026, 3, 1)], "at": [datetime(2026, 3, 1)], "price": [Decimal("1.5")]}
    file = written(tmp_path / "a.parquet", values)

    assert looked(file, t.StructType([t.StructField("id", t.LongType())])) == LookedAt(rows=1)
    assert looked(file) == LookedAt("other_schema", "id")


LINE = b"x" * 1023 + b"\n"


@pytest.mark.parametrize(
    ("name", "content", "too_large"),
    [
        ("a.json", LINE * 100, False),
        ("a.json", b"x" * 70_000, True),
        ("a.json", LINE * 30 + b"x" * 70_000 + LINE, True),
        ("a.json.gz", gzip.compress(LINE * 100), False),
        ("a.json.gz", gzip.compress(b"x" * 70_000), True),
        ("a.json.gz", gzip.compress(LINE * 300), True),
        ("a.json.bz2", bz2.compress(b"x" * 70_000), True),
        ("a.json.gz", gzip.compress(b"x" * 60_000)[:-20], False),  # damaged: its rows tell
    ],
    ids=["short lines", "one line", "one of some", "gzip", "gzip of a line", "gzip of lines", "bzip2", "damaged"],
)
def test_a_line_or_a_file_that_memory_cannot_hold_is_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, too_large: bool
) -> None:
    """Of 64 KiB lines, and 256 KiB in all."""
    limits = {"MOST_LINE_BYTES": 64 << 10, "MOST_TEXT_BYTES": 256 << 10, "_CHUNK_BYTES": 1000}
    for limit, value in limits.items():
        monkeypatch.setattr(f"kdi_assets.messages.formats.files.look.{limit}", value)
    file = tmp_path / name
    file.write_bytes(content)

    assert looked(file, of=Json()) == (LookedAt("too_large", str(file)) if too_large else LookedAt())


def test_a_column_that_memory_cannot_hold_is_a_dead_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdi_assets.messages.formats.files.look.MOST_COLUMN_BYTES", 1000)
    small, large = {"id": [1]}, {"id": [1], "text": ["x" * 100_000]}  # 100 bytes compressed

    assert looked(written(tmp_path / "small.parquet", small)) == LookedAt(rows=1)
    assert looked(written(tmp_path / "large.parquet", large)).reason == "too_large"


def test_a_file_that_is_written_again_is_changed_and_one_that_is_removed_is_not(tmp_path: Path) -> None:
    """Pass: also with as many bytes as before; a file that is gone had been read when that was noticed."""
    files = [written(tmp_path / f"{name}.parquet", {"id": [1]}) for name in ("again", "gone", "left")]
    seen = {str(file): looked(file).state for file in files}

    written(files[0], {"id": [2]})
    files[1].unlink()

    assert changed_files(seen) == [str(files[0])]
