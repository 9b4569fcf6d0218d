"""Protobuf messages for tests, made and read by Protobuf's own library, without the code that decodes them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kdi_assets.messages.formats.protobuf.descriptors import compiled

SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

enum Kind { KIND_UNKNOWN = 0; RED = 1; GREEN = 2; option allow_alias = true; CRIMSON = 1; BELOW = -5; }

message Place { string city = 1; optional string zip = 2; Spot spot = 3; message Spot { float lat = 1; } }
message Item { string sku = 1; google.protobuf.Timestamp at = 2; repeated Place places = 3; Kind kind = 4; }
message Nothing {}

message Order {
  double d = 1; float f = 2; int32 i32 = 3; int64 i64 = 4; uint32 u32 = 5; uint64 u64 = 6; sint32 s32 = 7;
  sint64 s64 = 8; fixed32 x32 = 9; fixed64 x64 = 10; sfixed32 y32 = 11; sfixed64 y64 = 12; bool ok = 13;
  string name = 14; bytes raw = 15; Kind kind = 16;
  optional int32 maybe = 17; optional string note = 18; optional Kind maybe_kind = 19; optional uint64 maybe_big = 20;
  Place place = 21; repeated Item items = 22; repeated string tags = 23; repeated uint64 bigs = 24;
  repeated Kind kinds = 25; repeated bytes raws = 26; repeated Nothing nothings = 27;
  map<string, int32> counts = 28; map<int32, string> names = 29; map<uint64, Item> by_big = 30;
  map<bool, Kind> by_ok = 31; map<string, google.protobuf.Timestamp> times = 32; map<sint64, bytes> by_signed = 33;
  oneof payment { string card = 34; int64 account = 35; Place desk = 36; Nothing free = 37; }
  google.protobuf.Timestamp at = 38; google.protobuf.Duration took = 39; repeated google.protobuf.Timestamp ats = 40;
  google.protobuf.StringValue w_text = 41; google.protobuf.UInt64Value w_big = 42; google.protobuf.BoolValue w_ok = 43;
  google.protobuf.DoubleValue w_d = 44; google.protobuf.BytesValue w_raw = 45;
  google.protobuf.UInt32Value w_u32 = 46; google.protobuf.Int64Value w_i64 = 47; google.protobuf.FloatValue w_f = 48;
  google.protobuf.Int32Value w_i32 = 49; repeated google.protobuf.StringValue w_texts = 50;
  google.protobuf.Struct meta = 51; google.protobuf.Value any_value = 52; repeated google.protobuf.ListValue lists = 53;
  google.protobuf.Any anything = 54; google.protobuf.Empty empty = 55; google.protobuf.FieldMask mask = 56;
  repeated google.protobuf.Duration spans = 58; bool class = 900;
}
"""
LEGACY = """
syntax = "proto2";
package legacy;
enum Kind { RED = 1; GREEN = 2; }
message Part { required int32 number = 1; optional string label = 2; extensions 100 to 199; }
message Order {
  required string id = 1; optional int32 count = 2 [default = 7]; optional Kind kind = 3 [default = GREEN];
  repeated Kind kinds = 4; repeated Part parts = 5; optional Part part = 6; map<string, Part> by_name = 7;
  repeated int32 packed = 8 [packed = true]; optional string hint = 9 [default = "none"];
}
"""

DOCUMENTS = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")


@lru_cache(maxsize=32)
def descriptors(text: str) -> bytes:
    """The set of descriptors of a .proto file."""
    with TemporaryDirectory() as folder:
        Path(folder, "test.proto").write_text(text, encoding="utf-8")
        return compiled("test.proto", folder=Path(folder))


@lru_cache(maxsize=32)
def message_class(text: str, full_name: str) -> type[Message]:
    """The class of a message, by Protobuf's own library."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptors(text)).file:
        pool.AddSerializedFile(file.SerializeToString())
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName(full_name))
    return found


def said(message: Message) -> dict[str, Any]:
    """The row of the message, as pyarrow gives rows to Python.

    Raises:
        OutOfRange: No row can hold it.
    """
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


class OutOfRange(Exception):
    """A value that no row can hold."""


def _field(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, of = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            return [(_one(k, key), _one(value[k], of)) for k in sorted(value)]  # the order has no meaning
        return [_one(element, field) for element in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(value, field)


def _one(value: Any, field: FieldDescriptor) -> Any:
    if field.type == field.TYPE_ENUM:
        return next((v.name for v in field.enum_type.values if v.number == value), str(value))
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return Decimal(value)
    if field.message_type is None:
        return _equal_to_itself(value)
    return _message(value, field.message_type)


def _message(value: Any, type_: Descriptor) -> Any:
    name = type_.full_name
    if name == "google.protobuf.Timestamp":
        if not (-62135596800 <= value.seconds < 253402300800 and 0 <= value.nanos < 10**9):
            raise OutOfRange
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if name == "google.protobuf.Duration":
        if not (
            abs(value.seconds) <= 315_576_000_000 and abs(value.nanos) < 10**9 and value.seconds * value.nanos >= 0
        ):
            raise OutOfRange
        return Decimal(value.seconds * 10**9 + value.nanos).scaleb(-9)
    if name in DOCUMENTS:
        try:
            return json.loads(json_format.MessageToJson(value))
        except (json_format.Error, ValueError) as wrong:
            raise OutOfRange from wrong
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return _one(value.value, type_.fields_by_name["value"])
    return said(value) if type_.fields else True


def read_row(row: Mapping[str, Any], type_: Descriptor) -> dict[str, Any]:
    """The same for a row of ours: documents are parsed, because blanks and order have no meaning."""
    return {field.name: _read(row[field.name], field) for field in type_.fields}


def _read(value: Any, field: FieldDescriptor) -> Any:
    if value is None:
        return value
    if field.message_type is None:
        return [_equal_to_itself(v) for v in value] if field.is_repeated else _equal_to_itself(value)
    if field.is_repeated:
        if field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            return sorted(((k, _read(v, of)) for k, v in value), key=itemgetter(0))
        return [_read_one(element, field.message_type) for element in value]
    return _read_one(value, field.message_type)


def _read_one(value: Any, type_: Descriptor) -> Any:
    if type_.full_name in DOCUMENTS:
        return json.loads(value)
    return read_row(value, type_) if isinstance(value, dict) else _equal_to_itself(value)


def _equal_to_itself(value: Any) -> Any:
    return "NaN" if value != value else value


def random_message(type_: type[Message], chance: random.Random, *, share: float = 0.5) -> Message:
    """A message with this share of its fields, half of them at the limits of their types."""
    message = type_()
    _fill(message, chance, share)
    return message


def _fill(message: Any, chance: random.Random, share: float) -> None:
    sign = chance.choice([-1, 1])
    match message.DESCRIPTOR.full_name:
        case "google.protobuf.Timestamp":
            message.seconds = chance.choice([0, -1, 1767225600, 253402300799, -62135596800])
            message.nanos = chance.choice([0, 1, 999, 1000, 999_999_999])
        case "google.protobuf.Duration":
            message.seconds = sign * chance.choice([0, 1, 315_576_000_000])
            message.nanos = sign * chance.choice([0, 1, 999_999_999])
        case "google.protobuf.Struct":
            message.update({"a": [1, "ü", None, {"b": True}], "c": chance.random()})
        case "google.protobuf.ListValue":
            message.extend([1, [2.5], "x"])
        case "google.protobuf.Value":
            message.string_value = 'quote " and ü'
        case _:
            _fill_fields(message, chance, share)


def _fill_fields(message: Any, chance: random.Random, share: float) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.is_required or chance.random() < share:
            _set(message, field, chance)


def _set(message: Message, field: FieldDescriptor, chance: random.Random) -> None:
    if not field.is_repeated:
        if field.message_type is None:
            setattr(message, field.name, _scalar(field, chance))
        else:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill(inner, chance, 0.7)
        return
    there, times = getattr(message, field.name), chance.randrange(4)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, of = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        for _ in range(times):
            if of.message_type is None:
                there[_scalar(key, chance)] = _scalar(of, chance)
            else:
                _fill(there[_scalar(key, chance)], chance, 0.7)
    elif field.message_type is None:
        there.extend(_scalar(field, chance) for _ in range(times))
    else:
        for _ in range(times):
            _fill(there.add(), chance, 0.7)


def _scalar(field: FieldDescriptor, chance: random.Random) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_INT32:
            return chance.choice([0, 1, -1, 2**31 - 1, -(2**31), chance.randrange(-1000, 1000)])
        case field.CPPTYPE_INT64:
            return chance.choice([0, 1, -1, 2**63 - 1, -(2**63), chance.randrange(-(10**12), 10**12)])
        case field.CPPTYPE_UINT32:
            return chance.choice([0, 1, 2**32 - 1, 2**31])
        case field.CPPTYPE_UINT64:
            return chance.choice([0, 1, 2**64 - 1, 2**63, 2**63 - 1])
        case field.CPPTYPE_DOUBLE:
            return chance.choice([0.0, -0.0, 1.5, 5e-324, 1.7e308, float("inf"), float("-inf"), chance.random()])
        case field.CPPTYPE_FLOAT:
            return chance.choice([0.0, 1.5, -2.25, float("inf")])
        case field.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case field.CPPTYPE_ENUM:
            known = [value.number for value in field.enum_type.values]
            return chance.choice(known if field.enum_type.is_closed else [*known, 77, -3])
    if field.type == field.TYPE_BYTES:
        return chance.randbytes(chance.randrange(6))
    return chance.choice(["", "a", "Zürich 🚲", "x" * 300, "\0", f"n{chance.randrange(99)}"])
