"""Valid messages to Arrow columns: ptars reads them as ``described`` has them, then they get the table's types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.messages.formats.protobuf.described import described, field_name
from kdi_assets.messages.formats.protobuf.records import (
    SCALARS,
    Duration,
    Empty,
    Enumeration,
    Field,
    FieldType,
    JsonField,
    MapOf,
    Record,
    Repeated,
    Scalar,
    Timestamp,
    below,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999
_MOST_SECONDS, _MOST_NANOS = 315_576_000_000, 999_999_999

Rows = Callable[[], "pa.Array"]
"""Gives the row number of each element of an array."""


class Columns:
    """Messages of one type to a struct array.

    Args:
        rules: Number of a rule by reason and path.
    """

    def __init__(self, record: Record, rules: Mapping[tuple[str, str], int]) -> None:
        from ptars import HandlerPool

        message = described(record)
        self._handler: Any = HandlerPool([message.file]).get_for_message(message)
        self._record, self._rules = record, rules

    def read(self, messages: Sequence[bytes]) -> pa.StructArray:
        """The messages as ptars reads them; every message must parse and have no unknown fields.

        Raises:
            ValueError: A string is no UTF-8.
        """
        return self._handler.list_to_record_batch(list(messages)).to_struct_array()

    def records(self, read: pa.StructArray) -> tuple[pa.StructArray, dict[int, int]]:
        """The record of every message, and the number of a rule by row for messages with values out of range."""
        import pyarrow as pa

        conversion = _Conversion(self._rules)
        record = conversion.array(self._record, read, "", lambda: pa.array(range(len(read)), pa.int64()))
        return record, conversion.out_of_range


def spark_record(record: Record) -> StructType:
    """The record's type, everything nullable: the type of the columns of an empty batch."""
    from pyspark.sql.pandas.types import from_arrow_type

    columns = Columns(record, {})
    records, _ = columns.records(columns.read([]))
    return cast("StructType", from_arrow_type(records.type))


class _Conversion:
    """Converts one batch from ptars' types to Spark's."""

    def __init__(self, rules: Mapping[tuple[str, str], int]) -> None:
        self._rules = rules
        self.out_of_range: dict[int, int] = {}

    def array(self, type_: FieldType, read: pa.Array, path: str, rows: Rows) -> pa.Array:
        match type_:
            case Scalar(number):
                return _scalar(SCALARS[number], read)
            case Enumeration(names):
                return _named(names, read)
            case Timestamp():
                return self._timestamp(read, path, rows)
            case Duration():
                return self._duration(read, path, rows)
            case JsonField(full_name):
                return self._json(full_name, read, path, rows)
            case Empty():
                return _presence(read)
            case Record(fields):
                return self._record(fields, read, path, rows)
            case Repeated(of):
                return self._repeated(of, read, path, rows)
            case MapOf():
                return self._map(type_, read, path, rows)

    def _record(self, fields: Sequence[Field], read: pa.Array, path: str, rows: Rows) -> pa.Array:
        import pyarrow as pa

        parts = enumerate(fields)
        made = [self.array(field.type, read.field(field_name(n)), below(path, field), rows) for n, field in parts]
        described = [pa.field(field.name, array.type) for field, array in zip(fields, made, strict=True)]
        return pa.StructArray.from_arrays(made, fields=described, mask=read.is_null() if read.null_count else None)

    def _repeated(self, of: FieldType, read: pa.Array, path: str, rows: Rows) -> pa.Array:
        import pyarrow as pa

        made = self.array(of, read.values, f"{path}[]", _rows_of_elements(read, rows))
        return pa.ListArray.from_arrays(read.offsets, made, type=pa.list_(pa.field("element", made.type)))

    def _map(self, type_: MapOf, read: pa.Array, path: str, rows: Rows) -> pa.Array:
        import pyarrow as pa

        inside = _rows_of_elements(read, rows)
        keys = self.array(type_.key, read.keys, f"{path}[]", inside)
        values = self.array(type_.value, read.items, f"{path}[]", inside)
        map_type = pa.map_(pa.field("key", keys.type, nullable=False), pa.field("value", values.type))
        return pa.MapArray.from_arrays(read.offsets, keys, values, type=map_type)

    def _timestamp(self, read: pa.Array, path: str, rows: Rows) -> pa.Array:
        """Microseconds; smaller parts are cut off, towards the past."""
        import pyarrow as pa
        from pyarrow import compute as pc

        seconds, nanos = _pair(read)
        seconds = self._within(seconds, (_FIRST_SECOND, _LAST_SECOND), path, rows)
        nanos = self._within(nanos, (0, _MOST_NANOS), path, rows)
        micros = pc.add(pc.multiply(seconds, 1_000_000), pc.divide(nanos.cast(pa.int64()), 1_000))
        return micros.cast(pa.timestamp("us", tz="UTC"))

    def _duration(self, read: pa.Array, path: str, rows: Rows) -> pa.Array:
        import pyarrow as pa
        from pyarrow import compute as pc

        seconds, nanos = _pair(read)
        seconds = self._within(seconds, (-_MOST_SECONDS, _MOST_SECONDS), path, rows)
        nanos = self._within(nanos, (-_MOST_NANOS, _MOST_NANOS), path, rows)
        opposite_signs = pc.equal(pc.multiply(pc.sign(seconds), pc.sign(nanos)), -1)
        if pc.any(opposite_signs).as_py():
            self._refuse(opposite_signs, path, rows)
        fraction = pc.multiply(nanos.cast(pa.decimal128(10, 0)), pa.scalar(Decimal("1E-9"), pa.decimal128(9, 9)))
        return pc.add(seconds.cast(pa.decimal128(19, 0)), fraction).cast(pa.decimal128(21, 9))

    def _within(self, numbers: pa.Array, bounds: tuple[int, int], path: str, rows: Rows) -> pa.Array:
        """The numbers, null where they are out of bounds; their rows are refused."""
        import pyarrow as pa
        from pyarrow import compute as pc

        seen = pc.min_max(numbers)
        if not seen["min"].is_valid or (bounds[0] <= seen["min"].as_py() and seen["max"].as_py() <= bounds[1]):
            return numbers
        outside = pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))
        self._refuse(outside, path, rows)
        return pc.if_else(outside, pa.scalar(None, numbers.type), numbers)

    def _json(self, full_name: str, read: pa.Array, path: str, rows: Rows) -> pa.Array:
        import pyarrow as pa

        class_ = json_class(full_name)
        made: list[str | None] = []
        not_json: list[bool] = []
        for document in read.to_pylist():
            text = None if document is None else _as_json(class_, document)
            made.append(text)
            not_json.append(document is not None and text is None)
        if any(not_json):
            self._refuse(pa.array(not_json), path, rows)
        return pa.array(made, pa.string())

    def _refuse(self, elements: pa.Array, path: str, rows: Rows) -> None:
        """Refuse the rows of the elements that are true."""
        from pyarrow import compute as pc

        number = self._rules["out_of_range", path]
        for row in pc.unique(rows().filter(elements.fill_null(False))).to_pylist():
            self.out_of_range.setdefault(row, number)


def _rows_of_elements(read: pa.Array, rows: Rows) -> Rows:
    """The rows of the elements of a list or map; a function, because few batches need them."""

    def of_elements() -> pa.Array:
        import pyarrow as pa
        from pyarrow import compute as pc

        flat = pa.array(range(len(read.values)), pa.int64()) if pa.types.is_list(read.type) else read.keys
        plain = pa.ListArray.from_arrays(read.offsets, flat)
        return rows().take(pc.list_parent_indices(plain))

    return of_elements


def _scalar(type_: str, read: pa.Array) -> pa.Array:
    import pyarrow as pa

    match type_:
        case "uint32" | "fixed32":
            return read.cast(pa.int64())
        case "uint64" | "fixed64":
            return read.cast(pa.decimal128(20, 0))
    return read


def _named(names: Sequence[tuple[int, str]], read: pa.Array) -> pa.Array:
    """The names of numbers; a number without a name becomes its digits."""
    import pyarrow as pa
    from pyarrow import compute as pc

    places = pc.index_in(read, value_set=pa.array([number for number, _ in names], pa.int32()))
    found = pa.array([name for _, name in names], pa.string()).take(places)
    return found if found.null_count == read.null_count else pc.coalesce(found, read.cast(pa.string()))


def _presence(read: pa.Array) -> pa.Array:
    """True where the message is present."""
    import pyarrow as pa
    from pyarrow import compute as pc

    return pc.if_else(read.is_valid(), True, pa.scalar(None, pa.bool_()))


def _pair(read: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Seconds and nanoseconds, null where there are none."""
    import pyarrow as pa
    from pyarrow import compute as pc

    seconds, nanos = read.field(0), read.field(1)
    if not read.null_count:
        return seconds, nanos
    there = read.is_valid()
    found = [pc.if_else(there, part, pa.scalar(None, part.type)) for part in (seconds, nanos)]
    return found[0], found[1]


def json_class(full_name: str) -> type[Any]:
    """Protobuf's class of ``google.protobuf.Struct`` and the like."""
    from google.protobuf import struct_pb2

    found: type[Any] = getattr(struct_pb2, full_name.rpartition(".")[2])
    return found


def _as_json(class_: type[Any], document: bytes) -> str | None:
    """The value as JSON with sorted keys; ``None`` if it holds a number that JSON lacks."""
    from google.protobuf.json_format import Error, MessageToJson

    try:
        return str(MessageToJson(class_.FromString(document), indent=None, sort_keys=True, ensure_ascii=False))
    except (Error, ValueError):
        return None
