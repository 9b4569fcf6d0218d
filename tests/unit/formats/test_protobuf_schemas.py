"""Protobuf schemas: compiled, compared with the record; and fields without a column, by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from kdi_assets.messages.formats.protobuf.compatible import MOST_PATHS, becomes, unknown_paths
from kdi_assets.messages.formats.protobuf.descriptors import DescriptorMistake, Descriptors, schema_descriptors
from kdi_assets.messages.formats.protobuf.payloads import Payloads, decoding
from kdi_assets.messages.formats.protobuf.records import record_of
from kdi_assets.messages.formats.registry.schema import Referenced, Schema
from tests.formats.protobuf_messages import SHOP, descriptors
from tests.formats.wire import of, varint

ONE = b"\x01"
MARKS = of(7, 0, ONE)
"""A field that no message of the shop has, except the order itself."""


def numbers(
    payloads: Payloads, values: Sequence[bytes], schema_ids: Sequence[int] | None = None
) -> list[list[str] | None]:
    """The numbers of every payload; each of them gives a record."""
    ids = () if schema_ids is None else (pa.array(schema_ids, pa.int64()),)
    found = decoding(payloads)(pa.array(values, pa.binary()), *ids).to_pylist()
    assert [row["rule"] for row in found] == [None] * len(values)
    return [row["numbers"] for row in found]


KEY = of(1, 2, b"k")
WIRE: dict[bytes, list[str] | None] = {
    b"": None,
    of(999, 2, b"unknown"): ["#999"],
    of(999, 0, ONE) + of(3, 0, ONE) + of(999, 0, ONE): ["#999"],
    of(998, 3, of(1, 0, ONE) + varint(998 << 3 | 4)): ["#998"],  # a group
    of(999, 5, b"abcd") + of(998, 1, b"abcdefgh") + of(21, 2, MARKS): ["#999", "#998", "place.#7"],
    of(34, 2, b"card") + of(57, 2, b"a newer one of the oneof"): ["#57"],
    of(536_870_911, 0, ONE): ["#536870911"],
    of(21, 2, of(3, 2, MARKS)): ["place.spot.#7"],
    of(22, 2, b"") + of(22, 2, MARKS) + of(22, 2, of(3, 2, MARKS)): ["items[].#7", "items[].places[].#7"],
    of(37, 2, MARKS): ["free.#7"],  # a message without fields knows none
    of(27, 2, MARKS): ["nothings[].#7"],
    of(30, 2, of(1, 0, ONE) + of(2, 2, MARKS)): ["by_big[].#7"],
    of(30, 2, of(1, 0, ONE) + MARKS): ["#30"],  # an entry with more than key and value is skipped
    of(38, 2, MARKS): ["at.#7"],
    of(41, 2, MARKS): ["w_text.#7"],
    of(51, 2, of(1, 2, KEY + of(2, 2, MARKS))): ["meta.fields[].#7"],
    of(54, 2, of(2, 2, MARKS)): None,  # the content of an Any is bytes, which are kept
    of(3, 2, b"of another type than int32"): ["#3"],
    of(21, 0, ONE) + of(21, 2, MARKS): ["#21", "place.#7"],
    # Not as Protobuf's library would write them, but without unknown fields.
    of(14, 2, b"n") + of(3, 0, ONE): None,
    of(3, 0, b"\x81\x80\x00"): None,
    of(3, 0, ONE) + of(3, 0, ONE): None,
    of(25, 0, varint(2)) + of(25, 2, varint(1)): None,
    of(28, 2, of(1, 2, b"k")) + of(28, 2, of(1, 2, b"a") + of(2, 0, ONE)): None,
    of(16, 0, varint(77)) + of(25, 2, varint(99)) + of(31, 2, of(1, 0, ONE) + of(2, 0, varint(9))): None,
    # As long without its unknown field as with it.
    of(3, 0, b"\xff\xff\xff\xff\x0f") + of(999, 0, b"\x81\x80\x00"): ["#999"],
    of(28, 2, b"") + of(999, 0, b"\x81\x00"): ["#999"],
}


def test_each_message_of_a_batch_is_told_of_by_itself() -> None:
    found = decoding(Payloads(descriptors(SHOP), "shop.Order"))(pa.array([*WIRE, b"\x00", None], pa.binary()))

    assert found.field("numbers").to_pylist() == [*WIRE.values(), None, None]


OLD = """
syntax = "proto2";
package old;
enum Kind { NONE = 0; RED = 1; GREEN = 2; }
message Part { optional int32 number = 1; extensions 100 to 199; extend Order { optional Part inner = 201; } }
message Order {
  optional string id = 1; optional Kind kind = 3 [default = GREEN]; repeated Kind kinds = 4; optional Part part = 6;
  map<string, Kind> by_name = 7; repeated Kind packed = 8 [packed = true]; extensions 200 to 299;
}
extend Part { optional string label = 100; optional Kind kind = 101; }
"""
OLD_WIRE: dict[bytes, list[str] | None] = {
    of(6, 2, of(100, 2, b"known to the descriptor, and no column")): ["part.#100"],
    of(6, 2, of(101, 0, varint(9)) + of(199, 0, ONE)) + of(201, 2, of(1, 0, ONE)): ["#201", "part.#101", "part.#199"],
    of(6, 2, of(100, 2, b"\xff")): ["part.#100"],
}
CLOSED = (  # no unknown fields: values that a closed enumeration does not have are kept as their numbers
    of(3, 0, varint(9)),
    of(4, 0, ONE) + of(4, 0, varint(9)) + of(4, 0, b"\x02"),
    of(7, 2, of(1, 2, b"k") + of(2, 0, varint(9))),
    of(8, 2, b"\x01\x09\x02"),
    of(3, 0, varint(2**64 - 5)),
)


def test_extensions_are_told_of_whether_the_descriptor_has_them_or_not_and_closed_enumerations_are_not() -> None:
    told = numbers(Payloads(descriptors(OLD), "old.Order"), [*OLD_WIRE, *CLOSED])

    assert told == [*OLD_WIRE.values(), *[None] * len(CLOSED)]


def test_numbers_that_a_message_makes_up_have_an_end() -> None:
    many = b"".join(of(number, 0, ONE) for number in range(1000, 3000))

    (found,) = numbers(Payloads(descriptors(SHOP), "shop.Order"), [many])

    assert found == [f"#{number}" for number in range(1000, 1000 + MOST_PATHS)]


HEAD = 'syntax = "proto3"; package shop; '
READ = HEAD + (
    "message Order { string name = 1; Place place = 3; repeated Place places = 4; Nothing nothing = 5; "
    "map<string, Place> by_name = 6; } message Place { string city = 1; } message Nothing {}"
)
WRITTEN = HEAD + (
    "message Order { string title = 1; Place town = 3; Place places = 4; Nothing nothing = 5; "
    "map<string, Place> by_name = 6; Place other = 9; } "
    "message Place { string city = 1; string street = 2; } message Nothing { int32 n = 1; }"
)
STREET = of(2, 2, b"street")
FRAMED: list[tuple[int, bytes, list[str] | None]] = [
    # schema id, message, fields that no schema names
    (1, of(1, 2, b"n"), None),
    (1, of(9, 2, b""), ["#9"]),
    (1, of(3, 2, STREET), ["place.#2"]),
    (2, of(9, 2, b""), None),
    (2, of(3, 2, STREET), None),
    (2, of(4, 2, STREET), None),
    (2, of(5, 2, of(1, 0, ONE)), None),
    (2, of(6, 2, KEY + of(2, 2, STREET)), None),
    (2, of(3, 2, STREET + MARKS) + of(9, 2, b"") + of(10, 0, ONE), ["#10", "place.#7"]),
    (2, of(4, 2, STREET + MARKS), ["places[].#7"]),
    (2, of(9, 2, MARKS), None),  # it is in a field that is counted by its name
    (2, of(9, 0, ONE), None),
    (2, of(9, 2, of(1, 2, b"\xff")) + of(10, 0, ONE), ["#10"]),  # it violates its own schema
    (2, of(1, 0, ONE), ["#1"]),
]


def test_behind_a_registry_those_are_told_that_the_named_schema_has_not_either() -> None:
    payloads = Payloads(descriptors(READ), "shop.Order", {1: descriptors(READ), 2: descriptors(WRITTEN)})

    found = numbers(payloads, [b"\x00" + value for _, value, _ in FRAMED], [schema_id for schema_id, _, _ in FRAMED])

    assert found == [expected for _, _, expected in FRAMED]


PLACE = Referenced("shop/place.proto", HEAD + "message Place { string city = 1; }")
ORDER = HEAD + 'import "shop/place.proto"; import "google/protobuf/timestamp.proto"; message Order { Place place = 1; }'


def test_a_schema_is_compiled_with_what_it_refers_to() -> None:
    compiled = Descriptors(schema_descriptors(Schema(1, "PROTOBUF", ORDER, (PLACE,))))

    assert compiled.messages() == ["shop.Place", "shop.Order"]
    assert compiled.message_at((0,)) == "shop.Order"
    assert compiled.message_at((1,)) is None


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (Schema(1, "AVRO", '"string"'), "schema 1 is of type AVRO"),
        (Schema(2, "PROTOBUF", ORDER), "shop/place.proto: File not found."),
        (Schema(3, "PROTOBUF", "no proto"), "schema-3.proto:1:1: Expected"),
        (Schema(4, "PROTOBUF", ORDER, (Referenced("../up.proto", ""),)), "schema 4 refers to ../up.proto, which is no"),
    ],
)
def test_a_schema_that_does_not_compile_is_told_with_what_protoc_says(schema: Schema, said: str) -> None:
    with pytest.raises(DescriptorMistake) as refused:
        schema_descriptors(schema)

    assert refused.value.message.startswith(said)


RECORD = (
    HEAD
    + "message Order { int64 a = 1; repeated string b = 2; Place c = 3; Kind d = 4; map<string, int64> e = 5; "
    + "string f = 6; } message Place { string city = 1; } enum Kind { NONE = 0; }"
)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("int64 other_name = 1;", True),
        ("int32 a = 1;", True),
        ("bool a = 1;", True),
        ("sint64 a = 1;", False),
        ("uint64 a = 1;", False),
        ("string a = 1;", False),
        ("string b = 2;", True),
        ("bytes f = 6;", True),
        ("Place c = 3; string more = 9;", True),
        ("message Other { string town = 1; int32 more = 2; } Other c = 3;", True),
        ("int32 d = 4;", True),
        ("message Other { int32 city = 1; } Other c = 3;", False),
        ("int64 d = 4;", False),
        ("map<int32, int64> e = 5;", False),
        ("repeated string f = 6;", False),
        ("map<string, int32> e = 5;", True),
        ("repeated int64 e = 5;", False),
    ],
)
def test_what_was_written_before_a_change_becomes_the_record_or_is_told_not_to(fields: str, expected: bool) -> None:
    reader = record_of(Descriptors(descriptors(RECORD)).message("shop.Order"))
    text = HEAD + f"message Order {{ {fields} }} message Place {{ string city = 1; }}"

    writer = Descriptors(schema_descriptors(Schema(hash(fields) & 0xFFFF, "PROTOBUF", text)))

    assert becomes(writer, "shop.Order", reader) is expected
    assert becomes(writer, "shop.Another", reader)


def test_fields_of_a_writer_that_the_record_has_not_are_named() -> None:
    order, nothing = "message Order { Place c = 3; repeated Place many = 4; Nothing none = 5; }", "message Nothing {}"
    ours = f"{HEAD} {order} {nothing} message Place {{ string city = 1; }}"
    order = "message Order { Place d = 3; Place one = 4; Nothing none = 5; int32 more = 9; }"
    nothing, place = "message Nothing { int32 a = 2; }", "message Place { string city = 1; string street = 2; }"
    reader = record_of(Descriptors(descriptors(ours)).message("shop.Order"))

    writer = Descriptors(schema_descriptors(Schema(77, "PROTOBUF", f"{HEAD} {order} {nothing} {place}")))

    assert becomes(writer, "shop.Order", reader)
    assert unknown_paths(writer, "shop.Order", reader) == {
        "c.#2": "d.street",
        "many[].#2": "one.street",
        "none.#2": "none.a",
        "#9": "more",
    }
    assert unknown_paths(writer, "shop.Another", reader) == {}


@pytest.mark.parametrize(
    ("import_", "type_"),
    [
        ("confluent/type/decimal.proto", "confluent.type.Decimal"),
        ("confluent/types/decimal.proto", "confluent.type.Decimal"),
        ("google/type/date.proto", "google.type.Date"),
        ("google/type/money.proto", "google.type.Money"),
    ],
)
def test_imports_that_registries_do_not_keep_are_known(import_: str, type_: str) -> None:
    """Confluent's serializers leave them out of references."""
    meta = '[(confluent.field_meta) = {params: [{key: "precision", value: "10"}]}]'
    text = (
        f'syntax = "proto3"; package shop; import "confluent/meta.proto"; import "{import_}"; '
        f"message Order {{ int64 id = 1; {type_} price = 2 {meta}; }}"
    )

    compiled = Descriptors(schema_descriptors(Schema(91, "PROTOBUF", text)))

    assert [field.name for field in compiled.message("shop.Order").fields] == ["id", "price"]


ENTRY = "message LabelsEntry { option map_entry = true; string key = 1; int64 value = 2; }"


def test_maps_that_are_registered_as_their_entries_are_maps() -> None:
    """As Confluent's serializers registered them, also in references."""
    place = Referenced("shop/place.proto", f"{HEAD} message Place {{ repeated LabelsEntry labels = 1; {ENTRY} }}")
    order = (
        f"message Order {{ Place place = 1; repeated shop.Order.LabelsEntry labels = 2; {ENTRY} message Inner {{}} }}"
    )
    as_map = "message Order { map<string, int64> labels = 2; message Inner {} }"

    written = Descriptors(
        schema_descriptors(Schema(95, "PROTOBUF", f'{HEAD} import "shop/place.proto"; {order}', (place,)))
    )
    same = Descriptors(schema_descriptors(Schema(96, "PROTOBUF", f"{HEAD} {as_map}")))

    record = record_of(written.message("shop.Order"))
    assert [(f.name, type(f.type).__name__) for f in record.fields] == [("place", "Record"), ("labels", "MapOf")]
    assert record.fields[1].type == record_of(same.message("shop.Order")).fields[0].type
    assert written.messages() == ["shop.Place", "shop.Order", "shop.Order.Inner"]


@pytest.mark.parametrize(
    "entry",
    [
        "message Entry { option map_entry = true; string key = 1; }",
        "message M { option map_entry = true; int32 a = 1; }",
    ],
)
def test_what_is_no_entry_of_a_map_is_refused(entry: str) -> None:
    with pytest.raises(DescriptorMistake):
        Descriptors(schema_descriptors(Schema(97 + len(entry), "PROTOBUF", f"{HEAD} message Order {{ {entry} }}")))


def test_an_index_of_a_message_after_a_map_is_taken_as_either_client_counts() -> None:
    """In descriptors a map is a message of its own; Confluent's client in Java counts the messages of the text."""
    nested = "message Inner { map<string, int32> a = 1; message Inmost {} }"
    text = f"{HEAD} message Order {{ map<string, string> m = 4; map<string, string> n = 5; {nested} }}"
    schema = Descriptors(schema_descriptors(Schema(98, "PROTOBUF", text)))

    inner, inmost = "shop.Order.Inner", "shop.Order.Inner.Inmost"
    expected = {
        (0,): "shop.Order",
        (0, 0): inner,
        (0, 0, 0): inmost,
        (0, 0, 1): inmost,
        (0, 2): inner,
        (0, 2, 0): inmost,
        (0, 2, 1): inmost,
    }
    assert dict(schema.places()) == expected
    assert {path: schema.message_at(path) for path in expected} == expected
    assert [schema.message_at(path) for path in ((0, 1), (0, 3), (0, 0, 2))] == [None, None, None]
