"""Protobuf of a sample: which dates it holds, and whether it is whole, by the code that drains it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from kdi_assets.formats.framing import FIRST_MESSAGE, MessageIndex, split_message_index
from kdi_assets.formats.protobuf.decoder import registered_reading
from kdi_assets.formats.protobuf.payloads import RECORD, RULE, Reading, decoding
from kdi_assets.formats.protobuf.records import SCALARS, Enumeration, Moment, Record, What
from kdi_assets.formats.protobuf.records import Scalar as OfProtobuf
from kdi_assets.formats.registry.schema import Schema
from kdi_assets.proposal.avro_data import NoDatum, NoRecord
from kdi_assets.proposal.json_text import Json
from kdi_assets.proposal.types import BIGINT, DOUBLE, STRING, TIMESTAMP, Array, Struct, Type, is_taken

_OPAQUE = Array(STRING)
"""Stands for a type that is no date and has none in it."""
_TYPES: Mapping[str, Type] = {"double": DOUBLE, "float": DOUBLE, "string": STRING, "bool": _OPAQUE, "bytes": _OPAQUE}
"""Of Protobuf's scalars; the others are integers."""


class ProtobufSchemas:
    """The message of a reader's schema that most payloads are, and the schemas that write it.

    Attributes:
        message: Its full name; empty if it is the first.

    Raises:
        DescriptorMistake: There is no such message, or no table can hold it.
    """

    def __init__(self, reader: Schema, by_id: Mapping[int, Schema], payloads: Iterable[bytes]) -> None:
        indexes = (index for index in map(split_message_index, payloads) if isinstance(index, MessageIndex))
        ((path, _),) = Counter(index.path for index in indexes).most_common(1) or [(FIRST_MESSAGE, 0)]
        self._reading: Reading = registered_reading(reader, by_id, path)
        self._decode = decoding(self._reading.of)
        self.message = "" if path == FIRST_MESSAGE else self._reading.of.message

    def record(self) -> Struct:
        """The record, its dates and what may be one.

        Raises:
            NoRecord: A table cannot have it.
        """
        names = [field.name for field in self._reading.record.fields]
        if taken := [name for name in names if is_taken(name)]:
            raise NoRecord(f"no column can be called {', '.join(taken)}")
        return _struct(self._reading.record)

    def readers(self) -> dict[int, Callable[[bytes], dict[str, Json]]]:
        """By id of the schema that it was written with, from a frame's payload to its record; ``NoDatum`` if none."""
        return {schema_id: partial(self._read, schema_id) for schema_id in self._reading.of.writers or ()}

    def _read(self, schema_id: int, payload: bytes) -> dict[str, Json]:
        import pyarrow as pa

        (found,) = self._decode(pa.array([payload], pa.binary()), pa.array([schema_id], pa.int64())).to_pylist()
        if found[RULE] is not None:
            raise NoDatum(self._reading.reasons[found[RULE] - 1][0])
        read: dict[str, Json] = _plain(found[RECORD])
        return read


def _struct(record: Record) -> Struct:
    return Struct({field.name: _type(field.what) for field in record.fields})


def _type(what: What) -> Type:
    match what:
        case OfProtobuf(type_):
            return _TYPES.get(SCALARS[type_], BIGINT)
        case Enumeration():
            return STRING
        case Moment():
            return TIMESTAMP
        case Record():
            return _struct(what)
    return _OPAQUE


def _plain(value: Any) -> Any:
    """As it would stand in JSON."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return value.isoformat() if isinstance(value, datetime) else value
