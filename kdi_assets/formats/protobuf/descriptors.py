"""Sets of descriptors: read, looked into, and rewritten for what is to be known of a message's bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

GOOGLES = "google/protobuf/"
"""Files of Protobuf's own types."""
WRITES = "what protoc --include_imports --descriptor_set_out writes"
"""A set in which every file stands behind those that it imports."""


@dataclass
class DescriptorMistake(Exception):
    """A set of descriptors, or a message in it, cannot be used; ``right`` is what could be."""

    message: str
    right: str = ""


class Descriptors:
    """A set of descriptors as ``protoc --include_imports --descriptor_set_out`` writes it.

    Raises:
        DescriptorMistake: The bytes are no such set, or it lacks something that it imports.
    """

    def __init__(self, serialized: bytes) -> None:
        self._files = _files(serialized)
        self._pool = _pool(self._files)

    def messages(self) -> list[str]:
        """Full names of the messages in it, without Protobuf's own."""
        ours = (file for file in self._files if not file.name.startswith(GOOGLES))
        return [name for file in ours for name in _names(file.message_type, file.package)]

    def message(self, full_name: str) -> Descriptor:
        """The descriptor of a message.

        Raises:
            DescriptorMistake: There is no such message.
        """
        try:
            return self._pool.FindMessageTypeByName(full_name)
        except KeyError:
            raise DescriptorMistake(f"there is no message {full_name!r} in it") from None

    def message_at(self, path: tuple[int, ...]) -> str | None:
        """Full name of the message at a place in the last file, as a message index gives it; ``None`` if none is."""
        file = self._files[-1]
        found: DescriptorProto | None = None
        names = [file.package] if file.package else []
        for place in path:
            messages = file.message_type if found is None else found.nested_type
            if place >= len(messages):
                return None
            found = messages[place]
            names.append(found.name)
        return ".".join(names) if found is not None else None

    def checking(self, full_name: str) -> type[Any]:
        """The message's class, enumerations as numbers: of them no value is unknown, and all keep their order.

        It knows no extensions: they are unknown fields.
        """
        return self._rewritten(full_name, _number)

    def unchecked(self, full_name: str) -> type[Any]:
        """The message's class, texts as bytes: it also parses what is no UTF-8. Maps are lists of their entries."""
        return self._rewritten(full_name, _bytes)

    def _rewritten(self, full_name: str, change: Callable[[FieldDescriptorProto], None]) -> type[Any]:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.message_factory import GetMessageClass

        files = []
        for file in self._files:
            copy = FileDescriptorProto()
            copy.CopyFrom(file)
            if change is _number:
                copy.ClearField("extension")
            for message in _all_messages(copy.message_type):
                _rewrite(message, change)
            for extension in copy.extension:
                change(extension)
            files.append(copy)
        found: type[Any] = GetMessageClass(_pool(files).FindMessageTypeByName(full_name))
        return found


def _files(serialized: bytes) -> list[FileDescriptorProto]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(serialized).file)
    except DecodeError:
        files = []
    if not files or not all(file.name for file in files):
        raise DescriptorMistake("it is no set of descriptors", WRITES)
    for file in files:
        file.ClearField("source_code_info")
    return files


def _pool(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    added: set[str] = set()
    for file in files:
        if missing := [imported for imported in file.dependency if imported not in added]:
            raise DescriptorMistake(f"{file.name} imports {missing[0]}, which is not in it", WRITES)
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as refused:
            raise DescriptorMistake(f"{file.name}: {refused}") from refused
        added.add(file.name)
    return pool


def _names(messages: Iterable[DescriptorProto], package: str) -> Iterator[str]:
    for message in messages:
        if not message.options.map_entry:
            name = f"{package}.{message.name}" if package else message.name
            yield name
            yield from _names(message.nested_type, name)


def _all_messages(messages: Iterable[DescriptorProto]) -> Iterator[DescriptorProto]:
    for message in messages:
        yield message
        yield from _all_messages(message.nested_type)


def _rewrite(message: DescriptorProto, change: Callable[[FieldDescriptorProto], None]) -> None:
    if change is _number:
        message.ClearField("extension")
    for field in (*message.field, *message.extension):
        change(field)
    if change is _bytes:
        message.options.ClearField("map_entry")  # bytes are no key


def _number(field: FieldDescriptorProto) -> None:
    if field.type == field.TYPE_ENUM:
        field.type = field.TYPE_INT32
        field.ClearField("type_name")
        field.ClearField("default_value")


def _bytes(field: FieldDescriptorProto) -> None:
    _number(field)
    if field.type == field.TYPE_STRING:
        field.type = field.TYPE_BYTES
        field.ClearField("default_value")
