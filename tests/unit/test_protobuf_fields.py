"""What a document says of messages of Protobuf, and how it is told what it cannot have."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from kdi_assets.components.load import load_streams
from kdi_assets.components.mistakes import Mistakes
from kdi_assets.connections import SchemaRegistry
from kdi_assets.formats.protobuf.descriptors import DescriptorMistake, Descriptors
from kdi_assets.formats.protobuf.records import record_of
from kdi_assets.message_format import Format, Protobuf, ProtobufRegistry, RegistrySchemas
from tests.documents import ORDERS
from tests.protobuf_messages import SHOP, descriptors


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def format_of(fields: str, *lines: str) -> Format:
    more = "".join(f"  {line}\n" for line in lines)
    Path("defs.yaml").write_text(f"{ORDERS}  format: {{protobuf: {fields}}}\n{more}", encoding="utf-8")
    (stream,) = load_streams(Path()).values()
    return stream.format


def test_a_message_is_named_with_the_set_of_descriptors_that_describes_it() -> None:
    Path("shop.desc").write_bytes(descriptors(SHOP))

    format_ = format_of("{descriptor_file: shop.desc, message: shop.Order}")

    assert format_ == Protobuf("shop.desc", descriptors(SHOP), "shop.Order")


def test_a_proto_file_is_compiled_with_what_it_imports_from_the_folder() -> None:
    Path("shop").mkdir()
    Path("shop/place.proto").write_text('syntax = "proto3"; package shop; message Place { string city = 1; }')
    Path("shop/order.proto").write_text(
        'syntax = "proto3"; package shop; import "shop/place.proto"; message Order { Place place = 1; }'
    )

    format_ = format_of("{proto_file: shop/order.proto, message: shop.Order}")

    assert isinstance(format_, Protobuf)
    assert Descriptors(format_.descriptors).messages() == ["shop.Place", "shop.Order"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("{message: shop.Order}", "protobuf: takes one of registry, descriptor_file and proto_file; e.g. descriptor_"),
        ("{descriptor_file: a, proto_file: b, message: c}", "protobuf: takes one of registry, descriptor_file and"),
        ("{descriptor_file: shop.desc}", "protobuf: names no message; e.g. message: shop.Order"),
        ("{descriptor_file: shop.desc, message: shop.Oder}", "protobuf.message: shop.desc describes no message"),
        ("{descriptor_file: none.desc, message: shop.Order}", "protobuf.descriptor_file: none.desc: No such file or"),
        ("{proto_file: none.proto, message: shop.Order}", "protobuf.proto_file: none.proto: No such file or"),
        ("{descriptor_file: defs.yaml, message: shop.Order}", "protobuf.descriptor_file: defs.yaml: it is no set of"),
        ("{descriptor_file: empty.desc, message: shop.Order}", "protobuf.descriptor_file: empty.desc: it is no set of"),
        (
            "{descriptor_file: alone.desc, message: shop.Order}",
            "protobuf.descriptor_file: alone.desc: order.proto imports place.proto, which is not in it; what protoc "
            "--include_imports --descriptor_set_out writes",
        ),
        (
            "{proto_file: broken.proto, message: shop.Order}",
            'protobuf.proto_file: broken.proto: broken.proto:1:50: "Place" is not defined.; what protoc compiles',
        ),
        ("{proto_file: tree.proto, message: Tree}", "protobuf.message: Tree holds itself (Tree → Branch → Tree); a"),
        ("{proto_file: tree.proto, message: Empty}", "protobuf.message: Empty has no fields; a message that has some"),
        ("{proto_file: group.proto, message: G}", "protobuf.message: G.part is a group, which is not supported; a"),
        ("{proto_file: far.proto, message: F}", "protobuf.message: F.far has number 536870911, which is beyond"),
        ("{proto_file: case.proto, message: C}", "protobuf.message: C has fields that differ in case alone: ab; names"),
    ],
)
def test_a_mistake_names_line_field_and_what_would_be_right(fields: str, said: str) -> None:
    Path("shop.desc").write_bytes(descriptors(SHOP))
    Path("empty.desc").write_bytes(b"")
    alone = FileDescriptorSet()
    alone.file.add(name="order.proto", dependency=["place.proto"])
    Path("alone.desc").write_bytes(alone.SerializeToString())
    Path("broken.proto").write_text('syntax = "proto3"; message Order { string a = 1; Place place = 2; }')
    Path("tree.proto").write_text(
        'syntax = "proto3"; message Tree { repeated Branch branches = 1; } message Branch { Tree tree = 1; }'
        " message Empty {}"
    )
    Path("group.proto").write_text('syntax = "proto2"; message G { optional group Part = 1 { optional int32 a = 1; } }')
    Path("far.proto").write_text('syntax = "proto3"; message F { int32 far = 536870911; }')
    Path("case.proto").write_text('syntax = "proto2"; message C { optional int32 ab = 1; optional int32 AB = 2; }')

    with pytest.raises(Mistakes) as refused:
        format_of(fields)

    (mistake,) = refused.value.mistakes
    assert mistake.text().startswith(f"defs.yaml:9 format.{said}")


def test_a_registry_has_the_text_and_a_message_need_not_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = "type: kdi_assets.components.SchemaRegistry\nattributes: {name: main, url: 'http://nowhere:1'}\n---\n"
    monkeypatch.setitem(globals(), "ORDERS", registry + ORDERS)
    main = SchemaRegistry("main", "http://nowhere:1")

    first = format_of("{registry: main}")
    second = format_of("{registry: main, subject: s, version: 2, message: shop.Order}")

    assert first == ProtobufRegistry(RegistrySchemas(main, "orders-value"))
    assert second == ProtobufRegistry(RegistrySchemas(main, "s", 2), "shop.Order")


def test_a_schema_beside_it_is_refused() -> None:
    Path("shop.desc").write_bytes(descriptors(SHOP))

    with pytest.raises(Mistakes) as refused:
        format_of("{descriptor_file: shop.desc, message: shop.Order}", "schema: id int")

    assert "the record is what the message of Protobuf says" in refused.value.mistakes[0].text()


def test_a_set_may_leave_out_the_files_that_every_protobuf_has() -> None:
    whole = FileDescriptorSet.FromString(descriptors(SHOP))
    ours = FileDescriptorSet(file=[file for file in whole.file if not file.name.startswith("google/protobuf/")])

    left_out = Descriptors(ours.SerializeToString()).message("shop.Order")

    assert record_of(left_out) == record_of(Descriptors(descriptors(SHOP)).message("shop.Order"))


def test_a_message_that_grows_beyond_all_bounds_is_refused() -> None:
    levels = [f"message M{n} {{ {' '.join(f'M{n + 1} f{i} = {i};' for i in range(1, 11))} }}" for n in range(5)]
    text = 'syntax = "proto3"; ' + " ".join(levels) + " message M5 { int32 a = 1; }"

    with pytest.raises(DescriptorMistake, match="M0 has more than 10,000 fields"):
        record_of(Descriptors(descriptors(text)).message("M0"))
